"""From the bytes of a Fetch answer to Arrow record batches.

What must stay true: a batch is opened, and the caller asked about it, only after its checksum has fitted. Base offset
and length lie outside the checksum, so batches must also follow each other, each beginning behind the one before. No
more than GROUP_BYTES and one batch are held unpacked at a time, and no column outgrows its 32-bit offsets.
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
from penstock.spark.columns.shape import Wanted

# Spark takes record batches of this order best; larger ones only leave the processor's caches sooner.
GROUP_ROWS = 64 * 1024
GROUP_BYTES = 16 * 1024 * 1024
# A group and one more batch stay below what the 32-bit offsets of a column can tell.
BYTES_MAX = 2**31 - 1 - GROUP_BYTES

OFFSET_MAX = 2**63 - 2

Skip = Callable[[BatchView], bool]


class Columns(Protocol):
    """Takes batches and makes one Arrow record batch of them."""

    row_count: int
    """Rows so far, at most."""
    size_bytes: int
    """Bytes held so far."""

    def add(self, batch: BatchView) -> None:
        """Take a batch; UnreadableBatch if its payload cannot be had."""

    def finish(self) -> pa.RecordBatch:
        """The wanted rows of all batches; UnreadableBatch if one of them does not hold what its header says."""


MakeColumns = Callable[[Wanted, int], Columns]
"""Makes columns for what is wanted and for batches of at most so many bytes, decompressed."""


def decode(
    data: memoryview | bytes,
    wanted: Wanted,
    skip: Skip | None = None,
    *,
    bytes_max: int = DEFAULT_LIMITS.batch_decompressed_bytes_max,
    checks_crc: bool = True,
) -> list[pa.RecordBatch]:
    """All wanted rows in `data`: whole batches one after another, of which the last may be cut off.

    `skip` is asked about every whole batch in order, those of markers included, and says which to leave out: such as
    those of aborted transactions. `bytes_max` limits what one batch may decompress to; use `stream` when all of them
    together are more than memory should hold.
    """
    return list(stream(data, wanted, skip, bytes_max=bytes_max, checks_crc=checks_crc))


def stream(
    data: memoryview | bytes,
    wanted: Wanted,
    skip: Skip | None = None,
    *,
    bytes_max: int = DEFAULT_LIMITS.batch_decompressed_bytes_max,
    checks_crc: bool = True,
    make_columns: MakeColumns | None = None,
) -> Iterator[pa.RecordBatch]:
    """Like `decode`, one record batch at a time. `make_columns` names the decoder: the fastest that works here."""
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
        # One that was taken before may be unreadable as well, and is the one to be told.
        columns.finish()
        raise
    yield from _rows_of(columns)


def fastest() -> MakeColumns:
    """The compiled decoder if it works here, or else the plain one."""
    kernels = load()
    if kernels is None:
        return PlainColumns
    from penstock.spark.columns.compiled import CompiledColumns

    return partial(CompiledColumns, kernels)


def _rows_of(columns: Columns) -> Iterator[pa.RecordBatch]:
    """What has been collected, if that is anything."""
    if columns.row_count or columns.size_bytes:
        table = columns.finish()
        if table.num_rows:
            yield table


def _wanted_batches(data: memoryview, wanted: Wanted, skip: Skip | None, checks_crc: bool) -> Iterator[BatchView]:
    """The batches that may hold wanted rows."""
    for batch in _whole_batches(data, wanted, checks_crc):
        if skip is not None and skip(batch):
            continue
        if batch.is_control or (not batch.count and not len(batch.payload)):
            continue
        if batch.base_offset < wanted.end and batch.last_offset >= wanted.first:
            yield batch


def _whole_batches(data: memoryview, wanted: Wanted, checks_crc: bool) -> Iterator[BatchView]:
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
