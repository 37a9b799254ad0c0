"""One segment: file names, and scans with any chunk size."""

from random import Random

import pytest
from crc32c import crc32c

from penstock.host.memory import MemoryDisk
from penstock.log import segment as segment_module
from penstock.log.segment import Segment, scan_batches, scan_headers
from penstock.model.errors import CorruptBatch, TornBatch
from penstock.model.ports import File
from penstock.records.header import HEADER_BYTES, BatchView
from tests.unit.log.place import a_batch


def a_file(data: bytes) -> File:
    file = MemoryDisk().open("x.log", create=True)
    file.write(0, data)
    return file


def some_batches(random: Random, count: int = 30) -> list[bytes]:
    return [
        bytes(a_batch(base_offset=number, value=random.randbytes(random.choice([0, 1, 30, 200, 900]))))
        for number in range(count)
    ]


def places(contents: list[bytes]) -> list[tuple[int, int]]:
    """Returns (position, base offset) of each batch."""
    return [(sum(map(len, contents[:at])), at) for at in range(len(contents))]


@pytest.mark.parametrize("scan_bytes", [61, 62, 100, 127, 500, 1000, 1001, 10**6])
def test_a_scan_finds_every_batch_wherever_its_chunks_end(scan_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also batches larger than a chunk, and headers that cross a chunk boundary."""
    monkeypatch.setattr(segment_module, "SCAN_BYTES", scan_bytes)
    for seed in range(10):
        contents = some_batches(Random(seed))
        file = a_file(b"".join(contents))
        for start, _ in [places(contents)[0], places(contents)[7]]:
            expected = [place for place in places(contents) if place[0] >= start]
            found = [(position, b.base_offset) for position, b in scan_headers(file, start, file.size(), scan_bytes)]
            assert found == expected
            whole = [(position, bytes(b.whole)) for position, b in scan_batches(file, start, file.size())]
            assert whole == [(position, contents[at]) for position, at in expected]


def test_a_scan_of_headers_reads_little() -> None:
    """Bytes between two distant headers are skipped."""
    contents = [bytes(a_batch(value=bytes(50_000))) for _ in range(10)]
    reads: list[int] = []

    class Counting:
        def read(self, position: int, size_bytes: int) -> bytes:
            reads.append(size_bytes)
            return file.read(position, size_bytes)

    file = a_file(b"".join(contents))
    assert len(list(scan_headers(Counting(), 0, file.size(), 4096))) == 10  # type: ignore[arg-type]
    assert sum(reads) <= 10 * 4096


@pytest.mark.parametrize("scan_bytes", [64, 300, 10**6])
def test_a_scan_of_a_torn_file_ends_with_the_last_whole_batch(scan_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_module, "SCAN_BYTES", scan_bytes)
    contents = [bytes(a_batch(base_offset=number, value=bytes(number * 40))) for number in range(4)]
    data = b"".join(contents)
    borders = {sum(map(len, contents[:count])): count for count in range(5)}
    for size in range(len(data)):
        found: list[int] = []
        file = a_file(data[:size])
        try:
            found.extend(b.base_offset for _, b in scan_batches(file, 0, size))
            assert size in borders
        except TornBatch:
            assert size not in borders
        assert found == list(range(max(count for border, count in borders.items() if border <= size)))


@pytest.mark.parametrize("scan", [scan_headers, scan_batches])
def test_where_no_batch_can_be_a_scan_stops(scan: type) -> None:
    good = bytes(a_batch())
    for junk in (bytes(100), b"\xff" * 100, b"\0" * 8 + (48).to_bytes(4, "big") + b"\0" * 4 + b"\2" + bytes(80)):
        found = []
        with pytest.raises(CorruptBatch, match=f"no batch at position {len(good)}"):
            found.extend(scan(a_file(good + junk), 0, len(good + junk)))
        assert len(found) == 1


def test_a_file_that_is_shorter_than_said_is_torn() -> None:
    """The index or the manifest states a larger size than the file has."""
    good = bytes(a_batch())
    with pytest.raises(TornBatch):
        list(scan_batches(a_file(good[:-1]), 0, len(good)))
    with pytest.raises(TornBatch):
        list(scan_headers(a_file(good), 0, 2 * len(good)))


def test_names_say_base_and_generation() -> None:
    assert Segment(123, 4).name == "00000000000000000123-4"
    found = Segment.parse_name("00000000000000000123-4.log")
    assert found is not None
    assert (found.base_offset, found.generation) == (123, 4)
    largest = Segment(2**63 - 1, 10)
    again = Segment.parse_name(largest.name + ".log")
    assert again is not None
    assert (again.base_offset, again.generation) == (2**63 - 1, 10)


@pytest.mark.parametrize(
    "name",
    ["manifest", "00000000000000000123-4.index", "00000000000000000123.log", "123-4.log", "0000000000000000012x-4.log"],
)
def test_other_names_are_not_taken_for_segments(name: str) -> None:
    assert Segment.parse_name(name) is None


def test_a_segment_adds_up_what_it_takes() -> None:
    """The maximum timestamp never falls, and the checksum covers only the bytes that the batches' own do not."""
    segment = Segment(10, header_sum=5, header_seed=5)
    first = a_batch(2, base_offset=10, timestamp_ms=[70, 90])
    second = a_batch(3, base_offset=12, timestamp_ms=60)
    for data in (first, second):
        segment.take(BatchView(data), data)
    assert segment.size_bytes == len(first) + len(second)
    assert (segment.end_offset, segment.max_timestamp_ms, segment.first_timestamp_ms) == (15, 90, 90)
    assert segment.header_sum == crc32c(second[:21], crc32c(first[:21], 5))
    assert Segment(*segment.to_list()).to_list() == segment.to_list()
    fresh = segment.start_again()
    assert (fresh.size_bytes, fresh.end_offset, fresh.header_sum, fresh.header_seed) == (0, 10, 5, 5)
    assert HEADER_BYTES == 61
