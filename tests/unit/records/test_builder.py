"""The batch builder, beyond the round trips of tests/property."""

import pytest

from penstock.records.builder import BatchBuilder
from penstock.records.compression import Codec
from penstock.records.header import NO_TIMESTAMP, BatchView, TimestampType
from penstock.records.rows import Record, rows
from penstock.records.varint import encode, read_varint, read_varlong


def test_settings_arrive_in_the_header() -> None:
    builder = BatchBuilder(
        codec=Codec.SNAPPY,
        base_offset=100,
        leader_epoch=3,
        producer_id=9,
        producer_epoch=2,
        base_sequence=40,
        is_transactional=True,
        is_control=True,
        timestamp_type=TimestampType.LOG_APPEND_TIME,
    )
    assert builder.append(b"k", b"v", timestamp_ms=5) == 0
    assert builder.append(b"k", b"v", timestamp_ms=9) == 1
    batch = BatchView(builder.build())
    assert (batch.base_offset, batch.last_offset, batch.leader_epoch) == (100, 101, 3)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.last_sequence) == (9, 2, 40, 41)
    assert batch.is_transactional
    assert batch.is_control
    assert batch.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert batch.codec is Codec.SNAPPY
    assert (batch.base_timestamp_ms, batch.max_timestamp_ms) == (5, 9)
    assert batch.is_intact


def test_compaction_keeps_offsets_when_records_go() -> None:
    builder = BatchBuilder(base_offset=10)
    builder.append(b"a", b"1", offset_delta=2)
    builder.append(b"b", b"2", offset_delta=5)
    with pytest.raises(ValueError, match="offset delta 5 after 5"):
        builder.append(b"c", b"3", offset_delta=5)
    batch = BatchView(builder.build(last_offset_delta=9))
    assert (batch.count, batch.last_offset) == (2, 19)
    assert [record.offset for record in rows(batch, 1000)] == [12, 15]


def test_a_batch_may_lose_all_its_records_but_not_its_place() -> None:
    """Kafka keeps the empty batch of a producer's last sequence; so does our log cleaner."""
    batch = BatchView(BatchBuilder(base_offset=10).build(last_offset_delta=4))
    assert (batch.count, batch.last_offset) == (0, 14)
    assert list(rows(batch, 1000)) == []
    with pytest.raises(ValueError, match="0 records"):
        BatchBuilder().build()


def test_a_delete_horizon_takes_the_place_of_the_base_timestamp() -> None:
    builder = BatchBuilder(delete_horizon_ms=90_000)
    builder.append(b"k", None, timestamp_ms=1_000)
    batch = BatchView(builder.build())
    assert batch.has_delete_horizon
    assert (batch.base_timestamp_ms, batch.max_timestamp_ms) == (90_000, 1_000)
    assert [record.timestamp_ms for record in rows(batch, 1000)] == [1_000]


def test_records_without_a_timestamp() -> None:
    builder = BatchBuilder()
    builder.append(None, None)
    batch = BatchView(builder.build())
    assert (batch.base_timestamp_ms, batch.max_timestamp_ms) == (NO_TIMESTAMP, NO_TIMESTAMP)
    assert list(rows(batch, 1000)) == [Record(0, NO_TIMESTAMP, None, None)]


def test_the_size_is_exact_without_compression() -> None:
    builder = BatchBuilder()
    for number in range(200):
        builder.append(b"k", bytes(number), (("é", None), ("x", b"y")), 10**12 - number)
        assert builder.size_bytes == len(builder.build())


def test_a_bounded_batch_takes_any_first_record_and_then_keeps_its_bound() -> None:
    builder = BatchBuilder(bytes_max=1000)
    assert builder.has_room_for(b"k", bytes(5000))
    while builder.has_room_for(b"k", bytes(50), (("ключ", b"v"),)):
        builder.append(b"k", bytes(50), (("ключ", b"v"),), timestamp_ms=10**15)
    assert builder.count > 5
    assert len(builder.build()) <= 1000
    assert not builder.is_full
    builder.append(b"k", bytes(1000))
    assert builder.is_full


@pytest.mark.parametrize(
    ("value", "written"),
    [(0, "00"), (-1, "01"), (1, "02"), (63, "7e"), (-64, "7f"), (64, "8001"), (300, "d804"), (2**31 - 1, "feffffff0f")],
)
def test_varints_are_written_as_protocol_buffers_do(value: int, written: str) -> None:
    assert encode(value).hex() == written
    assert read_varint(encode(value), 0) == (value, len(written) // 2)


def test_the_outermost_varlongs_take_ten_bytes() -> None:
    for value in (2**63 - 1, -(2**63)):
        assert len(encode(value)) == 10
        assert read_varlong(encode(value), 0) == (value, 10)
