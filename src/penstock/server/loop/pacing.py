"""Runs long work in pieces without delaying other requests much.

All long work of a node shares one pacer: however many requests there are, one piece runs, then other connections run.
An occasional large request runs without rests. While long work continues and other requests arrive, each piece is
followed by a rest: those requests need several iterations of the loop, and would be delayed by a piece in each of them.
"""

import asyncio
from collections import deque
from contextvars import ContextVar
from typing import Final

REST_S: Final = 0.002
"""Pause before the next piece if requests arrived since the last, and the allowance is used up."""
ALLOWANCE: Final = 500
"""Pieces that may run without a rest."""
ALLOWANCE_PER_S: Final = 250
"""Pieces by which the allowance grows again."""


class Pacer:
    """Lets one piece of long work run at a time, first come, first served."""

    __slots__ = ("_allowance", "_at_s", "_is_taken", "_seen", "_waiting", "loop", "requests")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._waiting: deque[asyncio.Future[None]] = deque()
        self.requests = 0
        """Arrivals of requests on all connections of the node; the connections increment it."""
        self._seen = 0
        self._allowance, self._at_s = float(ALLOWANCE), loop.time()
        self._is_taken = False
        """Whether a piece runs, or other connections run after it."""

    async def turn(self) -> None:
        """Waits until the next piece may run; returns at once if none ran in this iteration of the loop."""
        if self._is_taken:
            waiting = self.loop.create_future()
            self._waiting.append(waiting)
            try:
                await waiting
            except BaseException:
                if waiting.done() and not waiting.cancelled():
                    self._next()  # it was released, but cancelled before it resumed
                raise
        self._is_taken = True
        self.loop.call_soon(self._after_piece)

    def _after_piece(self) -> None:
        self.loop.call_soon(self._after_round)

    def _after_round(self) -> None:
        if self.requests == self._seen or self._is_allowed():
            self._next()
        else:
            self._seen = self.requests
            self.loop.call_later(REST_S, self._next)

    def _is_allowed(self) -> bool:
        """Whether the allowance has a piece left; if so, uses it up."""
        now_s = self.loop.time()
        self._allowance = min(ALLOWANCE, self._allowance + (now_s - self._at_s) * ALLOWANCE_PER_S)
        self._at_s = now_s
        if self._allowance < 1:
            return False
        self._allowance -= 1
        return True

    def _next(self) -> None:
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(None)
                return
        self._is_taken = False


_PACER: ContextVar[Pacer] = ContextVar("pacer")


def begin_pacing() -> None:
    """Gives a starting node its own pacer, which its tasks and those that they start share."""
    _PACER.set(Pacer(asyncio.get_running_loop()))


def pacer() -> Pacer:
    """The pacer of the current task's node; without a node, one for this context."""
    found = _PACER.get(None)
    if found is None or found.loop is not asyncio.get_running_loop():
        begin_pacing()
        found = _PACER.get()
    return found
