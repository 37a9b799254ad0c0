"""Validation of batches, one refusal at a time."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from penstock.model.errors import ErrorCode, InvalidBatch, InvalidTimestamp, ProtocolError
from penstock.records.builder import BatchBuilder
from penstock.records.check import DEFAULT_RULES, Rules, Validation, check_batch
from penstock.records.compression import OUTPUT_PER_INPUT_BYTE_MAX, Codec, compress
from penstock.records.header import BatchView, TimestampType, seal
from penstock.records.varint import encode

NOW_MS = 1_700_000_000_000
FULL = Rules(validation=Validation.FULL)


def good_batch(codec: Codec = Codec.NONE, **settings: object) -> bytearray:
    builder = BatchBuilder(codec=codec, **settings)  # type: ignore[arg-type]
    for number in range(3):
        builder.append(b"key", b"value", (("h", b"1"),), NOW_MS + number)
    return builder.build()


def with_payload(payload: bytes, count: int = 1) -> bytearray:
    """Builds a batch with valid header and checksum around a given payload."""
    builder = BatchBuilder()
    for _ in range(count):
        builder.append(None, None, timestamp_ms=NOW_MS)
    batch = builder.build()[:61] + payload
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    seal(batch)
    return batch


def refused(buffer: bytes | bytearray, rules: Rules = DEFAULT_RULES) -> ErrorCode:
    with pytest.raises(ProtocolError) as refusal:
        check_batch(buffer, rules, NOW_MS)
    return refusal.value.code


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("rules", [DEFAULT_RULES, FULL, Rules(is_compacted=True)])
def test_a_good_batch_passes(codec: Codec, rules: Rules) -> None:
    batch = check_batch(memoryview(good_batch(codec)), rules, NOW_MS)
    assert batch.count == 3


def change(position: int, value: int, width: int = 1) -> Callable[[bytearray], None]:
    def apply(buffer: bytearray) -> None:
        buffer[position : position + width] = value.to_bytes(width, "big", signed=value < 0)

    return apply


@pytest.mark.parametrize(
    ("story", "mutate", "code"),
    [
        ("an old message format", change(16, 1), ErrorCode.INVALID_RECORD),
        ("a format from the future", change(16, 3), ErrorCode.INVALID_RECORD),
        ("a length below the header", change(8, 10, 4), ErrorCode.CORRUPT_MESSAGE),
        ("a negative length", change(8, -5, 4), ErrorCode.CORRUPT_MESSAGE),
        ("a length beyond the field", change(8, 500, 4), ErrorCode.CORRUPT_MESSAGE),
        ("a length far over the limit", change(8, 2**30, 4), ErrorCode.MESSAGE_TOO_LARGE),
        ("a base offset that only brokers set", change(0, 7, 8), ErrorCode.INVALID_RECORD),
        ("an unknown codec", change(22, 7), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ("a control batch", change(22, 0x20), ErrorCode.INVALID_RECORD),
        ("a transaction without a producer", change(22, 0x10), ErrorCode.INVALID_RECORD),
        ("a delete horizon", change(22, 0x40), ErrorCode.INVALID_RECORD),
        ("a timestamp type that only brokers set", change(22, 0x08), ErrorCode.INVALID_TIMESTAMP),
        ("a count above the last delta", change(57, 4, 4), ErrorCode.INVALID_RECORD),
        ("no records", change(57, 0, 4), ErrorCode.INVALID_RECORD),
        ("fewer than no records", change(57, -1, 4), ErrorCode.INVALID_RECORD),
        ("a last delta of its own", change(23, 9, 4), ErrorCode.INVALID_RECORD),
        ("a producer without a sequence", change(43, 5, 8), ErrorCode.INVALID_RECORD),
        ("a max timestamp in the future", change(35, NOW_MS + 3_600_001, 8), ErrorCode.INVALID_TIMESTAMP),
    ],
)
@pytest.mark.parametrize("validation", Validation)
def test_the_header_alone_refuses(
    story: str, mutate: Callable[[bytearray], None], code: ErrorCode, validation: Validation
) -> None:
    buffer = good_batch()
    whole_bytes = BatchView(buffer).size_bytes
    mutate(buffer)
    if BatchView(buffer).size_bytes == whole_bytes:
        seal(buffer)
    assert refused(buffer, Rules(validation=validation)) == code, story


def test_a_flipped_bit_is_corruption() -> None:
    buffer = good_batch()
    buffer[-3] ^= 4
    assert refused(buffer) == ErrorCode.CORRUPT_MESSAGE


def test_exactly_one_batch() -> None:
    assert refused(b"") == ErrorCode.INVALID_RECORD
    assert refused(good_batch() + good_batch()) == ErrorCode.INVALID_RECORD
    assert refused(good_batch()[:-1]) == ErrorCode.CORRUPT_MESSAGE
    assert refused(good_batch()[:40]) == ErrorCode.CORRUPT_MESSAGE


def test_the_size_limit_counts_the_whole_batch() -> None:
    buffer = good_batch()
    check_batch(buffer, Rules(batch_bytes_max=len(buffer)))
    assert refused(buffer, Rules(batch_bytes_max=len(buffer) - 1)) == ErrorCode.MESSAGE_TOO_LARGE


def test_markers_of_our_own_shards_pass() -> None:
    buffer = good_batch(is_control=True, is_transactional=True, producer_id=1, producer_epoch=0, base_offset=90)
    check_batch(buffer, Rules(is_from_client=False, validation=Validation.FULL), NOW_MS)
    assert refused(buffer) == ErrorCode.INVALID_RECORD


def test_time_is_judged_only_when_the_topic_keeps_the_time_of_the_producer() -> None:
    builder = BatchBuilder()
    builder.append(None, b"v", timestamp_ms=NOW_MS * 2)
    far_ahead = builder.build()
    assert refused(far_ahead) == ErrorCode.INVALID_TIMESTAMP
    check_batch(far_ahead, Rules(timestamp_type=TimestampType.LOG_APPEND_TIME), NOW_MS)
    check_batch(far_ahead, Rules(timestamp_after_ms_max=None), NOW_MS)


def test_one_old_record_among_new_ones_is_found_when_the_past_is_limited() -> None:
    builder = BatchBuilder()
    for timestamp_ms in (NOW_MS, NOW_MS - 10_001, -1, NOW_MS):
        builder.append(None, b"v", timestamp_ms=timestamp_ms)
    buffer = builder.build()
    check_batch(buffer, Rules(timestamp_before_ms_max=10_001), NOW_MS)
    with pytest.raises(InvalidTimestamp, match="behind"):
        check_batch(buffer, Rules(timestamp_before_ms_max=10_000), NOW_MS)


@pytest.mark.parametrize("codec", Codec)
def test_a_compacted_topic_wants_keys(codec: Codec) -> None:
    builder = BatchBuilder(codec=codec)
    builder.append(b"k", b"v", timestamp_ms=NOW_MS)
    builder.append(None, b"v", timestamp_ms=NOW_MS)
    buffer = builder.build()
    check_batch(buffer, FULL, NOW_MS)
    assert refused(buffer, Rules(is_compacted=True)) == ErrorCode.INVALID_RECORD


def record(
    attributes: int = 0,
    time: int = 0,
    offset: int = 0,
    tail: bytes = encode(-1) * 2 + encode(0),
    length: int | None = None,
) -> bytes:
    body = bytes([attributes]) + encode(time) + encode(offset) + tail
    return encode(len(body) if length is None else length) + body


@pytest.mark.parametrize(
    ("story", "payload", "count"),
    [
        ("a gap in the offsets", record() + record(offset=2), 2),
        ("an offset twice", record() + record(), 2),
        ("a negative offset delta", record(offset=-1), 1),
        ("a first offset that is not 0", record(offset=1), 1),
        ("record attributes without a meaning", record(attributes=1), 1),
        ("a later time than the header's", record(time=1), 1),
        ("an earlier time than the header's", record(time=-1), 1),
        ("bytes after the last record", record() + b"\0", 1),
        ("one record more than counted", record() + record(offset=1), 1),
        ("one record fewer than counted", record() + bytes(7), 2),
        ("a length past the end", record(length=50), 1),
        ("a length too short", record(length=5), 1),
        ("a length of nothing", encode(0) * 7, 1),
        ("a negative length", encode(-5) + bytes(10), 1),
        ("a key past its record", record(tail=encode(40) + encode(-1) + encode(0)) + bytes(50), 1),
        ("a key length below null", record(tail=encode(-2) + encode(-1) + encode(0)), 1),
        ("fewer than no headers", record(tail=encode(-1) * 2 + encode(-1)), 1),
        ("more headers than bytes", record(tail=encode(-1) * 2 + encode(2**30)), 1),
        ("a header without a key", record(tail=encode(-1) * 2 + encode(1) + encode(-1) * 2), 1),
        ("a varint that never ends", b"\xff" * 20, 1),
        ("a varint of 33 bits", b"\xff\xff\xff\xff\x1f" + bytes(20), 1),
    ],
)
def test_full_validation_opens_every_record(story: str, payload: bytes, count: int) -> None:
    """The checksum is valid, so header validation accepts it: the documented cost of `record.validation=header`."""
    buffer = with_payload(payload, count)
    check_batch(buffer, DEFAULT_RULES, NOW_MS)
    assert refused(buffer, FULL) == ErrorCode.INVALID_RECORD, story


def with_count(buffer: bytearray, count: int) -> bytearray:
    """Returns the batch with another record count and the matching last offset delta."""
    change(23, count - 1, 4)(buffer)
    change(57, count, 4)(buffer)
    seal(buffer)
    return buffer


@pytest.mark.parametrize("validation", Validation)
@pytest.mark.parametrize("codec", Codec)
def test_a_few_bytes_cannot_take_a_large_range_of_offsets(codec: Codec, validation: Validation) -> None:
    rules = Rules(validation=validation)
    assert refused(with_count(good_batch(codec), 2**31 - 1), rules) == ErrorCode.INVALID_RECORD
    limit = rules.batch_decompressed_bytes_max // 7
    assert refused(with_count(good_batch(codec), limit + 1), rules) == ErrorCode.INVALID_RECORD


def test_an_uncompressed_count_is_bounded_by_seven_bytes_a_record() -> None:
    builder = BatchBuilder()
    for _ in range(60):
        builder.append(None, None, timestamp_ms=NOW_MS)
    smallest = builder.build()
    assert len(smallest) == 61 + 60 * 7
    for rules in (DEFAULT_RULES, FULL):
        assert check_batch(smallest, rules, NOW_MS).count == 60
    assert refused(with_count(smallest, 61)) == ErrorCode.INVALID_RECORD
    # Fewer records than the payload holds, or larger ones, are detected only by opening the records.
    check_batch(with_count(smallest, 59), DEFAULT_RULES, NOW_MS)


@pytest.mark.parametrize("codec", [each for each in Codec if each])
def test_a_compressed_count_is_bounded_by_what_the_payload_can_decompress_to(codec: Codec) -> None:
    buffer = good_batch(codec)
    most = (len(buffer) - 61) * OUTPUT_PER_INPUT_BYTE_MAX[codec] // 7
    check_batch(with_count(buffer, most), DEFAULT_RULES, NOW_MS)
    assert refused(with_count(buffer, most + 1)) == ErrorCode.INVALID_RECORD
    small = Rules(batch_decompressed_bytes_max=700)
    check_batch(with_count(buffer, 100), small, NOW_MS)
    assert refused(with_count(buffer, 101), small) == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", [each for each in Codec if each])
@pytest.mark.parametrize("size_bytes", [1, 700, 128 * 1024, 9 * 1024 * 1024])
def test_no_codec_decompresses_to_more_than_its_bound(codec: Codec, size_bytes: int) -> None:
    for unit in (b"\0", b"\x0c\0\0\0\1\1\0"):
        data = unit * (size_bytes // len(unit))
        for level in (None, 9) if codec is not Codec.SNAPPY else (None,):
            assert len(data) <= len(compress(codec, data, level)) * OUTPUT_PER_INPUT_BYTE_MAX[codec]


@pytest.mark.parametrize("codec", Codec)
def test_an_honest_batch_of_many_small_records_passes(codec: Codec) -> None:
    builder = BatchBuilder(codec=codec, bytes_max=2**24)
    for _ in range(50_000):
        builder.append(None, None, timestamp_ms=NOW_MS)
    assert check_batch(builder.build(), DEFAULT_RULES, NOW_MS).count == 50_000


@pytest.mark.parametrize("codec", Codec)
def test_batches_of_our_own_shards_may_be_sparse(codec: Codec) -> None:
    check_batch(with_count(good_batch(codec), 2**31 - 1), Rules(is_from_client=False), NOW_MS)


def test_full_validation_refuses_attribute_bits_without_a_meaning() -> None:
    buffer = good_batch()
    buffer[21] = 1
    seal(buffer)
    check_batch(buffer, DEFAULT_RULES, NOW_MS)
    assert refused(buffer, FULL) == ErrorCode.INVALID_RECORD


def test_full_validation_refuses_a_payload_that_does_not_decompress() -> None:
    buffer = with_payload(b"this is no gzip")
    buffer[22] = Codec.GZIP
    seal(buffer)
    check_batch(buffer, DEFAULT_RULES, NOW_MS)
    with pytest.raises(InvalidBatch, match="gzip"):
        check_batch(buffer, FULL, NOW_MS)


def test_full_validation_holds_the_cap_on_decompressed_bytes() -> None:
    builder = BatchBuilder(codec=Codec.ZSTD)
    builder.append(b"k", bytes(100_000), timestamp_ms=NOW_MS)
    buffer = builder.build()
    check_batch(buffer, FULL, NOW_MS)
    assert refused(buffer, replace(FULL, batch_decompressed_bytes_max=99_999)) == ErrorCode.MESSAGE_TOO_LARGE


def test_full_validation_refuses_a_timestamp_that_readers_cannot_take() -> None:
    """A batch that passes here stays in the log, so a batch that stops every reader must not pass."""
    body = b"\0" + encode(-1) + encode(0) + encode(-1) + encode(-1) + encode(0)
    batch = with_payload(encode(len(body)) + body)
    batch[27:35] = (-(2**63)).to_bytes(8, "big", signed=True)
    batch[35:43] = (-1).to_bytes(8, "big", signed=True)
    seal(batch)
    assert refused(batch, FULL) == ErrorCode.INVALID_RECORD
