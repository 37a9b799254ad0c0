"""Known bugs of other implementations' logs as scenarios; each must fail when its remedy is removed.

The numbers are those of the regression list (R17, R18, R20, R24, R29, R30). `remedy_out` removes the remedy and expects
the scenario to fail.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest

from penstock.host.lossy import LossyDisk
from penstock.host.memory import MemoryDisk
from penstock.log import directory as directory_module
from penstock.log import log as log_module
from penstock.log import recovery as recovery_module
from penstock.log import times
from penstock.log.directory import DataDirectory, open_directory
from penstock.log.index import ActiveIndex, SealedIndex
from penstock.log.log import Log
from penstock.log.producers import ProducerStates
from penstock.log.segment import scan_batches
from penstock.log.settings import LogSettings
from penstock.model.errors import OutOfOrderSequence, ProtocolError, StorageError
from penstock.model.ports import Disk, File, FileSlice
from penstock.records.builder import BatchBuilder
from penstock.records.control import ControlType, EndTransactionMarker, marker_batch
from penstock.records.header import BatchView, batches
from tests.simulation.log.histories import FROM_COORDINATOR, PowerCut, ZeroEntropy, drive, wait_at

SETTINGS = LogSettings(segment_bytes=100_000, index_interval_bytes=100, retention_ms=None)
DAY_MS = 24 * 3_600_000


def a_batch(count: int = 1, *, timestamp_ms: int = 1_000, value: bytes = b"v" * 50, **options: Any) -> bytearray:
    builder = BatchBuilder(**options)
    for _ in range(count):
        builder.append(b"k", value, timestamp_ms=timestamp_ms)
    return builder.build()


class World:
    """One directory with one log on a disk that can lose power."""

    def __init__(self, *, suspends: bool = False) -> None:
        self.disk = LossyDisk(MemoryDisk(), Random(1), delay=wait_at if suspends else None)
        self.directory = self.open()
        self.log = drive(self.directory.create("t", "id", 0, SETTINGS))

    def open(self, waits_before_cut: int | None = None) -> DataDirectory:
        opening = open_directory(
            self.disk,
            cluster_id="c",
            node_id=1,
            entropy=ZeroEntropy(),
            now_ms=0,
            settings_for=lambda _topic, _partition: SETTINGS,
            ledger_bytes=1024,
        )
        return drive(opening, waits_before_cut)

    def append(self, data: bytearray | None = None, *, epoch: int = 0, now_ms: int = 1_000) -> int:
        return self.log.append(data or a_batch(), leader_epoch=epoch, now_ms=now_ms).base_offset

    def commit(self) -> None:
        drive(self.directory.commit())

    def stored_offsets(self) -> list[int]:
        """Every offset in the files, in file order."""
        found: list[int] = []
        for segment in self.log.segments:
            file = self.disk.open(self.log.path_of(segment, "log"))
            for _, batch in scan_batches(file, 0, file.size()):
                found += range(batch.base_offset, batch.last_offset + 1)
            file.close()
        return found


@contextmanager
def remedy_out(monkeypatch: pytest.MonkeyPatch, *patches: tuple[object, str, object]) -> Iterator[None]:
    """Removes the remedy; the body must then fail."""
    for target, name, value in patches:
        monkeypatch.setattr(target, name, value)
    with pytest.raises((AssertionError, ProtocolError)):
        yield


# --- R17, R18: appends during a fetch must not appear in its response -------------------------------------------------


def while_reading(world: World, happens: Callable[[], None]) -> None:
    """Makes a call in the middle of the next read, when it opens its file."""
    pool = world.log._pool
    open_file = pool.file
    has_happened = False

    def file(path: str, *, create: bool = False) -> File:
        nonlocal has_happened
        found = open_file(path, create=create)
        if not has_happened:
            has_happened = True
            happens()
        return found

    pool.file = file  # type: ignore[method-assign]


def offsets_of(part: FileSlice | None) -> list[int]:
    assert part is not None
    found = [offset for b in batches(part.read()) for offset in range(b.base_offset, b.last_offset + 1)]
    part.release()
    return found


def transaction_stays_hidden() -> None:
    """R17: a read_committed fetch has read the last stable offset when a transaction after it makes progress."""
    world = World()
    world.append()
    world.append(a_batch(producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True))
    world.log.advance_high_watermark(2)
    limit = world.log.last_stable_offset
    assert limit == 1

    def more() -> None:
        world.append(a_batch(producer_id=7, producer_epoch=0, base_sequence=1, is_transactional=True))
        world.log.advance_high_watermark(3)

    while_reading(world, more)
    assert offsets_of(world.log.read(0, 10_000, limit=limit)) == [0]


def test_r17_a_read_committed_fetch_uses_one_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    transaction_stays_hidden()
    read = Log.read

    def reads_the_watermark_again(
        self: Log, offset: int, bytes_max: int, *, limit: int, **options: Any
    ) -> FileSlice | None:
        return read(self, offset, bytes_max, limit=max(limit, self.high_watermark), **options)

    with remedy_out(monkeypatch, (Log, "read", reads_the_watermark_again)):
        transaction_stays_hidden()


def append_stays_hidden() -> None:
    """R18: a fetch has read the high watermark and is about to make its slice when the file grows."""
    world = World()
    for _ in range(3):
        world.append()
    world.log.advance_high_watermark(3)
    while_reading(world, lambda: (world.append(), None)[1])
    assert offsets_of(world.log.read(0, 10_000, limit=world.log.high_watermark)) == [0, 1, 2]


def test_r18_a_slice_takes_the_size_once(monkeypatch: pytest.MonkeyPatch) -> None:
    append_stays_hidden()

    def takes_the_size_again(file: File, position: int, _size_bytes: int) -> FileSlice:
        return FileSlice(file, position, file.size() - position)

    with remedy_out(monkeypatch, (log_module, "FileSlice", takes_the_size_again)):
        append_stays_hidden()


# --- R20: an append that fails half-way -------------------------------------------------------------------------------


def index_fails_after_the_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """The record is written, then its index entry fails: the next record must not get the same offset."""
    world = World()
    for _ in range(2):
        world.append()
    with monkeypatch.context() as inner:
        inner.setattr(ActiveIndex, "add", _raise_memory_error)
        with pytest.raises(MemoryError):
            world.append()
    world.append()
    offsets = world.stored_offsets()
    assert offsets == sorted(set(offsets))


def _raise_memory_error(*_arguments: object) -> bytes:
    raise MemoryError


def test_r20_offsets_are_not_given_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    index_fails_after_the_record(monkeypatch)
    write = Log._write

    def moves_the_end_last(self: Log, batch: BatchView, data: bytearray, now_ms: int) -> None:
        end, segment_end = self.written_end, self.active.end_offset
        try:
            write(self, batch, data, now_ms)
        except MemoryError:
            self.written_end, self.active.end_offset = end, segment_end
            raise

    with remedy_out(monkeypatch, (Log, "_write", moves_the_end_last)):
        index_fails_after_the_record(monkeypatch)


def write_fails_once() -> None:
    """After an I/O error the file's content is unknown: no append may follow."""
    world = World()
    world.append()
    world.disk.fail_next("write")
    with pytest.raises(StorageError):
        world.append()
    try:
        world.append()
    except StorageError:
        return
    raise AssertionError("an append followed a failed write")


def test_r20_no_append_follows_an_io_error(monkeypatch: pytest.MonkeyPatch) -> None:
    write_fails_once()
    with remedy_out(monkeypatch, (Log, "take_offline", lambda _self, _reason: None)):
        write_fails_once()


# --- R24: a producer that is idle, or whose records carry old timestamps ----------------------------------------------


def idle_producer_goes_on() -> None:
    """Its records are ten days old by their own timestamps, and were appended a minute ago."""
    world = World()
    now_ms = 100 * DAY_MS
    first = a_batch(producer_id=5, producer_epoch=0, base_sequence=0, timestamp_ms=now_ms - 10 * DAY_MS)
    again = bytearray(first)
    world.append(first, now_ms=now_ms)
    world.log.producers.expire(now_ms + 60_000, DAY_MS)
    answer = world.log.append(again, leader_epoch=0, now_ms=now_ms)
    assert answer.is_duplicate


def forgotten_producer_goes_on() -> None:
    """Idle for two days and expired, the producer continues with its next sequence."""
    world = World()
    world.append(a_batch(producer_id=5, producer_epoch=0, base_sequence=0), now_ms=0)
    world.log.producers.expire(2 * DAY_MS, DAY_MS)
    world.append(a_batch(producer_id=5, producer_epoch=0, base_sequence=1), now_ms=2 * DAY_MS)


def test_r24_producers_age_by_appends(monkeypatch: pytest.MonkeyPatch) -> None:
    idle_producer_goes_on()
    apply = ProducerStates.apply

    def ages_by_timestamps(self: ProducerStates, batch: BatchView, _now_ms: int, stable: int) -> object:
        return apply(self, batch, batch.max_timestamp_ms, stable)

    with remedy_out(monkeypatch, (ProducerStates, "apply", ages_by_timestamps)):
        idle_producer_goes_on()


def test_r24_a_forgotten_producer_may_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    forgotten_producer_goes_on()
    check = ProducerStates.check

    def insists_on_zero(self: ProducerStates, batch: BatchView) -> object:
        if batch.producer_id not in self.producers and batch.base_sequence != 0:
            raise OutOfOrderSequence("not known")
        return check(self, batch)

    with remedy_out(monkeypatch, (ProducerStates, "check", insists_on_zero)):
        forgotten_producer_goes_on()


# --- R29: lookups by time ---------------------------------------------------------------------------------------------


def time_index_follows_a_truncation() -> None:
    """Index entries of truncated batches must not lead a lookup past the records that replaced them."""
    world = World()
    for at in range(20):
        world.append(a_batch(timestamp_ms=1_000 + at))
    drive(world.directory.truncate(world.log, 5, now_ms=0))
    for at in range(20):
        world.append(a_batch(timestamp_ms=2_000 + at, value=b"w" * 80), epoch=1)
    for timestamp_ms, offset in ((1_003, 3), (1_010, 5), (2_000, 5), (2_007, 12)):
        found = times.offset_for_time(world.log, timestamp_ms, limit=world.log.written_end)
        assert found is not None
        assert found.offset == offset


def test_r29_the_time_index_is_trimmed(monkeypatch: pytest.MonkeyPatch) -> None:
    time_index_follows_a_truncation()
    old: dict[str, ActiveIndex] = {}
    rebuild = Log.rebuild_index

    def keeps_the_old_one(self: Log, segment: Any) -> ActiveIndex:
        return old.get(segment.name) or rebuild(self, segment)

    add = ActiveIndex.add

    def remembers(self: ActiveIndex, *entry: int) -> bytes:
        old["00000000000000000000-0"] = self
        return add(self, *entry)

    with remedy_out(monkeypatch, (Log, "rebuild_index", keeps_the_old_one), (ActiveIndex, "add", remembers)):
        time_index_follows_a_truncation()


def time_search_stops_at_the_stable_end() -> None:
    """A read_committed client looks up a time; the only record of that time belongs to an open transaction."""
    world = World()
    world.append(a_batch(timestamp_ms=1_000))
    world.append(a_batch(timestamp_ms=5_000, producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True))
    world.log.advance_high_watermark(2)
    assert times.offset_for_time(world.log, 5_000, limit=world.log.last_stable_offset) is None
    marker = EndTransactionMarker(ControlType.COMMIT, 0)
    data = marker_batch(marker, producer_id=7, producer_epoch=0, timestamp_ms=5_001)
    world.log.append(data, leader_epoch=0, now_ms=0, rules=FROM_COORDINATOR)
    world.log.advance_high_watermark(3)
    assert times.offset_for_time(world.log, 5_000, limit=world.log.last_stable_offset) is not None


def test_r29_a_time_search_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    time_search_stops_at_the_stable_end()
    search = times.offset_for_time

    def ignores_the_limit(log: Log, timestamp_ms: int, *, limit: int) -> object:
        return search(log, timestamp_ms, limit=max(limit, log.written_end))

    with remedy_out(monkeypatch, (times, "offset_for_time", ignores_the_limit)):
        time_search_stops_at_the_stable_end()


# --- R30: crashes and recovery ----------------------------------------------------------------------------------------


def recovery_is_interrupted() -> None:
    """Clean shutdown; then a power cut during start-up, and another after records were written: all are scanned."""
    world = World(suspends=True)
    world.append()
    drive(world.directory.close())
    with pytest.raises(PowerCut):
        world.open(waits_before_cut=0)
    world.disk = world.disk.power_cut()
    world.directory = world.open()
    world.log = world.directory.logs["t-0"]
    offset = world.append()
    world.commit()
    world.disk = world.disk.power_cut()
    world.directory = world.open()
    world.log = world.directory.logs["t-0"]
    assert world.log.written_end == offset + 1


def test_r30_a_crash_during_recovery_is_no_clean_shutdown(monkeypatch: pytest.MonkeyPatch) -> None:
    recovery_is_interrupted()

    async def leaves_the_marker(_disk: Disk) -> None:
        return None

    with remedy_out(monkeypatch, (directory_module, "_remove_marker", leaves_the_marker)):
        recovery_is_interrupted()


def promised_records_are_missing() -> None:
    """The ledger covers more than the file holds, as after a lying disk: it is reported as damage."""
    world = World()
    for _ in range(3):
        world.append()
    world.commit()
    file = world.disk.open(world.log.path_of(world.log.active, "log"))
    file.truncate(file.size() // 2)
    drive(file.sync())
    world.disk = world.disk.power_cut()
    world.directory = world.open()
    assert any("stable storage" in sentence for sentence in world.directory.findings.damage)
    assert world.directory.logs["t-0"].offline_reason is not None


def test_r30_a_promise_beyond_the_end_is_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    promised_records_are_missing()
    scan = recovery_module._TailScan

    class Trusting(scan):  # type: ignore[misc, valid-type]
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self.entry, self.has_reached_entry = None, True

    with remedy_out(monkeypatch, (recovery_module, "_TailScan", Trusting)):
        promised_records_are_missing()


def test_a_sealed_index_answers_like_the_active_one() -> None:
    world = World()
    for at in range(20):
        world.append(a_batch(timestamp_ms=1_000 + at))
    active = world.log.index_in_memory(world.log.active)
    sealed = SealedIndex(active.sealed(), "x")
    for at in range(25):
        assert sealed.position_for_offset(at) == active.position_for_offset(at)
        assert sealed.position_for_time(995 + at) == active.position_for_time(995 + at)
