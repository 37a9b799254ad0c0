"""Lets long work run in pieces without slowing others down much.

All long work of a node shares one pacer: however many requests there are, one piece runs, then other connections have
their turn. If requests came meanwhile, the next piece waits a few rounds of the loop longer, because an answer needs
some: with a piece in each of them it would be late by all of these. Rounds are counted, not milliseconds, so long work
goes on while others are served, and at full speed when nobody is.
"""

import asyncio
from collections import deque
from contextvars import ContextVar
from typing import Final

REST_ROUNDS: Final = 4
"""How many rounds the next piece waits if requests came since the last."""


class Pacer:
    """Lets one piece of long work run at a time, first come, first served."""

    __slots__ = ("_is_taken", "_seen", "_waiting", "loop", "requests")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._waiting: deque[asyncio.Future[None]] = deque()
        self.requests = 0
        """How many came on all connections; whoever receives them counts."""
        self._seen = 0
        self._is_taken = False
        """Whether a piece runs, or others have their turn after it."""

    async def turn(self) -> None:
        """Returns when the next piece may run; at once if there was none in this round of the loop."""
        if self._is_taken:
            waiting = self.loop.create_future()
            self._waiting.append(waiting)
            try:
                await waiting
            except BaseException:
                if waiting.done() and not waiting.cancelled():
                    self._next()  # it was let go, but ended before it learnt of that
                raise
        self._is_taken = True
        self.loop.call_soon(self._after_piece)

    def _after_piece(self) -> None:
        self.loop.call_soon(self._after_round, 1)

    def _after_round(self, rounds: int) -> None:
        if rounds < REST_ROUNDS and self.requests != self._seen:
            self.loop.call_soon(self._after_round, rounds + 1)
        else:
            self._seen = self.requests
            self._next()

    def _next(self) -> None:
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(None)
                return
        self._is_taken = False


_PACER: ContextVar[Pacer] = ContextVar("pacer")


def begin_pacing() -> None:
    """A node starts: its tasks, and those that they begin, share a pacer of their own."""
    _PACER.set(Pacer(asyncio.get_running_loop()))


def pacer() -> Pacer:
    """The one of the node whose task asks; without a node, one for this context."""
    found = _PACER.get(None)
    if found is None or found.loop is not asyncio.get_running_loop():
        begin_pacing()
        found = _PACER.get()
    return found
