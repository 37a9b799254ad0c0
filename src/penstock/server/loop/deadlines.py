"""Shared timers for waiting requests: a timer per request would cost more than the rest of the wait.

Deadlines are rounded up to a grain, and all requests of a grain share one timer. A timer stays when its requests are
discarded. No timer is set further ahead than `AHEAD_S`, which bounds their number.
"""

import asyncio
from typing import Final, Protocol

GRAINS_PER_S: Final = 20
AHEAD_S: Final = 60


class Impatient(Protocol):
    """A request that waits until a deadline."""

    deadline_s: float
    """In the time of the event loop."""
    grain: int
    """Set by `Deadlines`, which finds the request by it."""

    def time_is_up(self) -> None:
        """Called once, at the deadline or up to a grain later, unless the request was discarded before."""


class Deadlines:
    """The waiting requests, by grain."""

    __slots__ = ("_due", "_timers")

    def __init__(self) -> None:
        self._due: dict[int, dict[Impatient, None]] = {}
        self._timers: dict[int, asyncio.TimerHandle] = {}

    def __len__(self) -> int:
        return sum(len(due) for due in self._due.values())

    def add(self, waiting: Impatient) -> None:
        """Adds a request, whose `time_is_up` is called at its deadline."""
        loop = asyncio.get_running_loop()
        waiting.grain = grain = _grain_of(min(waiting.deadline_s, loop.time() + AHEAD_S))
        due = self._due.get(grain)
        if due is None:
            due = self._due[grain] = {}
            self._timers[grain] = loop.call_at(grain / GRAINS_PER_S, self._tell, grain)
        due[waiting] = None

    def discard(self, waiting: Impatient) -> None:
        """Removes a request; harmless if its deadline has passed or it was never added."""
        due = self._due.get(waiting.grain)
        if due is not None:
            due.pop(waiting, None)

    def stop(self) -> None:
        """Cancels all timers and drops all requests."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._due.clear()

    def _tell(self, grain: int) -> None:
        due = self._due[grain]
        while due:
            waiting, _ = due.popitem()
            if _grain_of(waiting.deadline_s) > grain:
                self.add(waiting)
            else:
                waiting.time_is_up()
        self._due.pop(grain, None)
        self._timers.pop(grain, None)


def _grain_of(deadline_s: float) -> int:
    return int(deadline_s * GRAINS_PER_S) + 1
