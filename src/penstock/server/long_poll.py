"""A consumer's fetch, or one without a session, that waits until there are enough bytes for it, or its time is up.

It watches all its partitions with one object and is woken by those that change; only they are measured again, so a
fetch of a thousand partitions costs nothing while nothing happens. When it ends, it watches none of them any more.
"""

from collections.abc import Callable, Iterable
from functools import partial
from itertools import count

from penstock.replication.fetch_sessions import Wanted
from penstock.server.partition import Readable
from penstock.server.poll import Poll
from penstock.server.reading import Reading
from penstock.server.serving import Buffers

_NUMBERS = count()


class LongPoll(Poll):
    """One waiting fetch."""

    __slots__ = ("_changed", "_ends", "_key", "_partitions", "_sizes")

    def __init__(
        self,
        reading: Reading,
        wanted: Iterable[Wanted],
        bytes_min: int,
        deadline_s: float,
        answer: Callable[[], Buffers],
    ) -> None:
        """See `Poll`; `wanted` is what it watches."""
        self._key = next(_NUMBERS)
        self._sizes = {each: len(part.records) for each, part in reading.found if part.records}
        self._partitions: list[tuple[Wanted, Readable]] = []
        for each in wanted:
            partition = reading.partition_of(each)
            if partition is not None:
                self._partitions.append((each, partition))
        self._changed: list[tuple[Wanted, Readable]] = []
        super().__init__(reading, bytes_min, deadline_s, answer)
        self._ends = self._sum_of_ends()

    def _watch(self) -> None:
        for each, partition in self._partitions:
            self._reading.watchers_of(partition).add(self._key, partial(self._wake, each, partition))
        if self._sum_of_ends() != self._ends:  # something came since the look
            self._changed = list(self._partitions)
            self._look_soon()

    def _unwatch(self) -> None:
        for _, partition in self._partitions:
            self._reading.watchers_of(partition).discard(self._key)

    def _sum_of_ends(self) -> int:
        """Changes whenever one of them does: ends only grow, and who retires counts as well."""
        return sum(self._reading.end_of(partition) + partition.is_retired for _, partition in self._partitions)

    def _wake(self, wanted: Wanted, partition: Readable) -> None:
        self._changed.append((wanted, partition))
        self._look_soon()

    def _has_enough(self) -> bool:
        reading, sizes, changed = self._reading, self._sizes, self._changed
        self._changed = []
        # Else every change is enough, and is read but once; who reads what is committed may have to wait for a marker.
        is_measured = self._bytes_min > 1 or reading.is_committed
        for each, partition in changed:
            if partition.is_retired:
                reading.is_final = True
                break
            reading.watchers_of(partition).add(self._key, partial(self._wake, each, partition))
            if is_measured and (size := reading.measure(each)):
                sizes[each] = size
        if is_measured and not reading.is_final and sum(sizes.values()) < self._bytes_min:
            return False
        return super()._has_enough()
