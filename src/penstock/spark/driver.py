"""Plans reads on the driver: the offsets of a batch, the end of a micro-batch, and the tasks that read them.

Independent of Spark. A micro-batch is planned from its start and end offsets alone, so the same offsets give the same
records, whenever and however often it is planned.
"""

import os
import time
from collections.abc import Collection, Mapping

from penstock.client.metadata import TopicPartition
from penstock.spark.gaps import Gap, meet
from penstock.spark.offsets import EARLIEST, Offsets
from penstock.spark.options import AtOffsets, OptionError, SourceOptions
from penstock.spark.plan import (
    Cuts,
    Patience,
    Range,
    Task,
    count_between,
    limited,
    packed,
    plan,
    plan_whole,
    task_count,
)
from penstock.spark.progress import COMMIT_TIMEOUT_MS, Progress
from penstock.spark.survey import Survey

Spans = dict[TopicPartition, tuple[int, int]]


def batch_tasks(options: SourceOptions, cuts: Cuts | None = None) -> list[Task]:
    """The tasks of a batch."""
    with Survey(options) as survey:
        start = survey.resolved(options.start, is_start=True)
        end = survey.resolved(options.end, is_start=False)
        spans = {each: (first, end[each]) for each, first in start.items() if each in end}
        for each, (first, last) in spans.items():
            if first > last:
                raise OptionError(
                    f"{each} is to be read from offset {first} to {last}, which lies before it: correct "
                    "startingOffsets or endingOffsets."
                )
        if cuts is not None:
            spans = _cut(spans, cuts, survey)
        from_start = {each for each in spans if _is_earliest(options, each) and spans[each][0] == start[each]}
        return _tasks(spans, survey, options, from_start)


def _is_earliest(options: SourceOptions, partition: TopicPartition) -> bool:
    match options.start:
        case AtOffsets(offsets):
            return offsets[partition] == EARLIEST
        case bound:
            return bound == "earliest"


def _cut(spans: Spans, cuts: Cuts, survey: Survey) -> Spans:
    """The spans that remain after the filters."""
    kept = {
        each: (max(first, cuts.first), min(end, cuts.end)) for each, (first, end) in spans.items() if cuts.keeps(each)
    }
    if cuts.since_ms is not None:
        since = survey.since(dict.fromkeys(kept, cuts.since_ms))
        kept = {
            each: (max(first, behind), end)
            for each, (first, end) in kept.items()
            if (behind := since[each]) is not None
        }
    return kept


def _tasks(
    spans: Mapping[TopicPartition, tuple[int, int]],
    survey: Survey,
    options: SourceOptions,
    from_start: Collection[TopicPartition] = (),
) -> list[Task]:
    full = {each: spans[each] for each in sorted(spans) if spans[each][0] < spans[each][1]}
    if not full:
        return []
    sizes = survey.sizes(full)
    ranges = [Range(each, *span, sizes[each], each in from_start) for each, span in full.items()]
    tasks = task_count(sum(sizes.values()), cores=_cores(), task_bytes=options.task_bytes, tasks_min=options.tasks_min)
    splits = plan_whole(ranges, tasks) if options.is_latest else plan(ranges, tasks, options.task_offsets_max)
    return [packed(split, survey.topic_ids) for split in splits]


def _cores() -> int:
    """The driver's cores: a Python data source cannot query those of executors. minPartitions overrides this."""
    return len(os.sched_getaffinity(0))


class Stream:
    """A stream's offsets and tasks, from one micro-batch to the next."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._survey = Survey(options)
        self._patience = None
        if options.offsets_min is not None:
            self._patience = Patience(options.offsets_min, options.delay_ms_max)
        self._progress = None if options.commit_group is None else Progress(options.commit_group)
        self._target: dict[TopicPartition, int] | None = None
        self._planned: tuple[Offsets, Offsets, list[Task]] | None = None
        self.latest: dict[TopicPartition, int] | None = None
        """End offsets of the logs as of the last request, or the run's target if it has one."""

    def close(self) -> None:
        """Closes the connection."""
        if self._progress is not None:
            self._progress.close()
        self._survey.close()

    def reached(self, offsets: Offsets) -> None:
        """Commits offsets to the group, if any: all records before them are processed."""
        if self._progress is not None:
            self._progress.reached(self._survey.client, offsets)

    def initial(self) -> dict[TopicPartition, int]:
        """The start offsets of a stream without a checkpoint."""
        return self._survey.resolved(self._options.start, is_start=True)

    def stop_at_present(self) -> None:
        """Makes the current end offsets the target of this run."""
        self._target = self._survey.latest(self._survey.partitions())

    def end(self, start: Offsets, *, has_limits: bool) -> dict[TopicPartition, int]:
        """The end of the next micro-batch; `start` if there should be none. Records before `start` are processed."""
        self.reached(start)
        found = self._end(start, has_limits=has_limits)
        if self._progress is not None and self._target is not None and found == start:
            self._progress.wait(COMMIT_TIMEOUT_MS / 1000)  # the run is over: Spark makes no further call
        return found

    def _end(self, start: Offsets, *, has_limits: bool) -> dict[TopicPartition, int]:
        if self._target is None:
            self.latest = self._survey.latest_behind(start)
        else:
            self._raise_target(start)
            self.latest = dict(self._target)
        if not has_limits:
            return self.latest
        if self._is_too_soon(start, self.latest):
            return dict(start)
        limit = self._limit(start, self.latest)
        if limit is None:
            return self.latest
        known = {**self._survey.earliest(self.latest.keys() - start.keys()), **start}
        return limited(limit, known, self.latest)

    def _raise_target(self, start: Offsets) -> None:
        """Raises the target of a partition to a `start` beyond it, but not above the end of the log."""
        assert self._target is not None
        beyond = {each: start[each] for each, offset in self._target.items() if start.get(each, 0) > offset}
        if beyond:
            found = self._survey.latest_behind(beyond)
            self._target |= {each: min(first, found.get(each, first)) for each, first in beyond.items()}

    def _is_too_soon(self, start: Offsets, latest: Offsets) -> bool:
        if self._patience is None or self._target is not None:
            return False
        return not self._patience.is_over(count_between(start, latest), time.monotonic_ns() // 1_000_000)

    def _limit(self, start: Offsets, latest: Offsets) -> int | None:
        """The limit of a micro-batch in offsets."""
        options = self._options
        if options.bytes_max is None:
            return options.offsets_max
        spans = {each: (start.get(each, 0), offset) for each, offset in latest.items()}
        size_bytes = sum(self._survey.sizes(spans).values())
        if size_bytes <= options.bytes_max:
            return options.offsets_max
        by_bytes = max(1, count_between(start, latest) * options.bytes_max // size_bytes)
        return by_bytes if options.offsets_max is None else min(by_bytes, options.offsets_max)

    def tasks(self, start: Offsets, end: Offsets) -> list[Task]:
        """The tasks of a micro-batch. The last plan is kept, because Spark may call this twice."""
        if self._planned is None or self._planned[:2] != (start, end):
            self._planned = (start, end, _tasks(self._spans(start, end), self._survey, self._options))
        return self._planned[2]

    def _spans(self, start: Offsets, end: Offsets) -> Spans:
        survey = self._survey
        present = set(survey.partitions())
        added = survey.earliest(sorted((end.keys() - start.keys()) & present))
        spans: Spans = {}
        for each in sorted(start.keys() | end.keys()):
            first = start.get(each, added.get(each, 0))
            if each not in end or each not in present:
                self._miss(Gap(each, first, end.get(each), "the partition is gone"))
            elif each in added and first:
                self._miss(Gap(each, 0, first, "it is a new partition, and its first records are gone already"))
                spans[each] = (first, end[each])
            elif end[each] < first:
                self._miss(
                    Gap(
                        each,
                        end[each],
                        first,
                        "the log ends earlier than it did: it was cut back, or the offsets "
                        "where the query started lie beyond its end",
                    )
                )
            else:
                spans[each] = (first, end[each])
        return spans

    def _miss(self, gap: Gap) -> None:
        meet(gap, self._options, self._survey.client)
