"""A power cut and the content of a file: synced bytes stay, others are lost or torn at sectors."""

from random import Random
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.host.faults import Faults
from penstock.host.lossy import LossyDisk
from penstock.host.memory import MemoryDisk
from penstock.host.unsynced import SECTOR_BYTES
from tests.unit.host.drive import drive


class Write(NamedTuple):
    position: int
    size_bytes: int


class Truncate(NamedTuple):
    size_bytes: int


class Sync(NamedTuple):
    pass


class WriteBack(NamedTuple):
    pass


Call = Write | Truncate | Sync | WriteBack

positions = st.one_of(st.integers(0, 3000), st.integers(0, 40).map(lambda n: n * SECTOR_BYTES), st.integers(0, 20_000))
calls = st.one_of(
    st.builds(Write, positions, st.integers(1, 2000)),
    st.builds(Write, positions, st.integers(1, 2000)),
    st.builds(Truncate, positions),
    st.just(Sync()),
)


class Story:
    """A model of one file: every content since the last sync, and the truncations among them."""

    def __init__(self) -> None:
        self.seen = [b""]
        self.cuts: dict[int, int] = {}

    def sync(self) -> None:
        self.seen = self.seen[-1:]
        self.cuts.clear()

    def write(self, position: int, data: bytes) -> None:
        now = self.seen[-1].ljust(position, b"\0")
        self.seen.append(now[:position] + data + now[position + len(data) :])

    def truncate(self, size_bytes: int) -> None:
        if size_bytes != len(self.seen[-1]):
            self.seen.append(self.seen[-1][:size_bytes].ljust(size_bytes, b"\0"))
            self.cuts[len(self.seen) - 1] = size_bytes

    def may_become(self, content: bytes) -> bool:
        return any(len(content) == len(seen) and self._may_become(content, kept) for kept, seen in enumerate(self.seen))

    def _may_become(self, content: bytes, kept: int) -> bool:
        """Returns whether this content is possible if size changes persisted up to number `kept`."""
        return all(
            any(
                content[start : start + SECTOR_BYTES] == self._sector(start, moment, kept, len(content))
                for moment in range(len(self.seen))
                if not self._is_lost(start, moment, kept)
            )
            for start in range(0, len(content), SECTOR_BYTES)
        )

    def _sector(self, start: int, moment: int, kept: int, size_bytes: int) -> bytes:
        """Returns the sector as of a moment, without the bytes that later truncations cut off."""
        sector = self.seen[moment][start : start + SECTOR_BYTES]
        for number, cut in self.cuts.items():
            if moment < number <= kept:
                sector = sector[: max(0, cut - start)]
        return sector.ljust(SECTOR_BYTES, b"\0")[: size_bytes - start]

    def _is_lost(self, start: int, moment: int, kept: int) -> bool:
        """Returns whether the sector was written at that moment beyond the end of a truncation that was lost."""
        return any(
            kept < number <= moment and cut < len(self.seen[number - 1]) and cut < start + SECTOR_BYTES
            for number, cut in self.cuts.items()
        )


def play(story: list[Call], seed: int, faults: Faults) -> tuple[LossyDisk, Story]:
    disk = LossyDisk(MemoryDisk(), Random(seed), faults)
    data = Random(seed + 1)
    file = disk.open("a", create=True)
    drive(disk.sync_dir(""))
    twin = Story()
    for call in story:
        match call:
            case Write(position, size_bytes):
                content = data.randbytes(size_bytes)
                file.write(position, content)
                twin.write(position, content)
            case Truncate(size_bytes):
                file.truncate(size_bytes)
                twin.truncate(size_bytes)
            case Sync():
                drive(file.sync())
                twin.sync()
            case WriteBack():
                disk.write_back()
        assert file.read(0, 1 << 20) == twin.seen[-1]
        assert file.size() == len(twin.seen[-1])
    return disk, twin


def found(disk: LossyDisk) -> bytes:
    file = disk.open("a")
    content = file.read(0, 1 << 20)
    assert len(content) == file.size()
    file.close()
    return content


@settings(deadline=None)
@given(st.lists(calls, max_size=12))
def test_a_clean_power_cut_loses_just_what_was_not_synced(story: list[Call]) -> None:
    disk, twin = play(story, 1, Faults())
    assert found(disk.power_cut()) == twin.seen[0]


@settings(max_examples=400, deadline=None)
@given(st.lists(calls, max_size=12), st.integers(0, 1 << 32))
def test_a_torn_power_cut_keeps_whole_sectors_of_what_was_once_there(story: list[Call], seed: int) -> None:
    disk, twin = play(story, seed, Faults(is_torn=True))
    assert twin.may_become(found(disk.power_cut()))


@settings(deadline=None)
@given(st.lists(st.one_of(calls, st.just(WriteBack())), max_size=12), st.integers(0, 1 << 32))
def test_writing_back_early_shows_nobody_and_a_sync_completes_it(story: list[Call], seed: int) -> None:
    disk, twin = play([*story, Sync()], seed, Faults())
    assert found(disk.power_cut()) == twin.seen[-1]


@settings(deadline=None)
@given(st.lists(st.one_of(calls, st.just(WriteBack())), max_size=12), st.integers(0, 1 << 32))
def test_after_writing_back_every_byte_is_still_an_old_one_or_a_newer_one(story: list[Call], seed: int) -> None:
    disk, twin = play(story, seed, Faults())
    for position, byte in enumerate(found(disk.power_cut())):
        assert byte == 0 or any(position < len(seen) and seen[position] == byte for seen in twin.seen)


@settings(deadline=None)
@given(st.lists(calls, max_size=12), st.integers(0, 1 << 32))
def test_what_a_power_cut_left_is_durable(story: list[Call], seed: int) -> None:
    disk, _ = play(story, seed, Faults(is_torn=True))
    disk = disk.power_cut()
    content = found(disk)
    assert found(disk.power_cut()) == content


def test_a_torn_power_cut_shows_the_whole_range() -> None:
    """Nothing, everything, holes, a shorter file, a longer file with zeros: random choice reaches all of them."""
    outcomes = set()
    for seed in range(300):
        disk, _ = play([Write(0, 512), Sync(), Write(512, 1024)], seed, Faults(is_torn=True))
        content = found(disk.power_cut())
        outcomes.add((len(content), content[512:1024] > bytes(512), content[1024:] > bytes(512)))
    assert outcomes == {
        (512, False, False),
        (1536, False, False),
        (1536, True, False),
        (1536, False, True),
        (1536, True, True),
    }


@pytest.mark.parametrize(
    "story",
    [
        [Write(0, 2000), Sync(), Truncate(100), Write(100, 50)],
        [Write(0, 2000), Sync(), Truncate(700), Write(650, 100), Write(1000, 900)],
        [Write(0, 700), Sync(), Write(100, 100), Write(200, 100), Truncate(150), Write(600, 10)],
        [Write(0, 100), Sync(), Truncate(1500), Write(1400, 50), Truncate(20), Write(20, 1000)],
        [Write(0, 3000), Truncate(0), Write(0, 100)],
    ],
)
def test_truncations_tear_well(story: list[Call]) -> None:
    """Truncations mixed with writes in the same sector are the rare and hard case."""
    for seed in range(300):
        disk, twin = play(story, seed, Faults(is_torn=True))
        assert twin.may_become(found(disk.power_cut())), seed


def test_the_same_seed_tears_the_same_way() -> None:
    story: list[Call] = [Write(0, 5000), Sync(), Write(100, 9000), Truncate(3000), Write(2900, 4000)]
    contents = [found(play(story, 7, Faults(is_torn=True))[0].power_cut()) for _ in range(2)]
    assert contents[0] == contents[1]
    others = [found(play(story, seed, Faults(is_torn=True))[0].power_cut()) for seed in range(8, 12)]
    assert len({contents[0], *others}) > 1
