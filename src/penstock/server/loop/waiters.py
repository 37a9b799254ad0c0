"""Waiters for an offset: producers wait for their records to become durable, readers for more records.

Waiters are notified in the order of offsets, and only when their condition holds. A discarded waiter (it timed out, or
its connection closed) is never notified; accumulated ones are removed.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from heapq import heapify, heappop, heappush
from typing import TypeAlias

Tell: TypeAlias = Callable[[Exception | None], None]
"""Called once, must not block: with None when the offset is reached, else with the reason why it never will be."""

UNWANTED_MAX = 64


class Waiting:
    """One waiter for an offset."""

    __slots__ = ("number", "offset", "tell")

    def __init__(self, offset: int, number: int, tell: Tell) -> None:
        self.offset = offset
        self.number = number
        self.tell: Tell | None = tell
        """None once the waiter is notified or discarded."""

    def __lt__(self, other: "Waiting") -> bool:
        return (self.offset, self.number) < (other.offset, other.number)


class OffsetWaiters:
    """The waiters for one advancing offset of a log."""

    __slots__ = ("_number", "_unwanted", "heap")

    def __init__(self) -> None:
        self.heap: list[Waiting] = []
        self._number = 0
        self._unwanted = 0

    def __len__(self) -> int:
        return len(self.heap) - self._unwanted

    def add(self, offset: int, tell: Tell) -> Waiting:
        """Adds a waiter, which is notified once `offset` or a higher offset is reached."""
        self._number += 1
        waiting = Waiting(offset, self._number, tell)
        heappush(self.heap, waiting)
        return waiting

    def discard(self, waiting: Waiting) -> None:
        """Discards a waiter; harmless if it was notified already."""
        if waiting.tell is None:
            return
        waiting.tell = None
        self._unwanted += 1
        if self._unwanted > UNWANTED_MAX and self._unwanted * 2 > len(self.heap):
            self.heap = [each for each in self.heap if each.tell is not None]
            self._unwanted = 0
            heapify(self.heap)

    def wait_for(self, offset: int) -> "asyncio.Future[None]":
        """A future that is done once `offset` or a higher offset is reached."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = self.add(offset, partial(_settle, future))
        future.add_done_callback(lambda _: self.discard(waiting))
        return future

    def reached(self, offset: int) -> None:
        """Notifies all waiters whose offset is reached."""
        heap = self.heap
        while heap and heap[0].offset <= offset:
            self._tell(heappop(heap), None)
        while heap and heap[0].tell is None:
            self._tell(heappop(heap), None)

    def fail(self, error: Exception) -> None:
        """Notifies all waiters that their offset will not be reached."""
        waiting, self.heap = self.heap, []
        for each in waiting:
            self._tell(each, error)

    def _tell(self, waiting: Waiting, error: Exception | None) -> None:
        tell, waiting.tell = waiting.tell, None
        if tell is None:
            self._unwanted -= 1
        else:
            tell(error)


def _settle(future: "asyncio.Future[None]", error: Exception | None) -> None:
    if not future.done():
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)


class Watchers:
    """Callbacks of fetches that wait for any change of a partition; each is called once."""

    __slots__ = ("watching",)

    def __init__(self) -> None:
        self.watching: dict[int, Callable[[], None]] = {}

    def __len__(self) -> int:
        return len(self.watching)

    def add(self, key: int, callback: Callable[[], None]) -> None:
        """Registers a callback for the next change, under the watcher's own key."""
        self.watching[key] = callback

    def discard(self, key: int) -> None:
        """Removes a callback."""
        self.watching.pop(key, None)

    def notify(self) -> None:
        """Calls all callbacks after a change, and removes them."""
        watching, self.watching = self.watching, {}
        for callback in watching.values():
            callback()
