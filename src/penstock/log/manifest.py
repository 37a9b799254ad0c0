"""The manifest: the list of a log's segments. Replacing it is the one atomic step that adds and removes segments.

Files that the manifest does not name, and that do not follow its active segment, are leftovers and are removed by
recovery. Segments after the active one are found by their names: a roll does not wait for a new manifest.
"""

from typing import Any, NamedTuple

from penstock.log import checked
from penstock.log.epochs import EpochHistory
from penstock.log.log import MANIFEST_VERSION, Log
from penstock.log.segment import NO_TIMESTAMP
from penstock.log.space import Reserve
from penstock.model.ports import Disk

KIND = "manifest"


def path_of(log_path: str) -> str:
    """The path of a log's manifest."""
    return f"{log_path}/manifest"


class Front(NamedTuple):
    """A new log start, and the number of segments removed before it."""

    start_offset: int
    segments_gone: int


def describe(log: Log, settled_segments: int, *, is_clean: bool, front: Front | None = None) -> dict[str, Any]:
    """Builds the manifest's value. `is_clean` adds the active segment's state, so that no scan is needed."""
    active = log.segments[settled_segments]
    start_offset, segments_gone = front or (log.start_offset, 0)
    assert 0 <= segments_gone <= settled_segments, f"{log}: {segments_gone} of {settled_segments} sealed segments go"
    untimed = [
        [segment.base_offset, segment.written_ms]
        for segment in log.segments[segments_gone : settled_segments + is_clean]
        if segment.size_bytes and segment.max_timestamp_ms == NO_TIMESTAMP
    ]
    epochs = EpochHistory(list(log.epochs))
    if front is not None:
        epochs.cut_start(start_offset)
    return {
        "number": log.identity.number,
        "topic": log.identity.topic,
        "topic_id": log.identity.topic_id,
        "partition": log.identity.partition,
        "start": start_offset,
        "sealed": [segment.to_list() for segment in log.segments[segments_gone:settled_segments]],
        "active": active.to_list() if is_clean else active.start_again().to_list(),
        "epochs": epochs.to_list(),
        "snapshots": [list(kept) for kept in log.snapshots],
        "high_watermark": log.high_watermark,
        "clean": is_clean,
        "untimed": untimed,
    }


async def write(
    log: Log, disk: Disk, settled_segments: int, reserve: Reserve | None = None, front: Front | None = None
) -> None:
    """Replaces the manifest durably. Calls for one log must not overlap."""
    value = describe(log, settled_segments, is_clean=False, front=front)
    await checked.replace(disk, path_of(log.path), KIND, MANIFEST_VERSION, value, reserve)
    log.settled_segments = settled_segments
