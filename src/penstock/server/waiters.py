"""Waiting for an offset: producers for their records to become durable, readers for more to read.

Whoever waits is woken in the order of offsets, and only when there is something for it. A waiter that is no longer
wanted (its time is up, its connection is gone) is forgotten at once.
"""

import asyncio
from collections.abc import Callable
from heapq import heappop, heappush


class OffsetWaiters:
    """Futures that are done when an offset is reached."""

    def __init__(self) -> None:
        self.heap: list[tuple[int, int, asyncio.Future[None]]] = []
        self._number = 0

    def __len__(self) -> int:
        return len(self.heap)

    def wait_for(self, offset: int) -> "asyncio.Future[None]":
        """Done once something at or behind `offset` is reached."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._number += 1
        heappush(self.heap, (offset, self._number, future))
        return future

    def reached(self, offset: int) -> None:
        """Wakes everybody whose offset is reached."""
        while self.heap and self.heap[0][0] <= offset:
            future = heappop(self.heap)[2]
            if not future.done():
                future.set_result(None)
        self._drop_cancelled()

    def fail(self, error: Exception) -> None:
        """Wakes everybody with an error."""
        waiting, self.heap = self.heap, []
        for _, _, future in waiting:
            if not future.done():
                future.set_exception(error)

    def _drop_cancelled(self) -> None:
        while self.heap and self.heap[0][2].done():
            heappop(self.heap)


class Watchers:
    """Callbacks of fetches that wait for any change of a partition; each is called once."""

    __slots__ = ("watching",)

    def __init__(self) -> None:
        self.watching: dict[int, Callable[[], None]] = {}

    def __len__(self) -> int:
        return len(self.watching)

    def add(self, key: int, callback: Callable[[], None]) -> None:
        """Calls back at the next change, under a key that is the watcher's own."""
        self.watching[key] = callback

    def discard(self, key: int) -> None:
        """No longer interested."""
        self.watching.pop(key, None)

    def notify(self) -> None:
        """Something changed."""
        watching, self.watching = self.watching, {}
        for callback in watching.values():
            callback()
