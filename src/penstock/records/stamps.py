"""Timestamps of the records of a batch, without their keys and values, for lookups by time.

A lookup reads an accepted batch of any decompressed size with bounded memory and work: at most the first LOOKED_AT_MAX
records, as far as they lie in the first `bytes_max` of the payload. If the record may lie beyond that, the result is
the first record that was not read, so that a reader that starts there misses nothing. The same holds for a batch that
cannot be decoded: under `header` validation its records were never opened.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from penstock.model.errors import CorruptBatch, ProtocolError
from penstock.model.limits import DEFAULT_LIMITS
from penstock.records.compression import decompress_prefix
from penstock.records.header import BatchView, TimestampType
from penstock.records.varint import read_varint, read_varlong

LOOKED_AT_MAX: Final = DEFAULT_LIMITS.batch_opened_records_max


class Stamp(NamedTuple):
    """A record's timestamp and offset."""

    timestamp_ms: int
    offset: int


def first_since(batch: BatchView, timestamp_ms: int, start: int, limit: int, bytes_max: int) -> Stamp | None:
    """The first record of the batch with at least this timestamp, of those from `start` on and below `limit`."""
    if batch.timestamp_type is TimestampType.LOG_APPEND_TIME:
        return _all_at_once(batch, start, limit) if batch.max_timestamp_ms >= timestamp_ms else None
    seen = _Seen(batch, bytes_max)
    for stamp in seen.stamps():
        if stamp.timestamp_ms >= timestamp_ms and start <= stamp.offset < limit:
            return stamp
    return seen.rest(start, limit)


def latest(batch: BatchView, start: int, limit: int, bytes_max: int) -> Stamp | None:
    """The first record of the batch with the highest timestamp, of those from `start` on and below `limit`."""
    if batch.timestamp_type is TimestampType.LOG_APPEND_TIME:
        return _all_at_once(batch, start, limit)
    seen, best = _Seen(batch, bytes_max), None
    for stamp in seen.stamps():
        if start <= stamp.offset < limit and (best is None or stamp.timestamp_ms > best.timestamp_ms):
            best = stamp
    rest = None if best is not None and best.timestamp_ms >= batch.max_timestamp_ms else seen.rest(start, limit)
    return best if rest is None else rest


def _all_at_once(batch: BatchView, start: int, limit: int) -> Stamp | None:
    """The first record in range of a batch whose records all have the timestamp of the header."""
    offset = max(batch.base_offset, start)
    return Stamp(batch.max_timestamp_ms, offset) if offset < limit and offset <= batch.last_offset else None


class _Seen:
    """The records of a batch within the bounds of a lookup."""

    def __init__(self, batch: BatchView, bytes_max: int) -> None:
        self._batch = batch
        try:
            data, self._is_whole = decompress_prefix(batch.codec, batch.payload, bytes_max)
        except ProtocolError:
            data, self._is_whole = b"", False
        self._data = bytes(data)
        self._next_offset = batch.base_offset

    def rest(self, start: int, limit: int) -> Stamp | None:
        """The first record that was not read, or None."""
        offset = max(self._next_offset, start)
        if self._is_whole or offset >= limit or offset > self._batch.last_offset:
            return None
        return Stamp(self._batch.max_timestamp_ms, offset)

    def stamps(self) -> Iterator[Stamp]:
        batch, data = self._batch, self._data
        base_timestamp_ms, base_offset, last_delta = batch.base_timestamp_ms, batch.base_offset, batch.last_offset_delta
        position = 0
        try:
            for number in range(batch.count):
                if number == LOOKED_AT_MAX:
                    self._is_whole = False
                    return
                if (byte := data[position]) < 0x80:
                    length = byte >> 1 ^ -(byte & 1)
                    position += 1
                else:
                    length, position = read_varint(data, position)
                record_end = position + length
                if length <= 0:
                    raise CorruptBatch(f"a record of {length} bytes")
                position += 1
                if (byte := data[position]) < 0x80:
                    timestamp_delta_ms = byte >> 1 ^ -(byte & 1)
                    position += 1
                else:
                    timestamp_delta_ms, position = read_varlong(data, position)
                if (byte := data[position]) < 0x80:
                    offset_delta = byte >> 1 ^ -(byte & 1)
                    position += 1
                else:
                    offset_delta, position = read_varint(data, position)
                if not 0 <= offset_delta <= last_delta:
                    raise CorruptBatch(f"offset delta {offset_delta} in a batch of last delta {last_delta}")
                yield Stamp(base_timestamp_ms + timestamp_delta_ms, base_offset + offset_delta)
                self._next_offset = max(self._next_offset, base_offset + offset_delta + 1)
                position = record_end
        except (IndexError, CorruptBatch):
            self._is_whole = False  # the data is cut inside a record, or corrupt
