"""A full disk: a typed error, no partial changes, undisturbed readers, and normal operation once space is free."""

import errno
from collections.abc import Callable
from random import Random

import pytest

from penstock.host.faults import Faults
from penstock.host.lossy import LossyDisk
from penstock.host.memory import MemoryDisk
from penstock.log import checked, upkeep
from penstock.log.ledger import ENTRY_BYTES, Ledger, LedgerEntry
from penstock.log.scrub import scrub
from penstock.log.segment import Segment
from penstock.log.space import RESERVE, Reserve
from penstock.model.errors import DiskFull, ErrorCode, StorageError
from tests.simulation.log.histories import drive
from tests.unit.log.place import NAME, Place, a_batch, from_producer, merged

FOR_EVER = 99


def fill(place: Place, operation: str = "write", path: str | None = None) -> None:
    """Fails an operation with ENOSPC until further notice."""
    place.disk.fail_next(operation, path, count=FOR_EVER, code=errno.ENOSPC)


def crowd(place: Place) -> None:
    """Sets the disk's capacity to the bytes in use."""
    faults = place.disk.faults
    faults.capacity_bytes = 0
    faults.capacity_bytes = place.disk._used()


def size_of(place: Place, path: str) -> int:
    file = place.disk.open(path)
    try:
        return file.size()
    finally:
        file.close()


# --- a new segment --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", ["open", "truncate"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_no_room_for_a_new_segment_is_told_and_survived(operation: str, code: int) -> None:
    place = Place()
    place.append_many(8)
    segments = [segment.name for segment in place.log.segments]
    place.disk.fail_next(operation, f"{place.log.path}/{Segment(8).name}.log", code=code)
    with pytest.raises(DiskFull, match="free space and send again") as told:
        place.append(a_batch(5, value=b"v" * 150))
    assert told.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert place.log.offline_reason is None
    assert [segment.name for segment in place.log.segments] == segments
    assert place.files(".log") == [f"{name}.log" for name in segments]
    assert place.append(a_batch(5, value=b"v" * 150)).base_offset == 8
    assert place.offsets() == list(range(13))


def test_what_was_begun_of_a_segment_goes_lest_it_stand_in_the_way() -> None:
    """The next batch may fit into the old segment: an empty segment file after it would end the log there."""
    place = Place()
    place.append_many(8)
    place.disk.fail_next("truncate", f"{place.log.path}/{Segment(8).name}.log", code=errno.ENOSPC)
    with pytest.raises(DiskFull):
        place.append(a_batch(5, value=b"v" * 150))
    assert place.append().base_offset == 8, "in the old segment"
    place.append_many(20)
    place.commit()
    log = place.kill()
    assert place.directory.findings.damage == place.directory.findings.cut == []
    assert log.written_end == 29
    assert place.offsets() == list(range(29))


def test_a_segment_that_can_neither_be_made_nor_removed_takes_the_log_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place()
    place.append()

    def refuse(path: str) -> None:
        raise OSError(errno.EIO, "planted", path)

    monkeypatch.setattr(place.disk, "unlink", refuse)
    fill(place, "truncate")
    with pytest.raises(StorageError, match="a new segment could not be made"):
        place.log.roll()
    assert place.log.offline_reason is not None


def test_another_failure_of_a_new_segment_is_final() -> None:
    place = Place()
    place.append()
    place.disk.fail_next("open", f"{place.log.path}/{Segment(1).name}.log")
    with pytest.raises(StorageError, match="a new segment could not be made"):
        place.log.roll()
    assert place.log.offline_reason is not None


@pytest.mark.parametrize("seed", range(20))
def test_what_was_cut_off_stays_off_when_the_next_segment_has_begun(seed: int) -> None:
    """Otherwise a power cut could bring back half a batch in the middle of the log."""
    place = Place(is_torn=True, seed=seed)
    place.append_many(3)
    place.commit()
    place.disk.fail_next("write", code=errno.ENOSPC)
    with pytest.raises(DiskFull):
        place.append(a_batch(5))
    place.disk.write_back()  # part of it reaches the device
    place.log.roll()
    place.append_many(3)
    place.commit()
    log = place.cut_power()
    assert place.directory.findings.damage == []
    assert log.written_end == 6


def test_sealing_that_was_put_off_keeps_producer_state_all_the_same() -> None:
    place = Place()
    for sequence in range(30):
        place.append(from_producer(5, sequence))
    place.commit()
    before = list(place.log.snapshots)
    for path in (place.log.path_of(place.log.segments[0], "index"), f"{place.log.path}/manifest.new"):
        fill(place, path=path)
        with pytest.raises(DiskFull):
            place.settle()
        assert place.log.snapshots == before
        place.disk.fail_nothing()
    place.settle()
    assert (place.log.active.base_offset, True) in place.log.snapshots
    place.kill()
    assert place.directory.findings.rebuilt == []
    assert place.append(from_producer(5, 29)).is_duplicate


# --- epochs, replacements, new logs ---------------------------------------------------------------------------------


def test_an_epoch_that_could_not_be_written_down_has_not_begun() -> None:
    """Otherwise the retry would find the epoch begun, write nothing, and a power cut would lose it (R03)."""
    place = Place()
    drive(place.directory.begin_epoch(place.log, 3))
    place.append(epoch=3)
    place.commit()
    fill(place)
    for _ in range(2):
        with pytest.raises(DiskFull):
            drive(place.directory.begin_epoch(place.log, 4))
        assert place.log.epochs.latest == 3
    assert place.log.offline_reason is None
    assert not place.disk.exists(f"{place.log.path}/manifest.new")
    place.disk.fail_nothing()
    drive(place.directory.begin_epoch(place.log, 4))
    assert place.cut_power().epochs.latest == 4


def test_a_replacement_without_room_is_undone() -> None:
    place = Place()
    place.append_many(40)
    place.commit()
    place.settle()
    log, before = place.log, place.stored()
    old = log.segments[:2]
    new = merged(place.log, place.disk, old)
    all_segments, settled = list(log.segments), log.settled_segments
    fill(place, path=f"{log.path}/manifest.new")
    with pytest.raises(DiskFull):
        drive(upkeep.replace_segments(log, place.disk, old, new))
    assert log.offline_reason is None
    assert log.segments == all_segments
    assert log.settled_segments == settled
    assert not place.disk.exists(log.path_of(new, "log"))
    assert not place.disk.exists(log.path_of(new, "index"))
    assert place.stored() == before
    place.disk.fail_nothing()
    drive(upkeep.replace_segments(log, place.disk, old, merged(place.log, place.disk, old)))
    assert place.stored() == before
    place.cut_power()
    assert place.stored() == before
    assert place.directory.findings.damage == []


@pytest.mark.parametrize(
    ("operation", "path"),
    [("open", "logs/u-0/00000000000000000000-0.log"), ("open", None), ("write", "logs/u-0/manifest.new")],
)
def test_a_log_that_could_not_be_made_leaves_nothing_and_can_be_made_later(operation: str, path: str | None) -> None:
    """Appends to the second log must not go to the removed file of the first."""
    place = Place()
    fill(place, operation, path)
    for _ in range(2):
        with pytest.raises(DiskFull):
            drive(place.directory.create("u", "id", 0, place.settings))
        assert not place.disk.exists("logs/u-0")
    assert "u-0" not in place.directory.logs
    place.disk.fail_nothing()
    log = drive(place.directory.create("u", "id", 0, place.settings))
    log.append(a_batch(3), leader_epoch=0, now_ms=0)
    place.commit()
    assert log.durable_end == 3
    place.cut_power()
    assert place.directory.findings.damage == []
    assert place.directory.logs["u-0"].written_end == 3


def test_a_log_that_could_not_be_renamed_is_not_deleted_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place()
    place.append()
    rename = place.disk.rename

    def refuse(old: str, new: str) -> None:
        raise OSError(errno.ENOSPC, "planted", old)

    monkeypatch.setattr(place.disk, "rename", refuse)
    with pytest.raises(DiskFull):
        drive(place.directory.delete(place.log))
    assert place.directory.logs[NAME].offline_reason is None
    monkeypatch.setattr(place.disk, "rename", rename)
    drive(place.directory.delete(place.log))
    assert place.disk.list("logs") == []
    assert NAME not in place.directory.logs


# --- the ledger -----------------------------------------------------------------------------------------------------


def an_entry(number: int, end_offset: int) -> LedgerEntry:
    return LedgerEntry(number, 0, end_offset, end_offset, 0, 0)


def ends(disk: LossyDisk) -> dict[int, int]:
    ledger = Ledger(disk, 10 * ENTRY_BYTES)
    ledger.load()
    return {number: entry.end_offset for number, entry in ledger.entries.items()}


def test_both_files_of_the_ledger_have_their_room_from_the_beginning() -> None:
    place = Place()
    place.append()
    place.commit()
    assert size_of(place, "ledger-0") == size_of(place, "ledger-1") == 1024
    place.kill()
    assert place.directory.findings.cut == [], "a file that was only made is no torn one"


def test_a_turn_that_finds_no_room_is_not_taken_and_harms_nothing() -> None:
    disk = LossyDisk(MemoryDisk(), Random(1))
    ledger = Ledger(disk, 10 * ENTRY_BYTES)
    drive(ledger.take_turn())
    for end_offset in range(1, 10):
        drive(ledger.record([an_entry(1, end_offset)]))
    assert ledger.turn == 1
    for operation in ("open", "write"):
        for _ in range(3):
            disk.fail_next(operation, "ledger-0", count=2, code=errno.ENOSPC)
            with pytest.raises(DiskFull):
                drive(ledger.record([an_entry(1, 10)]))
            disk.fail_nothing()
            assert ledger.turn == 1
            assert ends(disk) == {1: 9}
    drive(ledger.record([an_entry(1, 10)]))
    assert ledger.turn == 2
    assert ends(disk) == {1: 10}


def test_an_entry_that_finds_no_room_takes_the_same_place_later() -> None:
    disk = LossyDisk(MemoryDisk(), Random(1))
    ledger = Ledger(disk, 10 * ENTRY_BYTES)
    drive(ledger.take_turn())
    for _ in range(3):
        disk.fail_next("write", "ledger-1", code=errno.ENOSPC)
        with pytest.raises(DiskFull):
            drive(ledger.record([an_entry(1, 5)]))
    drive(ledger.record([an_entry(1, 6)]))
    assert ledger.live_bytes == 2 * ENTRY_BYTES
    assert ends(disk.power_cut()) == {1: 6}


def test_a_round_that_cannot_be_written_down_promises_nothing_and_is_made_up_for() -> None:
    place = Place()
    place.append_many(3)
    place.commit()
    place.append_many(20)
    fill(place, path="ledger-1")
    for _ in range(2):
        with pytest.raises(DiskFull):
            place.commit()
        assert place.log.durable_end == 3
        assert place.directory.is_dirty
    assert place.log.offline_reason is None
    place.disk.fail_nothing()
    assert place.commit() == [place.log]
    assert place.log.durable_end == 23
    assert place.cut_power().written_end == 23


def test_a_ledger_that_cannot_be_synced_is_final() -> None:
    place = Place()
    place.append()
    place.disk.fail_next("sync", "ledger-1", code=errno.ENOSPC)
    place.commit()
    assert place.log.offline_reason is not None
    assert place.directory.offline_reason is not None


# --- detection --------------------------------------------------------------------------------------------------------


def test_refusals_are_counted_and_a_probe_tells_of_room() -> None:
    place = Place()
    assert place.directory.takes_files()
    assert not place.disk.exists("probe")
    assert place.directory.pool.refusals == 0
    crowd(place)
    assert not place.directory.takes_files()
    assert not place.disk.exists("probe")
    with pytest.raises(DiskFull):
        place.append()
    with pytest.raises(DiskFull):
        drive(place.directory.create("u", "id", 0, place.settings))
    assert place.directory.pool.refusals == 2
    place.disk.faults.capacity_bytes = None
    assert place.directory.takes_files()


# --- truncation, shutdown -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", [lambda place: place.truncate(4), lambda place: place.restart_at(50)])
def test_a_full_disk_can_be_cut(cut: Callable[[Place], None]) -> None:
    """A leader with a full disk resigns with more records than its successor: it must truncate before it can follow."""
    place = Place(reserve_bytes=8_192)
    place.append_many(30)
    place.commit()
    place.settle()
    crowd(place)
    with pytest.raises(DiskFull):
        place.append_many(30)
    cut(place)
    assert place.log.offline_reason is None
    end = place.log.written_end
    assert end in (4, 50)
    assert place.cut_power().written_end == end


def test_a_truncation_that_finds_no_room_is_not_gone_on_with() -> None:
    place = Place()
    place.append_many(30)
    place.commit()
    place.settle()
    fill(place, path=f"{place.log.path}/manifest.new")
    with pytest.raises(StorageError, match="a truncation failed"):
        place.truncate(4)
    with pytest.raises(StorageError, match="offline"):
        place.append()


@pytest.mark.parametrize("path", [None, f"logs/{NAME}/manifest.new", "clean.new", "ledger-0"])
def test_a_shutdown_on_a_full_disk_loses_nothing(path: str | None) -> None:
    place = Place()
    for sequence in range(30):
        place.append(from_producer(5, sequence))
    place.commit()
    before = place.stored()
    fill(place, path=path)
    drive(place.directory.close())
    assert not place.disk.exists("clean")
    place.disk.fail_nothing()
    log = place.reopen()
    assert place.directory.findings.damage == []
    assert place.stored() == before
    assert place.append(from_producer(5, 29)).is_duplicate
    assert log.durable_end == 30


def test_a_start_on_a_full_disk_needs_no_room() -> None:
    place = Place()
    place.append_many(30)
    place.commit()
    crowd(place)
    for again in (place.kill, place.cut_power, place.kill):
        log = again()
        assert log.offline_reason is None
        assert place.offsets() == list(range(30))
        with pytest.raises(DiskFull):
            place.append()
    place.disk.faults.capacity_bytes = None
    assert place.append().base_offset == 30
    place.commit()
    assert place.log.durable_end == 31


# --- the reserve ----------------------------------------------------------------------------------------------------


def test_a_full_disk_can_be_emptied() -> None:
    """A deletion is recorded in the manifest first; the reserve provides the space for that."""
    place = Place(reserve_bytes=4096)
    place.append_many(60)
    place.commit()
    crowd(place)
    with pytest.raises(DiskFull):
        place.append()
    with pytest.raises(DiskFull):
        place.settle()  # sealing alone frees no space
    assert size_of(place, RESERVE) == 4096
    place.delete_before(55)
    assert place.log.start_offset == 55
    assert place.log.segments[0].end_offset > 55, "segments went"
    assert place.append().base_offset == 60
    place.directory.keep_room()
    assert size_of(place, RESERVE) == 4096
    place.commit()
    log = place.cut_power()
    assert place.directory.findings.damage == []
    assert (log.start_offset, log.written_end) == (55, 61)
    assert scrub(log, place.disk) == []


def test_a_power_cut_leaves_the_reserve_though_the_disk_is_full_when_the_node_is_back() -> None:
    place = Place(reserve_bytes=4096)
    for is_spent in (False, True):
        if is_spent:
            place.directory.pool.reserve._give_way()
            place.directory.keep_room()
            drive(place.directory.pool.reserve.outlast())
        place.disk = place.disk.power_cut()
        assert size_of(place, RESERVE) == 4096
        crowd(place)
        place.reopen()
        assert place.directory.pool.reserve.held_bytes == 4096
        place.disk.faults.capacity_bytes = None


def test_retention_empties_a_full_disk_by_itself() -> None:
    place = Place(reserve_bytes=4096)
    place.append_many(60)
    place.commit()
    place.log.advance_high_watermark(60)
    place.log.settings = place.settings.__class__(segment_bytes=1000, index_interval_bytes=100, retention_ms=10)
    crowd(place)
    fill(place, "open", f"{place.log.path}/{Segment(60).name}.log")  # no space for a new segment's file either
    assert drive(upkeep.apply_retention(place.log, place.disk, 5_000_000)) > 4
    assert place.log.start_offset > 40
    assert place.append().base_offset == 60


def test_what_could_not_be_sealed_and_lies_before_the_start_goes_later() -> None:
    place = Place(reserve_bytes=0)
    place.append_many(60)
    place.commit()
    fill(place, path=place.log.path_of(place.log.segments[0], "index"))
    place.delete_before(55)
    assert place.log.start_offset == 55
    assert place.log.segments[0].base_offset == 0, "not sealed, so it stays"
    place.disk.fail_nothing()
    place.delete_before(55)
    assert place.log.segments[0].end_offset > 55
    assert place.cut_power().start_offset == 55


def test_no_room_for_a_deletion_changes_nothing() -> None:
    place = Place(reserve_bytes=0)
    drive(place.directory.begin_epoch(place.log, 1))
    place.append_many(60, epoch=1)
    place.commit()
    place.settle()
    before = place.stored(), list(place.log.epochs), list(place.log.snapshots)
    crowd(place)
    with pytest.raises(DiskFull):
        place.delete_before(55)
    assert place.log.start_offset == 0
    assert before == (place.stored(), list(place.log.epochs), list(place.log.snapshots))
    place.kill()
    assert place.stored() == before[0]


def a_reserve(capacity_bytes: int, size_bytes: int = 50_000) -> tuple[LossyDisk, Reserve]:
    disk = LossyDisk(MemoryDisk(), Random(1), Faults(capacity_bytes=capacity_bytes))
    reserve = Reserve(disk, size_bytes)
    reserve.fill()
    return disk, reserve


def write(disk: LossyDisk, path: str, size_bytes: int) -> Callable[[], str]:
    def work() -> str:
        checked.write_now(disk, path, bytes(size_bytes)).close()
        return path

    return work


def test_a_reserve_shrinks_by_what_was_needed_and_grows_again() -> None:
    disk, reserve = a_reserve(60_000)
    assert reserve.held_bytes == 50_000
    write(disk, "records", 10_000)()
    assert disk.free_bytes() == 0
    assert reserve.spend(write(disk, "a", 300)) == "a"
    assert reserve.spend(write(disk, "b", 300)) == "b"
    assert 48_000 <= reserve.held_bytes <= 49_400
    disk.unlink("records")
    reserve.fill()
    assert reserve.held_bytes == 50_000


def test_a_reserve_takes_what_there_is() -> None:
    disk, reserve = a_reserve(30_000)
    assert 29_000 <= reserve.held_bytes <= 30_000
    with pytest.raises(DiskFull):
        reserve.spend(write(disk, "a", 40_000))
    assert reserve.held_bytes >= 29_000


def test_a_reserve_is_not_touched_while_there_is_room() -> None:
    disk, reserve = a_reserve(100_000)
    reserve.spend(write(disk, "a", 20_000))
    assert reserve.held_bytes == 50_000


def test_without_a_reserve_a_full_disk_is_just_full() -> None:
    disk, reserve = a_reserve(100, 0)
    assert not disk.exists(RESERVE)
    with pytest.raises(DiskFull):
        reserve.spend(write(disk, "a", 200))
