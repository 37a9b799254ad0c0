"""Scrubbing: rereads everything to find stored data that has changed.

Nothing is repaired or truncated here; every mismatch is reported. Batches are compared with their own checksums, and
the bytes that those do not cover with the running checksum that was computed when they were written.
"""

from penstock.log import checked, manifest
from penstock.log.index import SealedIndex
from penstock.log.log import MANIFEST_VERSION, SNAPSHOT_VERSION, Log
from penstock.log.segment import Segment, scan_batches
from penstock.model.errors import CorruptBatch
from penstock.model.ports import Disk


def scrub(log: Log, disk: Disk) -> list[str]:
    """Returns one sentence for each difference from what was written."""
    found: list[str] = []
    for segment in log.segments:
        found += _scrub_segment(log, disk, segment)
        if segment.index is None:  # otherwise it is in memory, and its file is not in use
            found += _scrub_index(log, disk, segment)
    for offset, has_any in log.snapshots:
        if has_any:
            found += _scrub_checked(disk, log.snapshot_path(offset), "producers", SNAPSHOT_VERSION)
    return found + _scrub_checked(disk, manifest.path_of(log.path), manifest.KIND, MANIFEST_VERSION)


def _scrub_segment(log: Log, disk: Disk, segment: Segment) -> list[str]:
    path = log.path_of(segment, "log")
    again = segment.start_again()
    try:
        file = disk.open(path)
    except FileNotFoundError:
        return [f"{path}: is missing"]
    try:
        for position, batch in scan_batches(file, 0, segment.size_bytes):
            if not batch.is_intact:
                return [f"{path}: the batch at position {position} does not match its checksum"]
            again.take(batch, batch.whole)
    except CorruptBatch as error:
        return [f"{path}: {error}"]
    finally:
        file.close()
    if (again.size_bytes, again.header_sum) != (segment.size_bytes, segment.header_sum):
        return [f"{path}: batch headers are not what was written"]
    return []


def _scrub_index(log: Log, disk: Disk, segment: Segment) -> list[str]:
    path = log.path_of(segment, "index")
    try:
        file = disk.open(path)
    except FileNotFoundError:
        return [f"{path}: is missing"]
    try:
        SealedIndex(file.read(0, file.size()), path)
    except checked.Damaged as error:
        return [str(error)]
    finally:
        file.close()
    return []


def _scrub_checked(disk: Disk, path: str, kind: str, version: int) -> list[str]:
    try:
        found = checked.read(disk, path, kind, version)
    except (checked.Damaged, FileNotFoundError) as error:
        return [str(error)]
    return [found.damage] if found.damage is not None else []
