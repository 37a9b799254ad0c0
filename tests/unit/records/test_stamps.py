"""Look-ups by time inside a batch: equal to the plain reader, bounded for batches that decompress to large sizes."""

from random import Random

import pytest

from penstock.model.limits import DEFAULT_LIMITS
from penstock.records import stamps
from penstock.records.builder import BatchBuilder
from penstock.records.compression import Codec
from penstock.records.header import BatchView, stamp_log_append_time
from penstock.records.rows import rows
from penstock.records.stamps import Stamp, first_since, latest

MIB = 1024 * 1024
CAP = DEFAULT_LIMITS.batch_decompressed_bytes_max
NO_LIMIT = 1 << 40


def a_batch(times: list[int], codec: Codec = Codec.NONE, value: bytes = b"v") -> BatchView:
    builder = BatchBuilder(codec=codec)
    for time_ms in times:
        builder.append(b"k", value, timestamp_ms=time_ms)
    return BatchView(builder.build())


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("seed", range(5))
def test_records_are_found_as_the_plain_reader_finds_them(codec: Codec, seed: int) -> None:
    random = Random(seed)
    batch = a_batch([random.randrange(100_000) for _ in range(random.randrange(1, 50))], codec, b"v" * 100)
    known = [Stamp(record.timestamp_ms, record.offset) for record in rows(batch, CAP)]
    for _ in range(50):
        time_ms, start, limit = random.randrange(100_000), random.randrange(5), random.randrange(60)
        within = [stamp for stamp in known if start <= stamp.offset < limit]
        assert first_since(batch, time_ms, start, limit, CAP) == next((s for s in within if s[0] >= time_ms), None)
        expected = max(within, key=lambda stamp: (stamp.timestamp_ms, -stamp.offset), default=None)
        assert latest(batch, start, limit, CAP) == expected


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_a_batch_that_unpacks_above_the_cap_is_read_as_far_as_the_cap(codec: Codec) -> None:
    batch = a_batch([1_000 + number for number in range(14)], codec, b"a" * 900_000)
    for number in range(10):
        assert first_since(batch, 1_000 + number, 0, NO_LIMIT, CAP) == (1_000 + number, number)
    # Beyond the cap no record is missed: the result is at or before the requested record.
    for number in range(10, 14):
        found = first_since(batch, 1_000 + number, 0, NO_LIMIT, CAP)
        assert found is not None
        assert 10 <= found.offset <= number
        assert found.timestamp_ms >= 1_000 + number
    newest = latest(batch, 0, NO_LIMIT, CAP)
    assert newest is not None
    assert newest.timestamp_ms == 1_013
    assert newest.offset >= 10


def test_no_more_records_are_looked_at_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stamps, "LOOKED_AT_MAX", 100)
    batch = a_batch(list(range(1_000, 1_500)), Codec.ZSTD)
    assert first_since(batch, 1_099, 0, NO_LIMIT, CAP) == (1_099, 99)
    assert first_since(batch, 1_100, 0, NO_LIMIT, CAP) == (1_499, 100)
    assert first_since(batch, 1_400, 0, NO_LIMIT, CAP) == (1_499, 100)
    assert latest(batch, 0, NO_LIMIT, CAP) == (1_499, 100)
    assert first_since(batch, 1_400, 0, 50, CAP) is None


def test_a_batch_that_cannot_be_read_is_answered_by_its_first_offset() -> None:
    whole = bytearray(a_batch([1_000, 1_001, 1_002], Codec.ZSTD).whole)
    whole[61:] = b"\x00" * (len(whole) - 61)
    batch = BatchView(whole)
    assert first_since(batch, 1_001, 0, NO_LIMIT, CAP) == (1_002, 0)
    assert latest(batch, 1, NO_LIMIT, CAP) == (1_002, 1)


def test_log_append_time_needs_no_look_at_records() -> None:
    data = bytearray(a_batch([1, 2, 3]).whole)
    stamp_log_append_time(data, 5_000)
    data[61:] = b"\xff" * (len(data) - 61)
    batch = BatchView(data)
    assert first_since(batch, 5_000, 1, NO_LIMIT, CAP) == (5_000, 1)
    assert first_since(batch, 5_001, 1, NO_LIMIT, CAP) is None
    assert latest(batch, 0, NO_LIMIT, CAP) == (5_000, 0)
    assert latest(batch, 3, NO_LIMIT, CAP) is None
