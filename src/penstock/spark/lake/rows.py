"""What a row is on its way into the table: its columns, and what is wrong with it if something is.

The frame that tasks get has the table's columns (but the day, which tasks find out) and, where decoding can fail, one
more: `_bad`, null in a good row, and in a bad one the reason and the bytes as they came.
"""

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from penstock.spark.lake.table import DAY

if TYPE_CHECKING:
    from collections.abc import Iterator

BAD = "_bad"
US_PER_DAY = 86_400_000_000
DAY_FIRST, DAY_LAST = -719_162, 2_932_896
"""0001-01-01 and 9999-12-31: what every reader takes for a date."""


def split_bad(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch | None]:
    """Good rows as the table has them, and bad ones if there are any."""
    if BAD not in batch.schema.names:
        return batch, None
    bad = batch.column(BAD)
    good = batch.drop_columns([BAD])
    if bad.null_count == len(bad):
        return good, None
    is_good = pc.is_null(bad)
    return good.filter(is_good), batch.filter(pc.invert(is_good))


def by_day(batch: pa.RecordBatch) -> "Iterator[tuple[int | None, pa.RecordBatch]]":
    """A batch cut by the day of its timestamps, in UTC, as days since 1970; None for a time that is no date."""
    if not batch.num_rows:
        return
    days = batch.column("timestamp").cast(pa.int64()).to_numpy(zero_copy_only=False) // US_PER_DAY
    first, last = int(days.min()), int(days.max())
    if first == last:
        yield _date(first), batch
        return
    outside = None
    for day in sorted({int(day) for day in set(days.tolist())}):
        mask = days == day
        if _date(day) is None:
            outside = mask if outside is None else outside | mask
        else:
            yield day, batch.filter(pa.array(mask))
    if outside is not None:
        yield None, batch.filter(pa.array(outside))


def table_schema(rows: pa.Schema, *, is_by_day: bool) -> pa.Schema:
    """The table's columns from those of the frame."""
    fields = [each for each in rows if each.name != BAD]
    return pa.schema([*fields, pa.field(DAY, pa.date32())] if is_by_day else fields)


def _date(day: int) -> int | None:
    return day if DAY_FIRST <= day <= DAY_LAST else None
