"""Creates and opens logs; after a crash, scans the tail and cuts off its torn end.

After a clean shutdown the manifest describes the log completely and nothing is read. After a crash the sealed segments
are accepted as the manifest lists them and only later segments are scanned: below the ledger's entry every byte must be
as it was written, and any difference is reported as damage and left unchanged; above it the first batch that is not
intact ends the log. Recovery may itself be interrupted anywhere: it changes nothing below the ledger's entry, and
starts over.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.log import checked, manifest
from penstock.log.epochs import EpochHistory, EpochStart
from penstock.log.index import ActiveIndex
from penstock.log.ledger import LedgerEntry
from penstock.log.log import MANIFEST_VERSION, Identity, Log
from penstock.log.pool import Pool
from penstock.log.producers import ProducerStates
from penstock.log.segment import Segment, scan_batches
from penstock.log.settings import SEGMENT_OFFSETS_MAX, LogSettings
from penstock.log.space import is_full
from penstock.model.errors import CorruptBatch, TornBatch
from penstock.model.ports import File

WRITTEN_AGAIN_BYTES: Final = 1024 * 1024
"""Chunk size for rewriting a tail that the ledger does not cover."""


@dataclass(slots=True)
class Findings:
    """Problems found while opening a data directory, for the operator and for tests."""

    damage: list[str] = field(default_factory=list)
    """Stored bytes that differ from what was written and acknowledged."""
    doubt: list[str] = field(default_factory=list)
    """Damage that is not confined to one offline log: any log may lack acknowledged records."""
    cut: list[str] = field(default_factory=list)
    """Tails that were written but never promised."""
    rebuilt: list[str] = field(default_factory=list)
    """Derived files that were missing or damaged and were rebuilt."""
    scanned_bytes: int = 0


async def create_log(
    pool: Pool, path: str, identity: Identity, settings: LogSettings, on_dirty: Callable[[Log], None], start: int = 0
) -> Log:
    """Creates an empty log. It exists once its manifest does."""
    disk = pool.disk
    disk.make_dir(path)
    segment = Segment(start)
    segment.index = ActiveIndex()
    log = Log(pool, path, identity, settings, [segment], start, on_dirty)
    pool.file(log.path_of(segment, "log"), create=True)
    log.snapshots = [(start, False)]
    await manifest.write(log, disk, 0)
    await disk.sync_dir(path.rpartition("/")[0])
    return log


async def open_log(
    pool: Pool,
    path: str,
    settings: LogSettings,
    on_dirty: Callable[[Log], None],
    *,
    ledger: dict[int, LedgerEntry],
    is_clean: bool,
    now_ms: int,
    findings: Findings,
) -> Log:
    """Opens a log. `is_clean` means that the whole directory was shut down cleanly.

    After a crash the caller syncs the disk before anything is promised or appended.
    """
    said = checked.read(pool.disk, manifest.path_of(path), manifest.KIND, MANIFEST_VERSION)
    if said.damage is not None:
        findings.damage.append(f"{said.damage} (its second copy is whole and was used)")
    value: dict[str, Any] = said.value
    identity = Identity(value["number"], value["topic"], value["topic_id"], value["partition"])
    sealed = [Segment(*row) for row in value["sealed"]]
    is_clean = is_clean and value["clean"]
    active = Segment(*value["active"])
    log = Log(pool, path, identity, settings, [*sealed, active], value["start"], on_dirty)
    log.snapshots = [(offset, has_any) for offset, has_any in value["snapshots"]]
    log.epochs = EpochHistory([EpochStart(*entry) for entry in value["epochs"]])
    log.high_watermark = value["high_watermark"]
    written_ms = dict(value.get("untimed", ()))  # earlier releases did not write it
    for segment in log.segments:
        segment.written_ms = written_ms.get(segment.base_offset, now_ms)
    if is_clean:
        log.producers = _load_producers(log, log.written_end, findings, now_ms)
        return log
    entry = ledger.get(identity.number)
    scan = _TailScan(log, pool, entry, now_ms, findings)
    scan.run()
    if entry is not None:
        log.high_watermark = max(log.high_watermark, entry.high_watermark)
    log.high_watermark = max(log.start_offset, min(log.high_watermark, log.written_end))
    if said.damage is not None:
        await manifest.write(log, pool.disk, log.settled_segments)
    return log


def _load_producers(log: Log, offset: int, findings: Findings, now_ms: int) -> ProducerStates:
    found = log.load_snapshot(offset)
    if found is not None:
        return found
    if any(at == offset for at, _ in log.snapshots):
        findings.damage.append(f"{log.snapshot_path(offset)}: producer state is missing or damaged")
    findings.rebuilt.append(f"{log.path}: producer state at offset {offset}, by reading the log")
    log.snapshots = [(at, has_any) for at, has_any in log.snapshots if at != offset]
    try:
        return log.producers_at(offset, now_ms)
    except CorruptBatch as error:  # in a sealed segment: one damaged log must not keep the others from being opened
        trouble = f"{log.path}: producer state cannot be made anew: {error}"
        findings.damage.append(trouble)
        log.take_offline(f"damaged: {trouble}")
        return ProducerStates()


class _TailScan:
    """Scans every segment that is not sealed, and cuts off the tail or reports damage."""

    def __init__(self, log: Log, pool: Pool, entry: LedgerEntry | None, now_ms: int, findings: Findings) -> None:
        self.log = log
        self.pool = pool
        self.disk = pool.disk
        self.entry = entry
        self.now_ms = now_ms
        self.findings = findings
        self.has_reached_entry = entry is None
        self.ends_inside_batch = False
        """Whether the segment scanned last ends inside a batch, as a killed process may leave it."""

    def run(self) -> None:
        log = self.log
        sealed, active = log.segments[:-1], log.segments[-1]
        # Later snapshots may describe a tail that was cut off or lost since.
        log.snapshots = [(offset, has_any) for offset, has_any in log.snapshots if offset <= active.base_offset]
        self._check_sealed(sealed)
        tail = self._find_tail(sealed, active)
        promised_epochs = list(log.epochs)
        log.epochs.cut_end(active.base_offset)
        log.producers = _load_producers(log, active.base_offset, self.findings, self.now_ms)
        log.segments = list(sealed)
        log.settled_segments = len(sealed)
        for at, found in enumerate(tail):
            segment = tail[at] = found.start_again(log.segments[-1].header_sum if at else active.header_seed)
            if at and segment.base_offset != log.segments[-1].end_offset:
                self._refuse_or_drop(f"{log.path_of(segment, 'log')}: does not follow the segment before it")
                break
            if at:
                log.take_snapshot(segment.base_offset)
            log.segments.append(segment)
            trouble = self._scan(segment)
            if trouble is not None:
                is_last = at == len(tail) - 1
                self._refuse_or_drop(trouble, is_unfinished=self.ends_inside_batch and is_last)
                break
        log.written_end = log.segments[-1].end_offset
        for epoch, _ in promised_epochs:  # epochs that began without a record (R03)
            log.epochs.begin(epoch, log.written_end)
        if not self.has_reached_entry:
            self._damaged(f"{log.path}: ends at {log.written_end}, but was on stable storage to {self._promised_end()}")
        if log.offline_reason is None:
            self._finish(tail[len(log.segments) - len(sealed) :])

    def _promised_end(self) -> int:
        return self.entry.end_offset if self.entry is not None else 0

    def _check_sealed(self, sealed: list[Segment]) -> None:
        """Checks the sizes of sealed segments, which were intact when the manifest named them."""
        for segment in sealed:
            path = self.log.path_of(segment, "log")
            size_bytes = self.pool.file(path).size() if self.disk.exists(path) else -1
            if size_bytes != segment.size_bytes:
                self._damaged(f"{path}: has {size_bytes} bytes, but was sealed with {segment.size_bytes}")
        entry = self.entry
        sealed_end = sealed[-1].end_offset if sealed else 0
        if entry is not None and entry.end_offset <= max(sealed_end, self.log.start_offset):
            self.has_reached_entry = True

    def _find_tail(self, sealed: list[Segment], active: Segment) -> list[Segment]:
        """Returns the active segment and those started after it; any other file is a leftover and is removed."""
        known = {segment.name for segment in sealed}
        tail: list[Segment] = []
        for name in self.disk.list(self.log.path):
            segment = Segment.parse_name(name)
            if segment is not None and segment.name in known:
                continue
            if segment is not None and (
                segment.name == active.name or (segment.base_offset > active.base_offset and segment.generation == 0)
            ):
                tail.append(segment)
            elif self._is_leftover(name, known):
                self.disk.unlink(f"{self.log.path}/{name}")
        if not tail or tail[0].name != active.name:
            tail.insert(0, active)
        return tail

    def _is_leftover(self, name: str, known: set[str]) -> bool:
        stem, _, ending = name.rpartition(".")
        if ending == "index":
            return stem not in known
        if ending == "producers":
            return not any(f"{offset:020d}" == stem for offset, _ in self.log.snapshots)
        return ending in ("new", "log")

    def _scan(self, segment: Segment) -> str | None:
        """Adds the segment's batches up to the first that is not intact; returns the defect of that one."""
        log, entry = self.log, self.entry
        path = log.path_of(segment, "log")
        segment.index = index = ActiveIndex()
        segment.written_ms = self.now_ms  # unknown: the manifest has it only for sealed segments
        if not self.disk.exists(path):
            return f"{path}: is missing"
        file = self.pool.file(path)
        end = file.size()
        self.findings.scanned_bytes += end
        self._meet_entry(segment)
        try:
            for position, batch in scan_batches(file, 0, end):
                if batch.last_offset - segment.base_offset > SEGMENT_OFFSETS_MAX:
                    return f"{path}: the batch at position {position} jumps to offset {batch.base_offset}"
                if batch.base_offset < segment.end_offset and (position or batch.last_offset < segment.base_offset):
                    return f"{path}: the batch at position {position} goes back to offset {batch.base_offset}"
                if batch.leader_epoch < log.epochs.latest:
                    return f"{path}: the batch at position {position} goes back to epoch {batch.leader_epoch}"
                if not batch.is_intact:
                    return f"{path}: the batch at position {position} does not match its checksum"
                segment.take(batch, batch.whole)
                log.written_end = segment.end_offset
                if position - (index.positions[-1] if index.positions else 0) >= log.settings.index_interval_bytes:
                    index.add(batch.base_offset - segment.base_offset, position, segment.max_timestamp_ms)
                log.epochs.begin(batch.leader_epoch, batch.base_offset)
                if batch.producer_id >= 0:
                    aborted = log.producers.apply(batch, self.now_ms, log.last_stable_offset)
                    if aborted is not None:
                        index.aborted.append(aborted)
                self._meet_entry(segment)
        except CorruptBatch as error:
            self.ends_inside_batch = isinstance(error, TornBatch)
            return f"{path}: {error}"
        if entry is not None and segment.base_offset == entry.segment_base and not self.has_reached_entry:
            return f"{path}: ends at position {segment.size_bytes}, but was on stable storage to {entry.position}"
        return None

    def _meet_entry(self, segment: Segment) -> None:
        """At the position of the ledger's entry, checks that everything before it matches the entry."""
        entry = self.entry
        if entry is None or (segment.base_offset, segment.size_bytes) != (entry.segment_base, entry.position):
            return
        self.has_reached_entry = True
        if (segment.header_sum, segment.end_offset) != (entry.header_sum, entry.end_offset):
            self._damaged(f"{self.log.path_of(segment, 'log')}: batch headers are not what was written")

    def _refuse_or_drop(self, trouble: str, *, is_unfinished: bool = False) -> None:
        """Reports damage, or drops a tail. `is_unfinished`: the last write did not end, so that nobody relied on it."""
        if not self.has_reached_entry:
            self._damaged(trouble)
        else:
            if not is_unfinished:
                # With durability=replicated the tail may be acknowledged. Pages that the kernel dropped after a failed
                # writeback look like this even without a reboot. Recorded before the evidence is cut off.
                self.pool.boot.found_gap()
            self.findings.cut.append(f"{trouble}; the log now ends at offset {self.log.segments[-1].end_offset}")

    def _damaged(self, trouble: str) -> None:
        self.findings.damage.append(trouble)
        self.log.damage(trouble)

    def _finish(self, dropped: list[Segment]) -> None:
        """Truncates the active segment and removes the dropped ones. The caller of `open_log` syncs the log."""
        log, active = self.log, self.log.active
        for segment in dropped:
            for ending in ("log", "index"):
                log.forget_files(segment, ending)
                if self.disk.exists(log.path_of(segment, ending)):
                    self.disk.unlink(log.path_of(segment, ending))
        file = self.pool.file(log.path_of(active, "log"), create=True)
        if file.size() == active.size_bytes:
            # The sync of a truncation may have failed before the crash: the file is then short only in the page cache,
            # and after a power cut the bytes cut off would follow those appended now. So the size is set again.
            self._lengthen(file, active.size_bytes + 1)
        file.truncate(active.size_bytes)
        for segment in log.segments[log.settled_segments :]:
            self._write_again(segment)
        log.synced_end = log.written_end

    @staticmethod
    def _lengthen(file: File, size_bytes: int) -> None:
        try:
            file.truncate(size_bytes)
        except OSError as error:
            if not is_full(error):
                raise

    def _write_again(self, segment: Segment) -> None:
        """Rewrites the bytes that the ledger does not cover, so that the next sync really stores them.

        A sync may have failed before the crash: the bytes that it covered can be read while the machine runs, but are
        not on the disk, and no later sync would write them (fsyncgate).
        """
        entry, position = self.entry, 0
        if entry is not None and segment.base_offset <= entry.segment_base:
            position = entry.position if segment.base_offset == entry.segment_base else segment.size_bytes
        file = self.pool.file(self.log.path_of(segment, "log"))
        while position < segment.size_bytes:
            data = file.read(position, min(WRITTEN_AGAIN_BYTES, segment.size_bytes - position))
            file.write(position, data)
            position += len(data)
