"""Compression of record payloads: the four codecs of Kafka, both ways.

Decompression streams under a hard cap. What must stay true: no codec ever holds more than `bytes_max` of output plus
its own window; over the cap is BatchTooLarge, any other trouble with the bytes is CorruptBatch, and nothing else
escapes. Declared sizes are claims: they may refuse early, they never size an allocation that the input cannot fill.
See docs/decisions/0006-compression.md.
"""

import zlib
from enum import IntEnum

import lz4.frame

from penstock.model.errors import BatchTooLarge, CorruptBatch, UnsupportedCompression
from penstock.records import snappy, zstd
from penstock.records.over_cap import OverCap

# Decoders take this much input and give this much output at a time: both are copied inside them at every step.
INPUT_STEP_BYTES = 64 * 1024
OUTPUT_STEP_BYTES = 256 * 1024
# Producers write one gzip member per batch. Each costs a new decoder, so a flood of empty ones must not be free.
GZIP_MEMBERS_MAX = 64
_GZIP_WBITS = 31


class Codec(IntEnum):
    """What the low three bits of the batch attributes say."""

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
    """The payload as the codec writes it; `level` is the codec's own scale, None its default."""
    match codec:
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            deflater = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, _GZIP_WBITS)
            return deflater.compress(data) + deflater.flush()
        case Codec.SNAPPY:
            return snappy.compress(data)
        case Codec.LZ4:
            # Java reads only frames of independent blocks, and its own have 64 KiB.
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
    """The payload in plain, at most `bytes_max` of it."""
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
    """More than this the payload cannot become. CorruptBatch where that is seen without decoding it."""
    match codec:
        case Codec.NONE:
            return len(view)
        case Codec.ZSTD:
            return zstd.output_bound(view)
    return len(view) * OUTPUT_PER_INPUT_BYTE_MAX[codec]


def decompress_prefix(
    codec: Codec, view: bytes | bytearray | memoryview, bytes_max: int
) -> tuple[bytes | bytearray, bool]:
    """The payload in plain, or as much of its beginning as the cap allows, and whether that is all of it.

    A snappy block that is larger than what is left of the cap is left out as a whole.
    """
    try:
        if codec is Codec.ZSTD:
            return zstd.decompress(view, bytes_max, keeps_prefix=True), True
        return _decompress(codec, view, bytes_max), True
    except OverCap as over:
        return over.prefix, False


def over_cap(bytes_max: int, prefix: bytes | bytearray = b"") -> OverCap:
    """The refusal of a payload that is larger than its cap."""
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
            # A full step may have left output inside the inflater even when it has taken all of the input.
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
    """Exactly one frame: Java's reader stops after the first, so a second would be records that only we can see."""
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
