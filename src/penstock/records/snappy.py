"""Snappy payloads: raw, as librdkafka writes them, and in xerial framing, as Java does.

Xerial: an eight-byte magic, two version numbers, then blocks of a four-byte length and raw snappy. A raw block states
its decompressed length first; that is checked against the cap, and against the maximum expansion of the block,
before any buffer is allocated.
"""

from struct import Struct

import cramjam

from penstock.model.errors import CorruptBatch
from penstock.records.over_cap import OverCap

XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER_BYTES = 16
_BLOCK_LENGTH = Struct(">i")
# The densest element is a copy: three bytes yield 64.
_EXPANSION_MAX = 22


def compress(data: bytes | bytearray | memoryview) -> bytes:
    """Compresses to raw snappy, which every reader accepts."""
    return bytes(cramjam.snappy.compress_raw(data))


def decompress(view: bytes | bytearray | memoryview, bytes_max: int) -> bytearray:
    """Decompresses either framing to at most `bytes_max` bytes."""
    if bytes(view[: len(XERIAL_MAGIC)]) != XERIAL_MAGIC:
        return _raw(view, bytes_max)
    if len(view) < XERIAL_HEADER_BYTES:
        raise CorruptBatch("xerial snappy payload ends inside its header")
    view = memoryview(view)
    out = bytearray()
    position = XERIAL_HEADER_BYTES
    while position < len(view):
        if position + _BLOCK_LENGTH.size > len(view):
            raise CorruptBatch("xerial snappy payload ends inside a block length")
        (length,) = _BLOCK_LENGTH.unpack_from(view, position)
        position += _BLOCK_LENGTH.size
        if not 0 < length <= len(view) - position:
            raise CorruptBatch(f"xerial snappy block of {length} bytes where {len(view) - position} are left")
        try:
            out += _raw(view[position : position + length], bytes_max - len(out))
        except OverCap as over:
            raise OverCap(str(over), out) from None
        position += length
    return out


def _raw(block: bytes | bytearray | memoryview, bytes_max: int) -> bytearray:
    try:
        declared_bytes: int = cramjam.snappy.decompress_raw_len(block)
        if declared_bytes > bytes_max:
            raise OverCap(f"snappy payload declares {declared_bytes} bytes where {bytes_max} are allowed")
        if declared_bytes > len(block) * _EXPANSION_MAX:
            raise CorruptBatch(f"snappy payload of {len(block)} bytes cannot hold {declared_bytes}")
        out = bytearray(declared_bytes)
        written_bytes = cramjam.snappy.decompress_raw_into(block, out)
    except cramjam.DecompressionError as trouble:
        raise CorruptBatch(f"snappy payload: {trouble}") from None
    if written_bytes != declared_bytes:
        raise CorruptBatch(f"snappy payload of {written_bytes} bytes declares {declared_bytes}")
    return out
