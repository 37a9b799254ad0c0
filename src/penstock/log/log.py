"""One partition's log: append, read as a file slice, truncate, roll, delete from the front.

Offsets rise and are never assigned twice. Records before `written_end` are written, those before `synced_end` survive a
power cut, and those before `durable_end` count as durable under the log's setting. Methods here touch only the page
cache; work that must reach the disk is awaited elsewhere (`upkeep`, `truncation`, `directory`). After a failed write or
sync the log is offline and stays offline: the content of the disk is unknown, and a retry would hide that. A full disk
is different: the refused write is undone, and the log stays online.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import NamedTuple, NoReturn

from penstock.log import checked
from penstock.log.epochs import EpochHistory
from penstock.log.index import AbortedTransaction, ActiveIndex, SealedIndex
from penstock.log.ledger import LedgerEntry
from penstock.log.pool import Pool
from penstock.log.producers import ProducerSnapshot, ProducerStates
from penstock.log.segment import NO_TIMESTAMP, Segment, scan_batches, scan_headers
from penstock.log.settings import SEGMENT_BYTES_MAX, SEGMENT_OFFSETS_MAX, LogSettings
from penstock.log.space import Reserve, is_full
from penstock.model.errors import CorruptBatch, DiskFull, InvalidBatch, OffsetOutOfRange, StorageError
from penstock.model.ports import File, FileSlice
from penstock.records.check import DEFAULT_RULES, Rules, check_batch
from penstock.records.header import BatchView, TimestampType, batches, patch, stamp_log_append_time

MANIFEST_VERSION = 1
SNAPSHOT_VERSION = 1
SNAPSHOTS_KEPT = 3


class Identity(NamedTuple):
    """Identifies a log."""

    number: int
    """Identifies the log in the ledger; never used twice in a data directory."""
    topic: str
    topic_id: str
    partition: int


class Appended(NamedTuple):
    """The offsets of an appended batch, or of the earlier batch that it duplicates."""

    base_offset: int
    last_offset: int
    append_time_ms: int
    is_duplicate: bool


class SyncTicket(NamedTuple):
    """Files to sync, and the ledger entry to record once they are synced."""

    log: "Log"
    files: list[File]
    has_new_names: bool
    entry: LedgerEntry
    cuts: int

    def release_files(self) -> None:
        """Unpins the files."""
        while self.files:
            self.files.pop().unpin()


class Log:
    """One partition on disk. Made by `recovery.create_log` and `recovery.open_log`."""

    def __init__(
        self,
        pool: Pool,
        path: str,
        identity: Identity,
        settings: LogSettings,
        segments: list[Segment],
        start_offset: int,
        on_dirty: Callable[["Log"], None],
    ) -> None:
        self._pool = pool
        self.path = path
        self.identity = identity
        self.settings = settings
        self.segments = segments
        self.start_offset = start_offset
        self.written_end = segments[-1].end_offset
        self.high_watermark = start_offset
        self.epochs = EpochHistory()
        self.producers = ProducerStates()
        self.offline_reason: str | None = None
        self.is_damaged = False
        """Whether the log is offline because stored bytes differ from the bytes written."""
        self.suspicion: str | None = None
        """Damage found by a reader. The rest of the log is still served unless another replica can take over."""
        self.trouble: list[str] = []
        """Damage that was found in use and repaired, such as an index that had to be rebuilt."""
        self.synced_end = self.written_end
        self.snapshots: list[tuple[int, bool]] = []
        """Offsets of producer snapshots, and whether each has content (only then there is a file)."""
        self.settled_segments = len(segments) - 1
        """The number of sealed segments that the manifest lists; later segments are scanned after a crash."""
        self._unsynced: dict[int, Segment] = {}
        self.syncing: dict[int, Segment] = {}
        """Segments covered by the current round of group commit, whose syncs may still fail."""
        self._has_new_names = False
        self.pending_snapshots: list[tuple[int, ProducerSnapshot]] = []
        """Producer state at the starts of the newest segments after the sealed ones, at most SNAPSHOTS_KEPT."""
        self.cuts = 0
        """The number of truncations; a sync that began before a truncation promises nothing."""
        self._on_dirty = on_dirty
        self._old_end: tuple[Segment, int, int] | None = None
        """The segment read last, with its end offset and size at that time. A truncated segment is a new object."""

    def __repr__(self) -> str:
        return f"<log {self.path}: offsets {self.start_offset} to {self.written_end}>"

    # --- state ----------------------------------------------------------------------------------------------------

    @property
    def durable_end(self) -> int:
        """The end of the records that count as durable under the log's setting."""
        return self.synced_end if self.settings.waits_for_sync else self.written_end

    @property
    def is_sync_due(self) -> bool:
        """Whether the next round of group commit must cover the log; otherwise its sync may wait (`flush_ms`)."""
        settings = self.settings
        return settings.waits_for_sync or (
            settings.flush_messages is not None and self.written_end - self.synced_end >= settings.flush_messages
        )

    @property
    def last_stable_offset(self) -> int:
        """The end of the records that read_committed readers may see: no transaction before it is undecided."""
        unstable = self.producers.first_unstable(self.high_watermark)
        if unstable is None or unstable >= self.high_watermark:
            return self.high_watermark
        return max(unstable, self.start_offset)  # the start of the transaction may have been deleted

    @property
    def size_bytes(self) -> int:
        """Bytes of records."""
        return sum(segment.size_bytes for segment in self.segments)

    @property
    def active(self) -> Segment:
        """The segment to which batches are appended."""
        return self.segments[-1]

    @property
    def reserve(self) -> Reserve:
        """Space reserved for operations that free space."""
        return self._pool.reserve

    def advance_high_watermark(self, offset: int) -> None:
        """Moves the high watermark forward; never back, never past the end."""
        self.high_watermark = max(self.high_watermark, min(offset, self.written_end))

    def path_of(self, segment: Segment, ending: str) -> str:
        """The path of a segment's file."""
        return f"{self.path}/{segment.name}.{ending}"

    def adopt_settings(self, settings: LogSettings) -> None:
        """Applies new settings, under which unsynced records may be due for a sync."""
        self.settings = settings
        if self._unsynced and self.is_sync_due:
            self._on_dirty(self)

    def take_offline(self, reason: str) -> None:
        """Stops appends and syncs. The first reason is kept."""
        if self.offline_reason is None:
            self.offline_reason = reason

    def damage(self, trouble: str) -> None:
        """Takes the log offline because stored bytes differ from the bytes written; another replica may replace it."""
        self.is_damaged = True
        self.take_offline(f"damaged: {trouble}")

    def fail(self, reason: str) -> None:
        """Takes the log offline because a write or sync failed: the next run distrusts unsynced data."""
        self._pool.boot.fail()
        self.take_offline(reason)

    def _require_online(self) -> None:
        if self.offline_reason is not None:
            raise StorageError(f"{self.path} is offline: {self.offline_reason}")

    # --- appending ------------------------------------------------------------------------------------------------

    def append(
        self, data: bytearray | memoryview, *, leader_epoch: int, now_ms: int, rules: Rules = DEFAULT_RULES
    ) -> Appended:
        """Checks one batch, assigns the next offset and writes it. Sets offset, epoch and append time in `data`."""
        if self.offline_reason is not None:
            self._require_online()
        batch = check_batch(data, rules, now_ms)
        if batch.producer_id >= 0:
            if batch.is_control:
                self.producers.check_marker(batch)
            elif (seen := self.producers.check(batch)) is not None:
                return Appended(seen.base_offset, seen.last_offset, seen.timestamp_ms, is_duplicate=True)
        append_time_ms = -1
        if rules.timestamp_type is TimestampType.LOG_APPEND_TIME:
            stamp_log_append_time(data, now_ms)
            batch = BatchView(data)
            append_time_ms = now_ms
        # Recovery treats a batch with an epoch older than the latest as damage.
        assert leader_epoch >= self.epochs.latest, f"{self}: epoch {leader_epoch} after {self.epochs.latest}"
        base_offset = self.written_end
        patch(data, base_offset, leader_epoch)
        batch.base_offset = base_offset
        batch.leader_epoch = leader_epoch
        self._write(batch, data, now_ms)
        return Appended(base_offset, batch.last_offset, append_time_ms, is_duplicate=False)

    def append_replicated(self, data: memoryview, *, now_ms: int) -> int:
        """Writes batches with the leader's offsets and epochs; returns the new end. Gaps are allowed.

        The first batch of a log may begin before the log start: DeleteRecords may have moved the leader's log start to
        the middle of a batch, and a replica that begins there receives the whole batch.
        """
        self._require_online()
        for batch in batches(data):
            if batch.base_offset < self.written_end and not self._begins_with(batch):
                raise InvalidBatch(f"a replicated batch starts at {batch.base_offset}, before {self.written_end}")
            if batch.leader_epoch < self.epochs.latest:
                raise InvalidBatch(f"a replicated batch has epoch {batch.leader_epoch} after {self.epochs.latest}")
            if not batch.is_intact:
                raise CorruptBatch(f"the checksum of the replicated batch at {batch.base_offset} does not fit")
            self._write(batch, batch.whole, now_ms)
        return self.written_end

    def _begins_with(self, batch: BatchView) -> bool:
        """Whether the log is empty and the batch contains its start offset."""
        is_empty = len(self.segments) == 1 and not self.active.size_bytes and self.written_end == self.start_offset
        return is_empty and batch.base_offset <= self.start_offset <= batch.last_offset

    def _write(self, batch: BatchView, data: bytearray | memoryview, now_ms: int) -> None:
        segment = self.segments[-1]
        if segment.size_bytes and self._must_roll(segment, batch):
            segment = self._roll(self.written_end)  # segments are contiguous: an offset gap lies inside one
        assert self.settled_segments < len(self.segments), f"{self}: {segment} is sealed"
        assert segment.end_offset == self.written_end <= batch.last_offset, f"{self}: {batch.last_offset} in {segment}"
        position = segment.size_bytes
        # Before anything is written: loading the index may read the segment and find it damaged.
        index = segment.index if segment.index is not None else self.index_in_memory(segment)
        file = self._pool.file(self.path_of(segment, "log"))
        try:
            file.write(position, data)
        except OSError as error:
            self._write_failed(error, segment, file)
        # From here on the batch is in the log: nothing below may fail before the end has moved (R20).
        segment.take(batch, data)
        segment.written_ms = now_ms
        self.written_end = segment.end_offset
        if position - (index.positions[-1] if index.positions else 0) >= self.settings.index_interval_bytes:
            index.add(batch.base_offset - segment.base_offset, position, segment.max_timestamp_ms)
        if batch.leader_epoch > self.epochs.latest:
            self.epochs.begin(batch.leader_epoch, batch.base_offset)
        if batch.producer_id >= 0:
            aborted = self.producers.apply(batch, now_ms, self.last_stable_offset)
            if aborted is not None:
                index.aborted.append(aborted)
        if segment.base_offset not in self._unsynced:
            self.note_unsynced(segment)
        elif self.settings.flush_messages is not None and self.is_sync_due:
            self._on_dirty(self)

    def _write_failed(self, error: OSError, segment: Segment, file: File) -> NoReturn:
        if is_full(error):
            try:
                file.truncate(segment.size_bytes)
            except OSError:
                pass
            else:
                # The truncation must reach the disk too: this may have been the last write to the segment.
                self.note_unsynced(segment)
                self._pool.refusals += 1
                raise DiskFull(f"{self.path}: the disk is full; free space and send again") from error
        self.fail(f"a write failed: {error}")
        raise StorageError(f"{self.path} is offline: {self.offline_reason}") from error

    def _roll_failed(self, error: OSError, path: str) -> NoReturn:
        if is_full(error):
            try:
                # Otherwise, after a smaller batch in the old segment, the file would lie where no segment begins.
                self._pool.remove(path)
            except OSError:
                pass
            else:
                self._pool.refusals += 1
                raise DiskFull(f"{self.path}: the disk is full; free space and send again") from error
        self.fail(f"a new segment could not be made: {error}")
        raise StorageError(f"{self.path} is offline: {self.offline_reason}") from error

    def _must_roll(self, segment: Segment, batch: BatchView) -> bool:
        settings = self.settings
        return (
            (size_bytes := segment.size_bytes + batch.size_bytes) > settings.segment_bytes
            or size_bytes > SEGMENT_BYTES_MAX
            or batch.last_offset - segment.base_offset > SEGMENT_OFFSETS_MAX
            or (
                segment.first_timestamp_ms != NO_TIMESTAMP
                and batch.max_timestamp_ms - segment.first_timestamp_ms > settings.segment_ms
            )
        )

    def _roll(self, base_offset: int) -> Segment:
        """Starts a new segment. `settle` seals the old one later."""
        assert self.active.size_bytes, f"{self}: two segments would begin at {base_offset}"
        assert base_offset == self.active.end_offset, f"{self}: {base_offset} does not touch {self.active}"
        self.index_in_memory(self.active)
        segment = Segment(base_offset).start_again(self.active.header_sum)
        segment.index = ActiveIndex()
        path = self.path_of(segment, "log")
        try:
            self._pool.file(path, create=True).truncate(0)
        except OSError as error:
            self._roll_failed(error, path)
        self.take_snapshot(base_offset)
        self._has_new_names = True
        self.segments.append(segment)
        return segment

    def roll(self) -> None:
        """Starts a new segment now, if the active one has records."""
        self._require_online()
        if self.active.size_bytes:
            self._roll(self.written_end)
            self._on_dirty(self)

    # --- syncing --------------------------------------------------------------------------------------------------

    def begin_sync(self) -> SyncTicket | None:
        """Starts a sync of everything written so far; None if there is nothing to sync."""
        if self.offline_reason is not None or not (self._unsynced or self._has_new_names):
            return None
        ticket = SyncTicket(self, [], self._has_new_names, self.ledger_entry(), self.cuts)
        for segment in self._unsynced.values():
            try:
                file = self._pool.file(self.path_of(segment, "log"))
            except OSError as error:
                self.fail_sync(ticket, error)
                return None
            file.pin()
            ticket.files.append(file)
        self.syncing, self._unsynced = self._unsynced, {}
        self._has_new_names = False
        return ticket

    def ledger_entry(self) -> LedgerEntry:
        """The ledger entry to record once everything written so far is synced."""
        segment = self.active
        return LedgerEntry(
            self.identity.number,
            segment.base_offset,
            segment.size_bytes,
            self.written_end,
            segment.header_sum,
            self.high_watermark,
        )

    def finish_sync(self, ticket: SyncTicket) -> None:
        """Ends a sync whose files and ledger entry are on stable storage."""
        assert ticket.log is self, f"{self}: a sync of {ticket.log}"
        self.syncing = {}
        ticket.release_files()
        if self.offline_reason is None and ticket.cuts == self.cuts:
            assert ticket.entry.end_offset <= self.written_end, f"{self}: synced to {ticket.entry.end_offset}"
            self.synced_end = max(self.synced_end, ticket.entry.end_offset)

    def postpone_sync(self) -> None:
        """Leaves the ledger entry to the next round: the files are synced, but the ledger had no space."""
        self.syncing = {}
        self._has_new_names = True
        self._on_dirty(self)

    def fail_sync(self, ticket: SyncTicket, error: OSError) -> None:
        """Ends a failed sync: nothing that it covered may be promised, now or later (R20, fsyncgate)."""
        self.syncing = {}
        ticket.release_files()
        self.fail(f"a sync failed: {error}")

    # --- reading --------------------------------------------------------------------------------------------------

    def read(self, offset: int, bytes_max: int, *, limit: int, at_least_one: bool = True) -> FileSlice | None:
        """Returns batches from the one that contains `offset`, none of them reaching `limit`.

        The first batch is whole even if it is larger than `bytes_max` (KIP-74), unless `at_least_one` is off. Sizes and
        limit are read once, so that concurrent appends are not included (R17, R18).
        """
        try:
            return self._read(offset, bytes_max, limit, at_least_one=at_least_one)
        except CorruptBatch:
            return self._read_again(offset, bytes_max, limit, at_least_one=at_least_one)

    def _read_again(self, offset: int, bytes_max: int, limit: int, *, at_least_one: bool) -> FileSlice | None:
        """Repeats a read: a second failure means damage, not a read error. The log stays online: see `suspicion`."""
        try:
            return self._read(offset, bytes_max, limit, at_least_one=at_least_one)
        except CorruptBatch as error:
            self.suspicion = str(error)
            raise

    def _read(self, offset: int, bytes_max: int, limit: int, *, at_least_one: bool) -> FileSlice | None:
        if not self.start_offset <= offset <= self.written_end:
            raise OffsetOutOfRange(f"offset {offset} is not within {self.start_offset} to {self.written_end}")
        limit = min(limit, self.written_end)
        if offset >= limit:
            return None
        at = self._segment_at(offset)
        while at < len(self.segments):
            segment = self.segments[at]
            size_bytes, end_offset = segment.size_bytes, segment.end_offset
            if end_offset <= limit:
                known = self._old_end
                self._old_end = (segment, end_offset, size_bytes)
                if known is not None and known[0] is segment and known[1] == offset:
                    # A reader that follows the end of the log needs no search.
                    position = known[2]
                    if 0 < size_bytes - position <= bytes_max:
                        return FileSlice(self._pool.file(self.path_of(segment, "log")), position, size_bytes - position)
            found = self._find(segment, offset, size_bytes)
            if found is None:  # the offset lies in a gap at the segment's end
                at += 1
                continue
            position, first_bytes = found
            end = size_bytes
            if end_offset > limit:
                cut = self._find(segment, limit, size_bytes)
                end = size_bytes if cut is None else cut[0]
            if end <= position or (first_bytes > bytes_max and not at_least_one):
                return None
            return FileSlice(
                self._pool.file(self.path_of(segment, "log")),
                position,
                min(end - position, max(bytes_max, first_bytes)),
            )
        return None

    def aborted_between(self, offset: int, end_offset: int) -> list[AbortedTransaction]:
        """The aborted transactions that a read_committed reader of this range needs."""
        found: list[AbortedTransaction] = []
        for segment in self.segments[self._segment_at(offset) :]:
            for transaction in self.index_of(segment).aborted:
                if transaction.last_offset >= offset and transaction.first_offset < end_offset:
                    found.append(transaction)
                if transaction.last_stable_offset >= end_offset:
                    return found
        return found

    def segments_from(self, offset: int) -> Sequence[Segment]:
        """The segment to which an offset belongs, and all later ones."""
        return self.segments[self._segment_at(offset) :]

    def file_of(self, segment: Segment) -> File:
        """The file with a segment's batches."""
        return self._pool.file(self.path_of(segment, "log"))

    def _segment_at(self, offset: int) -> int:
        return max(0, bisect_right(self.segments, offset, key=lambda s: s.base_offset) - 1)

    def _find(self, segment: Segment, offset: int, size_bytes: int) -> tuple[int, int] | None:
        """(position, size) of the batch that contains the offset, or of the first one after it."""
        start = self.index_of(segment).position_for_offset(max(0, offset - segment.base_offset))
        file = self._pool.file(self.path_of(segment, "log"))
        for position, batch in scan_headers(file, start, size_bytes, self.settings.index_interval_bytes):
            if batch.last_offset >= offset:
                return position, batch.size_bytes
        return None

    # --- files and indexes ----------------------------------------------------------------------------------------

    def index_of(self, segment: Segment) -> ActiveIndex | SealedIndex:
        """The index of a segment, in memory or memory-mapped."""
        if segment.index is not None:
            return segment.index
        if segment is self.segments[-1]:
            return self.index_in_memory(segment)
        path = self.path_of(segment, "index")
        try:
            return self._pool.index(path)
        except (checked.Damaged, FileNotFoundError):
            return self.index_in_memory(segment)  # which retries and records the defect

    def index_in_memory(self, segment: Segment) -> ActiveIndex:
        """The index in memory, loaded from its file if that is intact, otherwise rebuilt from the segment."""
        if segment.index is None:
            try:
                segment.index = ActiveIndex.load(self._pool.index(self.path_of(segment, "index")))
            except (checked.Damaged, FileNotFoundError) as error:
                self.trouble.append(f"{error}; the index was made anew from the segment")
                segment.index = self.rebuild_index(segment)
        return segment.index

    def rebuild_index(self, segment: Segment) -> ActiveIndex:
        """Rebuilds the index by scanning the segment."""
        index = ActiveIndex()
        if not segment.size_bytes:
            return index
        states = self.producers_at(segment.base_offset, 0) if self._may_hold_aborts(segment) else None
        file = self._pool.file(self.path_of(segment, "log"))
        max_timestamp_ms = NO_TIMESTAMP
        for position, batch in scan_batches(file, 0, segment.size_bytes):
            max_timestamp_ms = max(max_timestamp_ms, batch.max_timestamp_ms)
            last = index.positions[-1] if index.positions else 0
            if batch.last_offset - segment.base_offset > SEGMENT_OFFSETS_MAX:
                raise CorruptBatch(f"{self.path_of(segment, 'log')}: the batch at {position} leaves its segment")
            if position - last >= self.settings.index_interval_bytes:
                index.add(batch.base_offset - segment.base_offset, position, max_timestamp_ms)
            if states is not None and batch.producer_id >= 0:
                unstable = states.first_unstable(batch.base_offset)
                aborted = states.apply(batch, 0, batch.base_offset if unstable is None else unstable)
                if aborted is not None:
                    index.aborted.append(aborted)
        return index

    def _may_hold_aborts(self, segment: Segment) -> bool:
        file = self._pool.file(self.path_of(segment, "log"))
        return any(batch.is_control for _, batch in scan_headers(file, 0, segment.size_bytes))

    def producers_at(self, offset: int, now_ms: int) -> ProducerStates:
        """Producer state at an offset: the nearest intact snapshot at or before it, and a replay from there."""
        states, start = ProducerStates(), self.segments[0].base_offset
        for kept in sorted((at for at, _ in self.snapshots if at <= offset), reverse=True):
            found = self.load_snapshot(kept)
            if found is not None:
                states, start = found, kept
                break
        for segment in self.segments[self._segment_at(start) :]:
            if segment.base_offset >= offset:
                break
            file = self._pool.file(self.path_of(segment, "log"))
            for _, batch in scan_batches(file, 0, segment.size_bytes):
                if start <= batch.base_offset < offset and batch.producer_id >= 0:
                    states.first_unstable(self.high_watermark)  # drops transactions whose end is replicated
                    states.apply(batch, now_ms, 0)
        return states

    def load_snapshot(self, offset: int) -> ProducerStates | None:
        """Loads the producer snapshot at an offset; None if it is missing or damaged."""
        if (offset, False) in self.snapshots:
            return ProducerStates()
        try:
            found = checked.read(self._pool.disk, self.snapshot_path(offset), "producers", SNAPSHOT_VERSION)
        except (checked.Damaged, FileNotFoundError):
            return None
        return ProducerStates.from_list(found.value)

    def forget_files(self, segment: Segment, ending: str) -> None:
        """Closes a segment's file or index, if it is open."""
        self._pool.forget(self.path_of(segment, ending))

    def note_unsynced(self, segment: Segment) -> None:
        """Adds a segment to those that group commit must sync, in the next round if the log is due."""
        self._unsynced[segment.base_offset] = segment
        self._on_dirty(self)

    def forget_unsynced(self, segments: list[Segment]) -> None:
        """Drops segments that were synced by other means, or removed."""
        for segment in segments:
            self._unsynced.pop(segment.base_offset, None)

    def void_syncs(self) -> None:
        """Prevents current and later rounds from promising the written records, which are being discarded."""
        self.cuts += 1
        self._unsynced = {}
        self._has_new_names = False

    def take_snapshot(self, offset: int) -> None:
        """Takes producer state at the start of a new segment, to be written when the segment before it is sealed.

        Sealing keeps at most SNAPSHOTS_KEPT snapshots, so older ones would be written only to be removed.
        """
        self.pending_snapshots = [*self.pending_snapshots, (offset, self.producers.snapshot())][-SNAPSHOTS_KEPT:]

    def note_snapshot(self, offset: int, *, has_any: bool) -> None:
        """Registers a stored snapshot, in place of an earlier one at the same offset."""
        self.snapshots = sorted([*(kept for kept in self.snapshots if kept[0] != offset), (offset, has_any)])

    def snapshot_path(self, offset: int) -> str:
        """The path of the producer snapshot at an offset."""
        return f"{self.path}/{offset:020d}.producers"
