"""The port of drivers in a node: the event loop and the node's clock."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

from penstock.model.ports import Clock

Work: TypeAlias = Coroutine[Any, Any, None]


class LoopPort:
    """Time in milliseconds of the monotonic clock, and tasks."""

    __slots__ = ("_clock", "_tasks")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tasks: dict[asyncio.Task[None], None] = {}

    def now(self) -> int:
        """The time by the monotonic clock."""
        return self._clock.monotonic_ms()

    now_ms = now

    def call_at(self, at_ms: int, callback: Callable[[], None]) -> asyncio.TimerHandle:
        """Calls `callback` at this time, or a little later."""
        wait_ms = max(0, at_ms - self._clock.monotonic_ms())
        return asyncio.get_running_loop().call_later(wait_ms / 1000, callback)

    def start(self, work: Work, ended: Callable[[BaseException | None], None]) -> None:
        """Runs a task; `ended` is called when it is over, unless it was cancelled."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None

        def over(_task: "asyncio.Task[None]") -> None:
            del self._tasks[task]
            if not task.cancelled():
                ended(task.exception())

        task.add_done_callback(over)

    async def finished(self) -> None:
        """Waits until all current tasks are over."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def stop(self) -> None:
        """Cancels all tasks and waits until they are over."""
        for task in self._tasks:
            task.cancel()
        await self.finished()
