"""Lag of groups, in records and in seconds.

Lag in seconds is the age of the first unconsumed record. That record is read from the log, so the value is as exact as
the clocks of its producer and of this client; if compaction has removed it, the next remaining record counts. The lag
is 0 if the partition is read to its end, or if only transaction markers are left.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from penstock.client.cluster import Cluster
from penstock.client.consumer.consumer import Consumer
from penstock.client.consumer.fetcher import FetchSettings
from penstock.client.errors import ClientError, Refused, advice
from penstock.client.metadata import TopicPartition
from penstock.client.offsets import Moment, list_offsets
from penstock.model.errors import ErrorCode

NO_LEADER: Final = "no leader"
NO_TOPIC: Final = "no such topic"
NO_PARTITION: Final = "no such partition"
PATIENCE_MS: Final = 1_000
"""How long `bounds_now` retries a leader that has just moved or does not answer."""
_ONCE_MS: Final = 1
_NO_TIMESTAMP: Final = -1
_FETCHING: Final = FetchSettings(wait_ms_max=100, bytes_max=8 * 1024 * 1024, ahead_bytes_max=1)


Timestamps = dict[tuple[TopicPartition, int], int]
"""Timestamps of the first record at or after an offset of a partition."""


class Bounds(NamedTuple):
    """Log start offset and log end of a partition."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """Lag of a group in one partition."""

    partition: TopicPartition
    committed: int
    """The committed offset."""
    log_start: int
    log_end: int
    oldest_ms: int | None
    """The timestamp of the first unconsumed record, -1 if it has none; None if there is no such record."""
    now_ms: int
    """When the lag was measured."""

    @property
    def records(self) -> int:
        """Number of unread offsets: equals the records, except for compacted ones and transaction markers."""
        return max(0, self.log_end - max(self.committed, self.log_start))

    @property
    def seconds(self) -> float | None:
        """The age of the first unconsumed record, 0 if there is none; None if it has no timestamp."""
        return self.seconds_at(self.now_ms)

    def seconds_at(self, now_ms: int) -> float | None:
        """The same at another time, if nothing was consumed since."""
        if self.oldest_ms is None:
            return 0.0
        return None if self.oldest_ms == _NO_TIMESTAMP else max(0, now_ms - self.oldest_ms) / 1000

    @property
    def expired(self) -> int:
        """Records that were deleted before the group read them."""
        return max(0, self.log_start - self.committed)

    @property
    def is_beyond(self) -> bool:
        """Whether the committed offset is past the log end: the log was truncated, or the topic recreated."""
        return self.committed > self.log_end

    @property
    def note(self) -> str | None:
        """An explanation of unusual numbers."""
        if self.expired:
            return f"{self.expired} deleted before they were read"
        if self.is_beyond:
            return "committed beyond the end: the topic was made anew, or its log was cut"
        if self.records and self.oldest_ms is None:
            return "nothing but transaction markers is left"
        return "the records carry no time" if self.oldest_ms == _NO_TIMESTAMP else None


async def lag(
    cluster: Cluster,
    committed: Mapping[TopicPartition, int],
    *,
    known: Timestamps | None = None,
    noted: Timestamps | None = None,
    timeout_ms: int | None = None,
) -> list[PartitionLag]:
    """Lag of each partition with a committed offset, sorted.

    Timestamps in `known` are not read again; the timestamps used are added to `noted`, for the next call.
    """
    if not committed:
        return []
    starts = await list_offsets(cluster, dict.fromkeys(committed, Moment.EARLIEST), timeout_ms=timeout_ms)
    ends = await list_offsets(cluster, dict.fromkeys(committed, Moment.LATEST), timeout_ms=timeout_ms)
    bounds = {each: Bounds(starts[each].offset, ends[each].offset) for each in committed}
    return await lag_between(cluster, committed, bounds, known=known, noted=noted, timeout_ms=timeout_ms)


async def lag_between(
    cluster: Cluster,
    committed: Mapping[TopicPartition, int],
    bounds: Mapping[TopicPartition, Bounds],
    *,
    known: Timestamps | None = None,
    noted: Timestamps | None = None,
    timeout_ms: int | None = None,
) -> list[PartitionLag]:
    """Like `lag`, with the log bounds given."""
    ranges = {
        each: (begin, bounds[each].end)
        for each, offset in committed.items()
        if (begin := max(offset, bounds[each].start)) < bounds[each].end
    }
    oldest = {each: at for each, (begin, _) in ranges.items() if (at := (known or {}).get((each, begin))) is not None}
    unknown = {each: found for each, found in ranges.items() if each not in oldest}
    oldest |= await first_timestamps(cluster, unknown, timeout_ms=timeout_ms)
    if noted is not None:
        noted.update({(each, ranges[each][0]): at for each, at in oldest.items()})
    now_ms = cluster.ports.clock.wall_ms()
    return [PartitionLag(each, committed[each], *bounds[each], oldest.get(each), now_ms) for each in sorted(committed)]


async def bounds_now(cluster: Cluster, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Bounds | str]:
    """Log bounds that can be determined at once; otherwise the reason as a string.

    It does not wait for leader elections: if fresh metadata has no leader, there is none.
    """
    found: dict[TopicPartition, Bounds | str] = {}
    wanted = sorted(set(partitions))
    retry = cluster.retry(PATIENCE_MS)
    while missing := [each for each in wanted if each not in found]:
        leaders: dict[int, list[TopicPartition]] = {}
        for each, leader in (await _leaders(cluster, missing)).items():
            if isinstance(leader, str):
                found[each] = leader
            else:
                leaders.setdefault(leader, []).append(each)
        failed: dict[TopicPartition, str] = {}
        trouble: ClientError | None = None
        answers = await asyncio.gather(*(_ask_for_bounds(cluster, asked) for asked in leaders.values()))
        for leader, answer in zip(leaders, answers, strict=True):
            for each, value in answer.items():
                if not isinstance(value, ClientError):
                    found[each] = value
                elif value.is_retriable:
                    failed[each], trouble = _reason(value, leader), value
                else:
                    found[each] = _reason(value, leader)
        if trouble is not None:
            try:
                await retry.after(trouble)
            except ClientError:
                found |= failed
    return found


async def _leaders(cluster: Cluster, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int | str]:
    """The leader of each partition, or the reason why it is unknown; requests metadata once if one is missing."""
    doubtful = sorted({each.topic for each in partitions if cluster.leader(each) is None})
    refused = await cluster.refresh(doubtful) if doubtful else {}
    found: dict[TopicPartition, int | str] = {}
    for each in partitions:
        leader = cluster.leader(each)
        if each.topic in refused:
            found[each] = _told(refused[each.topic])
        elif leader is not None:
            found[each] = leader
        else:
            found[each] = NO_PARTITION if cluster.view.partition(*each) is None else NO_LEADER
    return found


async def _ask_for_bounds(
    cluster: Cluster, asked: Sequence[TopicPartition]
) -> dict[TopicPartition, Bounds | ClientError]:
    """Queries a leader once; an error for one partition does not affect the others."""
    try:
        starts = await list_offsets(cluster, dict.fromkeys(asked, Moment.EARLIEST), timeout_ms=_ONCE_MS)
        ends = await list_offsets(cluster, dict.fromkeys(asked, Moment.LATEST), timeout_ms=_ONCE_MS)
    except Refused as refused:
        if len(asked) == 1:
            return {asked[0]: refused}
        one_by_one = await asyncio.gather(*(_ask_for_bounds(cluster, [each]) for each in asked))
        return {each: value for answer in one_by_one for each, value in answer.items()}
    except ClientError as error:
        return dict.fromkeys(asked, error)
    return {each: Bounds(starts[each].offset, ends[each].offset) for each in asked}


def _reason(error: ClientError, leader: int) -> str:
    return _told(error.code) if isinstance(error, Refused) else f"broker {leader}, its leader, does not answer"


def _told(code: ErrorCode) -> str:
    match code:
        case ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return NO_TOPIC
        case ErrorCode.LEADER_NOT_AVAILABLE:
            return NO_LEADER
    return advice(code) or code.name


async def first_timestamps(
    cluster: Cluster, ranges: Mapping[TopicPartition, tuple[int, int]], *, timeout_ms: int | None = None
) -> dict[TopicPartition, int]:
    """Timestamps of the first record in each offset range; a partition without such a record is left out."""
    found: dict[TopicPartition, int] = {}
    if not ranges:
        return found
    consumer = Consumer(cluster, _FETCHING, out_of_range="earliest")
    try:
        consumer.assign_ranges(ranges)
        limit_ms = cluster.timeout_ms if timeout_ms is None else timeout_ms
        while consumer.assignment and (piece := await consumer.fetch_records(1, limit_ms)) is not None:
            found[piece.partition] = piece.records[0].timestamp_ms
            consumer.drop([piece.partition])
    finally:
        await consumer.close()
    return found


def total(lags: Sequence[PartitionLag]) -> tuple[int | None, float | None]:
    """Sum of records and maximum of seconds, without partitions that are `is_beyond`; None if no value is left."""
    telling = [each for each in lags if not each.is_beyond]
    if not telling:
        return None, None
    return sum(each.records for each in telling), max(
        (each.seconds for each in telling if each.seconds is not None), default=None
    )
