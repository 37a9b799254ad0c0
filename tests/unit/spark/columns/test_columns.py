"""Both decoders produce the columns of Spark's Kafka connector."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from penstock.records.builder import BatchBuilder
from penstock.records.compression import Codec
from penstock.records.control import ControlType, EndTransactionMarker, marker_batch
from penstock.records.header import BatchView, stamp_log_append_time
from penstock.spark.columns import RecordRange, arrow_schema, decode, decoding
from penstock.spark.columns.decoding import MakeColumns, stream

NOW_MS = 1_700_000_000_000
NOW = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
ALL = RecordRange("orders", 3, 0, 2**64)

Rows = list[dict[str, object]]


def read(make_columns: MakeColumns, data: bytes | memoryview, wanted: RecordRange = ALL, **options: Any) -> Rows:
    """Returns the rows; checks that every record batch is valid and has the expected schema."""
    rows: Rows = []
    for table in stream(data, wanted, make_columns=make_columns, **options):
        table.validate(full=True)
        assert table.schema.equals(arrow_schema(wanted.has_headers))
        rows += table.to_pylist()
    return rows


def column(rows: Rows, name: str) -> list[object]:
    return [row[name] for row in rows]


def batch_of(*values: bytes | None, base_offset: int = 0, codec: Codec = Codec.NONE, **options: Any) -> bytes:
    builder = BatchBuilder(base_offset=base_offset, codec=codec, **options)
    for number, value in enumerate(values):
        builder.append(b"key-%d" % number, value, (), NOW_MS + number)
    return bytes(builder.build())


@pytest.mark.parametrize("has_headers", [False, True])
def test_the_schema_is_the_one_that_pyspark_makes_of_the_connectors(has_headers: bool) -> None:
    header = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    connector = StructType(
        [
            StructField("key", BinaryType()),
            StructField("value", BinaryType()),
            StructField("topic", StringType()),
            StructField("partition", IntegerType()),
            StructField("offset", LongType()),
            StructField("timestamp", TimestampType()),
            StructField("timestampType", IntegerType()),
            *([StructField("headers", ArrayType(header))] if has_headers else []),
        ]
    )
    assert to_arrow_schema(connector, timezone="UTC").equals(arrow_schema(has_headers))


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name)
def test_a_record_is_a_row(make_columns: MakeColumns, codec: Codec) -> None:
    rows = read(make_columns, batch_of(b"first", b"second", base_offset=40, codec=codec))
    assert rows == [
        {
            "key": b"key-%d" % number,
            "value": value,
            "topic": "orders",
            "partition": 3,
            "offset": 40 + number,
            "timestamp": NOW + timedelta(milliseconds=number),
            "timestampType": 0,
        }
        for number, value in enumerate((b"first", b"second"))
    ]


def test_null_is_not_empty(make_columns: MakeColumns) -> None:
    """A tombstone is null, and Spark's `IS NULL` finds it."""
    builder = BatchBuilder()
    pairs = [(None, b"v"), (b"k", None), (None, None), (b"", b""), (b"k", b"v")] * 4
    for key, value in pairs:
        builder.append(key, value)
    rows = read(make_columns, bytes(builder.build()))
    assert [(row["key"], row["value"]) for row in rows] == pairs


def test_only_wanted_offsets_come_back(make_columns: MakeColumns) -> None:
    data = b"".join(batch_of(b"a", b"b", b"c", base_offset=base) for base in (0, 3, 6, 9))
    assert column(read(make_columns, data, RecordRange("orders", 3, 4, 8)), "offset") == [4, 5, 6, 7]
    assert read(make_columns, data, RecordRange("orders", 3, 12, 20)) == []
    assert read(make_columns, data, RecordRange("orders", 3, 5, 5)) == []


def test_what_compaction_took_leaves_gaps(make_columns: MakeColumns) -> None:
    builder = BatchBuilder(base_offset=1_000)
    for delta in (3, 4, 2**31 - 1):
        builder.append(b"k", b"v", timestamp_ms=NOW_MS, offset_delta=delta)
    emptied = BatchBuilder(base_offset=500).build(last_offset_delta=499)
    rows = read(make_columns, bytes(emptied + builder.build()))
    assert column(rows, "offset") == [1_003, 1_004, 1_000 + 2**31 - 1]


def test_times_may_go_back_and_lie_before_1970(make_columns: MakeColumns) -> None:
    builder = BatchBuilder()
    for timestamp_ms in (NOW_MS, NOW_MS - 90_000, -1, -86_400_000):
        builder.append(None, b"v", timestamp_ms=timestamp_ms)
    assert column(read(make_columns, bytes(builder.build())), "timestamp") == [
        NOW,
        NOW - timedelta(seconds=90),
        datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC),
        datetime(1969, 12, 31, tzinfo=UTC),
    ]


def test_the_time_of_append_is_every_records_time(make_columns: MakeColumns) -> None:
    stamped = bytearray(batch_of(b"a", b"b"))
    stamp_log_append_time(stamped, NOW_MS + 5_000)
    rows = read(make_columns, bytes(stamped) + batch_of(b"c", base_offset=2))
    assert column(rows, "timestamp") == [NOW + timedelta(seconds=5)] * 2 + [NOW]
    assert column(rows, "timestampType") == [1, 1, 0]


def test_markers_give_no_rows(make_columns: MakeColumns) -> None:
    commit = EndTransactionMarker(ControlType.COMMIT, 0)
    marker = marker_batch(commit, producer_id=7, producer_epoch=0, timestamp_ms=NOW_MS, base_offset=1)
    data = batch_of(b"a") + bytes(marker) + batch_of(b"b", base_offset=2)
    assert column(read(make_columns, data), "offset") == [0, 2]


def test_skip_sees_every_whole_batch_and_drops_what_it_names(make_columns: MakeColumns) -> None:
    abort = EndTransactionMarker(ControlType.ABORT, 0)
    sent: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0, "is_transactional": True}
    data = (
        batch_of(b"aborted", base_offset=5, base_sequence=0, **sent)
        + batch_of(b"plain", base_offset=6)
        + bytes(marker_batch(abort, producer_id=7, producer_epoch=0, timestamp_ms=NOW_MS, base_offset=7))
        + batch_of(b"committed", base_offset=8, base_sequence=1, **sent)
        + batch_of(b"cut off", base_offset=9)[:-1]
    )
    asked: list[tuple[int, bool]] = []

    def skip(batch: BatchView) -> bool:
        asked.append((batch.base_offset, batch.is_control))
        return batch.base_offset == 5

    assert column(read(make_columns, data, skip=skip), "value") == [b"plain", b"committed"]
    assert asked == [(5, False), (6, False), (7, True), (8, False)]


def test_a_batch_that_is_cut_off_is_left_for_the_next_fetch(make_columns: MakeColumns) -> None:
    whole, half = batch_of(b"a"), batch_of(b"b", base_offset=1)
    for size_bytes in (1, 16, 60, 61, len(half) - 1):
        assert column(read(make_columns, whole + half[:size_bytes]), "value") == [b"a"]


def test_nothing_gives_nothing(make_columns: MakeColumns) -> None:
    assert read(make_columns, b"") == []


def test_headers_come_in_their_order(make_columns: MakeColumns) -> None:
    builder = BatchBuilder(codec=Codec.LZ4)
    builder.append(b"k", b"v", [("trace", b"1"), ("trace", b"2"), ("", b""), ("größe", None)])
    builder.append(b"k", b"v")
    builder.append(b"k", b"v", [("last", b"x" * 200)])
    data = bytes(builder.build())
    rows = read(make_columns, data + batch_of(b"w", base_offset=3), ALL._replace(has_headers=True))
    assert column(rows, "headers") == [
        [
            {"key": "trace", "value": b"1"},
            {"key": "trace", "value": b"2"},
            {"key": "", "value": b""},
            {"key": "größe", "value": None},
        ],
        None,
        [{"key": "last", "value": b"x" * 200}],
        None,
    ]
    assert "headers" not in read(make_columns, data)[0]


def test_no_headers_at_all_are_nulls(make_columns: MakeColumns) -> None:
    rows = read(make_columns, batch_of(b"a", b"b"), ALL._replace(has_headers=True))
    assert column(rows, "headers") == [None, None]


def test_a_header_key_that_is_not_utf8_is_shown_as_java_shows_it(make_columns: MakeColumns) -> None:
    builder = BatchBuilder()
    builder.append(b"k", b"v", [(b"\xff-\xc3\xa9-\xed\xa0\x80".decode("utf-8", "surrogateescape"), b"x")])
    builder.append(b"k", b"v", [("good", b"y")])
    rows = read(make_columns, bytes(builder.build()), ALL._replace(has_headers=True))
    assert column(rows, "headers") == [
        [{"key": "\ufffd-é-\ufffd\ufffd\ufffd", "value": b"x"}],
        [{"key": "good", "value": b"y"}],
    ]


def test_a_view_into_a_larger_buffer_is_as_good(make_columns: MakeColumns) -> None:
    data = bytearray(b"some frame" + batch_of(b"a", b"b") + b"rest")
    assert column(read(make_columns, memoryview(data)[10:-4]), "value") == [b"a", b"b"]


def test_groups_are_handed_on_before_all_is_read(make_columns: MakeColumns, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory stays bounded, however much a small response decompresses to."""
    monkeypatch.setattr(decoding, "GROUP_ROWS", 4)
    asked: list[int] = []

    def skip(batch: BatchView) -> bool:
        asked.append(batch.base_offset)
        return False

    data = b"".join(batch_of(b"a", b"b", base_offset=base, codec=Codec.ZSTD) for base in range(0, 12, 2))
    tables = stream(data, ALL, skip, make_columns=make_columns)
    assert next(tables).column("offset").to_pylist() == [0, 1, 2, 3]
    assert asked == [0, 2]
    assert [table.num_rows for table in tables] == [4, 4]


def test_large_batches_go_alone(make_columns: MakeColumns, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "GROUP_BYTES", 1_000)
    data = b"".join(batch_of(b"x" * 1_000, base_offset=base) for base in range(3))
    tables = list(stream(data, ALL, make_columns=make_columns))
    assert [table.num_rows for table in tables] == [1, 1, 1]


def test_decode_gives_all_at_once() -> None:
    data = b"".join(batch_of(b"a", b"b", base_offset=base) for base in range(0, 6, 2))
    tables = decode(data, ALL, None)
    assert pa.Table.from_batches(tables).column("offset").to_pylist() == list(range(6))
