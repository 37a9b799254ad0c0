"""Compression of record payloads: the four codecs of Kafka, both ways.

Decompression streams under a hard cap. Invariants: no codec ever holds more than `bytes_max` of output plus its own
window; output over the cap raises BatchTooLarge, any other defect CorruptBatch, and no other exception escapes.
Declared sizes are not trusted: they may cause early rejection, but never an allocation that the input cannot fill.
See docs/decisions/0006-compression.md.
"""

import zlib
from enum import IntEnum

import lz4.frame

from penstock.model.errors import BatchTooLarge, CorruptBatch, UnsupportedCompression
from penstock.records import snappy, zstd
from penstock.records.over_cap import OverCap

# Input and output of one decoder step; decoders copy both internally at every step.
INPUT_STEP_BYTES = 64 * 1024
OUTPUT_STEP_BYTES = 256 * 1024
# Producers write one gzip member per batch. Each member costs a new decoder, so a flood of empty ones is rejected.
GZIP_MEMBERS_MAX = 64
_GZIP_WBITS = 31


class Codec(IntEnum):
    """Compression codec, stored in the low three bits of the batch attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


_CODECS = tuple(Codec)

OUTPUT_PER_INPUT_BYTE_MAX = (1, 1032, 22, 255, 32_768)
"""By codec, the most bytes that one byte of a valid payload can decompress to. Each is a bound of the format:
deflate copies 258 bytes with two bits, snappy 64 with three bytes, lz4 255 with each byte of a length, zstd repeats one
byte through a block of 128 KiB with four.
"""


def codec_of(number: int) -> Codec:
    """The codec with this number."""
    if not 0 <= number < len(_CODECS):
        raise UnsupportedCompression(f"compression codec {number} is not known")
    return _CODECS[number]


def compress(codec: Codec, data: bytes | bytearray | memoryview, level: int | None = None) -> bytes:
    """Compresses the payload; `level` is on the codec's own scale, None is its default."""
    match codec:
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            deflater = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, _GZIP_WBITS)
            return deflater.compress(data) + deflater.flush()
        case Codec.SNAPPY:
            return snappy.compress(data)
        case Codec.LZ4:
            # Java reads only frames of independent blocks, and writes blocks of 64 KiB.
            frame: bytes = lz4.frame.compress(
                data,
                compression_level=0 if level is None else level,
                block_size=lz4.frame.BLOCKSIZE_MAX64KB,
                block_linked=False,
                store_size=False,
            )
            return frame
        case Codec.ZSTD:
            return zstd.compress(data, level)


def decompress(codec: Codec, view: bytes | bytearray | memoryview, bytes_max: int) -> bytes | bytearray:
    """Decompresses the payload; raises BatchTooLarge beyond `bytes_max`."""
    try:
        return _decompress(codec, view, bytes_max)
    except OverCap as over:
        raise BatchTooLarge(str(over)) from None


def _decompress(codec: Codec, view: bytes | bytearray | memoryview, bytes_max: int) -> bytes | bytearray:
    match codec:
        case Codec.NONE:
            if len(view) > bytes_max:
                raise over_cap(bytes_max, bytes(view[:bytes_max]))
            return bytes(view)
        case Codec.GZIP:
            return _gunzip(memoryview(view), bytes_max)
        case Codec.SNAPPY:
            return snappy.decompress(view, bytes_max)
        case Codec.LZ4:
            return _unlz4(memoryview(view), bytes_max)
        case Codec.ZSTD:
            return zstd.decompress(view, bytes_max)


def output_bytes_max(codec: Codec, view: bytes | bytearray | memoryview) -> int:
    """Upper bound of the decompressed size. Raises CorruptBatch for a defect that is found without decoding."""
    match codec:
        case Codec.NONE:
            return len(view)
        case Codec.ZSTD:
            return zstd.output_bound(view)
    return len(view) * OUTPUT_PER_INPUT_BYTE_MAX[codec]


def decompress_prefix(
    codec: Codec, view: bytes | bytearray | memoryview, bytes_max: int
) -> tuple[bytes | bytearray, bool]:
    """The decompressed payload, or as much of its beginning as the cap allows, and whether it is complete.

    A snappy block that is larger than the rest of the cap is left out entirely.
    """
    try:
        if codec is Codec.ZSTD:
            return zstd.decompress(view, bytes_max, keeps_prefix=True), True
        return _decompress(codec, view, bytes_max), True
    except OverCap as over:
        return over.prefix, False


def over_cap(bytes_max: int, prefix: bytes | bytearray = b"") -> OverCap:
    """The error for a payload that is larger than its cap."""
    return OverCap(f"the batch decompresses to more than {bytes_max} bytes", prefix)


def _gunzip(view: memoryview, bytes_max: int) -> bytearray:
    out = bytearray()
    position = 0
    for _ in range(GZIP_MEMBERS_MAX):
        inflater = zlib.decompressobj(_GZIP_WBITS)
        while not inflater.eof:
            piece = view[position : position + INPUT_STEP_BYTES]
            if not piece:
                raise CorruptBatch("gzip payload ends early")
            position += len(piece)
            tail: memoryview | bytes = piece
            # A full step may have left output inside the inflater even if it has consumed all of the input.
            while True:
                try:
                    chunk = inflater.decompress(tail, OUTPUT_STEP_BYTES)
                except zlib.error as trouble:
                    raise CorruptBatch(f"gzip payload: {trouble}") from None
                out += chunk
                if len(out) > bytes_max:
                    raise over_cap(bytes_max, out)
                tail = inflater.unconsumed_tail
                if inflater.eof or (not tail and len(chunk) < OUTPUT_STEP_BYTES):
                    break
        position -= len(inflater.unused_data)
        if position == len(view):
            return out
    raise CorruptBatch(f"gzip payload of more than {GZIP_MEMBERS_MAX} members")


def _unlz4(view: memoryview, bytes_max: int) -> bytearray:
    """Decompresses exactly one frame: Java's reader stops after the first, so it would miss records of a second."""
    out = bytearray()
    inflater = lz4.frame.LZ4FrameDecompressor()
    position = 0
    while not inflater.eof:
        piece: memoryview | bytes = view[position : position + INPUT_STEP_BYTES]
        if not piece:
            raise CorruptBatch("lz4 payload ends early")
        position += len(piece)
        while True:
            try:
                chunk = inflater.decompress(piece, OUTPUT_STEP_BYTES)
            except RuntimeError as trouble:
                raise CorruptBatch(f"lz4 payload: {trouble}") from None
            out += chunk
            if len(out) > bytes_max:
                raise over_cap(bytes_max, out)
            piece = b""
            if inflater.eof or (inflater.needs_input and len(chunk) < OUTPUT_STEP_BYTES):
                break
    if position < len(view) or inflater.unused_data:
        raise CorruptBatch("bytes after the lz4 frame")
    return out
