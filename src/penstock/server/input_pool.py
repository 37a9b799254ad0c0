"""Memory for input, shared by all connections: what has arrived of frames, and frames whose requests are under way.

A connection's first buffers are its own; everything beyond them is taken from here before it is allocated. When nothing
is left, sockets are not read. So that half-arrived frames cannot block each other for ever, one connection at a time,
the oldest that waits, goes on beyond the pool. Therefore `used_bytes` never exceeds the pool by more than one frame.

Connections on which bytes keep coming receive into larger buffers that they lend each other. A buffer goes to the next
one only when no view of it is left, so nobody's bytes are ever written over.
"""

import asyncio
from typing import Final, NamedTuple

from penstock.model.limits import DEFAULT_LIMITS
from penstock.wire.frames import has_no_views

SPARES_MAX: Final = 16
"""Lent buffers that are kept while nobody needs them."""


class _Waiting(NamedTuple):
    size_bytes: int
    granted: "asyncio.Future[None]"


class InputPool:
    """Whoever takes gives back, to the byte. An owner is any object, and waits at one place at a time."""

    __slots__ = ("_lent_bytes", "_queue", "_runner", "_spares", "bytes_max", "used_bytes")

    def __init__(self, bytes_max: int, lent_bytes: int = DEFAULT_LIMITS.frame_lent_bytes) -> None:
        self.bytes_max = bytes_max
        self._lent_bytes = lent_bytes
        self._spares: list[bytearray] = []
        self.used_bytes = 0
        self._queue: dict[object, _Waiting] = {}
        self._runner: object = None
        """Who went on beyond the pool; somebody exactly while more is used than there is."""

    @property
    def waiting(self) -> int:
        """How many wait for room."""
        return len(self._queue)

    def try_take(self, size_bytes: int) -> bool:
        """Takes at once, if there is room and nobody was here first."""
        if self._queue or self.used_bytes + size_bytes > self.bytes_max:
            return False
        self.used_bytes += size_bytes
        return True

    def lend(self) -> bytearray | None:
        """A buffer to receive into, if there is room for it. It may hold what others received."""
        if not self.try_take(self._lent_bytes):
            return None
        return self._spares.pop() if self._spares else bytearray(self._lent_bytes)

    def take_back(self, buffer: bytearray, kept_bytes: int) -> None:
        """A lent buffer is needed no longer; the borrower has moved so much of it to a place of its own."""
        if len(self._spares) < SPARES_MAX and has_no_views(buffer):
            self._spares.append(buffer)
        self.used_bytes += kept_bytes
        self.give(self._lent_bytes)

    async def take(self, owner: object, size_bytes: int, *, is_first: bool) -> None:
        """Waits for its turn and takes. `is_first` says that a frame begins to need the pool."""
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
                self.give(size_bytes)  # it was granted, but cancelled before it learnt of that
            raise

    def give(self, size_bytes: int) -> None:
        """Gives back what was taken."""
        self.used_bytes -= size_bytes
        assert self.used_bytes >= 0, "more was given back than taken"
        if self.used_bytes <= self.bytes_max:
            self._runner = None
        if self._queue:
            self._grant()

    def _grant(self) -> None:
        """Lets those in front go on, as far as there is room; if there is none, one goes on without."""
        while self._queue and self._runner is None:
            owner = next(iter(self._queue))
            size_bytes, granted = self._queue.pop(owner)
            if granted.cancelled():
                continue
            self.used_bytes += size_bytes
            if self.used_bytes > self.bytes_max:
                self._runner = owner
            granted.set_result(None)
