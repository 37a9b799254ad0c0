"""Memory for input, shared by all connections: what has arrived of frames, and frames whose requests are under way.

A connection's first buffers are its own; everything beyond them is taken from here before it is allocated. When nothing
is left, sockets are not read. So that half-arrived frames cannot block each other for ever, one connection at a time,
the oldest that waits, goes on beyond the pool. Therefore `used_bytes` never exceeds the pool by more than one frame.
"""

import asyncio
from typing import NamedTuple


class _Waiting(NamedTuple):
    size_bytes: int
    granted: "asyncio.Future[None]"


class InputPool:
    """Whoever takes gives back, to the byte. An owner is any object, and waits at one place at a time."""

    __slots__ = ("_queue", "_runner", "bytes_max", "used_bytes")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
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
