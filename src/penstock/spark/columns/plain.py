"""The plain decoder: row by row, in Python. Slow, works wherever pyarrow does, and is the reference."""

import pyarrow as pa

from penstock.model.errors import InvalidTimestamp, ProtocolError
from penstock.records.header import BatchView
from penstock.records.rows import HEADER_KEY_ERRORS, Headers, Record, rows
from penstock.spark.columns.errors import unreadable
from penstock.spark.columns.shape import TIMESTAMP_MS_MAX, RecordRange, arrow_schema


class PlainColumns:
    """Collects the wanted rows of batches, column by column."""

    def __init__(self, wanted: RecordRange, bytes_max: int) -> None:
        self.row_count = 0
        self.size_bytes = 0
        self._wanted = wanted
        self._bytes_max = bytes_max
        self._keys: list[bytes | None] = []
        self._values: list[bytes | None] = []
        self._offsets: list[int] = []
        self._timestamps_us: list[int] = []
        self._timestamp_types: list[int] = []
        self._headers: list[list[dict[str, object]] | None] = []

    def add(self, batch: BatchView) -> None:
        """Add the wanted rows of a batch: all of them, or none."""
        first, end = self._wanted.first, self._wanted.end
        try:
            records = [record for record in rows(batch, self._bytes_max) if first <= record.offset < end]
            self._timestamps_us += [_microseconds(record) for record in records]
        except ProtocolError as trouble:
            raise unreadable(self._wanted, batch, trouble) from None
        for offset, _, key, value, headers in records:
            self.size_bytes += len(key or b"") + len(value or b"")
            self._keys.append(key)
            self._values.append(value)
            self._offsets.append(offset)
            self._headers.append(_structs(headers) if self._wanted.has_headers else None)
        self._timestamp_types += [batch.timestamp_type] * len(records)
        self.row_count += len(records)

    def finish(self) -> pa.RecordBatch:
        """The rows as an Arrow record batch."""
        schema = arrow_schema(self._wanted.has_headers)
        columns: list[object] = [
            self._keys,
            self._values,
            [self._wanted.topic] * self.row_count,
            [self._wanted.partition] * self.row_count,
            self._offsets,
            self._timestamps_us,
            self._timestamp_types,
        ]
        if self._wanted.has_headers:
            columns.append(self._headers)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _microseconds(record: Record) -> int:
    timestamp_ms = record.timestamp_ms
    if not -TIMESTAMP_MS_MAX <= timestamp_ms <= TIMESTAMP_MS_MAX:
        raise InvalidTimestamp(f"at offset {record.offset}, {timestamp_ms} ms have more than 64 bits in microseconds")
    return timestamp_ms * 1000


def _structs(headers: Headers) -> list[dict[str, object]] | None:
    """Headers as Spark's connector gives them: null when there are none."""
    return [{"key": _as_java_reads(key), "value": value} for key, value in headers] or None


def _as_java_reads(key: str) -> str:
    """Substitutes the replacement character for bytes of a key that are not UTF-8."""
    return key.encode("utf-8", HEADER_KEY_ERRORS).decode("utf-8", "replace")
