"""One partition's log: append, read as a file slice, truncate, roll, delete from the front.

Offsets rise and are never given twice. `written_end` is what this process has written, `durable_end` what a power cut
cannot take. Calls here touch only the page cache; what must reach the disk is awaited elsewhere (`upkeep`,
`truncation`, `directory`). After a failed write or sync the log is offline and stays so: what the disk then holds is
not known, and trying again would hide it. A disk that is full is another matter: what it refused is undone, and the log
goes on.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, NoReturn

from penstock.log import checked, times
from penstock.log.epochs import EpochHistory
from penstock.log.index import AbortedTransaction, ActiveIndex, SealedIndex
from penstock.log.ledger import LedgerEntry
from penstock.log.pool import Pool
from penstock.log.producers import ProducerSnapshot, ProducerStates
from penstock.log.segment import NO_TIMESTAMP, Segment, scan_batches, scan_headers
from penstock.log.settings import SEGMENT_BYTES_MAX, SEGMENT_OFFSETS_MAX, LogSettings
from penstock.log.space import Reserve, is_full
from penstock.model.errors import CorruptBatch, DiskFull, InvalidBatch, OffsetOutOfRange, StorageError
from penstock.model.limits import DEFAULT_LIMITS
from penstock.model.ports import File, FileSlice
from penstock.records import stamps
from penstock.records.check import DEFAULT_RULES, Rules, check_batch
from penstock.records.header import BatchView, TimestampType, batches, patch, stamp_log_append_time

MANIFEST_VERSION = 1
SNAPSHOT_VERSION = 1
SNAPSHOTS_KEPT = 3
LOOKED_AT_BYTES_MAX: Final = DEFAULT_LIMITS.batch_decompressed_bytes_max
"""Of a batch that is opened for a look-up by time."""


class Identity(NamedTuple):
    """Whose log this is."""

    number: int
    """Names the log in the ledger; never used twice in a data directory."""
    topic: str
    topic_id: str
    partition: int


class Appended(NamedTuple):
    """Where a batch went, or where the batch lies that it repeats."""

    base_offset: int
    last_offset: int
    append_time_ms: int
    is_duplicate: bool


class TimedOffset(NamedTuple):
    """A record found by its timestamp."""

    timestamp_ms: int
    offset: int
    leader_epoch: int


class SyncTicket(NamedTuple):
    """What must be synced, and what may be promised once it is."""

    log: "Log"
    files: list[File]
    has_new_names: bool
    entry: LedgerEntry
    cuts: int

    def release_files(self) -> None:
        """The files need not stay open any longer."""
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
        """Whether it is offline because stored bytes are not what was written."""
        self.suspicion: str | None = None
        """Damage that a reader met. The rest of the log is still served unless another replica can take over."""
        self.trouble: list[str] = []
        """Damage that was met in use and got around, such as an index that had to be made anew."""
        self.synced_end = self.written_end
        self.snapshots: list[tuple[int, bool]] = []
        """Offsets at which producer state was kept, and whether there was any."""
        self.settled_segments = len(segments) - 1
        """How many sealed segments the manifest lists; those after them would be scanned after a crash."""
        self._unsynced: dict[int, Segment] = {}
        self.syncing: dict[int, Segment] = {}
        """What the round of group commit that is under way covers: whether its syncs succeed is not known yet."""
        self._has_new_names = False
        self.pending_snapshots: list[tuple[int, ProducerSnapshot]] = []
        """Producer state at the starts of the newest segments behind the sealed ones, at most SNAPSHOTS_KEPT."""
        self.cuts = 0
        """How often the end was cut off; a sync that began before a cut promises nothing."""
        self._on_dirty = on_dirty
        self._old_end: tuple[Segment, int, int] | None = None
        """Where a segment ended when it was last read: its offset and position. What is cut off is a segment anew."""

    def __repr__(self) -> str:
        return f"<log {self.path}: offsets {self.start_offset} to {self.written_end}>"

    # --- what it is -----------------------------------------------------------------------------------------------

    @property
    def durable_end(self) -> int:
        """The end of what counts as durable under the log's setting."""
        return self.synced_end if self.settings.waits_for_sync else self.written_end

    @property
    def is_sync_due(self) -> bool:
        """Whether the next round of group commit is to cover it; else there is time (`flush_ms`)."""
        settings = self.settings
        return settings.waits_for_sync or (
            settings.flush_messages is not None and self.written_end - self.synced_end >= settings.flush_messages
        )

    @property
    def last_stable_offset(self) -> int:
        """The end of what read_committed readers may see: no transaction before it is undecided."""
        unstable = self.producers.first_unstable(self.high_watermark)
        if unstable is None or unstable >= self.high_watermark:
            return self.high_watermark
        return max(unstable, self.start_offset)  # its beginning may have been deleted

    @property
    def size_bytes(self) -> int:
        """Bytes of records."""
        return sum(segment.size_bytes for segment in self.segments)

    @property
    def active(self) -> Segment:
        """The segment that is written."""
        return self.segments[-1]

    @property
    def reserve(self) -> Reserve:
        """Room for what frees room."""
        return self._pool.reserve

    def advance_high_watermark(self, offset: int) -> None:
        """Moves the high watermark forward; never back, never past the end."""
        self.high_watermark = max(self.high_watermark, min(offset, self.written_end))

    def path_of(self, segment: Segment, ending: str) -> str:
        """Where a file of a segment lies."""
        return f"{self.path}/{segment.name}.{ending}"

    def adopt_settings(self, settings: LogSettings) -> None:
        """From now on these count; what is not synced yet may be due by them."""
        self.settings = settings
        if self._unsynced and self.is_sync_due:
            self._on_dirty(self)

    def take_offline(self, reason: str) -> None:
        """No more appends and syncs. The first reason is kept."""
        if self.offline_reason is None:
            self.offline_reason = reason

    def damage(self, trouble: str) -> None:
        """Takes it offline because stored bytes are not what was written: another replica may make up for it."""
        self.is_damaged = True
        self.take_offline(f"damaged: {trouble}")

    def fail(self, reason: str) -> None:
        """Takes it offline because a write or a sync failed: the next life does not vouch for what was not synced."""
        self._pool.boot.fail()
        self.take_offline(reason)

    def _require_online(self) -> None:
        if self.offline_reason is not None:
            raise StorageError(f"{self.path} is offline: {self.offline_reason}")

    # --- appending ------------------------------------------------------------------------------------------------

    def append(
        self, data: bytearray | memoryview, *, leader_epoch: int, now_ms: int, rules: Rules = DEFAULT_RULES
    ) -> Appended:
        """Checks one batch, gives it the next offset and writes it. Changes base offset and epoch in `data`."""
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
        base_offset = self.written_end
        patch(data, base_offset, leader_epoch)
        batch.base_offset = base_offset
        batch.leader_epoch = leader_epoch
        self._write(batch, data, now_ms)
        return Appended(base_offset, batch.last_offset, append_time_ms, is_duplicate=False)

    def append_replicated(self, data: memoryview, *, now_ms: int) -> int:
        """Writes batches as their leader has them, offsets and epochs included; the new end. Gaps are allowed.

        The first batch of a log may begin before the log start: DeleteRecords may have moved the leader's log start to
        the middle of a batch, and a replica that begins there is sent the whole batch.
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
        """Whether the log is empty, and the batch holds the offset at which it starts."""
        is_empty = len(self.segments) == 1 and not self.active.size_bytes and self.written_end == self.start_offset
        return is_empty and batch.base_offset <= self.start_offset <= batch.last_offset

    def _write(self, batch: BatchView, data: bytearray | memoryview, now_ms: int) -> None:
        segment = self.segments[-1]
        if segment.size_bytes and self._must_roll(segment, batch):
            segment = self._roll(self.written_end)  # a gap, if there is one, lies inside: segments touch
        position = segment.size_bytes
        # Before anything is written: it may have to read the segment, and find it damaged.
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
                # The cut must reach the disk too: this may have been the last write to the segment.
                self.note_unsynced(segment)
                self._pool.refusals += 1
                raise DiskFull(f"{self.path}: the disk is full; free space and send again") from error
        self.fail(f"a write failed: {error}")
        raise StorageError(f"{self.path} is offline: {self.offline_reason}") from error

    def _roll_failed(self, error: OSError, path: str) -> NoReturn:
        if is_full(error):
            try:
                # Else, with a smaller batch in the old segment, it would stand where no segment begins.
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
        """Starts a new segment. The old one is sealed when `settle` finds the time."""
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

    # --- becoming durable -----------------------------------------------------------------------------------------

    def begin_sync(self) -> SyncTicket | None:
        """What must be synced so that everything written so far is durable; None when there is nothing to do."""
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
        """What the ledger is to say once everything written so far is synced."""
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
        """The ticket's files and its ledger entry are on stable storage."""
        self.syncing = {}
        ticket.release_files()
        if self.offline_reason is None and ticket.cuts == self.cuts:
            self.synced_end = max(self.synced_end, ticket.entry.end_offset)

    def postpone_sync(self) -> None:
        """The files are synced, but there was no room to write it down: the next round does."""
        self.syncing = {}
        self._has_new_names = True
        self._on_dirty(self)

    def fail_sync(self, ticket: SyncTicket, error: OSError) -> None:
        """A sync failed: nothing that it covered may be promised, now or later (R20, fsyncgate)."""
        self.syncing = {}
        ticket.release_files()
        self.fail(f"a sync failed: {error}")

    # --- reading --------------------------------------------------------------------------------------------------

    def read(self, offset: int, bytes_max: int, *, limit: int, at_least_one: bool = True) -> FileSlice | None:
        """Batches from the one that holds `offset` on, none of them at or behind `limit`.

        The first batch is whole even if it is larger than `bytes_max` (KIP-74), unless `at_least_one` is off. Sizes and
        limit are looked at once, so that what is appended meanwhile cannot slip in (R17, R18).
        """
        try:
            return self._read(offset, bytes_max, limit, at_least_one=at_least_one)
        except CorruptBatch:
            return self._read_again(offset, bytes_max, limit, at_least_one=at_least_one)

    def _read_again(self, offset: int, bytes_max: int, limit: int, *, at_least_one: bool) -> FileSlice | None:
        """What is wrong twice is damage, and not an error of one read. The log stays online: see `suspicion`."""
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
                    # A reader that follows the end: nothing has to be looked for.
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
        """The aborted transactions that a read_committed reader of this range must know of."""
        found: list[AbortedTransaction] = []
        for segment in self.segments[self._segment_at(offset) :]:
            for transaction in self.index_of(segment).aborted:
                if transaction.last_offset >= offset and transaction.first_offset < end_offset:
                    found.append(transaction)
                if transaction.last_stable_offset >= end_offset:
                    return found
        return found

    def offset_for_time(self, timestamp_ms: int, *, limit: int) -> TimedOffset | None:
        """The first record below `limit` with at least this timestamp (R29: never one that is not stable yet)."""
        offset = self.start_offset
        while True:
            found = times.batch_since(self, timestamp_ms, offset, limit)
            if found is None:
                return None
            if isinstance(found, int):
                offset = found
                continue
            stamp = stamps.first_since(found, timestamp_ms, self.start_offset, limit, LOOKED_AT_BYTES_MAX)
            if stamp is not None:
                return TimedOffset(*stamp, found.leader_epoch)
            offset = found.last_offset + 1

    def offset_of_max_timestamp(self, *, limit: int) -> TimedOffset | None:
        """The first record below `limit` with the highest timestamp of all."""
        step = times.Step(self.start_offset, None)
        while step.next_offset is not None:
            step = times.newest_batch(self, step.next_offset, limit, step.best)
        best: TimedOffset | None = None
        for batch in times.newest_candidates(self, step.best, limit):
            stamp = stamps.latest(batch, self.start_offset, limit, LOOKED_AT_BYTES_MAX)
            if stamp is not None and (best is None or stamp.timestamp_ms > best.timestamp_ms):
                best = TimedOffset(*stamp, batch.leader_epoch)
        return best

    def segments_from(self, offset: int) -> Sequence[Segment]:
        """The segment that an offset belongs into, and all behind it."""
        return self.segments[self._segment_at(offset) :]

    def file_of(self, segment: Segment) -> File:
        """The file of a segment's batches."""
        return self._pool.file(self.path_of(segment, "log"))

    def _segment_at(self, offset: int) -> int:
        return max(0, bisect_right(self.segments, offset, key=lambda s: s.base_offset) - 1)

    def _find(self, segment: Segment, offset: int, size_bytes: int) -> tuple[int, int] | None:
        """(position, size) of the batch that holds the offset or is the first behind it."""
        start = self.index_of(segment).position_for_offset(max(0, offset - segment.base_offset))
        file = self._pool.file(self.path_of(segment, "log"))
        for position, batch in scan_headers(file, start, size_bytes, self.settings.index_interval_bytes):
            if batch.last_offset >= offset:
                return position, batch.size_bytes
        return None

    # --- files and indexes ----------------------------------------------------------------------------------------

    def index_of(self, segment: Segment) -> ActiveIndex | SealedIndex:
        """The index of a segment, in memory or through a map."""
        if segment.index is not None:
            return segment.index
        if segment is self.segments[-1]:
            return self.index_in_memory(segment)
        path = self.path_of(segment, "index")
        try:
            return self._pool.index(path)
        except (checked.Damaged, FileNotFoundError):
            return self.index_in_memory(segment)  # which tries again, and says what is wrong

    def index_in_memory(self, segment: Segment) -> ActiveIndex:
        """The index in memory: from its file if that is whole, else from the segment itself."""
        if segment.index is None:
            try:
                segment.index = ActiveIndex.load(self._pool.index(self.path_of(segment, "index")))
            except (checked.Damaged, FileNotFoundError) as error:
                self.trouble.append(f"{error}; the index was made anew from the segment")
                segment.index = self.rebuild_index(segment)
        return segment.index

    def rebuild_index(self, segment: Segment) -> ActiveIndex:
        """Reads the segment's headers and makes its index anew."""
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
        """Producer state as it was at an offset: the nearest whole snapshot before it, and a replay from there."""
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
                    states.first_unstable(self.high_watermark)  # forgets what is decided and replicated
                    states.apply(batch, now_ms, 0)
        return states

    def load_snapshot(self, offset: int) -> ProducerStates | None:
        """Producer state at a kept offset; None when it is missing or damaged."""
        if (offset, False) in self.snapshots:
            return ProducerStates()
        try:
            found = checked.read(self._pool.disk, self.snapshot_path(offset), "producers", SNAPSHOT_VERSION)
        except (checked.Damaged, FileNotFoundError):
            return None
        return ProducerStates.from_list(found.value)

    def forget_files(self, segment: Segment, ending: str) -> None:
        """Closes what is open of a segment."""
        self._pool.forget(self.path_of(segment, ending))

    def note_unsynced(self, segment: Segment) -> None:
        """A round of group commit is to cover this segment: the next one, if that is due."""
        self._unsynced[segment.base_offset] = segment
        self._on_dirty(self)

    def forget_unsynced(self, segments: list[Segment]) -> None:
        """These segments were synced by other means, or are gone."""
        for segment in segments:
            self._unsynced.pop(segment.base_offset, None)

    def void_syncs(self) -> None:
        """Everything written is being given up: no round, begun or coming, is to promise it."""
        self.cuts += 1
        self._unsynced = {}
        self._has_new_names = False

    def take_snapshot(self, offset: int) -> None:
        """Takes producer state at the start of a new segment, to be written when the segment before it is sealed.

        Sealing keeps no more than SNAPSHOTS_KEPT, so older ones would be written only to be removed.
        """
        self.pending_snapshots = [*self.pending_snapshots, (offset, self.producers.snapshot())][-SNAPSHOTS_KEPT:]

    def note_snapshot(self, offset: int, *, has_any: bool) -> None:
        """Producer state at an offset is kept from now on, in place of what was kept for it before."""
        self.snapshots = sorted([*(kept for kept in self.snapshots if kept[0] != offset), (offset, has_any)])

    def snapshot_path(self, offset: int) -> str:
        """Where producer state at an offset is kept."""
        return f"{self.path}/{offset:020d}.producers"
