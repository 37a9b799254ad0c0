"""Frames: a four-byte length and as many bytes.

Sans I/O: the owner of a socket receives into `writable()`, says how much with `received()`, and takes whole frames from
`frames()`. A declared length is only a promise: the buffer never holds more than twice the bytes that really arrived,
plus one step. Frames are views; the buffer behind a view that was handed out is never written again.
"""

import struct

from penstock.model.errors import FrameTooLarge
from penstock.model.limits import DEFAULT_LIMITS

_LENGTH = struct.Struct(">i")


class FrameReader:
    """Cuts a stream of bytes into frames of at most `frame_bytes_max` bytes."""

    __slots__ = ("_buffer", "_end", "_first_bytes", "_growth_bytes", "_start", "_view", "frame_bytes_max")

    def __init__(
        self,
        frame_bytes_max: int,
        first_bytes: int = DEFAULT_LIMITS.frame_first_bytes,
        growth_bytes: int = DEFAULT_LIMITS.frame_growth_bytes,
    ) -> None:
        self.frame_bytes_max = frame_bytes_max
        self._first_bytes = first_bytes
        self._growth_bytes = growth_bytes
        self._buffer: bytearray | None = None
        self._view: memoryview | None = None
        self._start = 0
        self._end = 0

    @property
    def held_bytes(self) -> int:
        """What this reader keeps allocated; nothing while no frame is under way."""
        return 0 if self._buffer is None else len(self._buffer)

    @property
    def unparsed_bytes(self) -> int:
        """What has arrived of a frame that is not whole."""
        return self._end - self._start

    @property
    def growth_bytes(self) -> int:
        """How much more `writable` is about to hold than now; the first buffer of a frame does not count."""
        if self._buffer is None or self._view is not None or self._end < len(self._buffer):
            return 0
        return self._room_needed()

    def peek(self, count: int) -> bytes:
        """The first bytes of what is unparsed."""
        return bytes((self._buffer or b"")[self._start : min(self._end, self._start + count)])

    def writable(self) -> memoryview:
        """Room for the bytes that come next, never empty. Valid until `received`."""
        if self._view is not None:
            return self._view
        buffer = self._buffer
        if buffer is None:
            buffer = self._buffer = bytearray(self._first_bytes)
        elif self._end == len(buffer):
            buffer.extend(bytes(self._room_needed()))
        self._view = memoryview(buffer)[self._end :]
        return self._view

    def received(self, count: int) -> None:
        """`count` bytes now lie in the view that `writable` gave."""
        view, self._view = self._view, None
        if view is None or not 0 <= count <= len(view):
            raise ValueError("received more than there was room for")
        view.release()
        self._end += count

    def frames(self) -> list[memoryview]:
        """The frames that are whole, without their lengths."""
        buffer, start, end = self._buffer, self._start, self._end
        found: list[memoryview] = []
        if buffer is None or end - start < 4:
            self._release_if_empty()
            return found
        whole: memoryview | None = None
        while end - start >= 4:
            (length,) = _LENGTH.unpack_from(buffer, start)
            if not 0 <= length <= self.frame_bytes_max:
                if found:  # hand out what came before; the next call refuses
                    break
                raise FrameTooLarge(f"a frame announces {length} bytes; allowed are 0 to {self.frame_bytes_max}")
            behind = start + 4 + length
            if behind > end:
                break
            if whole is None:
                whole = memoryview(buffer)
            found.append(whole[start + 4 : behind])
            start = behind
        if found:
            self._leave_behind(buffer, start, end)
        return found

    def _leave_behind(self, buffer: bytearray, start: int, end: int) -> None:
        """Moves what is left to a buffer of its own: the old one belongs to the frames now."""
        self._start, self._end = 0, end - start
        if start == end:
            self._buffer = None
            return
        fresh = bytearray(max(self._first_bytes, end - start))
        fresh[: end - start] = memoryview(buffer)[start:end]
        self._buffer = fresh

    def _release_if_empty(self) -> None:
        if self._start == self._end and self._view is None:
            self._buffer, self._start, self._end = None, 0, 0

    def _room_needed(self) -> int:
        """How much to grow a full buffer: by what it holds already, but not beyond the frame that is under way."""
        held = self._end - self._start
        if held < 4:
            return self._growth_bytes
        length: int = _LENGTH.unpack_from(self._buffer or b"", self._start)[0]
        missing = 4 + length - held
        return max(1, min(missing, max(self._growth_bytes, held)))
