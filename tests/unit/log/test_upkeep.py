"""Sealing, deleting from the front, retention, replacing: the log opens whenever the power fails."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from errno import ENOSPC
from typing import Any

import pytest

from penstock.log import manifest, upkeep
from penstock.log.log import SNAPSHOTS_KEPT, Log
from penstock.log.scrub import scrub
from penstock.log.settings import Durability, LogSettings
from penstock.model.errors import DiskFull, OffsetOutOfRange, StorageError
from penstock.records.control import ControlType
from tests.simulation.log.histories import PowerCut, drive
from tests.unit.log.place import SETTINGS, Place, a_batch, essence, from_producer, merged


def retain(place: Place, now_ms: int) -> int:
    """Applies retention with everything replicated."""
    place.log.advance_high_watermark(place.log.written_end)
    return drive(upkeep.apply_retention(place.log, place.disk, now_ms))


# --- sealing ------------------------------------------------------------------------------------------------------


def test_settling_seals_all_but_the_active_segment() -> None:
    place = Place()
    place.append_many(30)
    assert place.files(".index") == []
    place.settle()
    log = place.log
    assert log.settled_segments == len(log.segments) - 1 > 2
    assert place.files(".index") == [f"{segment.name}.index" for segment in log.segments[:-1]]
    assert all(segment.index is None for segment in log.segments[:-1])
    assert scrub(log, place.disk) == []


def test_settling_again_does_nothing() -> None:
    place = Place()
    place.append_many(30)
    place.settle()
    place.disk.fail_next("sync", count=9)
    place.settle()
    assert place.log.offline_reason is None


def test_nothing_is_sealed_by_a_sync_beside_one_that_fails() -> None:
    """A round's sync of the same segment has failed, but the round waits for other syncs and has not reported it."""
    place = Place(suspends=True)
    place.append_many(8)
    place.log.roll()
    place.append()
    first = place.log.path_of(place.log.segments[0], "log")
    place.disk.fail_next("sync", first)
    committing = place.directory.commit()
    committing.send(None)
    committing.send(None)  # the first segment's sync has failed, the second's is in flight
    place.settle()
    assert place.log.settled_segments == 0
    drive(committing)
    assert place.log.offline_reason is not None
    log = place.cut_power()
    assert scrub(log, place.disk) == []


def test_what_a_round_was_syncing_is_sealed_when_it_is_over() -> None:
    place = Place(suspends=True)
    place.append_many(30)
    committing = place.directory.commit()
    committing.send(None)
    place.settle()
    assert place.log.settled_segments == 0
    drive(committing)
    place.settle()
    assert place.log.settled_segments == len(place.log.segments) - 1
    log = place.cut_power()
    assert log.written_end == 30
    assert scrub(log, place.disk) == []


def test_sealed_segments_survive_without_a_round() -> None:
    """Segments that the manifest lists as sealed were synced before, whatever the ledger holds."""
    place = Place()
    place.append_many(30)
    place.settle()
    sealed_end = place.log.active.base_offset
    log = place.cut_power()
    assert log.written_end >= sealed_end
    assert place.directory.findings.damage == []
    assert scrub(log, place.disk) == []


@pytest.mark.parametrize("operation", ["sync", "write", "open", "sync_dir"])
def test_a_seal_that_fails_takes_the_log_offline(operation: str) -> None:
    place = Place()
    place.append_many(30)
    place.disk.fail_next(operation)
    with pytest.raises(StorageError, match="a segment could not be sealed"):
        place.settle()
    place.settle()
    assert place.log.offline_reason is not None


def test_some_snapshots_are_kept_and_older_ones_go() -> None:
    place = Place()
    place.append(from_producer(5, 0))
    for _ in range(6):
        place.append_many(10)
        place.settle()
    assert len(place.log.snapshots) == len(place.files(".producers")) == SNAPSHOTS_KEPT
    assert place.log.snapshots[-1] == (place.log.active.base_offset, True)


def test_no_file_is_kept_for_no_producers() -> None:
    place = Place()
    place.append_many(30)
    place.settle()
    assert place.files(".producers") == []
    assert place.log.snapshots[-1] == (place.log.active.base_offset, False)


def test_a_snapshot_that_somebody_removed_is_no_trouble() -> None:
    place = Place()
    place.append(from_producer(5, 0))
    for _ in range(3):
        place.append_many(10)
        place.settle()
    for name in place.files(".producers"):
        place.disk.unlink(f"{place.log.path}/{name}")
    place.append_many(40)
    place.settle()
    assert place.log.offline_reason is None


def test_what_is_started_while_another_is_sealed_waits() -> None:
    """Its producer snapshot covers unsynced records: it must not exist after a power cut."""
    place = Place(suspends=True)
    place.append_many(10)
    settling = place.directory.settle()
    settling.send(None)  # waits for the first segment's sync
    for sequence in range(30):
        place.append(from_producer(5, sequence))
    drive(settling)
    active = place.log.segments[place.log.settled_segments]
    assert active is not place.log.active
    assert {offset for offset, _ in place.log.snapshots} <= {0, active.base_offset}
    log = place.cut_power()
    assert max(offset for offset, _ in log.snapshots) <= log.written_end
    place.append_many(30)
    place.settle()
    assert place.log.settled_segments == len(place.log.segments) - 1


# --- deleting from the front --------------------------------------------------------------------------------------


def test_segments_wholly_before_the_new_start_go() -> None:
    place = Place()
    place.append_many(30)
    bases = [segment.base_offset for segment in place.log.segments]
    place.delete_before(bases[2] + 1)
    log = place.log
    assert log.start_offset == bases[2] + 1
    assert [segment.base_offset for segment in log.segments] == bases[2:]
    assert len(place.files(".log")) == len(log.segments)
    place.delete_before(30)
    assert [segment.base_offset for segment in log.segments] == bases[-1:]
    assert log.written_end == 30


def test_the_new_start_survives_a_power_cut_at_once() -> None:
    place = Place()
    place.append_many(30, epoch=1)
    place.append_many(10, epoch=2)
    place.commit()
    place.delete_before(17)
    log = place.cut_power()
    assert (log.start_offset, log.written_end) == (17, 40)
    assert log.epochs.to_list() == [[1, 17], [2, 30]]


def test_a_log_does_not_end_before_it_starts_after_a_power_cut() -> None:
    """Unsynced records are deleted and the power fails: their offsets are not reused."""
    place = Place(replace(SETTINGS, durability=Durability.REPLICATED, segment_bytes=10_000))
    place.append_many(10)
    place.delete_before(8)
    log = place.cut_power()
    assert (log.start_offset, log.written_end >= 8) == (8, True)
    assert place.append().base_offset == log.written_end - 1 >= 8


@pytest.mark.parametrize("waits", range(4))
def test_readers_see_a_new_start_only_when_it_cannot_go_back(waits: int) -> None:
    place = Place(suspends=True)
    place.append_many(30)
    place.commit()
    place.settle()
    place.log.advance_high_watermark(30)
    with suppress(PowerCut):
        drive(upkeep.delete_before(place.log, place.disk, 17), waits)
    seen = place.log.start_offset
    assert seen == (17 if waits > 1 else 0), "it waits for the manifest and for its directory"
    assert place.cut_power().start_offset >= seen


def test_nothing_is_sealed_once_a_sync_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A round's sync fails while the same file is being sealed: the next sync succeeds, which proves nothing."""
    place = Place()
    place.append_many(30)
    seal = upkeep._seal

    async def meanwhile_a_round_fails(log: Log, *rest: Any) -> None:
        await seal(log, *rest)
        log.take_offline("a sync failed: EIO")

    monkeypatch.setattr(upkeep, "_seal", meanwhile_a_round_fails)
    with pytest.raises(StorageError, match="a sync failed"):
        place.settle()
    assert place.kill().settled_segments == 0


def test_only_replicated_records_can_be_deleted() -> None:
    place = Place()
    place.append_many(30)
    place.log.advance_high_watermark(20)
    for offset in (-1, 21):
        with pytest.raises(OffsetOutOfRange, match="from 0 to the high watermark 20"):
            drive(upkeep.delete_before(place.log, place.disk, offset))
    drive(upkeep.delete_before(place.log, place.disk, 20))
    with pytest.raises(OffsetOutOfRange):
        drive(upkeep.delete_before(place.log, place.disk, 19))


def test_nothing_is_deleted_from_a_log_that_is_offline() -> None:
    place = Place()
    place.append_many(30)
    place.log.take_offline("broken")
    with pytest.raises(StorageError, match="broken"):
        place.delete_before(15)
    assert place.log.start_offset == 0


def test_a_deletion_that_cannot_be_kept_is_told() -> None:
    place = Place()
    place.append_many(30)
    place.settle()
    place.disk.fail_next("write", "logs/t-0/manifest.new")
    with pytest.raises(StorageError, match="a deletion failed"):
        place.delete_before(15)
    assert place.log.offline_reason is not None


def test_a_segment_that_is_started_meanwhile_is_not_counted_as_sealed() -> None:
    place = Place(suspends=True)
    place.append_many(12)
    assert len(place.log.segments) == 2
    place.log.advance_high_watermark(12)
    deleting = upkeep.delete_before(place.log, place.disk, 12)
    deleting.send(None)  # waits for the seal of the first segment
    place.log.roll()
    drive(deleting)
    assert place.log.settled_segments == 0
    assert [segment.base_offset for segment in place.log.segments] == [9, 12]
    place.settle()
    assert place.log.settled_segments == 1
    place.append_many(3)
    place.commit()
    assert place.cut_power().written_end == 15


# --- retention ----------------------------------------------------------------------------------------------------


def an_aging_log(settings: LogSettings) -> Place:
    """Builds five segments with timestamps 1,000, 2,000 and so on, of which the last is active."""
    place = Place(settings)
    place.now_ms = 10_000
    for number in range(1, 6):
        for _ in range(3):
            place.append(a_batch(timestamp_ms=number * 1_000))
        if number < 5:
            place.log.roll()
    return place


def test_segments_that_are_too_old_go() -> None:
    place = an_aging_log(replace(SETTINGS, retention_ms=1_000))
    assert retain(place, 3_000) == 1
    assert place.log.start_offset == 3
    assert retain(place, 3_001) == 1
    assert retain(place, 3_001) == 0
    assert place.log.start_offset == 6


def test_an_old_active_segment_is_rolled_and_goes() -> None:
    place = an_aging_log(replace(SETTINGS, retention_ms=1_000))
    assert retain(place, 100_000) == 5
    log = place.log
    assert (log.start_offset, log.written_end, log.size_bytes) == (15, 15, 0)
    assert place.append().base_offset == 15


def test_an_old_active_segment_stays_while_it_is_not_replicated() -> None:
    place = an_aging_log(replace(SETTINGS, retention_ms=1_000))
    place.log.advance_high_watermark(14)
    drive(upkeep.apply_retention(place.log, place.disk, 100_000))
    assert place.log.start_offset == 12
    assert [segment.base_offset for segment in place.log.segments] == [12]


def test_retention_stops_at_the_high_watermark() -> None:
    place = an_aging_log(replace(SETTINGS, retention_ms=1_000, retention_bytes=0))
    place.log.advance_high_watermark(5)
    drive(upkeep.apply_retention(place.log, place.disk, 100_000))
    assert place.log.start_offset == 3


def test_retention_stops_at_the_first_segment_that_is_young() -> None:
    """A young segment protects all segments after it."""
    place = Place(replace(SETTINGS, retention_ms=1_000))
    place.now_ms = 10_000
    for timestamp_ms in (1_000, 9_000, 1_000, 1_000):
        place.append(a_batch(timestamp_ms=timestamp_ms))
        place.log.roll()
    retain(place, 9_500)
    assert place.log.start_offset == 1


def test_what_is_too_much_goes_but_never_less_than_was_asked_for_stays() -> None:
    place = an_aging_log(replace(SETTINGS, retention_bytes=1000))
    size_bytes = place.log.segments[0].size_bytes
    retain(place, 0)
    assert place.log.size_bytes >= 1000 > place.log.size_bytes - size_bytes
    place = an_aging_log(replace(SETTINGS, retention_bytes=0))
    retain(place, 0)
    assert len(place.log.segments) == 1
    assert place.log.start_offset == place.log.active.base_offset


def test_without_limits_everything_stays() -> None:
    place = an_aging_log(SETTINGS)
    assert retain(place, 10**15) == 0


def a_log_without_timestamps(retention_ms: int = 1_000) -> Place:
    """Appends one record without a timestamp every 10 ms from 10,000 ms on."""
    place = Place(replace(SETTINGS, retention_ms=retention_ms))
    place.now_ms = 10_000
    for _ in range(40):
        place.append(a_batch(timestamp_ms=-1))
        place.now_ms += 10
    place.commit()
    place.log.advance_high_watermark(place.log.written_end)
    place.settle()
    assert len(place.log.segments) > 4
    return place


def test_records_without_timestamps_expire_by_the_last_append_to_their_segment() -> None:
    place = a_log_without_timestamps()
    first = place.log.segments[0]
    assert retain(place, first.written_ms + 1_000) == 0
    assert retain(place, first.written_ms + 1_001) == 1
    assert retain(place, 10**9) > 0
    assert (place.log.start_offset, place.log.size_bytes) == (40, 0)


@pytest.mark.parametrize("way", [Place.restart, Place.kill, Place.cut_power])
def test_the_age_of_records_without_timestamps_survives_a_restart(way: Callable[[Place], Log]) -> None:
    place = a_log_without_timestamps()
    sealed = place.log.settled_segments
    before = [segment.written_ms for segment in place.log.segments]
    place.now_ms = restarted_ms = 10_900
    log = way(place)
    assert [segment.written_ms for segment in log.segments[:sealed]] == before[:sealed]
    # The manifest holds the time of the active segment only after a clean shutdown.
    assert log.active.written_ms == (before[-1] if way is Place.restart else restarted_ms)
    assert retain(place, before[0] + 1_001) == 1
    assert retain(place, restarted_ms + 1_001) > 0
    assert log.size_bytes == 0


def test_records_of_an_earlier_release_without_timestamps_age_from_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    place = a_log_without_timestamps()
    describe = manifest.describe

    def without_times(*arguments: Any, **options: Any) -> dict[str, Any]:
        value = describe(*arguments, **options)
        del value["untimed"]
        return value

    with monkeypatch.context() as earlier:
        earlier.setattr(manifest, "describe", without_times)
        drive(place.directory.close())
    place.now_ms = 50_000
    place.reopen()
    assert retain(place, 51_000) == 0
    place.restart()  # from now on the manifest holds the times
    assert {segment.written_ms for segment in place.log.segments} == {50_000}
    assert retain(place, 51_001) > 0


def test_a_timestamp_counts_more_than_the_time_of_the_append() -> None:
    place = Place(replace(SETTINGS, retention_ms=1_000))
    place.now_ms = 90_000
    for timestamp_ms in [-1] * 3 + [500] + [-1] * 3:
        place.append(a_batch(timestamp_ms=timestamp_ms))
    place.log.roll()
    place.append(a_batch(timestamp_ms=90_000))
    assert retain(place, 90_001) == 1


def test_cutting_and_replacing_keep_the_age_of_records_without_timestamps() -> None:
    place = a_log_without_timestamps()
    old = place.log.segments[:2]
    drive(upkeep.replace_segments(place.log, place.disk, old, merged(place.log, place.disk, old)))
    assert place.log.segments[0].written_ms == old[1].written_ms
    kept_ms = place.log.segments[2].written_ms
    place.now_ms = 99_000
    place.truncate(place.log.segments[2].base_offset + 1)
    assert place.log.active.written_ms == kept_ms


def test_retention_forgets_idle_producers() -> None:
    place = Place(replace(SETTINGS, producer_expiration_ms=500))
    place.append(from_producer(5, 0))
    retain(place, 1_500)
    assert len(place.log.producers) == 1
    retain(place, 1_501)
    assert len(place.log.producers) == 0


# --- replacing ----------------------------------------------------------------------------------------------------


def a_settled_log(**options: bool | int) -> Place:
    place = Place(**options)  # type: ignore[arg-type]
    for sequence in range(35):
        place.append(from_producer(5, sequence, is_transactional=sequence == 3))
        if sequence == 3:
            place.end(ControlType.ABORT, 5)
    place.commit()
    place.settle()
    return place


def test_one_segment_takes_the_place_of_several() -> None:
    place = a_settled_log()
    log, before = place.log, place.stored()
    old = log.segments[1:3]
    new = merged(place.log, place.disk, old)
    drive(upkeep.replace_segments(log, place.disk, old, new))
    assert log.segments[1] is new
    assert place.stored() == before
    assert not any(name.startswith(tuple(segment.name for segment in old)) for name in place.disk.list(log.path))
    part = log.read(old[1].base_offset, 1, limit=log.written_end)
    assert part is not None
    assert part.read() == before[old[1].base_offset]
    part.release()
    assert scrub(log, place.disk) == []
    log = place.cut_power()
    assert [segment.generation for segment in log.segments][:3] == [0, 1, 0]
    assert place.stored() == before
    assert place.directory.findings.damage == []


@pytest.mark.parametrize("is_torn", [False, True])
@pytest.mark.parametrize("waits", range(6))
def test_a_power_cut_in_between_leaves_the_old_or_the_new(waits: int, is_torn: bool) -> None:
    for seed in range(15 if is_torn else 1):
        place = a_settled_log(suspends=True, is_torn=is_torn, seed=seed)
        before = place.stored()
        producers = essence(place.log.producers)
        old = place.log.segments[1:3]
        new = merged(place.log, place.disk, old)
        with suppress(PowerCut):
            drive(upkeep.replace_segments(place.log, place.disk, old, new), waits)
        log = place.cut_power()
        assert place.directory.findings.damage == []
        assert place.stored() == before
        assert essence(log.producers) == producers
        assert scrub(log, place.disk) == []
        names = {segment.name for segment in log.segments}
        assert (new.name in names) != (old[0].name in names)
        kept = {name.rpartition(".")[0] for name in [*place.files(".log"), *place.files(".index")]}
        assert kept == names, "leftovers are removed"


def test_a_replaced_segment_to_which_the_ledger_points_is_not_missed() -> None:
    """Nothing was committed after the segment was active, and then it was merged into another."""
    place = Place()
    place.append_many(15)
    place.commit()
    place.log.roll()
    place.settle()
    old = place.log.segments[:2]
    drive(upkeep.replace_segments(place.log, place.disk, old, merged(place.log, place.disk, old)))
    log = place.cut_power()
    assert place.directory.findings.damage == []
    assert log.offline_reason is None
    assert log.written_end == 15


def test_records_can_be_appended_while_segments_are_replaced() -> None:
    place = a_settled_log(suspends=True)
    old = place.log.segments[:3]
    active, end = place.log.active, place.log.written_end
    work = upkeep.replace_segments(place.log, place.disk, old, merged(place.log, place.disk, old))
    appended = 0
    with suppress(StopIteration):
        while True:
            work.send(None)
            assert place.log.segments.index(active) >= place.log.settled_segments, "an active segment is not sealed"
            place.append()
            appended += 1
    assert appended > 1
    assert place.log.written_end == end + appended
    place.commit()
    place.cut_power()
    assert place.directory.findings.damage == []
    assert place.log.written_end == end + appended


def test_only_sealed_neighbours_can_be_replaced() -> None:
    place = a_settled_log()
    log = place.log
    first, second, third, *_ = log.segments
    for old in ([first, third], [log.active], [log.segments[-2], log.active]):
        with pytest.raises(ValueError, match="only sealed segments that lie side by side"):
            drive(upkeep.replace_segments(log, place.disk, old, first))
    for new in (second, first):
        with pytest.raises(ValueError, match="the base of what it replaces and a higher generation"):
            drive(upkeep.replace_segments(log, place.disk, [first], new))


# --- the manifest -------------------------------------------------------------------------------------------------


def test_a_new_epoch_is_kept_before_anything_is_written_in_it() -> None:
    """R03: otherwise a leader that crashes at once would answer with the epoch before."""
    place = Place()
    place.append_many(3, epoch=1)
    place.commit()
    drive(place.directory.begin_epoch(place.log, 5))
    drive(place.directory.begin_epoch(place.log, 5))
    log = place.cut_power()
    assert log.epochs.to_list() == [[1, 0], [5, 3]]
    assert log.epochs.end_of(1, log.written_end) == (1, 3)


def test_the_manifest_names_the_log() -> None:
    place = Place()
    said = manifest.describe(place.log, 0, is_clean=False)
    assert (said["topic"], said["topic_id"], said["partition"], said["number"]) == ("t", "id", 0, 1)
    assert manifest.path_of("logs/t-0") == "logs/t-0/manifest"


def test_a_full_disk_postpones_upkeep_and_changes_nothing() -> None:
    """Without space for an index or a manifest the log stays online unchanged; upkeep succeeds once there is space."""
    place = Place()
    place.append_many(30)
    place.commit()
    log = place.log
    log.advance_high_watermark(log.durable_end)
    before = log.start_offset, [segment.name for segment in log.segments], list(log.epochs)
    for work in (upkeep.settle(log, place.disk), upkeep.delete_before(log, place.disk, 5)):
        place.disk.fail_next("write", code=ENOSPC, count=9)
        with pytest.raises(DiskFull):
            drive(work)
        place.disk.fail_nothing()
        assert log.offline_reason is None
        assert before == (log.start_offset, [segment.name for segment in log.segments], list(log.epochs))
    drive(upkeep.delete_before(log, place.disk, 5))
    assert log.start_offset == 5
    place.append_many(1)
