"""Frames: a four-byte length and as many bytes.

Sans I/O: the owner of a socket receives into `writable()`, says how much with `received()`, and takes whole frames from
`frames()`. A declared length is only a promise: the buffer never holds more than twice the bytes that really arrived,
plus one step. Frames are views; what a view shows is never written again while the view lives.

While bytes keep coming, the owner may lend a larger buffer, which then takes many frames at a time. It is given back
before anybody waits; what is left of an unfinished frame moves to a buffer of the reader's own.
"""

import struct

from penstock.model.errors import FrameTooLarge
from penstock.model.limits import DEFAULT_LIMITS

_LENGTH = struct.Struct(">i")
_KEY = struct.Struct(">h")
PRODUCE = 0
"""The key of the only API whose requests carry records."""
_ZEROS = memoryview(bytes(1024 * 1024))
"""What a buffer grows by at most. Zeros that are made anew each time cost more than it costs to receive into them."""


class FrameReader:
    """Cuts a stream of bytes into frames of at most `frame_bytes_max` bytes."""

    __slots__ = (
        "_buffer",
        "_end",
        "_first_bytes",
        "_growth_bytes",
        "_start",
        "_view",
        "frame_bytes_max",
        "is_lent",
        "request_bytes_max",
    )

    def __init__(
        self,
        frame_bytes_max: int,
        first_bytes: int = DEFAULT_LIMITS.frame_first_bytes,
        growth_bytes: int = DEFAULT_LIMITS.frame_growth_bytes,
        *,
        request_bytes_max: int | None = None,
    ) -> None:
        """With `request_bytes_max`, frames are requests, and only Produce may be larger than that."""
        self.frame_bytes_max = frame_bytes_max
        self.request_bytes_max = frame_bytes_max if request_bytes_max is None else request_bytes_max
        self._first_bytes = first_bytes
        self._growth_bytes = growth_bytes
        self._buffer: bytearray | None = None
        self._view: memoryview | None = None
        self._start = 0
        self._end = 0
        self.is_lent = False
        """Whether the buffer belongs to somebody else."""

    @property
    def held_bytes(self) -> int:
        """What this reader keeps allocated; nothing while no frame is under way."""
        return 0 if self._buffer is None or self.is_lent else len(self._buffer)

    @property
    def beyond_first_bytes(self) -> int:
        """How much of that is more than a first buffer."""
        return max(0, self.held_bytes - self._first_bytes)

    @property
    def unparsed_bytes(self) -> int:
        """What has arrived of a frame that is not whole."""
        return self._end - self._start

    @property
    def growth_bytes(self) -> int:
        """How much more `writable` is about to hold than now; the first buffer of a frame does not count."""
        if self._buffer is None or self.is_lent or self._view is not None or self._end < len(self._buffer):
            return 0
        return self._room_needed(self._buffer, self._start, self._end - self._start)

    @property
    def frame_bytes(self) -> int:
        """What the frame under way announces; 0 while that has not arrived."""
        if self._buffer is None or self._end - self._start < 4:
            return 0
        length: int = _LENGTH.unpack_from(self._buffer, self._start)[0]
        return length

    def peek(self, count: int) -> bytes:
        """The first bytes of what is unparsed."""
        return bytes((self._buffer or b"")[self._start : min(self._end, self._start + count)])

    def can_borrow(self, size_bytes: int) -> bool:
        """Whether a lent buffer of that size would be of use: most of it must be free."""
        return not self.is_lent and (self._end - self._start) * 2 <= size_bytes

    def borrow(self, buffer: bytearray) -> None:
        """Receives into this one from now on, until `give_back`."""
        assert not self.is_lent
        self._put_down()
        unparsed = self._end - self._start
        if unparsed:
            buffer[:unparsed] = memoryview(self._buffer or b"")[self._start : self._end]
        self._buffer, self._start, self._end, self.is_lent = buffer, 0, unparsed, True

    def give_back(self) -> bytearray:
        """The lent buffer; what is unfinished moves to one of the reader's own, with room as `writable` would make."""
        buffer, start, end = self._buffer, self._start, self._end
        assert buffer is not None
        assert self.is_lent
        self._put_down()
        self._buffer, self._start, self._end, self.is_lent = None, 0, end - start, False
        if start != end:
            held = end - start
            room = self._room_needed(buffer, start, held) if held >= self._first_bytes else self._first_bytes - held
            self._buffer = bytearray(held + room)
            self._buffer[:held] = memoryview(buffer)[start:end]
        return buffer

    def is_used_up(self) -> bool:
        """Whether a lent buffer has no room left: views of it are still about, or a frame is larger."""
        buffer = self._buffer
        assert buffer is not None
        is_worth_moving = self._start and (self._start == self._end or len(buffer) - self._end < len(buffer) // 2)
        if is_worth_moving and has_no_views(buffer):
            held = self._end - self._start
            if held:
                buffer[:held] = buffer[self._start : self._end]
            self._start, self._end = 0, held
        return self._end == len(buffer)

    def writable(self) -> memoryview:
        """Room for the bytes that come next, never empty. Valid until `received`."""
        if self._view is not None:
            return self._view
        buffer = self._buffer
        if buffer is None:
            buffer = self._buffer = bytearray(self._first_bytes)
        elif self._end == len(buffer):
            buffer.extend(_ZEROS[: self._room_needed(buffer, self._start, self._end - self._start)])
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

    def _check_large(self, buffer: bytearray, start: int, length: int) -> None:
        """Refuses a large frame as soon as its first bytes say that it carries no records."""
        (key,) = _KEY.unpack_from(buffer, start + 4)
        if key != PRODUCE:
            raise FrameTooLarge(
                f"a request with API key {key} announces {length:,} bytes; allowed are {self.request_bytes_max:,}"
            )

    def _leave_behind(self, buffer: bytearray, start: int, end: int) -> None:
        """Moves what is left to a buffer of its own: the old one belongs to the frames now. A lent one stays."""
        if self.is_lent:
            self._start = start
            return
        self._start, self._end = 0, end - start
        if start == end:
            self._buffer = None
            return
        fresh = bytearray(max(self._first_bytes, end - start))
        fresh[: end - start] = memoryview(buffer)[start:end]
        self._buffer = fresh

    def _release_if_empty(self) -> None:
        if self._start == self._end and self._view is None and not self.is_lent:
            self._buffer, self._start, self._end = None, 0, 0

    def _put_down(self) -> None:
        """Nothing was received into the view that `writable` gave."""
        view, self._view = self._view, None
        if view is not None:
            view.release()

    def _room_needed(self, buffer: bytearray, start: int, held: int) -> int:
        """How much to grow a full buffer: by what it holds already, but not beyond the frame that is under way."""
        if held < 4:
            return self._growth_bytes
        length: int = _LENGTH.unpack_from(buffer, start)[0]
        missing = 4 + length - held
        return max(1, min(missing, max(self._growth_bytes, held), len(_ZEROS)))


def has_no_views(buffer: bytearray) -> bool:
    """Whether nobody looks at the buffer: then it can be resized, and written to."""
    try:
        buffer.append(buffer.pop())
    except BufferError:
        return False
    return True
