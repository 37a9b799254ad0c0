"""Lets one task sleep until another rings, or until a timeout. A ring without a waiter is kept."""

import asyncio


class Bell:
    """See the module. One waiter at a time."""

    __slots__ = ("_is_rung", "_sleeper")

    def __init__(self) -> None:
        self._is_rung = False
        self._sleeper: asyncio.Future[None] | None = None

    def ring(self) -> None:
        """Wakes the current waiter, or the next one."""
        self._is_rung = True
        if self._sleeper is not None and not self._sleeper.done():
            self._sleeper.set_result(None)

    async def wait(self, timeout_ms: int | None = None) -> None:
        """Returns when the bell rings, at once if it has rung since the last wait, or after the timeout."""
        if not self._is_rung:
            loop = asyncio.get_running_loop()
            self._sleeper = loop.create_future()
            timer = None if timeout_ms is None else loop.call_later(max(0, timeout_ms) / 1000, self.ring)
            try:
                await self._sleeper
            finally:
                self._sleeper = None
                if timer is not None:
                    timer.cancel()
        self._is_rung = False
