"""Arrow batches as tasks get them."""

from collections.abc import Sequence
from datetime import UTC, datetime

import pyarrow as pa

HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
BAD_TYPE = pa.struct(
    [(name, pa.string()) for name in ("kind", "reason")] + [(n, pa.binary()) for n in ("key", "value")]
)
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
DECODED = RAW.set(1, pa.field("value", pa.string())).append(pa.field("_bad", BAD_TYPE))


def us(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1_000_000)


def raw(
    offsets: Sequence[int], stamps_us: Sequence[int] | int, value: bytes = b"value", partition: int = 0
) -> pa.RecordBatch:
    count = len(offsets)
    stamps = [stamps_us] * count if isinstance(stamps_us, int) else stamps_us
    columns = [
        pa.array([b"%d" % each for each in offsets], pa.binary()),
        pa.array([value] * count, pa.binary()),
        pa.array(["orders"] * count),
        pa.array([partition] * count, pa.int32()),
        pa.array(offsets, pa.int64()),
        pa.array(stamps, pa.int64()).cast(pa.timestamp("us", tz="UTC")),
        pa.array([0] * count, pa.int32()),
        pa.array([[{"key": "trace", "value": b"%d" % each}] for each in offsets], HEADERS),
    ]
    return pa.record_batch(columns, schema=RAW)


def decoded(offsets: Sequence[int], bad: Sequence[int], stamp_us: int, partition: int = 0) -> pa.RecordBatch:
    """Rows of which some could not be read."""
    plain = raw(offsets, stamp_us, partition=partition)
    values = pa.array([None if each in bad else "{}" for each in offsets], pa.string())
    marks = [
        {"kind": "NotJson", "reason": f"offset {each} is no JSON", "key": b"%d" % each, "value": b"\xff{"}
        if each in bad
        else None
        for each in offsets
    ]
    columns = [*plain.columns, pa.array(marks, BAD_TYPE)]
    columns[1] = values
    return pa.record_batch(columns, schema=DECODED)
