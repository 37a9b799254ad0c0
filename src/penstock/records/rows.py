"""Reads records one by one, in plain Python: the reference for every faster reader.

Nothing is allocated from a declared length or count: each is first checked against the remaining bytes. A walk that
ends without an exception has read exactly `count` records and no other byte.
"""

from collections.abc import Iterator
from typing import NamedTuple

from penstock.model.errors import CorruptBatch
from penstock.records.compression import decompress
from penstock.records.header import BatchView, TimestampType
from penstock.records.varint import read_varint, read_varlong

Headers = tuple[tuple[str, bytes | None], ...]

# Length, attributes, timestamp delta, offset delta, key length, value length, header count: one byte each.
RECORD_BYTES_MIN = 7
# Key length and value length.
HEADER_ENTRY_BYTES_MIN = 2
# Header keys are UTF-8 by convention only. This way other bytes survive a round trip through str.
HEADER_KEY_ERRORS = "surrogateescape"

INT64_END = 2**63


class Record(NamedTuple):
    """One record as a reader sees it."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


Row = tuple[int, int, int, bytes | None, bytes | None, Headers]
"""A record as it is stored: attributes, timestamp delta, offset delta, key, value, headers. A bare tuple for speed."""


def rows(batch: BatchView, bytes_max: int) -> Iterator[Record]:
    """The records of a batch, control records included; `bytes_max` caps what the payload may decompress to."""
    base_offset = batch.base_offset
    base_timestamp_ms = batch.base_timestamp_ms
    last_offset_delta = batch.last_offset_delta
    append_time_ms = batch.max_timestamp_ms if batch.timestamp_type is TimestampType.LOG_APPEND_TIME else None
    for _, timestamp_delta_ms, offset_delta, key, value, headers in stored_rows(batch, bytes_max):
        timestamp_ms = base_timestamp_ms + timestamp_delta_ms if append_time_ms is None else append_time_ms
        if not 0 <= offset_delta <= last_offset_delta:
            raise CorruptBatch(f"offset delta {offset_delta} in a batch of last delta {last_offset_delta}")
        if not -INT64_END <= timestamp_ms < INT64_END:
            raise CorruptBatch(f"timestamp {timestamp_ms} has more than 64 bits")
        yield Record(base_offset + offset_delta, timestamp_ms, key, value, headers)


def stored_rows(batch: BatchView, bytes_max: int) -> Iterator[Row]:
    """The records of a batch with their deltas, not validated."""
    return walk(decompress(batch.codec, batch.payload, bytes_max), batch.count)


def walk(data: bytes | bytearray, count: int) -> Iterator[Row]:
    """Yields `count` records that fill `data` exactly."""
    data = bytes(data)
    end = len(data)
    if not 0 <= count * RECORD_BYTES_MIN <= end:
        raise CorruptBatch(f"{count} records do not fit into {end} bytes")
    position = 0
    try:
        for _ in range(count):
            # Numbers from -64 to 63 take one byte, and most numbers of a record do: that case is inlined.
            if (byte := data[position]) < 0x80:
                length = byte >> 1 ^ -(byte & 1)
                position += 1
            else:
                length, position = read_varint(data, position)
            record_end = position + length
            if not position < record_end <= end:
                raise CorruptBatch(f"a record of {length} bytes where {end - position} are left")
            attributes = data[position]
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
            key, position = _read_bytes(data, position, record_end)
            value, position = _read_bytes(data, position, record_end)
            headers: Headers = ()
            if data[position]:
                headers, position = _read_headers(data, position, record_end)
            else:
                position += 1
            if position != record_end:
                raise CorruptBatch(f"a record says that it ends at {record_end} but does at {position}")
            yield attributes, timestamp_delta_ms, offset_delta, key, value, headers
    except IndexError:
        raise CorruptBatch("records end early") from None
    if position != end:
        raise CorruptBatch(f"{end - position} bytes after the last record")


def _read_bytes(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    if (byte := data[position]) < 0x80:
        length = byte >> 1 ^ -(byte & 1)
        position += 1
    else:
        length, position = read_varint(data, position)
    if length == -1:
        return None, position
    field_end = position + length
    if not position <= field_end <= end:
        raise CorruptBatch(f"a field of {length} bytes where {end - position} are left")
    return data[position:field_end], field_end


def _read_headers(data: bytes, position: int, end: int) -> tuple[Headers, int]:
    count, position = read_varint(data, position)
    if not 0 <= count * HEADER_ENTRY_BYTES_MIN <= end - position:
        raise CorruptBatch(f"{count} headers where {end - position} bytes are left")
    headers = []
    for _ in range(count):
        key, position = _read_bytes(data, position, end)
        if key is None:
            raise CorruptBatch("a header without a key")
        value, position = _read_bytes(data, position, end)
        headers.append((key.decode("utf-8", HEADER_KEY_ERRORS), value))
    return tuple(headers), position
