"""Decodes the bytes of a Fetch response into Arrow record batches.

Invariants: a batch is decoded, and passed to `skip`, only after its checksum was verified. The checksum does not cover
base offset and length, so each batch must also begin after the end of the one before. At most GROUP_BYTES and one batch
are held decompressed at a time, and no column outgrows its 32-bit offsets.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Protocol

import pyarrow as pa

from penstock.model.errors import CorruptBatch, TornBatch
from penstock.model.limits import DEFAULT_LIMITS
from penstock.records.header import BatchView, batches
from penstock.spark.columns.errors import UnreadableBatch, cut_off, damaged
from penstock.spark.columns.loading import load
from penstock.spark.columns.plain import PlainColumns
from penstock.spark.columns.shape import RecordRange

# Spark works best with record batches of about this size; larger ones only exceed the processor's caches.
GROUP_ROWS = 64 * 1024
GROUP_BYTES = 16 * 1024 * 1024
# A group and one more batch fit into the 32-bit offsets of a column.
BYTES_MAX = 2**31 - 1 - GROUP_BYTES

OFFSET_MAX = 2**63 - 2

Skip = Callable[[BatchView], bool]


class Columns(Protocol):
    """Collects batches and converts them to one Arrow record batch."""

    row_count: int
    """An upper bound of the rows so far."""
    size_bytes: int
    """Bytes held so far."""

    def add(self, batch: BatchView) -> None:
        """Add a batch; raises UnreadableBatch if its payload cannot be read."""

    def finish(self) -> pa.RecordBatch:
        """The wanted rows of all batches; raises UnreadableBatch if one of them contradicts its header."""


MakeColumns = Callable[[RecordRange, int], Columns]
"""Creates columns from the wanted rows and the largest decompressed size of a batch."""


def decode(
    data: memoryview | bytes,
    wanted: RecordRange,
    skip: Skip | None = None,
    *,
    bytes_max: int = DEFAULT_LIMITS.batch_decompressed_bytes_max,
    checks_crc: bool = True,
) -> list[pa.RecordBatch]:
    """All wanted rows in `data`: a sequence of whole batches, of which the last may be truncated.

    `skip` is called for every whole batch in order, control batches included, and returns whether to leave it out, such
    as a batch of an aborted transaction. `bytes_max` limits the decompressed size of one batch; use `stream` if all
    batches together do not fit into memory.
    """
    return list(stream(data, wanted, skip, bytes_max=bytes_max, checks_crc=checks_crc))


def stream(
    data: memoryview | bytes,
    wanted: RecordRange,
    skip: Skip | None = None,
    *,
    bytes_max: int = DEFAULT_LIMITS.batch_decompressed_bytes_max,
    checks_crc: bool = True,
    make_columns: MakeColumns | None = None,
) -> Iterator[pa.RecordBatch]:
    """Like `decode`, one record batch at a time. `make_columns` is the decoder, by default the fastest available."""
    make_columns = make_columns or fastest()
    bytes_max = min(bytes_max, BYTES_MAX)
    wanted = wanted._replace(first=max(wanted.first, 0), end=min(wanted.end, OFFSET_MAX + 1))
    columns = make_columns(wanted, bytes_max)
    try:
        for batch in _wanted_batches(memoryview(data).cast("B"), wanted, skip, checks_crc):
            columns.add(batch)
            if columns.row_count >= GROUP_ROWS or columns.size_bytes >= GROUP_BYTES:
                full, columns = columns, make_columns(wanted, bytes_max)
                yield from _rows_of(full)
    except UnreadableBatch:
        # A batch added before may be unreadable as well; then its error must be raised.
        columns.finish()
        raise
    yield from _rows_of(columns)


def fastest() -> MakeColumns:
    """The compiled decoder if it is available, or else the plain one."""
    kernels = load()
    if kernels is None:
        return PlainColumns
    from penstock.spark.columns.compiled import CompiledColumns

    return partial(CompiledColumns, kernels)


def _rows_of(columns: Columns) -> Iterator[pa.RecordBatch]:
    """The collected rows, if there are any."""
    if columns.row_count or columns.size_bytes:
        table = columns.finish()
        if table.num_rows:
            yield table


def _wanted_batches(data: memoryview, wanted: RecordRange, skip: Skip | None, checks_crc: bool) -> Iterator[BatchView]:
    """The batches that may hold wanted rows."""
    for batch in _whole_batches(data, wanted, checks_crc):
        if skip is not None and skip(batch):
            continue
        if batch.is_control or (not batch.count and not len(batch.payload)):
            continue
        if batch.base_offset < wanted.end and batch.last_offset >= wanted.first:
            yield batch


def _whole_batches(data: memoryview, wanted: RecordRange, checks_crc: bool) -> Iterator[BatchView]:
    """The batches in `data` that are whole, in order and intact."""
    next_offset = None
    try:
        for batch in batches(data):
            if checks_crc and not batch.is_intact:
                raise damaged(wanted, batch.base_offset, "the checksum does not fit its bytes")
            if not 0 <= batch.base_offset <= batch.last_offset <= OFFSET_MAX:
                reason = f"it claims offsets from {batch.base_offset} to {batch.last_offset}"
                raise damaged(wanted, batch.base_offset, reason)
            if next_offset is not None and batch.base_offset < next_offset:
                reason = f"it follows on offset {next_offset - 1}, and offsets only rise"
                raise damaged(wanted, batch.base_offset, reason)
            next_offset = batch.last_offset + 1
            yield batch
    except TornBatch as trouble:
        if next_offset is None:
            raise cut_off(wanted, str(trouble)) from None
    except CorruptBatch as trouble:
        raise damaged(wanted, wanted.first if next_offset is None else next_offset, str(trouble)) from None
