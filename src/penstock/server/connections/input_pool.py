"""Input memory shared by all connections: partially received frames, and frames whose requests are in flight.

A connection's first buffers are its own; all further memory is taken from the pool before it is allocated. When the
pool is exhausted, sockets are not read. So that partial frames cannot block each other without end, one connection at a
time, the one that has waited longest, may exceed the pool. Therefore `used_bytes` never exceeds the pool by more than
one frame.

Connections with steady input receive into larger buffers that the pool lends. A buffer is lent again only when no view
of it is left, so bytes in use are never overwritten.
"""

import asyncio
from typing import Final, NamedTuple

from penstock.model.limits import DEFAULT_LIMITS
from penstock.wire.frames import has_no_views

SPARES_MAX: Final = 16
"""Unused lent buffers that are kept for reuse."""


class _Waiting(NamedTuple):
    size_bytes: int
    granted: "asyncio.Future[None]"


class InputPool:
    """See the module. Each owner gives back exactly what it took. An owner is any object, and waits once at a time."""

    __slots__ = ("_lent_bytes", "_queue", "_runner", "_spares", "bytes_max", "used_bytes")

    def __init__(self, bytes_max: int, lent_bytes: int = DEFAULT_LIMITS.frame_lent_bytes) -> None:
        self.bytes_max = bytes_max
        self._lent_bytes = lent_bytes
        self._spares: list[bytearray] = []
        self.used_bytes = 0
        self._queue: dict[object, _Waiting] = {}
        self._runner: object = None
        """The owner that may exceed the pool; set exactly while `used_bytes` exceeds `bytes_max`."""

    @property
    def waiting(self) -> int:
        """Number of owners that wait for memory."""
        return len(self._queue)

    def try_take(self, size_bytes: int) -> bool:
        """Takes memory at once, if it is available and no owner waits."""
        if self._queue or self.used_bytes + size_bytes > self.bytes_max:
            return False
        self.used_bytes += size_bytes
        return True

    def lend(self) -> bytearray | None:
        """Lends a receive buffer, if memory is available. It may contain bytes that other connections received."""
        if not self.try_take(self._lent_bytes):
            return None
        return self._spares.pop() if self._spares else bytearray(self._lent_bytes)

    def take_back(self, buffer: bytearray, kept_bytes: int) -> None:
        """Takes back a lent buffer; the borrower now holds `kept_bytes` of the pool in a buffer of its own."""
        if len(self._spares) < SPARES_MAX and has_no_views(buffer):
            self._spares.append(buffer)
        self.used_bytes += kept_bytes
        self.give(self._lent_bytes)

    async def take(self, owner: object, size_bytes: int, *, is_first: bool) -> None:
        """Waits for its turn and takes memory. `is_first` means that the owner holds nothing of the pool yet."""
        if self._runner is owner and not is_first:
            self.used_bytes += size_bytes
            return
        if self.try_take(size_bytes):
            return
        assert owner not in self._queue, "it waits already"
        waiting = self._queue[owner] = _Waiting(size_bytes, asyncio.get_running_loop().create_future())
        self._grant()
        try:
            await waiting.granted
        except BaseException:
            if self._queue.get(owner) is waiting:
                del self._queue[owner]
            elif not waiting.granted.cancelled():
                self.give(size_bytes)  # it was granted, but cancelled before it resumed
            raise

    def give(self, size_bytes: int) -> None:
        """Gives back memory."""
        self.used_bytes -= size_bytes
        assert self.used_bytes >= 0, "more was given back than taken"
        if self.used_bytes <= self.bytes_max:
            self._runner = None
        if self._queue:
            self._grant()

    def _grant(self) -> None:
        """Grants requests in order while memory is available; the first for which there is none exceeds the pool."""
        while self._queue and self._runner is None:
            owner = next(iter(self._queue))
            size_bytes, granted = self._queue.pop(owner)
            if granted.cancelled():
                continue
            self.used_bytes += size_bytes
            if self.used_bytes > self.bytes_max:
                self._runner = owner
            granted.set_result(None)
