"""Maintenance of a log: sealing, deletion from the front, retention, replacing segments.

Each step leaves a log that opens correctly after a power cut between any two of its lines: first the new state is made
durable, then the manifest names it, then files that it no longer names are removed. If there is no space for that, the
log is unchanged; steps that free space may use the reserve.
"""

from contextlib import suppress

from penstock.log import checked, manifest
from penstock.log.log import SNAPSHOT_VERSION, SNAPSHOTS_KEPT, Log
from penstock.log.manifest import Front
from penstock.log.producers import ProducerSnapshot
from penstock.log.segment import NO_TIMESTAMP, Segment
from penstock.log.space import Reserve
from penstock.model.errors import DiskFull, OffsetOutOfRange, StorageError
from penstock.model.ports import Disk


async def settle(log: Log, disk: Disk, reserve: Reserve | None = None) -> None:
    """Seals every segment that is followed by a newer one, and lists them in the manifest.

    Not while a round of group commit syncs one of them: if that sync fails, ours may report success for lost data.
    """
    count = len(log.segments) - 1
    if log.offline_reason is not None or count == log.settled_segments:
        return
    pending, snapshots_before = _take_pending(log, log.segments[count].base_offset), log.snapshots
    try:
        for segment in log.segments[log.settled_segments : count]:
            await _seal(log, disk, segment, reserve)
        for offset, snapshot in pending:
            await _keep_snapshot(log, disk, offset, snapshot, reserve)
        if log.offline_reason is not None:  # our sync may have followed one that failed, and then proves nothing
            raise StorageError(f"{log.path} is offline: {log.offline_reason}")
        if any(segment.base_offset in log.syncing for segment in log.segments[log.settled_segments : count]):
            _put_back(log, pending, snapshots_before)
            return
        dropped, log.snapshots = log.snapshots[:-SNAPSHOTS_KEPT], log.snapshots[-SNAPSHOTS_KEPT:]
        await manifest.write(log, disk, count, reserve)
        for segment in log.segments[:count]:
            segment.index = None
        for offset, has_any in dropped:
            if has_any and disk.exists(log.snapshot_path(offset)):
                disk.unlink(log.snapshot_path(offset))
    except DiskFull:
        # Sealed later; until then the segments are scanned after a crash.
        _put_back(log, pending, snapshots_before)
        raise
    except OSError as error:
        log.fail(f"a segment could not be sealed: {error}")
        raise StorageError(f"{log.path} is offline: {log.offline_reason}") from error


def _put_back(log: Log, pending: list[tuple[int, ProducerSnapshot]], snapshots: list[tuple[int, bool]]) -> None:
    log.pending_snapshots = (pending + log.pending_snapshots)[-SNAPSHOTS_KEPT:]
    log.snapshots = snapshots


async def _seal(log: Log, disk: Disk, segment: Segment, reserve: Reserve | None) -> None:
    data = disk.open(log.path_of(segment, "log"))
    try:
        await data.sync()
    finally:
        data.close()
    content = log.index_in_memory(segment).sealed()
    log.forget_files(segment, "index")
    await checked.write_whole(disk, log.path_of(segment, "index"), content, reserve)


def _take_pending(log: Log, offset_max: int) -> list[tuple[int, ProducerSnapshot]]:
    """Takes pending snapshots up to an offset. Those of segments started meanwhile describe unsynced records."""
    pending = [kept for kept in log.pending_snapshots if kept[0] <= offset_max]
    log.pending_snapshots = [kept for kept in log.pending_snapshots if kept[0] > offset_max]
    return pending


async def _keep_snapshot(
    log: Log, disk: Disk, offset: int, snapshot: ProducerSnapshot, reserve: Reserve | None
) -> None:
    has_any = snapshot.has_content
    if has_any:
        rows = snapshot.to_list()
        await checked.replace(disk, log.snapshot_path(offset), "producers", SNAPSHOT_VERSION, rows, reserve)
    log.note_snapshot(offset, has_any=has_any)


async def delete_before(log: Log, disk: Disk, offset: int) -> None:
    """Moves the log start offset forward (DeleteRecords, retention) and removes the segments wholly before it."""
    if not log.start_offset <= offset <= log.high_watermark:
        raise OffsetOutOfRange(
            f"records can be deleted from {log.start_offset} to the high watermark {log.high_watermark}, not {offset}"
        )
    if offset == log.start_offset and not any(s.end_offset <= offset for s in log.segments[:-1]):
        return
    if log.offline_reason is not None:
        raise StorageError(f"{log.path} is offline: {log.offline_reason}")
    with suppress(DiskFull):  # a segment that cannot be sealed now is removed later
        await settle(log, disk, log.reserve)
    gone = [s for s in log.segments[: log.settled_segments] if s.end_offset <= offset]
    try:
        if log.synced_end < offset:
            await _sync_to(log, disk, offset)
        await manifest.write(log, disk, log.settled_segments, log.reserve, Front(offset, len(gone)))
        assert log.segments[: len(gone)] == gone, f"{log}: other segments than those that the manifest left out"
        # Only now: a log start that readers have seen must not go back after a power cut.
        log.start_offset = offset
        log.segments = log.segments[len(gone) :]
        log.settled_segments -= len(gone)
        log.epochs.cut_start(offset)
        remove_segments(log, disk, gone)
    except OSError as error:
        log.fail(f"a deletion failed: {error}")
        raise StorageError(f"{log.path} is offline: {log.offline_reason}") from error


async def _sync_to(log: Log, disk: Disk, offset: int) -> None:
    """Makes records before an offset durable, even if the topic does not require it (durability "replicated").

    Otherwise a power cut could leave a log that ends before it starts, and offsets would be assigned twice.
    """
    for segment in log.segments[log.settled_segments :]:
        if segment.base_offset < offset:
            data = disk.open(log.path_of(segment, "log"))
            try:
                await data.sync()
            finally:
                data.close()
    if log.offline_reason is not None:  # our sync may have followed one that failed, and then proves nothing
        raise StorageError(f"{log.path} is offline: {log.offline_reason}")


def remove_segments(log: Log, disk: Disk, segments: list[Segment]) -> None:
    """Removes the files of segments that the manifest no longer names; slices being sent stay readable."""
    log.forget_unsynced(segments)
    for segment in segments:
        for ending in ("log", "index"):
            log.forget_files(segment, ending)
            if disk.exists(log.path_of(segment, ending)):
                disk.unlink(log.path_of(segment, ending))


def close_files(log: Log) -> None:
    """Closes every open file of a log."""
    for segment in log.segments:
        log.forget_files(segment, "log")
        log.forget_files(segment, "index")


async def apply_retention(log: Log, disk: Disk, now_ms: int) -> int:
    """Deletes segments beyond the time or size limit, never past the high watermark; returns their number."""
    log.producers.expire(now_ms, log.settings.producer_expiration_ms)
    if _is_expired(log, log.active, now_ms) and log.active.size_bytes and log.high_watermark >= log.written_end:
        with suppress(DiskFull):  # earlier segments can be deleted nevertheless
            log.roll()
    start, count = log.start_offset, len(log.segments)
    size_bytes = log.size_bytes
    for segment in log.segments[:-1]:
        limit = log.settings.retention_bytes
        is_too_much = limit is not None and size_bytes - segment.size_bytes >= limit
        if segment.end_offset > log.high_watermark or not (is_too_much or _is_expired(log, segment, now_ms)):
            break
        size_bytes -= segment.size_bytes
        start = segment.end_offset
    await delete_before(log, disk, start)
    return count - len(log.segments)


def _is_expired(log: Log, segment: Segment, now_ms: int) -> bool:
    limit, from_ms = log.settings.retention_ms, segment.age_from_ms
    return limit is not None and from_ms != NO_TIMESTAMP and now_ms - from_ms > limit


async def replace_segments(log: Log, disk: Disk, old: list[Segment], new: Segment) -> None:
    """Replaces adjacent sealed segments with one finished segment, for compaction.

    The new segment's files are already written under its name (same base, a higher generation), synced or not. If the
    disk is full they are removed again.
    """
    at = log.segments.index(old[0])
    if log.segments[at : at + len(old)] != old or at + len(old) > log.settled_segments:
        raise ValueError("only sealed segments that lie side by side can be replaced")
    if new.base_offset != old[0].base_offset or new.generation <= old[0].generation:
        raise ValueError("a replacement has the base of what it replaces and a higher generation")
    try:
        for ending in ("log", "index"):
            file = disk.open(log.path_of(new, ending))
            try:
                await file.sync()
            finally:
                file.close()
        await disk.sync_dir(log.path)
        assert log.segments[at : at + len(old)] == old, f"{log}: other segments than those that were rewritten"
        new.written_ms = max(segment.written_ms for segment in old)
        # Both change together: an append during the write below must not take the active segment for a sealed one.
        log.segments[at : at + len(old)] = [new]
        log.settled_segments -= len(old) - 1
        await manifest.write(log, disk, log.settled_segments)
        remove_segments(log, disk, old)
    except DiskFull:
        log.segments[at : at + 1] = old
        log.settled_segments += len(old) - 1
        remove_segments(log, disk, [new])
        raise
    except OSError as error:
        log.fail(f"segments could not be replaced: {error}")
        raise StorageError(f"{log.path} is offline: {log.offline_reason}") from error
