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
        self._heap: list[tuple[int, int, asyncio.Future[None]]] = []
        self._number = 0

    def __len__(self) -> int:
        return len(self._heap)

    def wait_for(self, offset: int) -> "asyncio.Future[None]":
        """Done once something at or behind `offset` is reached."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._number += 1
        heappush(self._heap, (offset, self._number, future))
        return future

    def reached(self, offset: int) -> None:
        """Wakes everybody whose offset is reached."""
        while self._heap and self._heap[0][0] <= offset:
            future = heappop(self._heap)[2]
            if not future.done():
                future.set_result(None)
        self._drop_cancelled()

    def fail(self, error: Exception) -> None:
        """Wakes everybody with an error."""
        waiting, self._heap = self._heap, []
        for _, _, future in waiting:
            if not future.done():
                future.set_exception(error)

    def _drop_cancelled(self) -> None:
        while self._heap and self._heap[0][2].done():
            heappop(self._heap)


class Watchers:
    """Callbacks of fetches that wait for any change of a partition; each is called once."""

    __slots__ = ("_watching",)

    def __init__(self) -> None:
        self._watching: dict[int, Callable[[], None]] = {}

    def __len__(self) -> int:
        return len(self._watching)

    def add(self, key: int, callback: Callable[[], None]) -> None:
        """Calls back at the next change, under a key that is the watcher's own."""
        self._watching[key] = callback

    def discard(self, key: int) -> None:
        """No longer interested."""
        self._watching.pop(key, None)

    def notify(self) -> None:
        """Something changed."""
        watching, self._watching = self._watching, {}
        for callback in watching.values():
            callback()
