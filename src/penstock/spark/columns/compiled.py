"""The fast decoder: kernels write whole batches directly into the buffers of Arrow columns.

Buffers are allocated for the most that the batches can hold, filled in one pass over the records, and cut to the size
written: memory that is never touched costs nothing. The upper bound for headers is far above their actual number, so
the first pass counts them and a second pass writes them.
"""

from typing import NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.model.errors import CorruptBatch, ProtocolError
from penstock.records.compression import Codec, decompress, over_cap
from penstock.records.header import HEADER_BYTES, BatchView, Buffer, TimestampType
from penstock.records.rows import INT64_END, RECORD_BYTES_MIN
from penstock.spark.columns import kernels
from penstock.spark.columns.errors import unreadable
from penstock.spark.columns.loading import Kernels
from penstock.spark.columns.plain import PlainColumns
from penstock.spark.columns.shape import HEADERS, TIMESTAMP_MS_MAX, RecordRange, arrow_schema

Bytes = NDArray[np.uint8]
Number = TypeVar("Number", np.uint8, np.int32, np.int64)

_ANY_DELTA = (-INT64_END, INT64_END - 1)
_NO_DELTA = (1, 0)


class Source(NamedTuple):
    """Bytes with uncompressed records, and the lines of the kernels' table that locate them."""

    data: Bytes
    table: list[tuple[int, ...]]
    buffer: object
    """The buffer of the bytes: uncompressed batches of one Fetch response share a source."""


class Strings(NamedTuple):
    """The buffers of a column of strings or bytes, in the order of the kernels' parameters."""

    offsets: NDArray[np.int32]
    data: Bytes
    validity: Bytes

    def arrow(self, type_: pa.DataType, rows: int, size_bytes: int, nulls: int) -> pa.Array:
        """The rows written, as a column."""
        validity = pa.py_buffer(self.validity) if nulls else None
        buffers = [validity, pa.py_buffer(self.offsets[: rows + 1]), pa.py_buffer(self.data[:size_bytes])]
        return pa.Array.from_buffers(type_, rows, buffers, nulls)


class CompiledColumns:
    """Collects batches and decodes them with the kernels."""

    def __init__(self, run: Kernels, wanted: RecordRange, bytes_max: int) -> None:
        self.row_count = 0
        self.size_bytes = 0
        self._run = run
        self._wanted = wanted
        self._bytes_max = bytes_max
        self._batches: list[BatchView] = []
        self._sources: list[Source] = []

    def add(self, batch: BatchView) -> None:
        """Add a batch; its payload is decompressed here, its records are parsed later."""
        try:
            self._add_payload(batch)
        except ProtocolError as trouble:
            raise unreadable(self._wanted, batch, trouble) from None
        self._batches.append(batch)

    def _add_payload(self, batch: BatchView) -> None:
        if batch.codec is Codec.NONE:
            start, end = batch.position + HEADER_BYTES, batch.position + batch.size_bytes
            if end - start > self._bytes_max:
                raise over_cap(self._bytes_max)
            buffer = batch.buffer
        else:
            buffer = decompress(batch.codec, batch.payload, self._bytes_max)
            start, end = 0, len(buffer)
        if not 0 <= batch.count * RECORD_BYTES_MIN <= end - start:
            raise CorruptBatch(f"{batch.count} records do not fit into {end - start} bytes")
        if not self._sources or self._sources[-1].buffer is not buffer:
            self._sources.append(Source(_read_only(buffer), [], buffer))
        self._sources[-1].table.append(_table_line(batch, start, end))
        self.row_count += batch.count
        self.size_bytes += end - start

    def finish(self) -> pa.RecordBatch:
        """The wanted rows as an Arrow record batch."""
        table = self.fill()
        if table is not None:
            return table
        # The plain decoder decides: it finds the error and reports it.
        plain = PlainColumns(self._wanted, self._bytes_max)
        for batch in self._batches:
            plain.add(batch)
        return plain.finish()

    def fill(self) -> pa.RecordBatch | None:
        """The wanted rows as decoded by the kernels; None if the kernels refuse a batch."""
        wanted = self._wanted
        keys, values = _strings(self.row_count, self.size_bytes), _strings(self.row_count, self.size_bytes)
        offsets = _room(self.row_count, np.int64)
        timestamps_us = _room(self.row_count, np.int64)
        timestamp_types = _room(self.row_count, np.int32)
        header_positions = _room(self.row_count if wanted.has_headers else 0, np.int64)
        totals = np.zeros(kernels.TOTALS, np.int64)
        end_rows = []
        for source in self._sources:
            is_right = self._run.fill(
                source.data,
                np.array(source.table, np.int64),
                wanted.first,
                wanted.end,
                *keys,
                *values,
                offsets,
                timestamps_us,
                timestamp_types,
                header_positions,
                totals,
            )
            if not is_right:
                return None
            end_rows.append(int(totals[kernels.ROWS]))
        rows = int(totals[kernels.ROWS])
        schema = arrow_schema(wanted.has_headers)
        columns = [
            keys.arrow(pa.binary(), rows, totals[kernels.KEY_BYTES], totals[kernels.KEY_NULLS]),
            values.arrow(pa.binary(), rows, totals[kernels.VALUE_BYTES], totals[kernels.VALUE_NULLS]),
            pa.repeat(pa.scalar(wanted.topic, pa.string()), rows),
            pa.repeat(pa.scalar(wanted.partition, pa.int32()), rows),
            _numbers(pa.int64(), rows, offsets),
            _numbers(schema.field("timestamp").type, rows, timestamps_us),
            _numbers(pa.int32(), rows, timestamp_types),
        ]
        if wanted.has_headers:
            headers = self._headers(header_positions, end_rows, totals)
            if headers is None:
                return None
            columns.append(headers)
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _headers(self, positions: NDArray[np.int64], end_rows: list[int], found: NDArray[np.int64]) -> pa.Array | None:
        """The column of headers; None if it is left to the plain decoder, as with a key that is not UTF-8."""
        rows, entries = int(found[kernels.ROWS]), int(found[kernels.ENTRIES])
        if not entries:
            return pa.nulls(rows, HEADERS)
        entry_offsets = _room(rows + 1, np.int32)
        entry_offsets[0] = 0
        row_validity = _all_valid(rows)
        keys = _strings(entries, int(found[kernels.ENTRY_KEY_BYTES]))
        values = _strings(entries, int(found[kernels.ENTRY_VALUE_BYTES]))
        totals = np.zeros(kernels.TOTALS, np.int64)
        row = 0
        for source, end_row in zip(self._sources, end_rows, strict=True):
            if not self._run.fill_headers(
                source.data,
                positions,
                row,
                end_row,
                entry_offsets,
                row_validity,
                keys.offsets,
                keys.data,
                *values,
                totals,
            ):
                return None
            row = end_row
        key_array = keys.arrow(pa.string(), entries, totals[kernels.ENTRY_KEY_BYTES], 0)
        if not _is_utf8(key_array):
            return None
        value_bytes, value_nulls = totals[kernels.ENTRY_VALUE_BYTES], totals[kernels.ENTRY_VALUE_NULLS]
        value_array = values.arrow(pa.binary(), entries, value_bytes, value_nulls)
        entry_array = pa.StructArray.from_arrays([key_array, value_array], fields=list(HEADERS.value_type))
        buffers = [pa.py_buffer(row_validity), pa.py_buffer(entry_offsets)]
        return pa.Array.from_buffers(HEADERS, rows, buffers, int(totals[kernels.ROWS_WITHOUT]), 0, [entry_array])


def _room(count: int, kind: type[Number]) -> NDArray[Number]:
    """Memory from Arrow's pool, which reuses it; memory from the system would be mapped page by page."""
    size_bytes = count * np.dtype(kind).itemsize
    return np.frombuffer(pa.allocate_buffer(size_bytes), kind, count)


def _strings(rows: int, size_bytes: int) -> Strings:
    """Buffers for `rows` rows of `size_bytes` bytes in total."""
    offsets = _room(rows + 1, np.int32)
    offsets[0] = 0
    return Strings(offsets, _room(size_bytes, np.uint8), _all_valid(rows))


def _all_valid(rows: int) -> Bytes:
    return np.full((rows + 7) // 8, 0xFF, np.uint8)


def _numbers(type_: pa.DataType, rows: int, numbers: NDArray[np.int64] | NDArray[np.int32]) -> pa.Array:
    return pa.Array.from_buffers(type_, rows, [None, pa.py_buffer(numbers[:rows])], 0)


def _read_only(data: Buffer) -> Bytes:
    """The bytes as the read-only array that the kernels expect."""
    array = np.frombuffer(data, np.uint8)
    array.flags.writeable = False
    return array


def _is_utf8(keys: pa.Array) -> bool:
    try:
        keys.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _table_line(batch: BatchView, start: int, end: int) -> tuple[int, ...]:
    """The line of the kernels' table that describes a batch."""
    if batch.timestamp_type is TimestampType.LOG_APPEND_TIME:
        base_ms = batch.max_timestamp_ms
        deltas_ms = _ANY_DELTA
        wanted_deltas_ms = _ANY_DELTA if -TIMESTAMP_MS_MAX <= base_ms <= TIMESTAMP_MS_MAX else _NO_DELTA
    else:
        base_ms = batch.base_timestamp_ms
        deltas_ms = _deltas_to(base_ms, -INT64_END, INT64_END - 1)
        wanted_deltas_ms = _deltas_to(base_ms, -TIMESTAMP_MS_MAX, TIMESTAMP_MS_MAX)
    return (
        start,
        end,
        batch.count,
        batch.base_offset,
        batch.last_offset_delta,
        base_ms,
        batch.timestamp_type,
        *deltas_ms,
        *wanted_deltas_ms,
    )


def _deltas_to(base_ms: int, ms_min: int, ms_max: int) -> tuple[int, int]:
    """The least and greatest 64-bit delta from the base to a timestamp in the range."""
    return max(ms_min - base_ms, -INT64_END), min(ms_max - base_ms, INT64_END - 1)
