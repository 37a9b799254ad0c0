"""Batches from fuzzed bytes: unchanged, or corrected enough to pass the first checks."""

import struct

from penstock.records.compression import Codec, compress
from penstock.records.header import CODEC_BITS, HEADER, HEADER_BYTES, LENGTH_EXCLUDES_BYTES, MAGIC, seal

RAW, FIXED, PAYLOAD, PLAIN = range(4)
"""How the bytes after the first two are used: as a whole raw batch; as a batch whose length, magic, codec and checksum
are corrected; as a compressed payload; as records to compress."""

# Enough for interesting records, and few enough to be walked in time under a fuzzer's tracing.
PAYLOAD_BYTES_MAX = 32 * 1024
_COUNT = struct.Struct(">i")
_LENGTH = struct.Struct(">i")
_LAST_OFFSET_DELTA_POSITION = 23
_COUNT_POSITION = 57


def make_batch(codec: Codec, how: int, count: int, rest: bytes) -> bytes:
    """The batch that an input describes; a count of 0 keeps the header's own."""
    if how == RAW:
        return rest
    if how == FIXED:
        batch = bytearray(rest.ljust(HEADER_BYTES, b"\0"))
        _LENGTH.pack_into(batch, 8, len(batch) - LENGTH_EXCLUDES_BYTES)
        batch[16] = MAGIC
        batch[22] = batch[22] & ~CODEC_BITS | codec
        if count:
            _COUNT.pack_into(batch, _LAST_OFFSET_DELTA_POSITION, count - 1)
            _COUNT.pack_into(batch, _COUNT_POSITION, count)
    else:
        payload = compress(codec, rest) if how == PLAIN else rest
        batch = bytearray(
            HEADER.pack(0, HEADER_BYTES - 12 + len(payload), -1, MAGIC, 0, codec, count - 1, -1, -1, -1, -1, -1, count)
        )
        batch += payload
    seal(batch)
    return bytes(batch)
