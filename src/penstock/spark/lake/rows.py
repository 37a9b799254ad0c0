"""The rows of a table: the columns of the source, decoded, and the day that partitions the table."""

from collections.abc import Iterator

import pyarrow as pa

from penstock.spark.lake.table import DAY

US_PER_DAY = 86_400_000_000
DAY_FIRST, DAY_LAST = -719_162, 2_932_896
"""0001-01-01 and 9999-12-31: the range that every reader accepts as a date."""
_HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])


def table_schema(key: pa.DataType, value: pa.DataType, *, has_headers: bool, is_by_day: bool) -> pa.Schema:
    """The table's columns. All are nullable, because the table is to grow for years."""
    fields = {
        "key": key,
        "value": value,
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestampType": pa.int32(),
    }
    if has_headers:
        fields["headers"] = pa.list_(_HEADER)
    if is_by_day:
        fields[DAY] = pa.date32()
    return pa.schema(list(fields.items()))


def by_day(batch: pa.RecordBatch) -> Iterator[tuple[int | None, pa.RecordBatch]]:
    """Splits a batch by the UTC day of its timestamps, in days since 1970; None for a day outside the calendar."""
    if not batch.num_rows:
        return
    days = batch.column("timestamp").cast(pa.int64()).to_numpy(zero_copy_only=False) // US_PER_DAY
    first, last = int(days.min()), int(days.max())
    if first == last:
        yield _date(first), batch
        return
    outside = None
    for day in sorted(set(days.tolist())):
        mask = days == day
        if _date(day) is None:
            outside = mask if outside is None else outside | mask
        else:
            yield day, batch.filter(pa.array(mask))
    if outside is not None:
        yield None, batch.filter(pa.array(outside))


def _date(day: int) -> int | None:
    return day if DAY_FIRST <= day <= DAY_LAST else None
