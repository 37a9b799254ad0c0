"""A fetch that waits until there are enough bytes for it, or its time is up.

It watches all its partitions with one object and is woken by those that change; only they are measured again, so a
fetch of a thousand partitions costs nothing while nothing happens. When it ends, it watches none of them any more. It
holds no slice while it waits, and reads everything anew at the end: limits and aborted transactions are those of the
answer, not those of the request (R19).
"""

import asyncio
from functools import partial
from itertools import count

from penstock.replication.fetch_sessions import Wanted
from penstock.server.partition import Partition
from penstock.server.reading import Reading

_NUMBERS = count()


class LongPoll:
    """One waiting fetch."""

    __slots__ = ("_changed", "_is_over", "_key", "_watched", "_woken")

    def __init__(self) -> None:
        self._key = next(_NUMBERS)
        self._watched: list[tuple[Wanted, Partition]] = []
        self._changed: list[tuple[Wanted, Partition]] = []
        self._woken: asyncio.Future[None] | None = None
        self._is_over = False

    async def wait(self, reading: Reading, wanted: list[Wanted], bytes_min: int, deadline_s: float) -> None:
        """Returns with `reading` at its last look: enough was found, or the deadline has passed."""
        loop = asyncio.get_running_loop()
        timer = loop.call_at(deadline_s, self._end)
        try:
            for each in wanted:
                partition = reading.partition_of(each)
                if partition is not None:
                    self._watch(each, partition)
            reading.look()  # something may have come since the first look
            if reading.size_bytes >= bytes_min or reading.is_final:
                return
            sizes = {each: len(part.records) for each, part in reading.found if part.records}
            while sum(sizes.values()) < bytes_min and not reading.is_final and not self._is_over:
                reading.release()
                if not self._changed:
                    self._woken = loop.create_future()
                    await self._woken
                self._measure(reading, sizes)
            reading.look()
        except BaseException:
            reading.release()
            raise
        finally:
            timer.cancel()
            for _, partition in self._watched:
                partition.watchers.discard(self._key)

    def _measure(self, reading: Reading, sizes: dict[Wanted, int]) -> None:
        changed, self._changed = self._changed, []
        for each, partition in changed:
            if partition.is_retired:
                reading.is_final = True
                return
            partition.watchers.add(self._key, partial(self._wake, each, partition))
            if size := reading.measure(each):
                sizes[each] = size

    def _watch(self, wanted: Wanted, partition: Partition) -> None:
        self._watched.append((wanted, partition))
        partition.watchers.add(self._key, partial(self._wake, wanted, partition))

    def _wake(self, wanted: Wanted, partition: Partition) -> None:
        self._changed.append((wanted, partition))
        self._ring()

    def _end(self) -> None:
        self._is_over = True
        self._ring()

    def _ring(self) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)
