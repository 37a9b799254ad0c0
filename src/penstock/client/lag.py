"""How far groups are behind, in records and in seconds.

In seconds means: the age of the first record that was not consumed yet. That record is read from the log, so the number
is as exact as the clocks of whoever wrote it and of whoever asks; where compaction has taken it, the next one that is
left counts. A partition that is read to its end, or that holds nothing but transaction markers behind it, is 0 behind.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.client.cluster import Cluster
from penstock.client.consumer import Consumer
from penstock.client.fetcher import FetchSettings
from penstock.client.metadata import TopicPartition
from penstock.client.offsets import Moment, list_offsets

_NO_TIMESTAMP: Final = -1
_FETCHING: Final = FetchSettings(wait_ms_max=100, bytes_max=8 * 1024 * 1024, ahead_bytes_max=1)


Timestamps = dict[tuple[TopicPartition, int], int]
"""Of the first record at an offset of a partition, or behind it."""


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """How far a group is behind in one partition."""

    partition: TopicPartition
    committed: int
    """Where the group goes on."""
    log_start: int
    log_end: int
    oldest_ms: int | None
    """The timestamp of the first record that was not consumed; None if there is none, or if it has none."""
    now_ms: int
    """When that was looked at."""

    @property
    def records(self) -> int:
        """Offsets that are still to be read: as many records, unless compaction or transactions took some."""
        return max(0, self.log_end - max(self.committed, self.log_start))

    @property
    def seconds(self) -> float | None:
        """The age of the first record that was not consumed; None if its writer gave it no time."""
        return self.seconds_at(self.now_ms)

    def seconds_at(self, now_ms: int) -> float | None:
        """The same at another moment, if nothing was consumed since."""
        if self.oldest_ms is None:
            return 0.0
        return None if self.oldest_ms == _NO_TIMESTAMP else max(0, now_ms - self.oldest_ms) / 1000

    @property
    def expired(self) -> int:
        """Records that were deleted before the group read them."""
        return max(0, self.log_start - self.committed)

    @property
    def is_beyond(self) -> bool:
        """Whether the group is behind the end of the log, which was cut or made anew."""
        return self.committed > self.log_end

    @property
    def note(self) -> str | None:
        """What the numbers alone do not tell."""
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
    """For each partition with a committed offset, in order.

    Timestamps that are `known` are not read again; those that counted are `noted`, for the next time.
    """
    if not committed:
        return []
    wanted = sorted(committed)
    starts = await list_offsets(cluster, dict.fromkeys(wanted, Moment.EARLIEST), timeout_ms=timeout_ms)
    ends = await list_offsets(cluster, dict.fromkeys(wanted, Moment.LATEST), timeout_ms=timeout_ms)
    ranges = {
        each: (max(committed[each], starts[each].offset), ends[each].offset)
        for each in wanted
        if max(committed[each], starts[each].offset) < ends[each].offset
    }
    oldest = {each: at for each, (begin, _) in ranges.items() if (at := (known or {}).get((each, begin))) is not None}
    unknown = {each: found for each, found in ranges.items() if each not in oldest}
    oldest |= await first_timestamps(cluster, unknown, timeout_ms=timeout_ms)
    if noted is not None:
        noted.update({(each, ranges[each][0]): at for each, at in oldest.items()})
    now_ms = cluster.ports.clock.wall_ms()
    return [
        PartitionLag(each, committed[each], starts[each].offset, ends[each].offset, oldest.get(each), now_ms)
        for each in wanted
    ]


async def first_timestamps(
    cluster: Cluster, ranges: Mapping[TopicPartition, tuple[int, int]], *, timeout_ms: int | None = None
) -> dict[TopicPartition, int]:
    """The timestamps of the first records at or after offsets, and before ends; nothing where there is no record."""
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


def total(lags: Sequence[PartitionLag]) -> tuple[int, float | None]:
    """Of all partitions: the sum of records, and the most seconds."""
    seconds = [each.seconds for each in lags if each.seconds is not None]
    return sum(each.records for each in lags), max(seconds, default=None if lags else 0.0)
