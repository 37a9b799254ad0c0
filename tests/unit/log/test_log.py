"""One log: appends and reads, compared with plain lists where there are many cases."""

import errno
import tracemalloc
from contextlib import suppress
from dataclasses import replace
from random import Random

import pytest

from penstock.log import times
from penstock.log.index import AbortedTransaction, ActiveIndex, SealedIndex
from penstock.log.producers import ProducerStates
from penstock.log.segment import Segment
from penstock.log.times import TimedOffset
from penstock.model.errors import (
    CorruptBatch,
    InvalidBatch,
    OffsetOutOfRange,
    OutOfOrderSequence,
    StorageError,
    TornBatch,
)
from penstock.records.check import Rules
from penstock.records.compression import Codec
from penstock.records.control import ControlType
from penstock.records.header import BatchView, TimestampType, batches, seal
from penstock.records.rows import Record, rows
from tests.unit.log.place import SETTINGS, Place, a_batch, a_marker, from_producer

APPEND_TIME = Rules(timestamp_type=TimestampType.LOG_APPEND_TIME)
ALL_CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]


# --- appending ----------------------------------------------------------------------------------------------------


def test_offsets_follow_each_other() -> None:
    place = Place()
    assert place.append(a_batch(3))[:2] == (0, 2)
    assert place.append(a_batch(1))[:2] == (3, 3)
    assert place.append(a_batch(5), epoch=4)[:2] == (4, 8)
    assert place.log.written_end == 9
    found = [BatchView(data) for data in place.stored()]
    assert [(b.base_offset, b.leader_epoch, b.is_intact) for b in found] == [(0, 0, True), (3, 0, True), (4, 4, True)]
    assert place.log.epochs.to_list() == [[0, 0], [4, 4]]


def test_written_is_not_durable_before_a_round() -> None:
    place = Place()
    place.append()
    assert (place.log.written_end, place.log.durable_end) == (1, 0)
    assert place.commit() == [place.log]
    assert place.log.durable_end == 1
    assert place.commit() == []


def test_log_append_time_is_stamped_and_told() -> None:
    place = Place()
    place.now_ms = 77_000
    answer = place.append(a_batch(2, timestamp_ms=[5, 6]), rules=APPEND_TIME)
    assert answer.append_time_ms == 77_000
    batch = BatchView(place.stored()[0])
    assert batch.is_intact
    assert batch.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert [record.timestamp_ms for record in rows(batch, 1000)] == [77_000, 77_000]
    assert place.append(a_batch()).append_time_ms == -1


def test_a_repeat_is_answered_as_before_and_not_appended() -> None:
    place = Place()
    place.append()
    first = place.append(from_producer(5, 0, count=3))
    place.append()
    again = place.append(from_producer(5, 0, count=3))
    assert again.is_duplicate
    assert again[:2] == first[:2] == (1, 3)
    assert place.offsets() == [0, 1, 2, 3, 4]


def test_what_is_refused_leaves_no_trace() -> None:
    place = Place()
    place.append(from_producer(5, 0))
    damaged = a_batch()
    damaged[-1] ^= 1
    for data, refusal in (
        (damaged, CorruptBatch),
        (from_producer(5, 7), OutOfOrderSequence),
        (a_marker(ControlType.COMMIT, 5), InvalidBatch),
    ):
        with pytest.raises(refusal):
            place.append(data)
    assert place.offsets() == [0]
    assert place.append().base_offset == 1


# --- rolling ------------------------------------------------------------------------------------------------------


def test_a_segment_is_full_before_it_is_too_large() -> None:
    place = Place()
    size_bytes = len(a_batch())
    for _ in range(3 * (1000 // size_bytes)):
        place.append()
    assert [segment.size_bytes for segment in place.log.segments] == [1000 // size_bytes * size_bytes] * 3


def test_a_batch_larger_than_a_segment_has_one_for_itself() -> None:
    place = Place()
    for value in (b"", b"v" * 3000, b"v" * 4000, b""):
        place.append(a_batch(value=value))
    assert [segment.base_offset for segment in place.log.segments] == [0, 1, 2, 3]


def test_a_segment_covers_only_so_much_time() -> None:
    place = Place(replace(SETTINGS, segment_ms=100))
    for timestamp_ms in (500, 600, 601, 300, 701, 702):
        place.append(a_batch(timestamp_ms=timestamp_ms))
    assert [segment.base_offset for segment in place.log.segments] == [0, 2, 5]


def test_a_segment_covers_only_so_many_offsets() -> None:
    """A compacted leader's log may have gaps that do not fit into 32 bits."""
    place = Place()
    far = 2**31 - 1
    place.replicate(a_batch(base_offset=0, leader_epoch=0), a_batch(base_offset=far, leader_epoch=0))
    assert len(place.log.segments) == 1
    place.replicate(a_batch(base_offset=far + 1, leader_epoch=0))
    assert [segment.base_offset for segment in place.log.segments] == [0, far + 1]


def counting(data: bytearray, last_offset_delta: int, count: int) -> bytearray:
    """Returns the batch with another record count and last offset delta."""
    data[23:27] = last_offset_delta.to_bytes(4, "big")
    data[57:61] = count.to_bytes(4, "big")
    seal(data)
    return data


@pytest.mark.parametrize("codec", ALL_CODECS)
def test_a_false_count_takes_neither_offsets_nor_a_segment(codec: Codec) -> None:
    place = Place()
    place.append()
    for _ in range(3):
        with pytest.raises(InvalidBatch, match="holds at most"):
            place.append(counting(a_batch(codec=codec), 2**31 - 2, 2**31 - 1))
    assert (place.log.written_end, len(place.log.segments)) == (1, 1)


def test_a_follower_takes_batches_that_compaction_left_sparse_or_empty() -> None:
    place = Place()
    sparse = counting(a_batch(base_offset=0, leader_epoch=0), 4_999, 1)
    empty = counting(a_batch(base_offset=5_000, leader_epoch=0), 9_999, 0)
    assert place.replicate(sparse, empty) == 15_000


def test_rolling_by_hand_needs_records() -> None:
    place = Place()
    place.log.roll()
    assert len(place.log.segments) == 1
    place.append()
    place.log.roll()
    place.log.roll()
    assert [segment.base_offset for segment in place.log.segments] == [0, 1]


def test_rolls_hold_few_copies_of_producer_state() -> None:
    """Many producers and many unsealed segments: memory does not grow with their product."""
    place = Place(replace(SETTINGS, segment_bytes=10**9))
    for producer_id in range(2_000):
        place.append(from_producer(producer_id, 0))
    place.log.roll()
    tracemalloc.start()
    try:
        before_bytes, _ = tracemalloc.get_traced_memory()
        for number in range(100):
            place.append(from_producer(number, 1))
            place.log.roll()
        taken_bytes = tracemalloc.get_traced_memory()[0] - before_bytes
    finally:
        tracemalloc.stop()
    assert taken_bytes < 1_500_000, taken_bytes
    place.settle()
    assert place.files(".producers") == [f"{offset:020d}.producers" for offset in (2_098, 2_099, 2_100)]
    before = place.log.producers.snapshot().to_list()
    place.commit()
    place.cut_power()
    assert place.log.producers.snapshot().to_list() == before


# --- replicated appends -------------------------------------------------------------------------------------------


def test_a_follower_takes_batches_as_they_are() -> None:
    place = Place()
    theirs = [a_batch(2, base_offset=10, leader_epoch=3), a_batch(1, base_offset=20, leader_epoch=5)]
    assert place.replicate(*theirs) == 21
    assert place.stored() == [bytes(data) for data in theirs]
    assert place.log.epochs.to_list() == [[3, 10], [5, 20]]


def test_a_gap_where_a_segment_begins_is_found_again_after_a_crash() -> None:
    place = Place()
    for number in range(1, 31):
        place.replicate(a_batch(base_offset=number * 10, leader_epoch=0))
    place.commit()
    before = place.stored()
    assert len(place.log.segments) > 3
    log = place.cut_power()
    assert place.directory.findings.damage == place.directory.findings.cut == []
    assert log.written_end == 301
    assert place.stored() == before


@pytest.mark.parametrize("settles", [False, True])
def test_a_replicated_batch_neither_goes_back_nor_repeats(settles: bool) -> None:
    place = Place()
    place.replicate(a_batch(3, base_offset=0, leader_epoch=4))
    if settles:
        place.log.roll()
        place.settle()
    for data, refusal in (
        (a_batch(base_offset=2, leader_epoch=4), "starts at 2, before 3"),
        (a_batch(base_offset=3, leader_epoch=3), "has epoch 3 after 4"),
    ):
        with pytest.raises(InvalidBatch, match=refusal):
            place.replicate(data)
    damaged = a_batch(base_offset=3, leader_epoch=4)
    damaged[-1] ^= 1
    with pytest.raises(CorruptBatch):
        place.replicate(damaged)
    assert place.log.written_end == 3


def test_a_follower_knows_producers_like_its_leader() -> None:
    leader, follower = Place(), Place()
    for sequence in range(4):
        leader.append(from_producer(5, sequence, is_transactional=True))
    leader.end(ControlType.ABORT, 5)
    follower.replicate(*map(bytearray, leader.stored()))
    assert follower.log.producers.snapshot().to_list() == leader.log.producers.snapshot().to_list()
    assert follower.log.aborted_between(0, 9) == leader.log.aborted_between(0, 9) != []


# --- reading ------------------------------------------------------------------------------------------------------


def a_life(seed: int) -> Place:
    """Builds a log of several segments with gaps, some of them sealed, whose front may be deleted."""
    random = Random(seed)
    place = Place(
        replace(SETTINGS, segment_bytes=random.choice([300, 700, 2000]), index_interval_bytes=random.choice([1, 150])),
        files_open_max=2,
        maps_open_max=1,
    )
    for _ in range(12):
        base = place.log.written_end + random.choice([0, 0, 0, 1, 7])
        data = a_batch(
            random.choice([1, 2, 5]), base_offset=base, leader_epoch=0, value=bytes(random.choice([0, 30, 150]))
        )
        place.replicate(data)
        if random.random() < 0.1:
            place.log.roll()
        if random.random() < 0.2:
            place.settle()
    if random.random() < 0.5:
        place.delete_before(random.randrange(place.log.written_end + 1))
    return place


def naive_read(place: Place, offset: int, bytes_max: int, limit: int, *, at_least_one: bool) -> bytes | None:
    """The expected read: bytes of one segment, from the batch with the offset on, whole batches below the limit."""
    if offset >= limit:
        return None
    for segment in place.log.segments:
        batches = [
            data
            for data in place.stored()
            if segment.base_offset <= BatchView(data).base_offset < segment.end_offset
            and BatchView(data).last_offset >= offset
        ]
        if batches:
            below: list[bytes] = []
            for data in batches:
                if BatchView(data).last_offset >= limit:
                    break
                below.append(data)
            if not below or (len(below[0]) > bytes_max and not at_least_one):
                return None
            return b"".join(below)[: max(bytes_max, len(below[0]))]
    return None


@pytest.mark.parametrize("seed", range(12))
def test_every_read_is_what_a_plain_list_says(seed: int) -> None:
    """Every offset × limit × size; also offsets in gaps, gaps at a segment's end, and limits inside a batch."""
    place = a_life(seed)
    log = place.log
    content = place.stored()
    place.stored = lambda: content  # type: ignore[method-assign]
    for offset in range(log.start_offset, log.written_end + 1):
        for limit in range(offset, log.written_end + 2, 1 + seed % 3):
            for bytes_max in (0, 1, 100, 250, 10_000):
                for at_least_one in (True, False):
                    part = log.read(offset, bytes_max, limit=limit, at_least_one=at_least_one)
                    found = None if part is None else part.read()
                    if part is not None:
                        part.release()
                    expected = naive_read(place, offset, bytes_max, limit, at_least_one=at_least_one)
                    assert found == expected, (offset, limit, bytes_max)


@pytest.mark.parametrize("seed", range(6))
def test_a_reader_that_follows_the_end_gets_what_a_plain_list_says_whatever_is_cut_off(seed: int) -> None:
    random = Random(seed)
    place = Place()
    log = place.log
    offset = 0
    for _ in range(60):
        if random.random() < 0.2:
            place.truncate(random.randrange(max(0, log.written_end - 4), log.written_end + 1))
        for _ in range(random.choice((1, 1, 3))):
            place.append(a_batch(random.randrange(1, 4), value=b"v" * random.randrange(200)))
        offset = min(offset, log.written_end)
        while offset < log.written_end:
            bytes_max = random.choice((1, 150, 10_000))
            part = log.read(offset, bytes_max, limit=log.written_end)
            assert part is not None
            found = part.read()
            part.release()
            assert found == naive_read(place, offset, bytes_max, log.written_end, at_least_one=True)
            with suppress(TornBatch):
                for batch in batches(found):
                    offset = batch.last_offset + 1


def test_offsets_outside_are_out_of_range() -> None:
    place = Place()
    place.append_many(30)
    place.delete_before(12)
    for offset in (-1, 0, 11, 31):
        with pytest.raises(OffsetOutOfRange, match=f"offset {offset} is not within 12 to 30"):
            place.log.read(offset, 100, limit=30)
    assert place.log.read(30, 100, limit=30) is None


def test_the_first_batch_is_whole_however_large() -> None:
    """KIP-74: a reader whose limit is too small still gets on."""
    place = Place()
    place.append(a_batch(value=b"v" * 5000))
    place.append()
    part = place.log.read(0, 10, limit=2)
    assert part is not None
    assert part.read() == place.stored()[0]
    part.release()
    assert place.log.read(0, 10, limit=2, at_least_one=False) is None


def test_a_slice_stays_readable_when_its_segment_goes() -> None:
    place = Place()
    place.append_many(30)
    part = place.log.read(0, 10_000, limit=30)
    assert part is not None
    before = part.read()
    place.delete_before(25)
    assert part.read() == before
    part.release()


# --- aborted transactions -----------------------------------------------------------------------------------------


def a_life_of_transactions(seed: int) -> tuple[Place, list[tuple[int, int, int]]]:
    """Builds a log with overlapping transactions, and lists the aborted ones as (producer, first, last)."""
    random = Random(seed)
    place = Place(replace(SETTINGS, segment_bytes=500))
    starts: dict[int, int] = {}
    sequences = dict.fromkeys(range(1, 6), 0)
    aborted: list[tuple[int, int, int]] = []
    for _ in range(60):
        producer_id = random.randrange(1, 6)
        if producer_id in starts and random.random() < 0.4:
            kind = random.choice([ControlType.COMMIT, ControlType.ABORT, ControlType.ABORT])
            last = place.end(kind, producer_id).last_offset
            start = starts.pop(producer_id)
            if kind is ControlType.ABORT:
                aborted.append((producer_id, start, last))
        else:
            data = from_producer(producer_id, sequences[producer_id], is_transactional=True)
            sequences[producer_id] += 1
            starts.setdefault(producer_id, place.append(data).base_offset)
        place.log.advance_high_watermark(random.randint(0, place.log.written_end))
        if random.random() < 0.1:
            place.settle()
    return place, aborted


def check_aborted(place: Place, aborted: list[tuple[int, int, int]]) -> None:
    """Checks that every range lists exactly the aborted transactions that overlap it."""
    log = place.log
    for offset in range(log.start_offset, log.written_end):
        for end in range(offset + 1, log.written_end + 1):
            found = {transaction[:3] for transaction in log.aborted_between(offset, end)}
            assert found == {known for known in aborted if known[2] >= offset and known[1] < end}


@pytest.mark.parametrize("seed", range(8))
def test_a_reader_is_told_of_every_aborted_transaction(seed: int) -> None:
    place, aborted = a_life_of_transactions(seed)
    check_aborted(place, aborted)


@pytest.mark.parametrize("seed", range(8))
def test_also_after_every_index_had_to_be_made_anew(seed: int) -> None:
    place, aborted = a_life_of_transactions(seed)
    place.settle()
    place.commit()
    place.restart()
    for name in place.files(".index"):
        place.disk.unlink(f"{place.log.path}/{name}")
        place.directory.pool.forget(f"{place.log.path}/{name}")
    check_aborted(place, aborted)
    assert len(place.log.trouble) == len(place.log.segments)


def test_a_rebuilt_index_knows_a_transaction_that_began_at_zero() -> None:
    """Two transactions overlap and the later one ends first: a reader of the beginning needs both."""
    place = Place()
    place.append(from_producer(1, 0, is_transactional=True))
    place.append(from_producer(2, 0, is_transactional=True))
    place.end(ControlType.ABORT, 2)
    place.end(ControlType.ABORT, 1)
    again = place.log.rebuild_index(place.log.active)
    assert again.aborted == [AbortedTransaction(2, 1, 2, 0), AbortedTransaction(1, 0, 3, 0)]


@pytest.mark.parametrize("seed", range(8))
def test_a_rebuilt_index_is_the_one_that_was(seed: int) -> None:
    place = a_life(seed)
    for segment in place.log.segments:
        kept = place.log.index_of(segment)
        again = place.log.rebuild_index(segment)
        assert isinstance(kept, SealedIndex | ActiveIndex)
        kept = ActiveIndex.load(kept) if isinstance(kept, SealedIndex) else kept
        assert again.sealed() == kept.sealed()


# --- the last stable offset ---------------------------------------------------------------------------------------


def test_the_last_stable_offset_waits_for_the_marker_to_be_replicated() -> None:
    place = Place()
    log = place.log
    place.append()
    place.append(from_producer(5, 0, is_transactional=True))
    place.append()
    log.advance_high_watermark(3)
    assert log.last_stable_offset == 1
    place.end(ControlType.COMMIT, 5)
    assert log.last_stable_offset == 1
    log.advance_high_watermark(4)
    assert log.last_stable_offset == 4


def test_the_last_stable_offset_is_never_above_the_high_watermark_nor_below_the_start() -> None:
    place = Place()
    log = place.log
    place.append_many(10)
    place.append(from_producer(5, 0, is_transactional=True))
    place.append_many(10)
    log.advance_high_watermark(4)
    assert log.last_stable_offset == 4
    place.delete_before(15)
    assert log.last_stable_offset == 15


def test_the_high_watermark_goes_only_forward_and_not_beyond_the_end() -> None:
    place = Place()
    place.append_many(5)
    for offset, expected in ((3, 3), (2, 3), (99, 5)):
        place.log.advance_high_watermark(offset)
        assert place.log.high_watermark == expected


# --- by time ------------------------------------------------------------------------------------------------------


def a_timed_life(seed: int) -> tuple[Place, list[tuple[Record, int]]]:
    """Builds a log with jumping timestamps, all codecs, some append times; also returns its (record, epoch) pairs."""
    random = Random(seed)
    place = Place(replace(SETTINGS, segment_bytes=400, index_interval_bytes=random.choice([1, 200])))
    for number in range(25):
        place.now_ms = 1_000 + number
        times = [random.randrange(900, 1_100) for _ in range(random.choice([1, 1, 3]))]
        data = a_batch(timestamp_ms=times, codec=random.choice(ALL_CODECS))
        rules = APPEND_TIME if random.random() < 0.2 else Rules(timestamp_after_ms_max=None)
        place.append(data, epoch=number // 5, rules=rules)
        if random.random() < 0.2:
            place.settle()
    if random.random() < 0.6:
        place.delete_before(random.randrange(place.log.written_end))
    known = [
        (record, BatchView(data).leader_epoch) for data in place.stored() for record in rows(BatchView(data), 10_000)
    ]
    return place, [(record, epoch) for record, epoch in known if record.offset >= place.log.start_offset]


@pytest.mark.parametrize("seed", range(10))
def test_a_search_by_time_is_what_a_plain_list_says(seed: int) -> None:
    place, known = a_timed_life(seed)
    log = place.log
    for limit in (log.start_offset, log.start_offset + 7, log.written_end - 5, log.written_end):
        for timestamp_ms in range(895, 1_105):
            matches = (r for r in known if r[0].timestamp_ms >= timestamp_ms and r[0].offset < limit)
            first = next(((r.timestamp_ms, r.offset, epoch) for r, epoch in matches), None)
            assert times.offset_for_time(log, timestamp_ms, limit=limit) == first


@pytest.mark.parametrize("seed", range(10))
def test_the_highest_timestamp_is_what_a_plain_list_says(seed: int) -> None:
    place, known = a_timed_life(seed)
    log = place.log
    for limit in range(log.start_offset, log.written_end + 1):
        below = [(r, epoch) for r, epoch in known if r.offset < limit]
        best = max(below, key=lambda r: (r[0].timestamp_ms, -r[0].offset), default=None)
        expected = None if best is None else TimedOffset(best[0].timestamp_ms, best[0].offset, best[1])
        assert times.offset_of_max_timestamp(log, limit=limit) == expected


# --- disk failures ------------------------------------------------------------------------------------------------


def test_a_failed_write_takes_the_log_offline_for_good() -> None:
    place = Place()
    place.append()
    place.disk.fail_next("write")
    with pytest.raises(StorageError, match="a write failed"):
        place.append()
    with pytest.raises(StorageError, match="a write failed"):
        place.append()
    assert place.log.written_end == 1


def test_a_full_disk_is_told_and_survived() -> None:
    place = Place()
    place.append()
    place.disk.fail_next("write", code=errno.ENOSPC)
    with pytest.raises(StorageError, match="the disk is full; free space and send again"):
        place.append()
    assert place.append().base_offset == 1
    assert place.offsets() == [0, 1]


def test_an_index_that_cannot_be_made_fails_an_append_before_it_is_in_the_log() -> None:
    """Otherwise the producer, which got an error, would retry, and the log would hold the batch twice."""
    place = Place()
    for sequence in range(3):
        place.append(from_producer(5, sequence))
    place.restart()
    place.disk.unlink(place.log.path_of(place.log.active, "index"))
    place.flip(place.log.path_of(place.log.active, "log"), 16)  # the batch is no longer readable
    for _ in range(2):
        with pytest.raises(CorruptBatch):
            place.append(from_producer(5, 3))
    assert place.log.written_end == 3
    assert place.log.producers.producers[5].seen[-1].last_sequence == 2


def test_a_log_says_what_it_is() -> None:
    place = Place()
    place.append()
    assert repr(place.log) == "<log logs/t-0: offsets 0 to 1>"
    assert repr(place.log.active).startswith("<segment 00000000000000000000-0: offsets 0 to 1, ")
    assert isinstance(place.log.producers, ProducerStates)
    assert isinstance(place.log.active, Segment)


def test_damage_that_a_reader_meets_is_noted_and_the_rest_stays_online() -> None:
    place = Place()
    place.append_many(3)
    place.commit()
    assert place.log.read(0, 1_000, limit=3) is not None
    place.flip(place.log.path_of(place.log.active, "log"), 16)  # the magic byte
    with pytest.raises(CorruptBatch):
        place.log.read(0, 1_000, limit=3)
    assert place.log.suspicion is not None
    assert place.log.offline_reason is None


# --- misuse by callers ------------------------------------------------------------------------------------------------


def test_a_leader_of_an_older_epoch_appends_nothing() -> None:
    """After a crash such a batch would count as damage."""
    place = Place()
    place.append(epoch=4)
    with pytest.raises(AssertionError, match="epoch 3 after 4"):
        place.append(epoch=3)
    assert place.log.written_end == 1
    place.append(epoch=4)
    assert place.kill().written_end == 2


def test_a_log_whose_end_is_not_that_of_its_segment_is_not_written() -> None:
    place = Place()
    place.append_many(2)
    place.log.written_end = 1
    with pytest.raises(AssertionError, match="in <segment"):
        place.append()
    place.log.written_end = 2
    place.append()
    assert place.kill().written_end == 3


def test_a_sealed_segment_is_not_written() -> None:
    place = Place()
    place.append()
    place.log.settled_segments = 1
    with pytest.raises(AssertionError, match="is sealed"):
        place.append()


def test_a_sync_of_another_log_promises_nothing() -> None:
    place, other = Place(), Place()
    place.append()
    other.append()
    ticket = other.log.begin_sync()
    assert ticket is not None
    with pytest.raises(AssertionError, match="a sync of"):
        place.log.finish_sync(ticket)
    assert place.log.synced_end == 0


def test_a_batch_of_nobody_is_no_producers() -> None:
    with pytest.raises(AssertionError, match="is nobody's"):
        ProducerStates().apply(BatchView(a_batch()), 0, 0)
