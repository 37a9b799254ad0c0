"""Lookup of batches by timestamp, through segments, indexes and headers, in bounded steps.

A step decodes no records and reads at most HEADERS_AT_ONCE headers; then it returns the offset at which to continue,
and the log may have changed by then. Under `header` validation a client's header may declare a wrong highest timestamp;
then another batch is examined, or the result is only as accurate as the header.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from penstock.log.log import Log
from penstock.log.segment import Segment, scan_headers
from penstock.model.limits import DEFAULT_LIMITS
from penstock.model.ports import File
from penstock.records import stamps
from penstock.records.header import HEADER_BYTES, BatchView

HEADERS_AT_ONCE: Final = 200
LOOKED_AT_BYTES_MAX: Final = DEFAULT_LIMITS.batch_decompressed_bytes_max
"""Limit on the decompressed size of a batch that is decoded for a lookup by time."""


class TimedOffset(NamedTuple):
    """A record found by its timestamp."""

    timestamp_ms: int
    offset: int
    leader_epoch: int


class Newest(NamedTuple):
    """The first batch with the highest timestamp among those examined."""

    timestamp_ms: int
    base_offset: int


class Step(NamedTuple):
    """Progress of a search for the newest batch."""

    next_offset: int | None
    """Where to continue; None when everything was examined."""
    best: Newest | None


def batch_since(log: Log, timestamp_ms: int, offset: int, limit: int) -> BatchView | int | None:
    """Finds the first batch from `offset` on whose header declares a record with at least this timestamp.

    A number is the offset at which to continue; None means that there is none below `limit`.
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


def newest_batch(log: Log, offset: int, limit: int, best: Newest | None = None) -> Step:
    """Searches for the newest batch that begins at or after `offset` and ends before `limit`."""
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


def _newest_of_whole(log: Log, segment: Segment, limit: int) -> Newest | None:
    """The newest batch of a segment below `limit`: the index has the highest timestamp up to each entry."""
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


def newest_candidates(log: Log, best: Newest | None, limit: int) -> Iterator[BatchView]:
    """Yields batches to decode for the newest record, by offset: the newest one, and those only partly in range."""
    newest = [] if best is None else [(best.base_offset, True)]
    for offset, is_whole in ((log.start_offset, False), *newest, (limit, False)):
        found = batch_at(log, offset)
        if found is not None and (is_whole or found.base_offset < offset):
            yield found


def batch_at(log: Log, offset: int) -> BatchView | None:
    """Reads the batch that contains an offset, with its records."""
    for segment in log.segments_from(offset):
        start = log.index_of(segment).position_for_offset(max(0, offset - segment.base_offset))
        file = log.file_of(segment)
        for position, batch in scan_headers(file, start, segment.size_bytes, log.settings.index_interval_bytes):
            if batch.last_offset >= offset:
                return loaded(file, position, batch) if batch.base_offset <= offset else None
    return None


def loaded(file: File, position: int, batch: BatchView) -> BatchView:
    """Reads a batch with its records."""
    return BatchView(file.read(position, batch.size_bytes))


def offset_for_time(log: Log, timestamp_ms: int, *, limit: int) -> TimedOffset | None:
    """The first record below `limit` with at least this timestamp (R29: never one that is not stable yet)."""
    offset = log.start_offset
    while True:
        found = batch_since(log, timestamp_ms, offset, limit)
        if found is None:
            return None
        if isinstance(found, int):
            offset = found
            continue
        stamp = stamps.first_since(found, timestamp_ms, log.start_offset, limit, LOOKED_AT_BYTES_MAX)
        if stamp is not None:
            return TimedOffset(*stamp, found.leader_epoch)
        offset = found.last_offset + 1


def offset_of_max_timestamp(log: Log, *, limit: int) -> TimedOffset | None:
    """The first record below `limit` with the highest timestamp of all."""
    step = Step(log.start_offset, None)
    while step.next_offset is not None:
        step = newest_batch(log, step.next_offset, limit, step.best)
    best: TimedOffset | None = None
    for batch in newest_candidates(log, step.best, limit):
        stamp = stamps.latest(batch, log.start_offset, limit, LOOKED_AT_BYTES_MAX)
        if stamp is not None and (best is None or stamp.timestamp_ms > best.timestamp_ms):
            best = TimedOffset(*stamp, batch.leader_epoch)
    return best
