"""Opening a log: little is read, no synced record is lost, torn tails are cut, and damage is reported."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import pytest

from penstock.log.log import Log
from penstock.log.scrub import scrub
from penstock.log.settings import Durability
from penstock.model.errors import InvalidBatch, StorageError
from penstock.records.control import ControlType
from penstock.records.header import patch
from tests.simulation.log.histories import PowerCut, drive
from tests.unit.log.place import NAME, SETTINGS, Place, a_batch, essence, from_producer

SEGMENT = "logs/t-0/00000000000000000000-0.log"


def a_life(**options: bool | int) -> Place:
    """Builds several segments, some sealed, with producers and an aborted transaction; everything is synced."""
    place = Place(**options)  # type: ignore[arg-type]
    for sequence in range(30):
        place.append(from_producer(5, sequence), epoch=sequence // 12)
        if sequence == 15:
            place.settle()
        if sequence == 20:
            place.append(from_producer(6, 0, is_transactional=True), epoch=1)
    place.end(ControlType.ABORT, 6, leader_epoch=2)
    place.log.advance_high_watermark(20)
    place.commit()
    return place


def replicated(base_offset: int, count: int) -> bytearray:
    """Builds a batch as a leader sends it."""
    data = a_batch(count)
    patch(data, base_offset, 0)
    return data


def portrait(place: Place) -> tuple[object, ...]:
    """Returns the state that must be the same after recovery."""
    log = place.log
    return (
        log.identity,
        (log.start_offset, log.written_end, log.high_watermark),
        place.stored(),
        log.epochs.to_list(),
        essence(log.producers),
        [transaction[:3] for transaction in log.aborted_between(0, 99)],
        [segment.to_list() for segment in log.segments],
    )


def write_junk(place: Place, path: str, data: bytes) -> None:
    """Appends bytes that the ledger does not cover."""
    file = place.disk.open(path)
    file.write(file.size(), data)
    file.close()


# --- how much is read ---------------------------------------------------------------------------------------------


def test_after_a_clean_shutdown_nothing_is_read() -> None:
    place = a_life()
    before = portrait(place)
    log = place.restart()
    findings = place.directory.findings
    assert findings.scanned_bytes == 0
    assert findings.damage == findings.cut == findings.rebuilt == []
    assert portrait(place) == before
    assert log.durable_end == log.written_end


@pytest.mark.parametrize("way", [Place.kill, Place.cut_power])
def test_after_a_crash_only_what_is_not_sealed_is_read(way: object) -> None:
    place = a_life()
    before = portrait(place)
    sealed = place.log.settled_segments
    assert 0 < sealed < len(place.log.segments) - 1
    tail_bytes = sum(segment.size_bytes for segment in place.log.segments[sealed:])
    log = way(place)  # type: ignore[operator]
    findings = place.directory.findings
    assert findings.scanned_bytes == tail_bytes < log.size_bytes
    assert findings.damage == findings.cut == findings.rebuilt == []
    assert portrait(place) == before
    assert log.durable_end == log.written_end


def test_the_second_opening_after_a_crash_finds_what_the_first_found() -> None:
    place = a_life()
    before = portrait(place)
    for _ in range(3):
        place.cut_power()
        assert portrait(place) == before


@pytest.mark.parametrize("settles", [False, True])
def test_a_clean_log_goes_on_and_is_found_after_a_crash(settles: bool) -> None:
    """The active segment in a clean manifest is out of date after the first append."""
    place = a_life()
    place.restart()
    for sequence in range(30, 45):
        place.append(from_producer(5, sequence), epoch=3)
    if settles:
        place.settle()
    place.commit()
    before = portrait(place)
    place.cut_power()
    assert place.directory.findings.damage == []
    assert portrait(place) == before


# --- torn tails ---------------------------------------------------------------------------------------------------


def test_what_was_never_promised_is_cut_and_told() -> None:
    place = Place()
    place.append_many(3)
    place.commit()
    for size_bytes in (1, 60, 61, 100):
        write_junk(place, SEGMENT, bytes(a_batch(base_offset=3))[:size_bytes])
        log = place.kill()
        assert place.directory.findings.damage == []
        assert len(place.directory.findings.cut) == 1
        assert place.directory.findings.cut[0].endswith("; the log now ends at offset 3")
        assert log.written_end == 3
        assert place.offsets() == [0, 1, 2]


@pytest.mark.parametrize(
    ("tail", "sentence"),
    [
        (bytes(100), "there is no batch at position 327"),
        (bytes(a_batch(base_offset=2)), "goes back to offset 2"),
        (bytes(a_batch(base_offset=2**31 + 5, leader_epoch=1)), "jumps to offset 2147483653"),
        (bytes(a_batch(base_offset=3, leader_epoch=0)), "goes back to epoch 0"),
        (bytes(a_batch(base_offset=3, leader_epoch=1))[:-1] + b"\xff", "does not match its checksum"),
    ],
)
def test_a_tail_that_cannot_be_is_cut(tail: bytes, sentence: str) -> None:
    place = Place()
    place.append_many(3, epoch=1)
    place.commit()
    write_junk(place, SEGMENT, tail)
    log = place.kill()
    assert place.directory.findings.damage == []
    assert sentence in place.directory.findings.cut[0]
    assert log.written_end == 3


def test_whole_batches_beyond_the_promise_are_kept() -> None:
    """Unsynced batches that are intact are not discarded."""
    place = Place()
    place.append_many(3)
    place.commit()
    place.append_many(3)
    log = place.kill()
    assert (log.written_end, log.durable_end) == (6, 6)
    assert place.cut_power().written_end == 6


def test_segments_behind_a_torn_one_go() -> None:
    place = Place()
    place.append_many(3)
    place.commit()
    place.append_many(30)
    torn = place.log.segments[1]
    file = place.disk.open(place.log.path_of(torn, "log"))
    file.truncate(200)
    file.close()
    log = place.kill()
    assert log.written_end == torn.base_offset + 1
    assert [segment.base_offset for segment in log.segments] == [0, torn.base_offset]
    assert len(place.files(".log")) == 2
    place.append_many(30)
    place.commit()
    assert place.cut_power().written_end == torn.base_offset + 31


def test_segments_behind_a_missing_one_go() -> None:
    place = Place()
    place.append_many(3)
    place.commit()
    place.append_many(30)
    missing = place.log.segments[1]
    place.disk.unlink(place.log.path_of(missing, "log"))
    log = place.kill()
    assert "does not follow the segment before it" in place.directory.findings.cut[0]
    assert log.written_end == missing.base_offset


# --- damage -------------------------------------------------------------------------------------------------------


def test_a_flipped_bit_below_the_promise_is_damage_and_nothing_is_cut() -> None:
    size_bytes = len(a_batch())
    for position in range(3 * size_bytes):
        place = Place()
        place.append_many(3)
        place.commit()
        place.flip(SEGMENT, position, position % 8)
        log = place.kill()
        findings = place.directory.findings
        assert len(findings.damage) >= 1
        assert all(SEGMENT in sentence or log.path in sentence for sentence in findings.damage)
        assert findings.cut == []
        assert log.offline_reason is not None
        file = place.disk.open(SEGMENT)
        assert file.size() == 3 * size_bytes
        file.close()


def test_a_damaged_log_stays_damaged_and_the_others_go_on() -> None:
    place = Place()
    place.append_many(3)
    other = drive(place.directory.create("u", "id", 0, SETTINGS))
    other.append(a_batch(), leader_epoch=0, now_ms=0)
    place.commit()
    place.flip(SEGMENT, 150)
    for _ in range(2):
        log = place.kill()
        assert len(place.directory.findings.damage) >= 1
        with pytest.raises(StorageError, match="damaged"):
            place.append()
        assert log.read(0, 1, limit=1) is not None
        place.directory.logs["u-0"].append(a_batch(), leader_epoch=0, now_ms=0)
        place.commit()
    assert place.directory.logs["u-0"].durable_end == 3


def test_a_shorter_file_than_was_promised_is_damage() -> None:
    place = Place()
    place.append_many(3)
    place.commit()
    file = place.disk.open(SEGMENT)
    file.truncate(file.size() - len(a_batch()))
    file.close()
    place.kill()
    assert "but was on stable storage to 327" in place.directory.findings.damage[0]


@pytest.mark.parametrize("has_clean_marker", [False, True])
def test_a_sealed_segment_that_is_missing_or_shorter_is_damage(has_clean_marker: bool) -> None:
    for size_bytes in (None, 100):
        place = a_life()
        place.settle()
        path = place.log.path_of(place.log.segments[1], "log")
        if has_clean_marker:
            drive(place.directory.close())
        if size_bytes is None:
            place.disk.unlink(path)
        else:
            file = place.disk.open(path)
            file.truncate(size_bytes)
            file.close()
        log = place.kill()
        noticed = place.directory.findings.damage + scrub(log, place.disk)
        assert any(path in sentence for sentence in noticed)


def test_a_log_whose_front_was_deleted_is_not_missed() -> None:
    """The ledger may point below the log start offset, when all synced records are deleted."""
    place = Place()
    place.append_many(5)
    place.commit()
    place.append_many(5)
    place.delete_before(10)
    log = place.cut_power()
    assert place.directory.findings.damage == []
    assert log.start_offset == 10
    assert log.written_end <= 10


# --- leftovers ----------------------------------------------------------------------------------------------------


def test_leftovers_are_removed() -> None:
    place = a_life()
    names = place.disk.list(place.log.path)
    for name in (
        "00000000000000000000-7.log",
        "00000000000000000000-7.index",
        "00000000000000000029-0.index",
        "00000000000000000009-3.log",
        "00000000000000000003.producers",
        "manifest.new",
        "00000000000000000003.producers.new",
    ):
        place.disk.open(f"{place.log.path}/{name}", create=True).close()
    before = portrait(place)
    place.kill()
    assert place.disk.list(place.log.path) == names
    assert portrait(place) == before


# --- derived files ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", [".index", ".producers"])
@pytest.mark.parametrize("is_clean", [False, True])
@pytest.mark.parametrize("is_flipped", [False, True])
def test_derived_files_may_be_missing_or_damaged(ending: str, is_clean: bool, is_flipped: bool) -> None:
    place = a_life()
    before = portrait(place)
    place.settle()
    if is_clean:
        drive(place.directory.close())
    names = place.files(ending)
    assert names
    for name in names:
        path = f"{place.log.path}/{name}"
        if not is_flipped:
            place.disk.unlink(path)
            continue
        file = place.disk.open(path)
        size_bytes = file.size()
        file.close()
        for position in {size_bytes // 4, 3 * size_bytes // 4}:
            place.flip(path, position)
    log = place.kill()
    assert portrait(place) == before
    assert place.directory.findings.damage + place.directory.findings.rebuilt + log.trouble
    assert log.offline_reason is None


@pytest.mark.parametrize("is_clean", [False, True])
def test_damage_met_while_producers_are_made_anew_stops_no_other_log(is_clean: bool) -> None:
    """Producer state is missing, and a sealed segment needed to rebuild it is damaged."""
    place = a_life()
    place.settle()
    if is_clean:
        drive(place.directory.close())
    else:
        place.disk.kill_process()
    for name in place.files(".producers"):
        place.disk.unlink(f"{place.log.path}/{name}")
    place.flip(SEGMENT, 10, bit=6)
    log = place.reopen()
    assert any("producer state cannot be made anew" in sentence for sentence in place.directory.findings.damage)
    assert log.offline_reason is not None


@pytest.mark.parametrize("is_clean", [False, True])
def test_a_damaged_copy_of_the_manifest_is_survived_and_told(is_clean: bool) -> None:
    place = a_life()
    before = portrait(place)
    if is_clean:
        drive(place.directory.close())
    place.flip("logs/t-0/manifest", 100)
    place.kill()
    assert portrait(place) == before
    assert "second copy is whole" in place.directory.findings.damage[0]
    if not is_clean:
        place.kill()
        assert place.directory.findings.damage == [], "it was written anew"


# --- repeated and interrupted recovery ----------------------------------------------------------------------------


@pytest.mark.parametrize("is_torn", [False, True])
@pytest.mark.parametrize("waits", range(5))
def test_recovery_may_be_interrupted_anywhere(waits: int, is_torn: bool) -> None:
    """R30: an interrupted recovery is never taken for a clean shutdown."""
    for seed in range(5 if is_torn else 1):
        place = a_life(suspends=True, is_torn=is_torn, seed=seed)
        promised = place.stored()
        place.append_many(20, epoch=5)
        for _ in range(4):
            place.disk = place.disk.power_cut()
            with suppress(PowerCut):
                place.open(waits)
        log = place.cut_power()
        assert place.directory.findings.damage == []
        assert place.stored()[: len(promised)] == promised
        assert scrub(log, place.disk) == []


@pytest.mark.parametrize("rolls", [False, True])
def test_what_a_failed_sync_left_in_the_page_cache_is_written_anew(rolls: bool) -> None:
    """Fsyncgate, second part: a restarted process reads data that never reached the disk, and acknowledges it."""
    place = a_life()
    place.append_many(3, epoch=5)
    if rolls:
        place.log.roll()
        place.append_many(3, epoch=5)
    place.disk.fail_next("sync", count=2)
    place.commit()
    assert place.log.offline_reason is not None
    log = place.kill()
    promised, found = log.durable_end, place.stored()
    log = place.cut_power()
    assert place.directory.findings.damage == []
    assert (log.written_end, place.stored()) == (promised, found)


def test_what_a_failed_truncation_has_cut_off_does_not_come_back() -> None:
    """The sync of the truncation fails, the process dies, the next one appends; then the power fails."""
    place = Place()
    place.append_many(2)
    place.append(a_batch(value=b"given up"))
    place.commit()
    place.disk.fail_next("sync", SEGMENT)
    with pytest.raises(StorageError, match="a truncation failed"):
        place.truncate(2)
    assert place.kill().written_end == 2
    kept = place.stored()
    assert place.cut_power().written_end == 2
    assert place.stored() == kept


@pytest.mark.parametrize("is_sealed", [False, True])
@pytest.mark.parametrize("way", [Place.kill, Place.cut_power, Place.restart])
def test_a_replica_may_begin_inside_a_batch(way: Callable[[Place], Log], is_sealed: bool) -> None:
    """The leader's log starts inside a batch after DeleteRecords, and the leader sends the whole batch."""
    place = Place()
    place.restart_at(5)
    assert place.replicate(replicated(3, 5)) == 8
    assert place.replicate(replicated(8, 2)) == 10
    if is_sealed:
        place.log.roll()
        assert place.replicate(replicated(10, 1)) == 11
    place.commit()
    place.settle()
    end, stored = place.log.written_end, place.stored()
    log = way(place)
    assert (log.start_offset, log.written_end, place.stored()) == (5, end, stored)
    assert place.directory.findings.damage == []
    assert place.directory.findings.cut == []
    part = log.read(5, 1, limit=end)
    assert part is not None
    assert part.read() == stored[0]
    part.release()
    assert scrub(log, place.disk) == []
    place.truncate(7)
    assert (place.log.start_offset, place.log.written_end) == (5, 5)


def test_only_the_first_batch_of_an_empty_log_may_begin_before_it() -> None:
    place = Place()
    place.restart_at(5)
    with pytest.raises(InvalidBatch):
        place.replicate(replicated(1, 4))
    place.replicate(replicated(5, 1))
    with pytest.raises(InvalidBatch):
        place.replicate(replicated(4, 5))


def test_a_clean_marker_counts_once() -> None:
    place = a_life(suspends=True)
    drive(place.directory.close())
    assert place.disk.exists("clean")
    with suppress(PowerCut):
        place.open(1)
    place.disk = place.disk.power_cut()
    assert not place.disk.exists("clean")
    place.reopen()
    assert place.directory.findings.scanned_bytes > 0


def test_the_high_watermark_is_the_newest_that_is_known() -> None:
    place = a_life()
    assert place.cut_power().high_watermark == 20
    place.log.advance_high_watermark(25)
    place.append(epoch=3)
    place.commit()
    assert place.cut_power().high_watermark == 25
    assert NAME in place.directory.logs


def test_the_high_watermark_of_a_log_that_lost_its_tail_is_no_higher_than_its_end() -> None:
    """Without syncs the manifest may hold a high watermark beyond the records that survive a power cut."""
    place = Place(replace(SETTINGS, durability=Durability.REPLICATED))
    place.append_many(3)
    drive(place.disk.sync_all())
    place.append_many(4)
    place.log.advance_high_watermark(7)
    drive(place.directory.begin_epoch(place.log, 1))  # replaces the manifest
    log = place.cut_power()
    assert log.written_end == 3, "the power cut is to take something"
    assert log.high_watermark == log.last_stable_offset == 3
    place.append_many(1, epoch=1)
    assert log.high_watermark == 3, "what is appended now is not committed"
