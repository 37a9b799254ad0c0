"""Records: a built batch is read back, and no damage goes unnoticed or raises anything but a ProtocolError."""

import contextlib
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model.errors import ProtocolError
from penstock.records.builder import BatchBuilder
from penstock.records.check import Rules, Validation, check_batch
from penstock.records.compression import Codec, compress, decompress
from penstock.records.header import CRC_COVERS_FROM, BatchView, batches, patch, seal, stamp_log_append_time
from penstock.records.rows import Record, rows
from penstock.records.varint import encode, read_varint, read_varlong

CAP_BYTES = 1024 * 1024
FULL = Rules(validation=Validation.FULL, timestamp_after_ms_max=None)

codecs = st.sampled_from(Codec)
blobs = st.none() | st.binary(max_size=40) | st.integers(0, 9_000).map(bytes)
header_keys = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
headers = st.lists(st.tuples(header_keys, st.none() | st.binary(max_size=20)), max_size=4).map(tuple)
timestamps_ms = st.integers(-1, 2**43) | st.sampled_from([-1, 0, 2**62, 1_700_000_000_000])
entries = st.lists(st.tuples(blobs, blobs, headers, timestamps_ms), min_size=1, max_size=12)


def build(
    codec: Codec, records: list[tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...], int]]
) -> bytearray:
    builder = BatchBuilder(codec=codec)
    for key, value, header_entries, timestamp_ms in records:
        builder.append(key, value, header_entries, timestamp_ms)
    return builder.build()


small_batches = st.builds(
    build, codecs, st.lists(st.tuples(blobs, blobs, headers, timestamps_ms), min_size=1, max_size=4)
)


@given(codecs, entries)
def test_what_is_built_is_read_back(
    codec: Codec, records: list[tuple[bytes | None, bytes | None, object, int]]
) -> None:
    buffer = build(codec, records)  # type: ignore[arg-type]
    batch = check_batch(buffer, FULL, 0)
    assert list(rows(batch, CAP_BYTES)) == [
        Record(offset, timestamp_ms, key, value, header_entries)  # type: ignore[arg-type]
        for offset, (key, value, header_entries, timestamp_ms) in enumerate(records)
    ]


@given(codecs, st.sets(st.integers(0, 2**31 - 1), min_size=1, max_size=10), st.integers(0, 2**62))
def test_gaps_in_the_offsets_survive(codec: Codec, deltas: set[int], base_offset: int) -> None:
    builder = BatchBuilder(codec=codec, base_offset=base_offset)
    for delta in sorted(deltas):
        assert builder.append(b"k", b"v", offset_delta=delta) == delta
    batch = BatchView(builder.build())
    assert [record.offset for record in rows(batch, CAP_BYTES)] == [base_offset + delta for delta in sorted(deltas)]


@given(st.integers(-(2**31), 2**31 - 1))
def test_varints_come_back(value: int) -> None:
    assert read_varint(encode(value) + b"?", 0) == (value, len(encode(value)))


@given(st.integers(-(2**63), 2**63 - 1))
def test_varlongs_come_back(value: int) -> None:
    assert read_varlong(b"?" + encode(value), 1) == (value, 1 + len(encode(value)))


@given(small_batches, st.data())
def test_a_flipped_bit_under_the_checksum_is_always_seen(buffer: bytearray, data: st.DataObject) -> None:
    bit = data.draw(st.integers(CRC_COVERS_FROM * 8, len(buffer) * 8 - 1))
    buffer[bit // 8] ^= 1 << bit % 8
    assert not BatchView(buffer).is_intact
    with pytest.raises(ProtocolError):
        check_batch(buffer)


@given(small_batches, st.integers(0, 2**63 - 1), st.integers(-1, 2**31 - 1))
def test_a_patch_moves_the_records_and_leaves_the_checksum(
    buffer: bytearray, base_offset: int, leader_epoch: int
) -> None:
    before = bytes(buffer)
    patch(buffer, base_offset, leader_epoch)
    batch = BatchView(buffer)
    assert (batch.base_offset, batch.leader_epoch) == (base_offset, leader_epoch)
    assert batch.is_intact
    assert buffer[16:] == before[16:]
    assert buffer[8:12] == before[8:12]


@given(small_batches, st.integers(0, 2**63 - 1))
def test_log_append_time_changes_nothing_but_time(buffer: bytearray, now_ms: int) -> None:
    before = list(rows(BatchView(bytes(buffer)), CAP_BYTES))
    stamp_log_append_time(buffer, now_ms)
    batch = BatchView(buffer)
    assert batch.is_intact
    assert list(rows(batch, CAP_BYTES)) == [record._replace(timestamp_ms=now_ms) for record in before]


@given(st.lists(small_batches, max_size=5), st.data())
def test_a_cut_segment_yields_exactly_its_whole_batches(parts: list[bytearray], data: st.DataObject) -> None:
    segment = b"".join(parts)
    cut = data.draw(st.integers(0, len(segment)))
    ends = [sum(map(len, parts[: number + 1])) for number in range(len(parts))]
    seen = 0
    try:
        for _ in batches(memoryview(segment)[:cut]):
            seen += 1
    except ProtocolError:
        assert cut not in (0, *ends)
    else:
        assert cut in (0, *ends)
    assert seen == sum(end <= cut for end in ends)


@settings(max_examples=400)
@given(small_batches, st.data())
def test_mutated_batches_raise_only_protocol_errors(buffer: bytearray, data: st.DataObject) -> None:
    """Damage with a matching checksum, as a hostile producer sends it."""
    for _ in range(data.draw(st.integers(1, 4))):
        kind = data.draw(st.sampled_from(["set", "cut", "insert", "swap"]))
        position = data.draw(st.integers(12, max(len(buffer) - 1, 12)))
        if kind == "set" and position < len(buffer):
            buffer[position] = data.draw(st.integers(0, 255))
        elif kind == "cut":
            del buffer[position : position + data.draw(st.integers(1, 9))]
        elif kind == "insert":
            buffer[position:position] = data.draw(st.binary(max_size=9))
        elif kind == "swap":
            buffer[position:] = buffer[position:][::-1]
    if len(buffer) >= 61:
        buffer[8:12] = (len(buffer) - 12).to_bytes(4, "big")
        seal(buffer)
    started_s = time.process_time()
    for rules in (FULL, Rules(is_compacted=True, timestamp_before_ms_max=1000)):
        with contextlib.suppress(ProtocolError):
            check_batch(buffer, rules, 0)
    try:
        for batch in batches(buffer):
            list(rows(batch, CAP_BYTES))
    except ProtocolError:
        pass
    assert time.process_time() - started_s < 0.5


@settings(max_examples=400)
@given(codecs, st.binary(max_size=300) | st.integers(0, 5_000).map(bytes), st.data())
def test_mutated_payloads_raise_only_protocol_errors(codec: Codec, plain: bytes, data: st.DataObject) -> None:
    """A panic of a native codec would surface here: it is a BaseException, which nothing below catches."""
    packed = bytearray(compress(codec, plain))
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(st.integers(0, len(packed)))
        packed[position : position + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=4))
    with contextlib.suppress(ProtocolError):
        assert len(decompress(codec, packed, 2_000)) <= 2_000


@given(codecs, st.binary(max_size=200), st.integers(0, 1_000))
def test_noise_raises_only_protocol_errors(codec: Codec, noise: bytes, bytes_max: int) -> None:
    magic = {Codec.GZIP: b"\x1f\x8b\x08\0", Codec.LZ4: b"\x04\x22\x4d\x18", Codec.ZSTD: b"\x28\xb5\x2f\xfd"}.get(
        codec, b""
    )
    for payload in (noise, magic + noise, b"\x82SNAPPY\0\0\0\0\1\0\0\0\1" + noise):
        with contextlib.suppress(ProtocolError):
            assert len(decompress(codec, payload, bytes_max)) <= bytes_max
