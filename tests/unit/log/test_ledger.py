"""The ledger: two files that take turns, of which one is complete at every moment."""

import pytest

from penstock.host.lossy import LossyDisk
from penstock.host.memory import MemoryDisk
from penstock.log.ledger import ENTRY_BYTES, Ledger, LedgerEntry
from penstock.model.ports import Disk
from tests.simulation.log.histories import PowerCut, drive
from tests.unit.log.place import Place

SIZE_BYTES = 10 * ENTRY_BYTES


def an_entry(log_number: int, end_offset: int) -> LedgerEntry:
    return LedgerEntry(log_number, 0, end_offset * 100, end_offset, 0xFFFFFFFF, end_offset // 2)


def loaded(disk: Disk) -> Ledger:
    ledger = Ledger(disk, SIZE_BYTES)
    ledger.load()
    return ledger


def ends(ledger: Ledger) -> dict[int, int]:
    return {number: entry.end_offset for number, entry in ledger.entries.items()}


def a_ledger(disk: Disk, entries: int = 0) -> Ledger:
    """Builds a ledger in its first turn, with that many entries of log 1."""
    ledger = Ledger(disk, SIZE_BYTES)
    drive(ledger.take_turn())
    for end_offset in range(1, entries + 1):
        drive(ledger.record([an_entry(1, end_offset)]))
    return ledger


def content(disk: Disk, path: str) -> bytes:
    file = disk.open(path)
    data = file.read(0, file.size())
    file.close()
    return data


def test_the_last_entry_of_a_log_counts() -> None:
    disk = MemoryDisk()
    ledger = a_ledger(disk, 3)
    drive(ledger.record([an_entry(2, 9), an_entry(1, 4)]))
    drive(ledger.record([an_entry(1, 2)]))  # lowered by a truncation
    again = loaded(disk)
    assert again.entries == ledger.entries
    assert ends(again) == {1: 2, 2: 9}
    assert again.damage == again.torn == []
    assert again.live_bytes == ledger.live_bytes


def test_a_new_directory_has_none() -> None:
    ledger = loaded(MemoryDisk())
    assert ledger.entries == {}
    assert ledger.turn == 0


def test_a_full_file_gives_the_turn_to_the_other() -> None:
    disk = MemoryDisk()
    ledger = a_ledger(disk)
    turns = []
    for end_offset in range(1, 60):
        drive(ledger.record([an_entry(1, end_offset)]))
        turns.append(ledger.turn)
        assert ends(loaded(disk)) == {1: end_offset}
    assert turns[0] == 1
    assert turns[-1] == 1 + 50 // 9 + 1
    assert {len(content(disk, path)) for path in ("ledger-0", "ledger-1")} == {SIZE_BYTES}


def test_entries_of_an_earlier_turn_are_not_taken() -> None:
    """A file is overwritten from its start; the entries behind the new ones are two turns old."""
    disk = MemoryDisk()
    ledger = a_ledger(disk)
    for number in range(2, 9):
        drive(ledger.record([an_entry(number, 5)]))
    for number in range(2, 9):
        ledger.forget(number)
    drive(ledger.take_turn())
    drive(ledger.take_turn())
    assert ledger.turn == 3
    assert any(content(disk, "ledger-1")[2 * ENTRY_BYTES :])
    again = loaded(disk)
    assert again.entries == {}
    assert again.damage == again.torn == []


@pytest.mark.parametrize("seed", range(30))
def test_a_torn_turn_falls_back_to_the_one_before(seed: int) -> None:
    """There are more logs than entries per sector, so a turn can be torn within its carried-over entries."""
    place = Place(suspends=True, is_torn=True, seed=seed)
    ledger = Ledger(place.disk, SIZE_BYTES)
    ledger.turn = 10
    ledger.entries = {number: an_entry(number, 7) for number in range(100, 160)}
    drive(ledger.take_turn())
    drive(ledger.take_turn())
    with pytest.raises(PowerCut):
        drive(ledger.take_turn(), 0)
    again = loaded(place.disk.power_cut())
    assert ends(again) == dict.fromkeys(range(100, 160), 7)
    assert again.turn in (12, 13)
    assert again.damage == []


def test_a_damaged_turn_is_named_and_the_other_is_used() -> None:
    disk = LossyDisk(MemoryDisk(), Place().disk.random)
    ledger = a_ledger(disk, 12)
    assert ledger.turn == 2
    disk.flip_bit("ledger-0", 3, 0)
    again = loaded(disk)
    assert again.turn == 1
    assert ends(again) == {1: 9}
    assert again.torn == ["ledger-0: is not whole and was not used"]


def test_damage_before_good_entries_is_named() -> None:
    disk = LossyDisk(MemoryDisk(), Place().disk.random)
    a_ledger(disk, 6)
    disk.flip_bit("ledger-1", 2 * ENTRY_BYTES + 5, 3)
    again = loaded(disk)
    assert ends(again) == {1: 6}
    assert again.damage == [f"ledger-1: the entry at position {2 * ENTRY_BYTES} is damaged"]
    assert again.torn == []


def test_a_torn_last_entry_is_no_damage() -> None:
    disk = LossyDisk(MemoryDisk(), Place().disk.random)
    a_ledger(disk, 6)
    disk.flip_bit("ledger-1", 6 * ENTRY_BYTES + 5, 3)
    again = loaded(disk)
    assert ends(again) == {1: 5}
    assert again.damage == []
    assert again.torn == [f"ledger-1: the entry at position {6 * ENTRY_BYTES} is torn"]


def test_every_flipped_bit_costs_at_most_the_entry_that_it_hits() -> None:
    disk = LossyDisk(MemoryDisk(), Place().disk.random)
    ledger = a_ledger(disk)
    for number in range(1, 6):
        drive(ledger.record([an_entry(number, 7)]))
    whole = ends(ledger)
    for position in range(ENTRY_BYTES, ledger.live_bytes):
        for bit in range(8):
            disk.flip_bit("ledger-1", position, bit)
            again = loaded(disk)
            hit = position // ENTRY_BYTES
            assert ends(again) == {number: end for number, end in whole.items() if number != hit}
            assert len(again.damage + again.torn) == 1
            disk.flip_bit("ledger-1", position, bit)


def test_very_many_logs_make_the_files_larger() -> None:
    disk = MemoryDisk()
    ledger = a_ledger(disk)
    drive(ledger.record([an_entry(number, 1) for number in range(1, 101)]))
    for end_offset in range(2, 400):
        drive(ledger.record([an_entry(50, end_offset)]))
    again = loaded(disk)
    assert len(again.entries) == 100
    assert again.entries[50].end_offset == 399
    assert len(content(disk, "ledger-0")) >= 4 * 101 * ENTRY_BYTES


def test_a_log_that_is_gone_is_not_carried_over() -> None:
    disk = MemoryDisk()
    ledger = a_ledger(disk, 2)
    drive(ledger.record([an_entry(2, 8)]))
    ledger.forget(1)
    drive(ledger.take_turn())
    assert ends(loaded(disk)) == {2: 8}


def test_the_old_descriptor_is_given_back() -> None:
    disk = MemoryDisk()
    ledger = a_ledger(disk, 40)
    assert disk.open_count == 1
    ledger.close()
    ledger.close()
    assert disk.open_count == 0


@pytest.mark.parametrize("seed", range(30))
def test_calls_that_overlap_leave_one_file_whole(seed: int) -> None:
    """A truncation and a round record while the file is full: neither may overwrite the only complete file."""
    place = Place(suspends=True, is_torn=True, seed=seed)
    ledger = Ledger(place.disk, SIZE_BYTES)
    ledger.turn = 10
    ledger.entries = {number: an_entry(number, 7) for number in range(100, 160)}
    drive(ledger.take_turn())
    ledger.live_bytes = ledger._size_bytes  # pretends that the file is full
    calls = [ledger.record([an_entry(100, end_offset)]) for end_offset in range(8, 400)]
    for call in calls:
        call.send(None)
    assert ledger.turn == 12
    last = calls.pop()
    drive(last)  # its sync covers the file with the turn and all entries
    disk = place.disk.power_cut()
    for call in calls:
        call.close()
    assert ends(loaded(disk)) == dict.fromkeys(range(100, 160), 7) | {100: 399}


@pytest.mark.parametrize("seed", range(30))
def test_overlapping_calls_may_all_be_lost_but_nothing_else(seed: int) -> None:
    place = Place(suspends=True, is_torn=True, seed=seed)
    ledger = Ledger(place.disk, SIZE_BYTES)
    ledger.turn = 10
    ledger.entries = {number: an_entry(number, 7) for number in range(100, 160)}
    drive(ledger.take_turn())
    ledger.live_bytes = ledger._size_bytes
    calls = [ledger.record([an_entry(100, end_offset)]) for end_offset in (8, 9)]
    for call in calls:
        call.send(None)
    disk = place.disk.power_cut()
    for call in calls:
        call.close()
    found = ends(loaded(disk))
    assert found.pop(100) in (7, 8, 9)
    assert found == dict.fromkeys(range(101, 160), 7)


@pytest.mark.parametrize("seed", range(60))
def test_a_round_whose_sectors_come_in_any_order_is_no_damage(seed: int) -> None:
    """The entries fill several sectors. Whichever of them survive a power cut, no synced entry is damaged."""
    place = Place(suspends=True, is_torn=True, seed=seed)
    ledger = Ledger(place.disk, 100 * ENTRY_BYTES)
    drive(ledger.take_turn())
    drive(ledger.record([an_entry(1, 1)]))
    under_way = ledger.record([an_entry(number, 2) for number in range(1, 41)])
    under_way.send(None)
    disk = place.disk.power_cut()
    under_way.close()
    again = loaded(disk)
    assert again.damage == again.torn == []
    assert again.entries[1].end_offset in (1, 2)
    assert set(ends(again).values()) <= {1, 2}
