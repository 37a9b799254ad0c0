"""Lets long work run in pieces without slowing others down much.

All long work of a node shares one pacer: however many requests there are, one piece runs, then other connections have
their turn. Now and then a large request goes on at once. Where long work does not end and requests of others come
meanwhile, each piece is followed by a rest: what others ask for needs several rounds of the loop, and with a piece in
each of them would be late by all of these.
"""

import asyncio
from collections import deque
from contextvars import ContextVar
from typing import Final

REST_S: Final = 0.002
"""How long the next piece waits if requests came since the last, and the allowance is used up."""
ALLOWANCE: Final = 500
"""Pieces without a rest."""
ALLOWANCE_PER_S: Final = 250
"""How fast it grows again."""


class Pacer:
    """Lets one piece of long work run at a time, first come, first served."""

    __slots__ = ("_allowance", "_at_s", "_is_taken", "_seen", "_waiting", "loop", "requests")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._waiting: deque[asyncio.Future[None]] = deque()
        self.requests = 0
        """How many requests came on all connections of the node; the connections count them."""
        self._seen = 0
        self._allowance, self._at_s = float(ALLOWANCE), loop.time()
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
        self.loop.call_soon(self._after_round)

    def _after_round(self) -> None:
        if self.requests == self._seen or self._is_allowed():
            self._next()
        else:
            self._seen = self.requests
            self.loop.call_later(REST_S, self._next)

    def _is_allowed(self) -> bool:
        """Whether the allowance has a piece left, which is used up then."""
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
    """A node starts: its tasks, and those that they begin, share a pacer of their own."""
    _PACER.set(Pacer(asyncio.get_running_loop()))


def pacer() -> Pacer:
    """The one of the node whose task asks; without a node, one for this context."""
    found = _PACER.get(None)
    if found is None or found.loop is not asyncio.get_running_loop():
        begin_pacing()
        found = _PACER.get()
    return found
