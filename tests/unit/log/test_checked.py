"""Small checked files in two copies: a damaged bit is detected and survived, and a newer format is refused."""

from contextlib import suppress

import pytest

from penstock.host.memory import MemoryDisk
from penstock.log import checked
from penstock.log.checked import Damaged, NewerFormat, decode, encode
from tests.simulation.log.histories import PowerCut, drive
from tests.unit.log.place import Place

VALUE = {"start": 5, "sealed": [[0, 1, 2]], "name": "café"}


def test_it_reads_what_was_written() -> None:
    found = decode("manifest", 1, encode("manifest", 1, VALUE), "x")
    assert found.value == VALUE
    assert found.damage is None


def test_it_can_be_read_by_people() -> None:
    line, body = encode("clean", 1, {"logs": 3}).splitlines()[:2]
    assert line.startswith(b"penstock clean 1 10 ")
    assert body == b'{"logs":3}'


def test_every_flipped_bit_is_noticed_and_survived() -> None:
    data = encode("manifest", 1, VALUE)
    for position in range(len(data)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[position] ^= 1 << bit
            found = decode("manifest", 1, bytes(flipped), "logs/t-0/manifest")
            assert found.value == VALUE
            assert found.damage is not None
            assert found.damage.startswith("logs/t-0/manifest: ")


def test_two_damaged_copies_are_too_much() -> None:
    data = bytearray(encode("manifest", 1, VALUE))
    for position in (30, len(data) // 2 + 40):
        data[position] ^= 1
    with pytest.raises(Damaged, match="x: does not match its checksum"):
        decode("manifest", 1, bytes(data), "x")


@pytest.mark.parametrize("content", [b"", b"\n", b"penstock", bytes(200), b"penstock manifest 1 2 00000000\n{}\n"])
def test_what_never_was_such_a_file_is_damaged(content: bytes) -> None:
    with pytest.raises(Damaged):
        decode("manifest", 1, content, "x")


def test_a_cut_file_is_survived_at_best_and_never_misread() -> None:
    data = encode("manifest", 1, VALUE)
    for size in range(len(data)):
        try:
            found = decode("manifest", 1, data[:size], "x")
        except Damaged:
            continue
        assert found.value == VALUE
        assert found.damage is not None


def test_another_kind_is_not_taken() -> None:
    with pytest.raises(Damaged, match="is not a file of kind 'manifest'"):
        decode("manifest", 1, encode("producers", 1, VALUE), "x")


def test_an_older_version_is_read_and_a_newer_one_refused_in_words() -> None:
    assert decode("manifest", 2, encode("manifest", 1, VALUE), "x").value == VALUE
    disk = MemoryDisk()
    file = disk.open("manifest", create=True)
    file.write(0, encode("manifest", 3, VALUE))
    file.close()
    with pytest.raises(NewerFormat) as caught:
        checked.read(disk, "manifest", "manifest", 2)
    assert str(caught.value) == (
        "manifest was written by a newer Penstock (format 3, this program reads up to 2): "
        "upgrade the program, or restore the directory from a backup made before the upgrade"
    )
    assert disk.open_count == 0


@pytest.mark.parametrize("seed", range(20))
def test_a_power_cut_leaves_the_old_or_the_new(seed: int) -> None:
    for waits in range(3):
        disk = Place(suspends=True, is_torn=True, seed=seed).disk
        drive(checked.replace(disk, "x", "test", 1, {"value": "old" * 300}))
        with suppress(PowerCut):  # only two syncs can be interrupted, the file's and the directory's
            drive(checked.replace(disk, "x", "test", 1, {"value": "new" * 300}), waits)
        found = checked.read(disk.power_cut(), "x", "test", 1)
        assert found.damage is None
        assert found.value["value"] in ("old" * 300, "new" * 300)
        assert waits < 2 or found.value["value"].startswith("new")
