"""Arrow batches as the source returns them."""

from collections.abc import Sequence
from datetime import UTC, datetime

import pyarrow as pa

HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
RAW = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
        ("headers", HEADERS),
    ]
)


def us(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1_000_000)


def raw(
    offsets: Sequence[int],
    stamps_us: Sequence[int] | int,
    value: bytes | None = b"value",
    partition: int = 0,
    values: Sequence[bytes | None] | None = None,
) -> pa.RecordBatch:
    count = len(offsets)
    stamps = [stamps_us] * count if isinstance(stamps_us, int) else stamps_us
    columns = [
        pa.array([b"%d" % each for each in offsets], pa.binary()),
        pa.array([value] * count if values is None else values, pa.binary()),
        pa.array(["orders"] * count),
        pa.array([partition] * count, pa.int32()),
        pa.array(offsets, pa.int64()),
        pa.array(stamps, pa.int64()).cast(pa.timestamp("us", tz="UTC")),
        pa.array([0] * count, pa.int32()),
        pa.array([[{"key": "trace", "value": b"%d" % each}] for each in offsets], HEADERS),
    ]
    return pa.record_batch(columns, schema=RAW)
