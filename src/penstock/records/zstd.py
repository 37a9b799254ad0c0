"""Zstandard payloads (RFC 8878), with or without a declared content size, one frame or several.

The decoder writes into a buffer of fixed size, so a walk over frame and block headers first bounds the decompressed
size. The walk decodes nothing, costs a few steps per 128 KiB, and rejects windows over WINDOW_BYTES_MAX, run-length
bombs and truncated frames before the decoder runs.
"""

from struct import Struct
from struct import error as struct_error

import cramjam

from penstock.model.errors import BatchTooLarge, CorruptBatch
from penstock.records.over_cap import OverCap

# Level 22 requests 128 MiB, which is also the maximum of Java's reader. The decoder reserves the declared window but
# touches only the part it has written, so resident memory stays below twice the cap.
WINDOW_BYTES_MAX = 128 * 1024 * 1024
BLOCK_BYTES_MAX = 128 * 1024
LEVEL_DEFAULT = 3

_MAGIC = 0xFD2FB528
_SKIPPABLE_MAGIC = 0x184D2A50
_WORD = Struct("<I")
_RAW, _RLE, _COMPRESSED, _RESERVED = range(4)
_CHECKSUM_BYTES = 4
_NO_CAP = 1 << 62
_BUFFER_FULL = "failed to write whole buffer"


def compress(data: bytes | bytearray | memoryview, level: int | None = None) -> bytes:
    """Compresses to one frame."""
    return bytes(cramjam.zstd.compress(data, level=LEVEL_DEFAULT if level is None else level))


def decompress(view: bytes | bytearray | memoryview, bytes_max: int, *, keeps_prefix: bool = False) -> bytearray:
    """Decompresses all frames to at most `bytes_max`; with `keeps_prefix`, decodes that much before it raises."""
    if not view:
        raise CorruptBatch("zstd payload is empty")
    bound_bytes = output_bound(view, _NO_CAP if keeps_prefix else bytes_max)
    out = bytearray(min(bound_bytes, bytes_max))
    try:
        written_bytes = cramjam.zstd.decompress_into(view, out)
    except cramjam.DecompressionError as trouble:
        if bound_bytes > bytes_max and str(trouble) == _BUFFER_FULL:
            raise OverCap(f"zstd payload decompresses to more than {bytes_max} bytes", out) from None
        raise CorruptBatch(f"zstd payload: {trouble}") from None
    del out[written_bytes:]
    return out


def output_bound(view: bytes | bytearray | memoryview, bytes_max: int = _NO_CAP) -> int:
    """Upper bound of the decompressed size. Raises BatchTooLarge if the size must exceed `bytes_max`."""
    at_most_bytes = 0
    at_least_bytes = 0
    position = 0
    try:
        while position < len(view):
            (magic,) = _WORD.unpack_from(view, position)
            position += 4
            if magic & 0xFFFFFFF0 == _SKIPPABLE_MAGIC:
                position += 4 + _WORD.unpack_from(view, position)[0]
                continue
            if magic != _MAGIC:
                raise CorruptBatch("zstd payload does not start with a frame")
            window_bytes, content_bytes, has_checksum, position = _frame_header(view, position)
            if content_bytes is not None and at_least_bytes + content_bytes > bytes_max:
                raise BatchTooLarge(f"zstd frame declares {content_bytes} bytes where {bytes_max} are allowed")
            if window_bytes > WINDOW_BYTES_MAX:
                raise BatchTooLarge(f"zstd frame needs a window of {window_bytes} bytes")
            block_bytes_max = min(window_bytes, BLOCK_BYTES_MAX)
            frame_at_most_bytes = 0
            is_last = False
            while not is_last:
                header = view[position] | view[position + 1] << 8 | view[position + 2] << 16
                position += 3
                is_last = header & 1 == 1
                kind, size_bytes = header >> 1 & 3, header >> 3
                if size_bytes > block_bytes_max or kind == _RESERVED:
                    raise CorruptBatch(f"zstd block of kind {kind} and {size_bytes} bytes")
                if kind == _COMPRESSED:
                    frame_at_most_bytes += block_bytes_max
                else:
                    frame_at_most_bytes += size_bytes
                    at_least_bytes += size_bytes
                    if at_least_bytes > bytes_max:
                        raise BatchTooLarge(f"zstd payload decompresses to more than {bytes_max} bytes")
                position += 1 if kind == _RLE else size_bytes
            at_most_bytes += frame_at_most_bytes if content_bytes is None else content_bytes
            position += _CHECKSUM_BYTES if has_checksum else 0
    except (IndexError, struct_error):
        raise CorruptBatch("zstd payload ends early") from None
    if position > len(view):
        raise CorruptBatch("zstd payload ends early")
    return at_most_bytes


def _frame_header(view: bytes | bytearray | memoryview, position: int) -> tuple[int, int | None, bool, int]:
    """Window size, content size if declared, whether a checksum follows, and the position of the blocks."""
    descriptor = view[position]
    position += 1
    is_single_segment = descriptor & 0x20 != 0
    window_bytes = 0
    if not is_single_segment:
        exponent, mantissa = view[position] >> 3, view[position] & 7
        window_bytes = (1 << 10 + exponent) * (8 + mantissa) // 8
        position += 1
    position += (0, 1, 2, 4)[descriptor & 3]  # a dictionary id: the decoder will reject it
    content_field_bytes = (1 if is_single_segment else 0, 2, 4, 8)[descriptor >> 6]
    content_bytes: int | None = None
    if content_field_bytes:
        field = bytes(view[position : position + content_field_bytes])
        if len(field) < content_field_bytes:
            raise IndexError
        content_bytes = int.from_bytes(field, "little") + (256 if content_field_bytes == 2 else 0)
        position += content_field_bytes
    return (content_bytes or 0) if is_single_segment else window_bytes, content_bytes, descriptor & 4 != 0, position
