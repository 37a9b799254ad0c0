"""Builds a record batch, record by record.

A builder is used once: append, build, discard. Offset deltas increase and may leave gaps, as compaction requires. The
base timestamp is the first record's, unless a delete horizon replaces it (KIP-534).
"""

from collections.abc import Iterable

from penstock.records.compression import Codec, compress
from penstock.records.header import (
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER,
    HEADER_BYTES,
    LENGTH_EXCLUDES_BYTES,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
    TimestampType,
    seal,
)
from penstock.records.rows import HEADER_KEY_ERRORS
from penstock.records.varint import encode

HeaderEntries = Iterable[tuple[str, bytes | None]]

BATCH_BYTES_DEFAULT = 1024 * 1024
# Length (5), attributes (1), timestamp (10), offset (5), key and value lengths (5 + 5), header count (5).
RECORD_OVERHEAD_BYTES_MAX = 36
_HEADER_ENTRY_OVERHEAD_BYTES_MAX = 10
_NULL = encode(-1)
_NO_HEADERS = encode(0)


class BatchBuilder:
    """Collects records and builds the batch that holds them."""

    def __init__(
        self,
        *,
        codec: Codec = Codec.NONE,
        level: int | None = None,
        base_offset: int = 0,
        leader_epoch: int = NO_LEADER_EPOCH,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        is_transactional: bool = False,
        is_control: bool = False,
        timestamp_type: TimestampType = TimestampType.CREATE_TIME,
        delete_horizon_ms: int | None = None,
        bytes_max: int = BATCH_BYTES_DEFAULT,
    ) -> None:
        self._codec = codec
        self._level = level
        self._base_offset = base_offset
        self._leader_epoch = leader_epoch
        self._producer = (producer_id, producer_epoch, base_sequence)
        self._attributes = (
            codec
            | (LOG_APPEND_TIME_BIT if timestamp_type is TimestampType.LOG_APPEND_TIME else 0)
            | (TRANSACTIONAL_BIT if is_transactional else 0)
            | (CONTROL_BIT if is_control else 0)
            | (DELETE_HORIZON_BIT if delete_horizon_ms is not None else 0)
        )
        self._bytes_max = bytes_max
        self._payload = bytearray()
        self._base_timestamp_ms = delete_horizon_ms
        self._max_timestamp_ms = NO_TIMESTAMP
        self._last_offset_delta = -1
        self.count = 0

    @property
    def size_bytes(self) -> int:
        """Size of the uncompressed batch: its memory cost, and rarely less than the built size."""
        return HEADER_BYTES + len(self._payload)

    @property
    def is_full(self) -> bool:
        """Whether the batch has reached its size limit."""
        return self.size_bytes >= self._bytes_max

    def has_room_for(self, key: bytes | None, value: bytes | None, headers: HeaderEntries = ()) -> bool:
        """Whether the record fits within the limit. The first always does: a large record is a batch of its own."""
        if not self.count:
            return True
        size_bytes = RECORD_OVERHEAD_BYTES_MAX + len(key or b"") + len(value or b"")
        for header_key, header_value in headers:
            # A character takes up to four bytes in UTF-8.
            size_bytes += _HEADER_ENTRY_OVERHEAD_BYTES_MAX + 4 * len(header_key) + len(header_value or b"")
        return self.size_bytes + size_bytes <= self._bytes_max

    def append(
        self,
        key: bytes | None,
        value: bytes | None,
        headers: HeaderEntries = (),
        timestamp_ms: int = NO_TIMESTAMP,
        offset_delta: int | None = None,
    ) -> int:
        """Appends a record and returns its offset delta: the next one, unless a higher one is given."""
        if offset_delta is None:
            offset_delta = self._last_offset_delta + 1
        elif offset_delta <= self._last_offset_delta:
            raise ValueError(f"offset delta {offset_delta} after {self._last_offset_delta}")
        if self._base_timestamp_ms is None:
            self._base_timestamp_ms = timestamp_ms
        self._max_timestamp_ms = max(self._max_timestamp_ms, timestamp_ms)
        body = b"".join(
            (
                b"\0",
                encode(timestamp_ms - self._base_timestamp_ms),
                encode(offset_delta),
                _NULL if key is None else encode(len(key)),
                key or b"",
                _NULL if value is None else encode(len(value)),
                value or b"",
                _encode_headers(headers) if headers else _NO_HEADERS,
            )
        )
        self._payload += encode(len(body))
        self._payload += body
        self._last_offset_delta = offset_delta
        self.count += 1
        return offset_delta

    def build(self, last_offset_delta: int | None = None) -> bytearray:
        """Returns the batch. Compaction passes the last delta of the original, which outlives removed records."""
        if last_offset_delta is None:
            last_offset_delta = self._last_offset_delta
        if last_offset_delta < max(self._last_offset_delta, 0):
            raise ValueError(f"a batch of {self.count} records cannot end at offset delta {last_offset_delta}")
        payload = self._payload if self._codec is Codec.NONE else compress(self._codec, self._payload, self._level)
        batch = bytearray(HEADER_BYTES)
        HEADER.pack_into(
            batch,
            0,
            self._base_offset,
            HEADER_BYTES - LENGTH_EXCLUDES_BYTES + len(payload),
            self._leader_epoch,
            MAGIC,
            0,
            self._attributes,
            last_offset_delta,
            NO_TIMESTAMP if self._base_timestamp_ms is None else self._base_timestamp_ms,
            self._max_timestamp_ms,
            *self._producer,
            self.count,
        )
        batch += payload
        seal(batch)
        return batch


def _encode_headers(headers: HeaderEntries) -> bytes:
    parts: list[bytes] = []
    count = 0
    for key, value in headers:
        name = key.encode("utf-8", HEADER_KEY_ERRORS)
        parts += (encode(len(name)), name)
        parts += (_NULL,) if value is None else (encode(len(value)), value)
        count += 1
    return encode(count) + b"".join(parts)
