"""Cutting a log's end off, as a follower does that has diverged from its leader.

The ledger is lowered before a byte goes, so that a crash in between finds more than was promised, never less. Nothing
is appended before the cut is on stable storage: else old and new bytes could mix in one tail.
"""

from penstock.log import manifest
from penstock.log.ledger import Ledger
from penstock.log.log import Log
from penstock.log.segment import Segment, scan_batches
from penstock.log.upkeep import remove_segments
from penstock.model.errors import StorageError
from penstock.model.ports import Disk, File


async def truncate(log: Log, disk: Disk, ledger: Ledger, end_offset: int, *, now_ms: int) -> None:
    """Removes every batch that reaches to or behind `end_offset`."""
    if log.offline_reason is not None:
        raise StorageError(f"{log.path} is offline: {log.offline_reason}")
    if end_offset >= log.written_end:
        return
    try:
        await _truncate(log, disk, ledger, max(end_offset, log.start_offset), now_ms)
    except OSError as error:
        log.take_offline(f"a truncation failed: {error}")
        raise StorageError(f"{log.path} is offline: {log.offline_reason}") from error


async def _truncate(log: Log, disk: Disk, ledger: Ledger, end_offset: int, now_ms: int) -> None:
    keep = next((at for at, s in enumerate(log.segments) if s.end_offset >= end_offset), len(log.segments) - 1)
    segment = log.segments[keep]
    file = disk.open(log.path_of(segment, "log"))
    shortened = _shortened(file, segment, end_offset)
    gone = log.segments[keep + 1 :]
    log.cuts += 1
    log.segments = [*log.segments[:keep], shortened]
    log.written_end = shortened.end_offset
    log.synced_end = min(log.synced_end, log.written_end)
    log.high_watermark = min(log.high_watermark, log.written_end)
    log.epochs.cut_end(log.written_end)
    log.snapshots = [(offset, has_any) for offset, has_any in log.snapshots if offset <= shortened.base_offset]
    log.pending_snapshots = [(offset, r) for offset, r in log.pending_snapshots if offset <= shortened.base_offset]
    if log.settled_segments > keep:
        await manifest.write(log, disk, keep)
    await ledger.record([log.ledger_entry()])
    remove_segments(log, disk, gone)
    log.forget_files(shortened, "index")
    if disk.exists(log.path_of(shortened, "index")):
        disk.unlink(log.path_of(shortened, "index"))
    await disk.sync_dir(log.path)
    file.truncate(shortened.size_bytes)
    await file.sync()
    file.close()
    log.forget_unsynced()
    log.synced_end = log.written_end
    log.producers = log.producers_at(log.written_end, now_ms)
    shortened.index = log.rebuild_index(shortened)


def _shortened(file: File, segment: Segment, end_offset: int) -> Segment:
    """The segment as it will be, from its batches that stay."""
    fresh = Segment(segment.base_offset, segment.generation)
    for _, batch in scan_batches(file, 0, segment.size_bytes):
        if batch.last_offset >= end_offset:
            break
        fresh.take(batch, batch.whole)
    return fresh
