"""The Workers port: work runs inline, after a virtual delay and when one of a few virtual threads is free.

As with threads, submitted work runs even if its result is no longer awaited; unlike threads, it dies with the node,
because its callback belongs to the node's lane.
"""

import asyncio
import heapq
from collections.abc import Awaitable, Callable
from random import Random
from typing import TypeVar

from penstock.simulator.loop import VirtualLoop

T = TypeVar("T")


class SimulatedWorkers:
    """A few virtual threads."""

    def __init__(self, loop: VirtualLoop, stream: Random, *, threads: int = 4, delay_s_mean: float = 0.0005) -> None:
        self._loop = loop
        self._stream = stream
        self._free_at_s = [loop.time()] * threads
        self.delay_s_mean = delay_s_mean

    def run(self, work: Callable[[], T], *, makes_many: bool = False) -> Awaitable[T]:
        """Result or exception of `work`, after a delay."""
        del makes_many
        result: asyncio.Future[T] = self._loop.create_future()
        begin_s = max(self._loop.time(), self._free_at_s[0])
        end_s = begin_s + self._stream.expovariate(1.0) * self.delay_s_mean
        heapq.heapreplace(self._free_at_s, end_s)
        self._loop.call_at(end_s, self._finish, work, result)
        return result

    def breathe(self) -> None:
        """Does nothing: work runs inline, so nothing waits for the interpreter."""

    def _finish(self, work: Callable[[], T], result: "asyncio.Future[T]") -> None:
        try:
            value = work()
        except Exception as error:
            if not result.done():
                result.set_exception(error)
        else:
            if not result.done():
                result.set_result(value)
