"""Finding the batch that answers a question about time, by segments, indexes and headers, in bounded steps.

Records are not opened here, and a step reads at most HEADERS_AT_ONCE headers: then it tells at which offset to go on,
and the log may have changed by then. Headers of clients may lie about their highest timestamp under `header`
validation; then another batch is looked at, or the answer is only as good as the header.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.log.segment import Segment, scan_headers
from penstock.model.ports import File
from penstock.records.header import HEADER_BYTES, BatchView

if TYPE_CHECKING:
    from penstock.log.log import Log

HEADERS_AT_ONCE: Final = 200


class Newest(NamedTuple):
    """The first batch with the highest timestamp of those that were looked at."""

    timestamp_ms: int
    base_offset: int


class Step(NamedTuple):
    """How far a search for the newest batch has come."""

    next_offset: int | None
    """Where to go on; None when everything was looked at."""
    best: Newest | None


def batch_since(log: "Log", timestamp_ms: int, offset: int, limit: int) -> BatchView | int | None:
    """The first batch from `offset` on whose header promises a record with at least this timestamp.

    A number is the offset at which to go on; None says that there is none below `limit`.
    """
    left = HEADERS_AT_ONCE
    for segment in log.segments_from(offset):
        if segment.base_offset >= limit:
            return None
        if segment.max_timestamp_ms < timestamp_ms:
            continue
        index = log.index_of(segment)
        start = max(
            index.position_for_time(timestamp_ms), index.position_for_offset(max(0, offset - segment.base_offset))
        )
        file = log.file_of(segment)
        for position, batch in scan_headers(file, start, segment.size_bytes, log.settings.index_interval_bytes):
            if batch.base_offset >= limit:
                return None
            if batch.max_timestamp_ms >= timestamp_ms and batch.last_offset >= offset:
                return loaded(file, position, batch)
            left -= 1
            if left <= 0:
                return max(offset, batch.last_offset + 1)
    return None


def newest_batch(log: "Log", offset: int, limit: int, best: Newest | None = None) -> Step:
    """Looks for the newest batch that begins at `offset` or behind it, and ends before `limit`."""
    left = HEADERS_AT_ONCE
    for segment in log.segments_from(offset):
        if segment.base_offset >= limit:
            break
        if best is not None and segment.max_timestamp_ms <= best.timestamp_ms:
            continue
        if offset <= segment.base_offset:
            found = _newest_of_whole(log, segment, limit)
            if found is not None and (best is None or found.timestamp_ms > best.timestamp_ms):
                best = found
            left -= 1
            if left <= 0:
                return Step(segment.end_offset, best)
            continue
        start = log.index_of(segment).position_for_offset(offset - segment.base_offset)
        interval = log.settings.index_interval_bytes
        for _, batch in scan_headers(log.file_of(segment), start, segment.size_bytes, interval):
            if batch.last_offset >= limit:
                break
            if batch.base_offset >= offset and (best is None or batch.max_timestamp_ms > best.timestamp_ms):
                best = Newest(batch.max_timestamp_ms, batch.base_offset)
            left -= 1
            if left <= 0 and batch.base_offset >= offset:
                return Step(batch.last_offset + 1, best)
    return Step(None, best)


def _newest_of_whole(log: "Log", segment: Segment, limit: int) -> Newest | None:
    """The newest batch of a segment below `limit`: the index knows the highest timestamp up to each entry."""
    index, file, interval = log.index_of(segment), log.file_of(segment), log.settings.index_interval_bytes
    highest, tail_best = segment.max_timestamp_ms, None
    if segment.end_offset > limit:
        entry = index.entry_before(limit - segment.base_offset)
        if entry is not None and _last_offset_at(file, entry.position, segment) >= limit:
            entry = index.entry_before(entry.offset_delta)
        highest = -1 if entry is None else entry.max_timestamp_ms
        for _, batch in scan_headers(file, 0 if entry is None else entry.position, segment.size_bytes, interval):
            if batch.last_offset >= limit:
                break
            if tail_best is None or batch.max_timestamp_ms > tail_best.timestamp_ms:
                tail_best = Newest(batch.max_timestamp_ms, batch.base_offset)
        if entry is None or (tail_best is not None and tail_best.timestamp_ms > highest):
            return tail_best
    for _, batch in scan_headers(file, index.position_for_time(highest), segment.size_bytes, interval):
        if batch.max_timestamp_ms >= highest:
            return Newest(batch.max_timestamp_ms, batch.base_offset)
    return tail_best


def _last_offset_at(file: File, position: int, segment: Segment) -> int:
    _, batch = next(scan_headers(file, position, segment.size_bytes, HEADER_BYTES))
    return batch.last_offset


def newest_candidates(log: "Log", best: Newest | None, limit: int) -> Iterator[BatchView]:
    """Batches to open for the newest record, by offset: the newest one, and those that are only partly in range."""
    newest = [] if best is None else [(best.base_offset, True)]
    for offset, is_whole in ((log.start_offset, False), *newest, (limit, False)):
        found = batch_at(log, offset)
        if found is not None and (is_whole or found.base_offset < offset):
            yield found


def batch_at(log: "Log", offset: int) -> BatchView | None:
    """The batch that holds an offset, with its records."""
    for segment in log.segments_from(offset):
        start = log.index_of(segment).position_for_offset(max(0, offset - segment.base_offset))
        file = log.file_of(segment)
        for position, batch in scan_headers(file, start, segment.size_bytes, log.settings.index_interval_bytes):
            if batch.last_offset >= offset:
                return loaded(file, position, batch) if batch.base_offset <= offset else None
    return None


def loaded(file: File, position: int, batch: BatchView) -> BatchView:
    """A batch with its records."""
    return BatchView(file.read(position, batch.size_bytes))
