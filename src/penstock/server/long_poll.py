"""A fetch that waits until there are enough bytes for it, or its time is up: one object per request, and no task.

It watches all its partitions with one object and is woken by those that change; only they are measured again, so a
fetch of a thousand partitions costs nothing while nothing happens. It looks in the loop's next round, so that it finds
what came in together. When it ends, it watches none of them any more. It holds no slice while it waits, and reads
everything anew at the end: limits and aborted transactions are those of the answer, not those of the request (R19).
"""

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from itertools import count

from penstock.replication.fetch_sessions import Wanted
from penstock.server.partition import Partition
from penstock.server.reading import Reading
from penstock.server.serving import Buffers, Later

_NUMBERS = count()


class LongPoll(Later):
    """One waiting fetch."""

    __slots__ = (
        "_answer",
        "_bytes_min",
        "_changed",
        "_deadline_s",
        "_done",
        "_ends",
        "_fail",
        "_is_over",
        "_is_woken",
        "_key",
        "_loop",
        "_partitions",
        "_reading",
        "_sizes",
        "_timer",
    )

    def __init__(
        self,
        reading: Reading,
        wanted: Iterable[Wanted],
        bytes_min: int,
        deadline_s: float,
        answer: Callable[[], Buffers],
    ) -> None:
        """For a reading that has looked and found too little; `answer` is made of what it finds at the end."""
        self._key = next(_NUMBERS)
        self._reading = reading
        self._bytes_min = bytes_min
        self._deadline_s = deadline_s
        self._answer = answer
        self._sizes = {each: len(part.records) for each, part in reading.found if part.records}
        self._partitions: list[tuple[Wanted, Partition]] = []
        for each in wanted:
            partition = reading.partition_of(each)
            if partition is not None:
                self._partitions.append((each, partition))
        self._ends = self._sum_of_ends()
        self._changed: list[tuple[Wanted, Partition]] = []
        self._is_over = False
        self._is_woken = False
        reading.release()

    def begin(self, done: Callable[[Buffers], None], fail: Callable[[Exception], None]) -> None:
        """Starts to wait."""
        self._done = done
        self._fail = fail
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_at(self._deadline_s, self._time_is_up)
        for each, partition in self._partitions:
            self._reading.watchers_of(partition).add(self._key, partial(self._wake, each, partition))
        if self._sum_of_ends() != self._ends:  # something came since the look
            self._changed = list(self._partitions)
            self._look_soon()

    def cancel(self) -> None:
        """The client is gone."""
        self._timer.cancel()
        self._is_over = True
        for _, partition in self._partitions:
            self._reading.watchers_of(partition).discard(self._key)

    def _sum_of_ends(self) -> int:
        """Changes whenever one of them does: ends only grow, and who retires counts as well."""
        return sum(self._reading.end_of(partition) + partition.is_retired for _, partition in self._partitions)

    def _wake(self, wanted: Wanted, partition: Partition) -> None:
        self._changed.append((wanted, partition))
        self._look_soon()

    def _look_soon(self) -> None:
        if not self._is_woken:
            self._is_woken = True
            self._loop.call_soon(self._look)

    def _look(self) -> None:
        self._is_woken = False
        if self._is_over:
            return
        try:
            if self._has_enough():
                self._finish()
        except Exception as error:
            self._give_up(error)

    def _time_is_up(self) -> None:
        try:
            self._reading.look()
            self._finish()
        except Exception as error:
            self._give_up(error)

    def _has_enough(self) -> bool:
        """Leaves the reading with what it found if so, and empty if not."""
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
        reading.look()
        if reading.size_bytes >= self._bytes_min or reading.is_final:
            return True
        reading.release()
        return False

    def _finish(self) -> None:
        self.cancel()
        self._done(self._answer())

    def _give_up(self, error: Exception) -> None:
        self.cancel()
        self._reading.release()
        self._fail(error)
