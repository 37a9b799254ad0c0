"""The header view, patches, and the walk over the batches of a segment."""

import pytest
from crc32c import crc32c

from penstock.model.errors import CorruptBatch, TornBatch, UnsupportedCompression
from penstock.records.builder import BatchBuilder
from penstock.records.compression import Codec
from penstock.records.header import HEADER_BYTES, BatchView, TimestampType, batches, patch, seal, stamp_log_append_time
from penstock.records.rows import rows


def batch_of(*values: bytes, **settings: object) -> bytearray:
    builder = BatchBuilder(**settings)  # type: ignore[arg-type]
    for number, value in enumerate(values):
        builder.append(None, value, timestamp_ms=1_000 + number)
    return builder.build()


def test_a_batch_written_by_hand_reads_field_by_field() -> None:
    """The layout of KIP-98, byte by byte, so that an error common to builder and view cannot hide."""
    record = bytes.fromhex("10 00 00 00 01 04 6869 00".replace(" ", ""))
    tail = (
        bytes.fromhex("0010")  # attributes: transactional
        + bytes.fromhex("00000000")  # last offset delta
        + bytes.fromhex("00000000000003e8")  # base timestamp
        + bytes.fromhex("00000000000003e9")  # max timestamp
        + bytes.fromhex("0000000000000007")  # producer id
        + bytes.fromhex("0002")  # producer epoch
        + bytes.fromhex("00000005")  # base sequence
        + bytes.fromhex("00000001")  # count
        + record
    )
    length = (4 + 1 + 4 + len(tail)).to_bytes(4, "big")
    whole = (
        (42).to_bytes(8, "big") + length + bytes.fromhex("00000009") + b"\x02" + crc32c(tail).to_bytes(4, "big") + tail
    )

    batch = BatchView(whole)

    assert (batch.base_offset, batch.last_offset, batch.leader_epoch, batch.magic) == (42, 42, 9, 2)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.last_sequence) == (7, 2, 5, 5)
    assert (batch.base_timestamp_ms, batch.max_timestamp_ms, batch.count) == (1000, 1001, 1)
    assert batch.is_transactional
    assert not batch.is_control
    assert not batch.has_delete_horizon
    assert batch.has_producer_id
    assert batch.codec is Codec.NONE
    assert batch.timestamp_type is TimestampType.CREATE_TIME
    assert batch.size_bytes == len(whole)
    assert batch.is_intact
    assert [record.value for record in rows(batch, 1000)] == [b"hi"]


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_will_do_and_none_is_copied(kind: type) -> None:
    buffer = kind(batch_of(b"a", b"b"))
    batch = BatchView(buffer)
    assert batch.buffer is buffer
    assert batch.is_intact
    assert batch.whole == buffer
    assert len(batch.payload) == len(buffer) - HEADER_BYTES


def test_a_patched_batch_has_its_place_and_its_old_checksum() -> None:
    buffer = batch_of(b"a", b"b")
    before = BatchView(buffer).crc
    patch(buffer, base_offset=2**40, leader_epoch=12)
    batch = BatchView(buffer)
    assert (batch.base_offset, batch.last_offset, batch.leader_epoch) == (2**40, 2**40 + 1, 12)
    assert batch.crc == before
    assert batch.is_intact


def test_patches_reach_a_batch_in_the_middle_of_a_buffer() -> None:
    first, second = batch_of(b"a"), batch_of(b"b")
    buffer = first + second
    patch(buffer, 5, 6, position=len(first))
    stamp_log_append_time(buffer, 77, position=len(first))
    assert buffer[: len(first)] == first
    batch = BatchView(buffer, len(first))
    assert (batch.base_offset, batch.leader_epoch, batch.max_timestamp_ms) == (5, 6, 77)
    assert batch.is_intact


def test_log_append_time_stamps_every_record() -> None:
    buffer = batch_of(b"a", b"b", codec=Codec.GZIP)
    stamp_log_append_time(buffer, now_ms=99_999)
    batch = BatchView(buffer)
    assert batch.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert batch.codec is Codec.GZIP
    assert batch.is_intact
    assert [record.timestamp_ms for record in rows(batch, 1000)] == [99_999, 99_999]


def test_sequences_wrap_to_zero() -> None:
    batch = BatchView(batch_of(b"a", b"b", b"c", producer_id=1, producer_epoch=0, base_sequence=2**31 - 2))
    assert batch.last_sequence == 0


def test_a_codec_that_nobody_knows_is_named() -> None:
    buffer = batch_of(b"a")
    buffer[22] |= 5
    with pytest.raises(UnsupportedCompression, match="codec 5"):
        _ = BatchView(buffer).codec


def test_a_segment_is_walked_batch_by_batch() -> None:
    parts = [batch_of(b"a"), batch_of(b"b", b"c", codec=Codec.LZ4), batch_of(b"d" * 1000)]
    segment = b"".join(parts)
    assert [bytes(batch.whole) for batch in batches(segment)] == parts
    assert [batch.count for batch in batches(segment, position=len(parts[0]))] == [2, 1]
    assert list(batches(b"")) == []


@pytest.mark.parametrize("cut", [1, 30, 60, 61, 70])
def test_a_torn_tail_says_where_the_whole_part_ends(cut: int) -> None:
    first, second = batch_of(b"a"), batch_of(b"b" * 100)
    walk = batches(first + second[:cut])
    assert next(walk).count == 1
    with pytest.raises(TornBatch) as torn:
        next(walk)
    assert torn.value.position == len(first)


@pytest.mark.parametrize("length", [-1, 0, 48, -(2**31)])
def test_a_length_shorter_than_a_header_never_stalls_the_walk(length: int) -> None:
    buffer = batch_of(b"a")
    buffer[8:12] = length.to_bytes(4, "big", signed=True)
    with pytest.raises(CorruptBatch, match="shorter than a header"):
        list(batches(buffer))


def test_zeros_after_the_last_batch_are_not_batches() -> None:
    """A file that was extended but not written before a power cut."""
    first = batch_of(b"a")
    walk = batches(first + bytes(4096))
    next(walk)
    with pytest.raises(CorruptBatch, match="magic 0"):
        next(walk)


def test_sealing_repairs_the_checksum() -> None:
    buffer = batch_of(b"a")
    buffer[-2] ^= 1
    assert not BatchView(buffer).is_intact
    seal(buffer)
    assert BatchView(buffer).is_intact
