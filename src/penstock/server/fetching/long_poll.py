"""A consumer's fetch, or one without a session, that waits for enough bytes or its deadline.

It watches all its partitions with one object and is woken by those that change; only they are measured again, so a
fetch of a thousand partitions costs nothing while none changes. When it ends, it stops watching all of them.
"""

from collections.abc import Callable, Iterable
from functools import partial
from itertools import count

from penstock.replication.fetch_sessions import RequestedPartition
from penstock.server.connections.serving import Buffers
from penstock.server.fetching.poll import Poll
from penstock.server.fetching.reading import Reading
from penstock.server.partitions.partition import Readable

_NUMBERS = count()


class LongPoll(Poll):
    """One waiting fetch."""

    __slots__ = ("_changed", "_ends", "_key", "_partitions", "_sizes")

    def __init__(
        self,
        reading: Reading,
        requested: Iterable[RequestedPartition],
        bytes_min: int,
        deadline_s: float,
        answer: Callable[[], Buffers],
    ) -> None:
        """See `Poll`; `requested` are the partitions to watch."""
        self._key = next(_NUMBERS)
        self._sizes = {each: len(part.records) for each, part in reading.found if part.records}
        self._partitions: list[tuple[RequestedPartition, Readable]] = []
        for each in requested:
            partition = reading.partition_of(each)
            if partition is not None:
                self._partitions.append((each, partition))
        self._changed: list[tuple[RequestedPartition, Readable]] = []
        super().__init__(reading, bytes_min, deadline_s, answer)
        self._ends = self._sum_of_ends()

    def _watch(self) -> None:
        for each, partition in self._partitions:
            self._reading.watchers_of(partition).add(self._key, partial(self._wake, each, partition))
        if self._sum_of_ends() != self._ends:  # something changed since the last read
            self._changed = list(self._partitions)
            self._look_soon()

    def _unwatch(self) -> None:
        for _, partition in self._partitions:
            self._reading.watchers_of(partition).discard(self._key)

    def _sum_of_ends(self) -> int:
        """A sum that changes whenever a partition does: ends only grow, and a retired partition adds one."""
        return sum(self._reading.end_of(partition) + partition.is_retired for _, partition in self._partitions)

    def _wake(self, requested: RequestedPartition, partition: Readable) -> None:
        self._changed.append((requested, partition))
        self._look_soon()

    def _has_enough(self) -> bool:
        reading, sizes, changed = self._reading, self._sizes, self._changed
        self._changed = []
        # Else any change is enough, and is read only once; a read_committed consumer may have to wait for a marker.
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
