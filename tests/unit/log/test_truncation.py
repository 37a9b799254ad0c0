"""Truncation: the result equals a log that never had more, whenever the power fails."""

from contextlib import suppress

import pytest

from penstock.log import truncation, upkeep
from penstock.log.producers import ProducerStates
from penstock.log.scrub import scrub
from penstock.model.errors import StorageError
from penstock.records.control import ControlType
from penstock.records.header import BatchView
from tests.simulation.log.histories import PowerCut, drive
from tests.unit.log.place import Place, a_batch, essence, from_producer, merged


def a_log(*, settles: bool = True, **options: bool | int) -> Place:
    """Builds forty offsets in epochs 0, 1, 2 and 3, several segments, producers and two aborted transactions."""
    place = Place(**options)  # type: ignore[arg-type]
    sequences = {5: 0, 6: 0}
    while (end := place.log.written_end) < 40:
        if end in (12, 36):
            place.end(ControlType.ABORT, 6, leader_epoch=end // 10)
            continue
        producer_id = 6 if end in (7, 33) else 5
        data = from_producer(producer_id, sequences[producer_id], is_transactional=producer_id == 6)
        place.append(data, epoch=end // 10)
        sequences[producer_id] += 1
    place.commit()
    if settles:
        place.settle()
    return place


def check(place: Place, before: list[bytes], end: int) -> None:
    """Checks that the log holds the batches before `end`, and that all its state follows from them."""
    log = place.log
    kept = [data for data in before if BatchView(data).last_offset < end]
    assert place.stored() == kept
    assert log.written_end == (BatchView(kept[-1]).last_offset + 1 if kept else log.start_offset)
    states = ProducerStates()
    for data in kept:
        if BatchView(data).producer_id >= 0:
            states.apply(BatchView(data), 0, 0)
    assert essence(log.producers) == essence(states)
    assert [log.epochs.epoch_at(BatchView(data).base_offset) for data in kept] == [
        BatchView(data).leader_epoch for data in kept
    ]
    assert log.epochs.latest == (BatchView(kept[-1]).leader_epoch if kept else -1)
    aborted = [transaction[:3] for transaction in log.aborted_between(0, 99)]
    assert aborted == [known for known in ((6, 7, 12), (6, 33, 36)) if known[2] < end]
    assert log.high_watermark <= log.written_end
    assert log.durable_end <= log.written_end
    for data in kept:
        part = log.read(BatchView(data).base_offset, len(data), limit=log.written_end)
        assert part is not None
        assert part.read() == data
        part.release()
    assert scrub(log, place.disk) == []


@pytest.mark.parametrize("settles", [False, True])
@pytest.mark.parametrize("end", range(41))
def test_a_cut_log_is_one_that_never_had_more(end: int, settles: bool) -> None:
    """Inside and between segments, sealed or not; again after a power cut, and after further appends."""
    place = a_log(settles=settles)
    before = place.stored()
    place.truncate(end)
    check(place, before, end)
    place.cut_power()
    assert place.directory.findings.damage == place.directory.findings.cut == []
    check(place, before, end)
    more = a_batch(base_offset=place.log.written_end, leader_epoch=9)
    place.replicate(more)
    place.commit()
    place.cut_power()
    assert place.stored()[-1] == more


def test_a_batch_goes_as_a_whole() -> None:
    place = Place()
    place.append(a_batch(3))
    place.append(a_batch(5))
    place.truncate(6)
    assert place.log.written_end == 3


def test_a_cut_behind_the_end_does_nothing() -> None:
    place = a_log()
    cuts = place.log.cuts
    for end in (40, 41, 1000):
        place.truncate(end)
    assert (place.log.written_end, place.log.cuts) == (40, cuts)


def test_a_log_that_is_offline_is_not_cut() -> None:
    place = a_log()
    place.log.take_offline("broken")
    with pytest.raises(StorageError, match="broken"):
        place.truncate(3)


@pytest.mark.parametrize("operation", ["sync", "sync_dir", "truncate", "write"])
def test_a_cut_that_fails_takes_the_log_offline(operation: str) -> None:
    place = a_log()
    place.disk.fail_next(operation)
    with pytest.raises(StorageError, match="a truncation failed"):
        place.truncate(15)
    place.cut_power()
    assert place.directory.findings.damage == []
    assert place.log.offline_reason is None


@pytest.mark.parametrize("position", [10, 14, 26])  # in the length, the leader epoch, the number of offsets
def test_damage_is_not_recorded_as_what_was_written(position: int) -> None:
    """The ledger vouches for the headers that a truncation has read; a flipped bit in them must stay damage."""
    place = Place()
    place.append_many(6, epoch=8)
    place.commit()
    path = place.log.path_of(place.log.active, "log")
    place.flip(path, position, bit=1)
    with pytest.raises(StorageError, match="a truncation failed"):
        place.truncate(5)
    assert place.log.offline_reason is not None
    place.cut_power()
    assert any(path in sentence for sentence in place.directory.findings.damage)
    assert place.log.offline_reason is not None


def test_damage_met_when_half_is_done_takes_the_log_offline() -> None:
    """Producer state is rebuilt from earlier segments, after the cut."""
    place = a_log(settles=False)
    path = place.log.path_of(place.log.segments[0], "log")
    place.flip(path, 10, bit=6)
    with pytest.raises(StorageError, match="a truncation failed"):
        place.truncate(39)
    assert place.log.offline_reason is not None


def test_a_cut_whose_sync_came_after_one_that_failed_is_not_done() -> None:
    """A round of group commit syncs the same file and fails: the truncation's later sync proves nothing."""
    place = Place(suspends=True)
    place.append_many(4)
    committing = place.directory.commit()
    committing.send(None)
    truncating = place.directory.truncate(place.log, 2, now_ms=place.now_ms)
    truncating.send(None)
    truncating.send(None)  # the file is cut, its sync is in flight
    place.disk.fail_next("sync")
    drive(committing)
    with pytest.raises(StorageError, match="a sync failed"):
        drive(truncating)


def test_a_cut_beside_a_failed_sync_of_the_ledger_cuts_nothing() -> None:
    """A round and the truncation write to the ledger; the round's sync fails, and the truncation's reports success."""
    place = Place(suspends=True)
    place.append_many(4)
    place.commit()
    place.append()
    committing = place.directory.commit()
    committing.send(None)
    truncating = place.directory.truncate(place.log, 2, now_ms=place.now_ms)
    committing.send(None)  # the ledger's sync is in flight
    truncating.send(None)  # and a second one
    place.disk.fail_next("sync", place.directory.ledger.path_of(place.directory.ledger.turn))
    drive(committing)
    with pytest.raises(StorageError, match="the ledger could not be written"):
        drive(truncating)
    log = place.cut_power()
    assert place.directory.findings.damage == []
    assert log.written_end >= 4


@pytest.mark.parametrize("is_torn", [False, True])
@pytest.mark.parametrize("waits", range(7))
def test_a_power_cut_in_between_leaves_the_promised_part(waits: int, is_torn: bool) -> None:
    """The kept part stays, without holes and without reported damage; also with segments of later generations."""
    for end in (3, 15, 18, 39):
        for seed in range(6 if is_torn else 1):
            place = a_log(suspends=True, is_torn=is_torn, seed=seed)
            old = place.log.segments[1:3]
            drive(upkeep.replace_segments(place.log, place.disk, old, merged(place.log, place.disk, old)))
            before = place.stored()
            with suppress(PowerCut):
                drive(place.directory.truncate(place.log, end, now_ms=0), waits)
            log = place.cut_power()
            assert place.directory.findings.damage == []
            assert log.written_end >= end
            assert place.stored() == before[: len(place.stored())]


@pytest.mark.parametrize("settles", [False, True])
@pytest.mark.parametrize("is_torn", [False, True])
@pytest.mark.parametrize("more", [0, 1])
def test_a_power_cut_while_a_new_segment_is_cut_to_nothing_is_not_damage(
    more: int, is_torn: bool, settles: bool
) -> None:
    """The ledger vouches for all records before the segment, and the segment's name is not durable yet."""
    for waits in range(8):
        for seed in range(8 if is_torn else 1):
            place = Place(suspends=True, is_torn=is_torn, seed=seed)
            place.append_many(3)
            place.commit()
            promised = place.stored()
            place.log.roll()
            if settles:
                place.settle()
            for count in (2, *[1] * more):
                place.append(a_batch(count))
            with suppress(PowerCut):
                drive(place.directory.truncate(place.log, 4, now_ms=0), waits)
                assert place.log.written_end == 3
                assert waits > 1, "there is nothing to interrupt"
            log = place.cut_power()
            assert place.directory.findings.damage == []
            assert log.offline_reason is None
            assert log.written_end in (3, 5, 5 + more)
            assert place.stored()[:3] == promised
            place.append_many(2)
            place.commit()
            end = place.log.written_end
            assert place.cut_power().written_end == end
            assert place.directory.findings.damage == []


def test_a_segment_that_is_cut_to_nothing_is_covered_by_the_next_round() -> None:
    place = Place()
    place.append_many(3)
    place.commit()
    place.log.roll()
    place.append(a_batch(2))
    place.truncate(4)
    assert place.log.durable_end == 3
    place.commit()
    assert place.directory.ledger.entries[1][1:4] == (3, 0, 3)
    assert place.cut_power().written_end == 3
    assert place.directory.findings.damage == []


def test_what_the_ledger_is_just_being_told_is_taken_back() -> None:
    """The records of a round are synced and its ledger entry is in flight when a truncation begins."""
    place = Place(suspends=True)
    place.append_many(3)
    place.commit()
    place.append_many(4)
    committing = place.directory.commit()
    committing.send(None)  # the sync of the data
    committing.send(None)  # the sync of the ledger
    assert place.directory.ledger.entries[1].end_offset == 7
    assert place.log.durable_end == 3
    place.truncate(5)
    drive(committing)
    assert place.log.durable_end <= 5
    log = place.cut_power()
    assert place.directory.findings.damage == []
    assert log.written_end == 5


def test_a_round_that_began_before_the_cut_promises_nothing() -> None:
    place = Place(suspends=True)
    place.append_many(7)
    committing = place.directory.commit()
    committing.send(None)  # the sync of the data
    place.truncate(5)
    place.replicate(*(a_batch(base_offset=5 + number, leader_epoch=1) for number in range(4)))
    drive(committing)
    assert place.log.durable_end <= 5, "offset 6 was synced, but it was another record"
    place.commit()
    assert place.log.durable_end == 9
    assert place.cut_power().written_end == 9


def test_a_round_that_a_cut_overtook_is_not_written_down() -> None:
    """Otherwise the ledger would vouch for truncated records, and the log would count as damaged after a power cut."""
    place = Place(suspends=True)
    place.append_many(3)
    place.commit()
    place.append_many(4)
    committing = place.directory.commit()
    committing.send(None)  # the sync of the data
    place.truncate(5)
    drive(committing)
    assert place.directory.ledger.entries[1].end_offset <= 5
    log = place.cut_power()
    assert place.directory.findings.damage == []
    assert log.offline_reason is None
    assert 3 <= log.written_end <= 5


def test_what_is_not_replicated_stays_unstable() -> None:
    """The marker is not replicated: read_committed readers must wait as before the truncation."""
    place = Place()
    place.append(from_producer(1, 0, is_transactional=True))
    place.append_many(2)
    place.log.advance_high_watermark(2)
    place.end(ControlType.COMMIT, 1)
    place.append(from_producer(9, 0))
    place.append()
    assert place.log.last_stable_offset == 0
    place.truncate(5)
    assert place.log.last_stable_offset == 0
    place.log.advance_high_watermark(4)
    assert place.log.last_stable_offset == 4


def test_producer_state_of_a_tail_that_was_cut_is_not_used_after_a_crash() -> None:
    """A clean shutdown writes a snapshot at the log end; a truncation below it does not always reach the manifest."""
    place = Place()
    for sequence in range(3):
        place.append(from_producer(5, sequence))
    place.restart()
    place.truncate(1)
    place.replicate(*(a_batch(base_offset=1 + number, leader_epoch=1) for number in range(20)))
    place.commit()
    log = place.cut_power()
    assert all(offset == 0 for offset, _ in log.snapshots)
    assert log.producers.producers[5].seen[-1].last_sequence == 0
    assert log.producers_at(20, 0).producers[5].seen[-1].last_sequence == 0


# --- restarting a log ---------------------------------------------------------------------------------------------


def restart_at(place: Place, offset: int, waits: int | None = None) -> None:
    drive(truncation.restart_at(place.log, place.disk, place.directory.ledger, offset), waits)


@pytest.mark.parametrize("offset", [0, 5, 40, 1000])
def test_a_log_that_starts_anew_forgets_everything(offset: int) -> None:
    place = a_log()
    restart_at(place, offset)
    for _ in range(2):
        log = place.log
        assert (log.start_offset, log.written_end, log.high_watermark) == (offset, offset, offset)
        assert (len(log.segments), len(log.epochs), len(log.producers)) == (1, 0, 0)
        assert len(place.files(".log")) == 1
        place.cut_power()
        assert place.directory.findings.damage == []
    assert place.append(a_batch(), epoch=1).base_offset == offset


def test_after_a_fresh_start_records_of_any_epoch_are_taken() -> None:
    """The follower led in epoch 3 and lost; its leader's records at that offset may be of epoch 1."""
    place = a_log()
    restart_at(place, 100)
    place.replicate(a_batch(base_offset=100, leader_epoch=1))
    assert place.log.epochs.to_list() == [[1, 100]]


def test_a_cut_below_the_start_is_a_fresh_start() -> None:
    place = Place()
    place.append(a_batch(10))
    place.append(a_batch(10))
    place.commit()
    place.delete_before(15)
    place.truncate(12)
    assert (place.log.start_offset, place.log.written_end) == (15, 15)
    log = place.cut_power()
    assert (log.start_offset, log.written_end) == (15, 15)
    assert place.directory.findings.damage == []


def test_removed_segments_do_not_come_back() -> None:
    """Records appended after a restart may end exactly where an old segment began."""
    place = Place()
    place.append_many(30)
    place.commit()
    base = place.log.segments[1].base_offset
    restart_at(place, base - 2)
    place.append_many(2)
    place.commit()
    assert place.cut_power().written_end == base


@pytest.mark.parametrize("is_torn", [False, True])
@pytest.mark.parametrize("offset", [3, 30, 1000])
@pytest.mark.parametrize("waits", range(9))
def test_a_power_cut_while_starting_anew_leaves_the_old_or_the_new(waits: int, offset: int, is_torn: bool) -> None:
    """The front of the log is deleted, so its first segment is not the original one."""
    for seed in range(8 if is_torn else 1):
        place = Place(suspends=True, is_torn=is_torn, seed=seed)
        place.append_many(30)
        place.delete_before(place.log.active.base_offset)
        place.append()
        place.commit()
        start = place.log.start_offset
        with suppress(PowerCut):
            restart_at(place, offset, waits)
        log = place.cut_power()
        assert place.directory.findings.damage == []
        assert (log.start_offset, log.written_end) in ((start, 31), (offset, offset))
        place.append()
        place.commit()
        assert place.cut_power().written_end in (32, offset + 1)


def test_a_round_cannot_promise_anew_what_a_fresh_start_gives_up() -> None:
    place = Place(suspends=True)
    place.append_many(30)
    committing = place.directory.commit()
    committing.send(None)
    restarting = truncation.restart_at(place.log, place.disk, place.directory.ledger, 10)
    restarting.send(None)
    drive(committing)
    assert place.log.durable_end == 0
    assert place.commit() == []
    restarting.send(None)
    restarting.close()
    place.cut_power()
    assert place.directory.findings.damage == []


def test_a_fresh_start_that_fails_takes_the_log_offline() -> None:
    place = a_log()
    place.disk.fail_next("sync")
    with pytest.raises(StorageError, match="a truncation failed"):
        restart_at(place, 100)
    assert place.log.offline_reason is not None


def test_nothing_is_appended_while_the_end_is_cut_off() -> None:
    """Old and new bytes could mix in the tail."""
    place = Place(suspends=True)
    place.append_many(5)
    cutting = place.directory.truncate(place.log, 2, now_ms=0)
    cutting.send(None)
    assert place.log.written_end == 2
    place.append()
    with pytest.raises(AssertionError, match="appended to while it was cut"):
        drive(cutting)
