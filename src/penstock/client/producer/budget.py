"""Limit of buffered bytes. Callers that exceed it wait, first come first served."""

import asyncio
from collections import deque


class ByteBudget:
    """See the module. A record larger than the whole budget is admitted when nothing else is held."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.held_bytes = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    def _fits(self, size_bytes: int) -> bool:
        return not self.held_bytes or self.held_bytes + size_bytes <= self.bytes_max

    async def take(self, size_bytes: int, timeout_ms: int) -> None:
        """Waits until the bytes fit, and reserves them; raises TimeoutError if that takes too long."""
        if self._waiting or not self._fits(size_bytes):
            place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((size_bytes, place))
            try:
                async with asyncio.timeout(timeout_ms / 1000):
                    await place  # when it is done, the bytes are already reserved
            except BaseException:
                if place.done() and not place.cancelled() and place.exception() is None:
                    self.give_back(size_bytes)
                else:
                    self._waiting = deque(each for each in self._waiting if each[1] is not place)
                    self._let_in()
                raise
        else:
            self.held_bytes += size_bytes

    def give_back(self, size_bytes: int) -> None:
        """Releases reserved bytes."""
        self.held_bytes -= size_bytes
        self._let_in()

    def refuse_all(self, error: Exception) -> None:
        """Fails all waiters with this error."""
        waiting, self._waiting = self._waiting, deque()
        for _, place in waiting:
            if not place.done():
                place.set_exception(error)

    def _let_in(self) -> None:
        while self._waiting and self._fits(self._waiting[0][0]):
            size_bytes, place = self._waiting.popleft()
            if not place.done():
                self.held_bytes += size_bytes
                place.set_result(None)
