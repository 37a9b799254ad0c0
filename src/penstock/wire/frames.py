"""Frames: a four-byte length and that many bytes.

Sans I/O: the owner of a socket receives into `writable()`, reports the count with `received()`, and gets complete
frames from `frames()`. A declared length is not trusted: the buffer never holds more than twice the bytes that have
arrived, plus one step. Frames are views; the bytes of a view are never overwritten while the view lives.

While bytes keep arriving, the owner may lend a larger buffer, which holds many frames at a time. It is returned before
the owner waits for input; an incomplete frame then moves to a buffer of the reader's own.

A large frame is received into a mapping of its full length, for which the kernel allocates pages as bytes arrive:
growing a bytearray of megabytes may copy all of it, at every step.
"""

import struct
from mmap import ACCESS_COPY, mmap

from penstock.model.errors import FrameTooLarge
from penstock.model.limits import DEFAULT_LIMITS

_LENGTH = struct.Struct(">i")
_KEY = struct.Struct(">h")
PRODUCE = 0
"""The key of the only API whose requests carry records."""
_LARGE_STEP_BYTES = 128 * 1024
"""Bytes of a large frame that are received at once."""
_ZEROS = memoryview(bytes(1024 * 1024))
"""Maximum growth of a buffer in one step. Allocating zeros each time costs more than receiving into them."""


class FrameReader:
    """Cuts a stream of bytes into frames of at most `frame_bytes_max` bytes."""

    __slots__ = (
        "_buffer",
        "_end",
        "_first_bytes",
        "_growth_bytes",
        "_room",
        "_start",
        "_view",
        "frame_bytes_max",
        "is_lent",
        "large_bytes",
        "request_bytes_max",
    )

    def __init__(
        self,
        frame_bytes_max: int,
        first_bytes: int = DEFAULT_LIMITS.frame_first_bytes,
        growth_bytes: int = DEFAULT_LIMITS.frame_growth_bytes,
        *,
        request_bytes_max: int | None = None,
        large_bytes: int = DEFAULT_LIMITS.frame_large_bytes,
    ) -> None:
        """With `request_bytes_max`, frames are requests, and only Produce requests may be larger than that."""
        self.frame_bytes_max = frame_bytes_max
        self.request_bytes_max = frame_bytes_max if request_bytes_max is None else request_bytes_max
        self._first_bytes = first_bytes
        self._growth_bytes = growth_bytes
        self.large_bytes = large_bytes
        """Frames larger than this are received into a mapping."""
        self._buffer: bytearray | mmap | None = None
        self._room = 0
        """Usable bytes of the buffer; fewer than its length only for a mapping."""
        self._view: memoryview | None = None
        self._start = 0
        self._end = 0
        self.is_lent = False
        """Whether the buffer is borrowed from the owner."""

    @property
    def held_bytes(self) -> int:
        """Bytes that this reader keeps allocated; 0 while no frame is in progress."""
        return 0 if self._buffer is None or self.is_lent else self._room

    @property
    def beyond_first_bytes(self) -> int:
        """Allocated bytes beyond the size of a first buffer."""
        return max(0, self.held_bytes - self._first_bytes)

    @property
    def unparsed_bytes(self) -> int:
        """Bytes received that are not part of a returned frame."""
        return self._end - self._start

    @property
    def growth_bytes(self) -> int:
        """Bytes by which the next `writable` will grow the buffer; the first buffer of a frame does not count."""
        if self._buffer is None or self.is_lent or self._view is not None or self._end < self._room:
            return 0
        return self._room_needed(self._buffer, self._start, self._end - self._start)

    @property
    def frame_bytes(self) -> int:
        """Declared length of the frame in progress; 0 until the length has arrived."""
        if self._buffer is None or self._end - self._start < 4:
            return 0
        length: int = _LENGTH.unpack_from(self._buffer, self._start)[0]
        return length

    def peek(self, count: int) -> bytes:
        """The first `count` unparsed bytes, or fewer."""
        return b"" if self._buffer is None else bytes(self._buffer[self._start : min(self._end, self._start + count)])

    def can_borrow(self, size_bytes: int) -> bool:
        """Whether a lent buffer of that size would be useful: at least half of it must stay free."""
        return not self.is_lent and (self._end - self._start) * 2 <= size_bytes

    def borrow(self, buffer: bytearray) -> None:
        """Receives into this buffer from now on, until `give_back`."""
        assert not self.is_lent
        self._put_down()
        unparsed = self._end - self._start
        if unparsed and self._buffer is not None:
            buffer[:unparsed] = memoryview(self._buffer)[self._start : self._end]
        self._buffer, self._start, self._end, self.is_lent = buffer, 0, unparsed, True
        self._room = len(buffer)

    def give_back(self) -> bytearray:
        """Returns the lent buffer; an incomplete frame moves to one of the reader's own, sized as by `writable`."""
        buffer, start, end = self._buffer, self._start, self._end
        assert isinstance(buffer, bytearray)
        assert self.is_lent
        self._put_down()
        held = end - start
        self._buffer, self._room, self._start, self._end, self.is_lent = None, 0, 0, held, False
        if held:
            room = self._room_needed(buffer, start, held) if held >= self._first_bytes else self._first_bytes - held
            self._move(buffer, start, held, held + room)
        return buffer

    def is_used_up(self) -> bool:
        """Whether a lent buffer is full even after compaction: views of it are alive, or a frame is larger."""
        buffer = self._buffer
        assert isinstance(buffer, bytearray)
        is_worth_moving = self._start and (self._start == self._end or len(buffer) - self._end < len(buffer) // 2)
        if is_worth_moving and has_no_views(buffer):
            held = self._end - self._start
            if held:
                buffer[:held] = buffer[self._start : self._end]
            self._start, self._end = 0, held
        return self._end == len(buffer)

    def writable(self) -> memoryview:
        """Free space for the next bytes, never empty. Valid until `received`."""
        if self._view is not None:
            return self._view
        buffer = self._buffer
        if buffer is None:
            buffer, self._room = bytearray(self._first_bytes), self._first_bytes
            self._buffer = buffer
        elif self._end == self._room:
            buffer = self._grown(buffer)
        self._view = memoryview(buffer)[self._end : self._room]
        return self._view

    def received(self, count: int) -> None:
        """Reports that `count` bytes were received into the view from `writable`."""
        view, self._view = self._view, None
        if view is None or not 0 <= count <= len(view):
            raise ValueError("received more than there was room for")
        view.release()
        self._end += count

    def frames(self) -> list[memoryview]:
        """Returns the complete frames, without their lengths."""
        buffer, start, end = self._buffer, self._start, self._end
        found: list[memoryview] = []
        if buffer is None or end - start < 4:
            self._release_if_empty()
            return found
        whole: memoryview | None = None
        while end - start >= 4:
            (length,) = _LENGTH.unpack_from(buffer, start)
            if not 0 <= length <= self.frame_bytes_max:
                if found:  # return the frames before it; the next call raises
                    break
                raise FrameTooLarge(f"a frame announces {length} bytes; allowed are 0 to {self.frame_bytes_max}")
            if length > self.request_bytes_max and end - start >= 6 and not found:
                self._check_large(buffer, start, length)
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

    def _grown(self, buffer: bytearray | mmap) -> bytearray | mmap:
        """Grows the full buffer of an incomplete frame."""
        held = self._end - self._start
        growth = self._room_needed(buffer, self._start, held)
        if isinstance(buffer, bytearray):
            if self._is_large(buffer, self._start, held):
                return self._move(buffer, self._start, held, held + growth)
            buffer.extend(_ZEROS[:growth])
        self._room += growth
        return buffer

    def _move(self, buffer: bytearray | mmap, start: int, held: int, room: int) -> bytearray | mmap:
        """Copies an incomplete frame into a buffer of the reader's own with `room` usable bytes."""
        fresh: bytearray | mmap
        if self._is_large(buffer, start, held):
            (length,) = _LENGTH.unpack_from(buffer, start)
            fresh = mmap(-1, 4 + length, access=ACCESS_COPY)
        else:
            fresh = bytearray(room)
        fresh[:held] = memoryview(buffer)[start : start + held]
        self._buffer, self._room, self._start, self._end = fresh, room, 0, held
        return fresh

    def _is_large(self, buffer: bytearray | mmap, start: int, held: int) -> bool:
        return held > self._first_bytes and _LENGTH.unpack_from(buffer, start)[0] > self.large_bytes

    def _check_large(self, buffer: bytearray | mmap, start: int, length: int) -> None:
        """Rejects a large frame as soon as its API key shows that it carries no records."""
        (key,) = _KEY.unpack_from(buffer, start + 4)
        if key != PRODUCE:
            raise FrameTooLarge(
                f"a request with API key {key} announces {length:,} bytes; allowed are {self.request_bytes_max:,}"
            )

    def _leave_behind(self, buffer: bytearray | mmap, start: int, end: int) -> None:
        """Moves the unparsed bytes to a new buffer: the old one now belongs to the frames. A lent buffer is kept."""
        if self.is_lent:
            self._start = start
            return
        self._start, self._end = 0, end - start
        if start == end:
            self._buffer, self._room = None, 0
            return
        fresh = bytearray(max(self._first_bytes, end - start))
        fresh[: end - start] = memoryview(buffer)[start:end]
        self._buffer, self._room = fresh, len(fresh)

    def _release_if_empty(self) -> None:
        if self._start == self._end and self._view is None and not self.is_lent:
            self._buffer, self._room, self._start, self._end = None, 0, 0, 0

    def _put_down(self) -> None:
        """Discards the view from `writable`, into which nothing was received."""
        view, self._view = self._view, None
        if view is not None:
            view.release()

    def _room_needed(self, buffer: bytearray | mmap, start: int, held: int) -> int:
        """Bytes by which to grow a full buffer: as many as it holds, but not beyond the frame in progress."""
        if held < 4:
            return self._growth_bytes
        length: int = _LENGTH.unpack_from(buffer, start)[0]
        missing = 4 + length - held
        step = _LARGE_STEP_BYTES if length > self.large_bytes else len(_ZEROS)
        return max(1, min(missing, max(self._growth_bytes, held), step))


def has_no_views(buffer: bytearray) -> bool:
    """Whether no view of the buffer exists, so that it can be resized and overwritten."""
    try:
        buffer.append(buffer.pop())
    except BufferError:
        return False
    return True
