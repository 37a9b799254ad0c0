"""An unreadable batch is reported with its place, the cause and the fix, by both decoders."""

import pickle
from struct import pack_into
from typing import Any

import pytest

from penstock.model.errors import ProtocolError
from penstock.records.builder import BatchBuilder
from penstock.records.compression import Codec
from penstock.records.header import seal, stamp_log_append_time
from penstock.records.varint import encode
from penstock.spark.columns import RecordRange, UnreadableBatch
from penstock.spark.columns.decoding import MakeColumns, stream

ALL = RecordRange("orders", 3, 0, 2**63 - 1)
AGAIN = "Read it again"
LEAVE_OUT = "start reading at offset 43 to leave it out"


def good(base_offset: int = 40) -> bytearray:
    builder = BatchBuilder(base_offset=base_offset)
    for _ in range(3):
        builder.append(b"key", b"value", [("a", b"b")], 1_700_000_000_000)
    return builder.build()


def refusal(make_columns: MakeColumns, data: bytes | bytearray, **options: Any) -> UnreadableBatch:
    """Returns the error, after a check that it names the place."""
    with pytest.raises(UnreadableBatch) as caught:
        list(stream(bytes(data), ALL, make_columns=make_columns, **options))
    assert str(caught.value).startswith(f"orders-3: the batch at offset {caught.value.offset} cannot be read: ")
    return caught.value


def with_payload(payload: bytes, count: int, codec: Codec = Codec.NONE) -> bytearray:
    """Builds a batch at 40 to 42 with a given payload."""
    batch = good()[:61] + payload
    pack_into(">i", batch, 8, len(batch) - 12)
    pack_into(">h", batch, 21, codec)
    pack_into(">i", batch, 57, count)
    seal(batch)
    return batch


def record(*fields: int | bytes) -> bytes:
    body = b"\0" + b"".join(encode(field) if isinstance(field, int) else field for field in fields)
    return encode(len(body)) + body


def test_a_flipped_bit(make_columns: MakeColumns) -> None:
    batch = good()
    batch[70] ^= 1
    trouble = refusal(make_columns, good(base_offset=0) + batch)
    assert trouble.offset == 40
    assert "checksum" in str(trouble)
    assert AGAIN in str(trouble)


def test_a_flipped_bit_is_not_seen_when_nobody_looks(make_columns: MakeColumns) -> None:
    batch = good()
    batch[batch.index(b"value")] ^= 1
    (table,) = stream(bytes(batch), ALL, make_columns=make_columns, checks_crc=False)
    assert table.column("value")[0].as_py() == b"walue"


@pytest.mark.parametrize("base_offset", [39, 0, 42])
def test_offsets_that_go_back(make_columns: MakeColumns, base_offset: int) -> None:
    """The checksum does not cover the base offset: only the neighbouring batches reveal an error."""
    trouble = refusal(make_columns, good() + good(base_offset=base_offset))
    assert trouble.offset == base_offset
    assert "it follows on offset 42" in str(trouble)


@pytest.mark.parametrize("base_offset", [-1, -(2**63), 2**63 - 3])
def test_offsets_that_no_log_has(make_columns: MakeColumns, base_offset: int) -> None:
    trouble = refusal(make_columns, good(base_offset=base_offset))
    assert "it claims offsets" in str(trouble)


def test_another_format(make_columns: MakeColumns) -> None:
    batch = good(base_offset=43)
    batch[16] = 1
    trouble = refusal(make_columns, good() + batch)
    assert trouble.offset == 43
    assert "magic 1" in str(trouble)


def test_a_length_that_no_batch_has(make_columns: MakeColumns) -> None:
    batch = good()
    pack_into(">i", batch, 8, 48)
    assert "shorter than a header" in str(refusal(make_columns, batch))


def test_not_one_whole_batch(make_columns: MakeColumns) -> None:
    """Neither reading on nor reading again would help: the reader must get an error."""
    for size_bytes in (5, 61, 80):
        trouble = refusal(make_columns, good()[:size_bytes])
        assert trouble.offset == ALL.first
        assert "Fetch more bytes at once" in str(trouble)


def test_a_codec_that_nobody_knows(make_columns: MakeColumns) -> None:
    batch = good()
    batch[22] |= 7
    seal(batch)
    trouble = refusal(make_columns, batch)
    assert "codec 7" in str(trouble)
    assert "update it" in str(trouble)
    assert LEAVE_OUT in str(trouble)


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec is not Codec.NONE], ids=lambda codec: codec.name)
def test_a_payload_that_does_not_unpack(make_columns: MakeColumns, codec: Codec) -> None:
    trouble = refusal(make_columns, with_payload(b"\x04\x00noise, not records", 1, codec))
    assert LEAVE_OUT in str(trouble)


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name)
def test_more_than_the_limit(make_columns: MakeColumns, codec: Codec) -> None:
    builder = BatchBuilder(base_offset=42, codec=codec)
    builder.append(None, bytes(100_000))
    trouble = refusal(make_columns, builder.build(), bytes_max=50_000)
    assert "50000" in str(trouble)
    assert "Raise bytes_max" in str(trouble)
    assert LEAVE_OUT in str(trouble)


SOUND = record(0, 0, 1, b"k", 1, b"v", 0)
RECORDS = {
    "a length over the end": b"\xfe\x01" + SOUND[1:],
    "a length of nothing": b"\0" + SOUND,
    "a negative length": b"\x01" + SOUND,
    "a length in six bytes": b"\x80\x80\x80\x80\x80\x00" + SOUND,
    "a length of 33 bits": b"\x80\x80\x80\x80\x10" + SOUND,
    "only a length": b"\x02\0" + b"\0" * 6,
    "an offset before the batch": record(0, -1, 1, b"k", 1, b"v", 0),
    "an offset behind the batch": record(0, 3, 1, b"k", 1, b"v", 0),
    "an offset of 33 bits": record(0, 2**32, 1, b"k", 1, b"v", 0),
    "a timestamp of 65 bits": record(b"\xff" * 9 + b"\x02", 0, 1, b"k", 1, b"v", 0),
    "a timestamp in eleven bytes": record(b"\x80" * 10 + b"\0", 0, 1, b"k", 1, b"v", 0),
    "a time over 64 bits": record(2**63 - 1, 0, 1, b"k", 1, b"v", 0),
    "a time over 64 bits in microseconds": record(2**60, 0, 1, b"k", 1, b"v", 0),
    "a key over the end": record(0, 0, 9, b"k", 1, b"v", 0),
    "a key of minus two bytes": record(0, 0, -2, 1, b"v", 0),
    "a value over the end": record(0, 0, 1, b"k", 2**31 - 1, b"v", 0),
    "a value of minus two bytes": record(0, 0, 1, b"k", -2, 0),
    "no headers, not even none": record(0, 0, 1, b"k", 1, b"v"),
    "minus one header": record(0, 0, 1, b"k", 1, b"v", -1),
    "more headers than bytes": record(0, 0, 1, b"k", 1, b"v", 2**31 - 1, b"abcdef"),
    "a header without a key": record(0, 0, 1, b"k", 1, b"v", 1, -1, 1, b"v"),
    "a header key over the end": record(0, 0, 1, b"k", 1, b"v", 1, 9, b"k", 1, b"v"),
    "a header value over the end": record(0, 0, 1, b"k", 1, b"v", 1, 1, b"k", 9, b"v"),
    "a header value of minus two bytes": record(0, 0, 1, b"k", 1, b"v", 1, 1, b"k", -2),
    "a header that is cut off": record(0, 0, 1, b"k", 1, b"v", 2, 1, b"k", 1, b"v"),
    "bytes after the headers": record(0, 0, 1, b"k", 1, b"v", 0, b"?"),
    "bytes after the record": SOUND + b"?",
    "a cut record": SOUND[:-1],
}


@pytest.mark.parametrize("has_headers", [False, True])
@pytest.mark.parametrize("payload", RECORDS.values(), ids=RECORDS)
def test_records_that_are_none(make_columns: MakeColumns, payload: bytes, has_headers: bool) -> None:
    """The checksum is valid, so reading again would not help."""
    data = bytes(good(base_offset=0) + with_payload(payload, 1))
    with pytest.raises(UnreadableBatch) as caught:
        list(stream(data, ALL._replace(has_headers=has_headers), make_columns=make_columns))
    assert caught.value.offset == 40
    assert LEAVE_OUT in str(caught.value)


@pytest.mark.parametrize("count", [-1, 0, 2, 2**31 - 1, -(2**31)])
def test_a_count_that_lies(make_columns: MakeColumns, count: int) -> None:
    trouble = refusal(make_columns, with_payload(SOUND, count))
    assert trouble.offset == 40


def test_both_decoders_would_read_the_sound_record(make_columns: MakeColumns) -> None:
    """Otherwise the tests above would prove nothing."""
    (table,) = stream(bytes(with_payload(SOUND, 1)), ALL, make_columns=make_columns)
    assert table.column("value").to_pylist() == [b"v"]


def test_a_time_of_append_over_64_bits_in_microseconds(make_columns: MakeColumns) -> None:
    batch = good()
    stamp_log_append_time(batch, 2**60)
    assert "microseconds" in str(refusal(make_columns, batch))


def test_what_cannot_be_told_in_microseconds_can_be_left_out(make_columns: MakeColumns) -> None:
    """Only wanted records are checked, so that a reader can continue after the bad one."""
    builder = BatchBuilder()
    builder.append(b"k", b"far", timestamp_ms=2**60)
    builder.append(b"k", b"near", timestamp_ms=1_700_000_000_000)
    (table,) = stream(bytes(builder.build()), ALL._replace(first=1), make_columns=make_columns)
    assert table.column("value").to_pylist() == [b"near"]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD], ids=lambda codec: codec.name)
def test_of_two_that_are_unreadable_the_first_is_told(make_columns: MakeColumns, codec: Codec) -> None:
    """Even if its records are decoded later."""
    first = with_payload(SOUND[:-1], 1)
    second = with_payload(b"noise" * 9, 1, codec)
    second[:8] = (50).to_bytes(8, "big")
    assert refusal(make_columns, good(base_offset=0) + first + second).offset == 40
    second[70] ^= 1
    assert refusal(make_columns, good(base_offset=0) + first + second).offset == 40
    assert refusal(make_columns, good(base_offset=0) + second).offset == 50


def test_the_error_travels_between_processes(make_columns: MakeColumns) -> None:
    trouble = refusal(make_columns, with_payload(b"", 1))
    copy = pickle.loads(pickle.dumps(trouble))
    assert isinstance(copy, UnreadableBatch)
    assert str(copy) == str(trouble)
    assert (copy.topic, copy.partition, copy.offset) == ("orders", 3, 40)
    assert isinstance(copy, ProtocolError), "it has a code, like everything that a peer can cause"
