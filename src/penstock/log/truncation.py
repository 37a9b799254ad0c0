"""Truncation of a log's end, for a follower that has diverged from its leader.

The ledger is lowered before a byte is removed, so that a crash in between finds more than was promised, never less.
Nothing is appended before the truncation is on stable storage: otherwise old and new bytes could mix in one tail. On a
full disk the reserve is used: a leader that steps down for lack of space must be truncated before it can follow.
"""

from penstock.log import manifest
from penstock.log.epochs import EpochHistory
from penstock.log.index import ActiveIndex
from penstock.log.ledger import Ledger, LedgerEntry
from penstock.log.log import Log
from penstock.log.producers import ProducerStates
from penstock.log.segment import Segment, scan_batches
from penstock.log.space import full_or
from penstock.log.upkeep import remove_segments
from penstock.model.errors import CorruptBatch, DiskFull, StorageError
from penstock.model.ports import Disk, File


async def truncate(log: Log, disk: Disk, ledger: Ledger, end_offset: int, *, now_ms: int) -> None:
    """Removes every batch with an offset at or after `end_offset`."""
    _require_online(log)
    if end_offset >= log.written_end:
        return
    end_offset = max(end_offset, log.start_offset)
    keep = next((at for at, s in enumerate(log.segments) if s.end_offset >= end_offset), len(log.segments) - 1)
    try:
        file = disk.open(log.path_of(log.segments[keep], "log"))
        try:
            shortened = _shortened(file, log.segments[keep], end_offset, log.path)
            if shortened.end_offset < log.start_offset:
                await _restart(log, disk, ledger, end_offset)
            else:
                await _truncate(log, disk, ledger, keep, shortened, file, now_ms)
        finally:
            file.close()
    except (OSError, DiskFull, CorruptBatch) as error:  # it is half done, and must not be continued
        log.fail(f"a truncation failed: {error}")
        raise StorageError(f"{log.path} is offline: {log.offline_reason}") from error
    _require_online(log)  # our sync may have followed one that failed, and then proves nothing


async def restart_at(log: Log, disk: Disk, ledger: Ledger, offset: int) -> None:
    """Discards all records and restarts at an offset, for a follower whose leader's log begins after its end."""
    try:
        log.start_offset = offset
        await _restart(log, disk, ledger, offset)
    except (OSError, DiskFull) as error:
        log.fail(f"a truncation failed: {error}")
        raise StorageError(f"{log.path} is offline: {log.offline_reason}") from error
    _require_online(log)


def _require_online(log: Log) -> None:
    if log.offline_reason is not None:
        raise StorageError(f"{log.path} is offline: {log.offline_reason}")


async def _restart(log: Log, disk: Disk, ledger: Ledger, offset: int) -> None:
    gone = log.segments
    log.void_syncs()  # a round must not promise again what is discarded here
    await ledger.record([LedgerEntry(log.identity.number, 0, 0, 0, 0, log.high_watermark)])
    fresh = Segment(offset, 1 + max(segment.generation for segment in gone))
    fresh.index = ActiveIndex()
    file = log.reserve.spend(lambda: _made(disk, log.path_of(fresh, "log")))
    await file.sync()
    file.close()
    await disk.sync_dir(log.path)
    _adopt(log, [fresh])
    log.epochs = EpochHistory()  # new records may have any epoch, even one before the discarded ones
    log.snapshots = [(offset, False)]
    log.pending_snapshots = []
    log.producers = ProducerStates()
    await manifest.write(log, disk, 0, log.reserve)
    await ledger.record([log.ledger_entry()])
    remove_segments(log, disk, gone)
    await disk.sync_dir(log.path)  # else a removed segment could reappear and follow the records appended now
    log.synced_end = log.written_end


def _made(disk: Disk, path: str) -> File:
    try:
        return disk.open(path, create=True)
    except OSError as error:
        raise full_or(error) from error


def _adopt(log: Log, segments: list[Segment]) -> None:
    log.cuts += 1
    log.segments = segments
    log.written_end = segments[-1].end_offset
    log.synced_end = min(log.synced_end, log.written_end)
    log.high_watermark = max(log.start_offset, min(log.high_watermark, log.written_end))


async def _truncate(
    log: Log, disk: Disk, ledger: Ledger, keep: int, shortened: Segment, file: File, now_ms: int
) -> None:
    assert log.start_offset <= shortened.end_offset < log.written_end, f"{log} is cut to {shortened}"
    segment, cut_end = log.segments[keep], shortened.end_offset
    said = ledger.entries.get(log.identity.number)  # possibly of a round in progress
    # The ledger must not name a segment that is truncated to zero bytes: its file may not be on the disk yet, and
    # recovery would then find the promised end in no file. The ledger's entry for the segment before stays true.
    is_promised = said is not None and (
        said.end_offset > shortened.end_offset or (said.end_offset == shortened.end_offset and shortened.size_bytes > 0)
    )
    gone = log.segments[keep + 1 :]
    _adopt(log, [*log.segments[:keep], shortened])
    log.epochs.cut_end(log.written_end)
    log.snapshots = [(offset, has_any) for offset, has_any in log.snapshots if offset <= shortened.base_offset]
    log.pending_snapshots = [kept for kept in log.pending_snapshots if kept[0] <= shortened.base_offset]
    if is_promised:  # else the ledger already promises less, and earlier segments may not be synced yet
        await ledger.record([log.ledger_entry()])
    if log.settled_segments > keep:
        await manifest.write(log, disk, keep, log.reserve)
    remove_segments(log, disk, gone)
    log.forget_files(shortened, "index")
    if disk.exists(log.path_of(shortened, "index")):
        disk.unlink(log.path_of(shortened, "index"))
    await disk.sync_dir(log.path)
    file.truncate(shortened.size_bytes)
    await file.sync()
    assert log.written_end == cut_end, f"{log}: appended to while it was cut"
    log.forget_unsynced([segment])
    if not is_promised:
        log.note_unsynced(shortened)
    log.producers = log.producers_at(log.written_end, now_ms)
    shortened.index = log.rebuild_index(shortened)


def _shortened(file: File, segment: Segment, end_offset: int, path: str) -> Segment:
    """Computes the segment after truncation, from the batches that remain.

    Their headers are read from the file, and the ledger will vouch for them. So the whole segment is compared with its
    checksums first: otherwise a flipped bit in a header would be recorded as written, or decide which batches are
    removed.
    """
    fresh, whole = segment.start_again(), segment.start_again()
    fresh.written_ms = segment.written_ms
    for position, batch in scan_batches(file, 0, segment.size_bytes):
        if not batch.is_intact:
            raise CorruptBatch(f"{path}: the batch at position {position} of {segment.name} is not what was written")
        if batch.last_offset < end_offset and fresh.size_bytes == whole.size_bytes:
            fresh.take(batch, batch.whole)
        whole.take(batch, batch.whole)
    if whole.header_sum != segment.header_sum:
        raise CorruptBatch(f"{path}: batch headers of segment {segment.name} are not what was written")
    return fresh
