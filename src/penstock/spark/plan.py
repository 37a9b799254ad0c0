"""Divides the ranges of a batch into tasks. Pure: offsets and sizes in, splits out.

Every offset is in exactly one split. A Python task costs some 40 ms before it reads anything, so small partitions share
a task; a large partition is divided. Both are done by laying all ranges end to end and cutting where a task is full, or
slightly earlier or later if that keeps a range whole.
"""

import heapq
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from penstock.client.metadata import TopicPartition
from penstock.spark.offsets import Offsets

TASK_BYTES_MIN = 4 * 1024 * 1024
"""The least data that is worth a task, however many cores are idle."""
OFFSET_END = 2**63
SLACK_DIVISOR = 8
"""A task may be an eighth larger or smaller than the others so that a range stays whole."""


class Range(NamedTuple):
    """A range of offsets of a partition, and its estimated size."""

    partition: TopicPartition
    first: int
    end: int
    size_bytes: int
    is_from_start: bool = False
    """Whether `first` is the log start offset as of planning, which may rise before the task reads."""


class Piece(NamedTuple):
    """The part of a partition that one task reads."""

    partition: TopicPartition
    first: int
    end: int
    is_from_start: bool


Split = tuple[Piece, ...]


def task_count(size_bytes: int, *, cores: int, task_bytes: int, tasks_min: int | None = None) -> int:
    """The number of tasks for an amount of data. Above one per core, a multiple of the cores, so that none idles."""
    by_size = -(-size_bytes // task_bytes)
    if tasks_min is not None:
        return max(tasks_min, by_size)
    if by_size > cores:
        return -(-by_size // cores) * cores
    return max(1, min(cores, -(-size_bytes // TASK_BYTES_MIN)))


def plan(ranges: Iterable[Range], tasks: int, task_offsets_max: int | None = None) -> list[Split]:
    """About `tasks` splits of about the same size; more if `task_offsets_max` limits the offsets of a split."""
    wanted = [each for each in ranges if each.first < each.end]
    total_bytes = sum(max(1, each.size_bytes) for each in wanted)
    cutter = _Cutter(-(-total_bytes // tasks), task_offsets_max)
    for each in wanted:
        cutter.add(each)
    return cutter.done()


def plan_whole(ranges: Iterable[Range], tasks: int) -> list[Split]:
    """At most `tasks` splits of about the same size, in which every range stays whole."""
    splits: list[list[Piece]] = [[] for _ in range(tasks)]
    sizes = [(0, number) for number in range(tasks)]
    for each in sorted(ranges, key=lambda each: (-each.size_bytes, each.partition)):
        used_bytes, number = heapq.heappop(sizes)
        splits[number].append(Piece(each.partition, each.first, each.end, each.is_from_start))
        heapq.heappush(sizes, (used_bytes + max(1, each.size_bytes), number))
    return [tuple(each) for each in splits if each]


class _Cutter:
    """Fills one task after another."""

    def __init__(self, task_bytes: int, offsets_max: int | None) -> None:
        self._task_bytes = task_bytes
        self._slack_bytes = task_bytes // SLACK_DIVISOR
        self._offsets_max = offsets_max
        self._splits: list[Split] = []
        self._pieces: list[Piece] = []
        self._used_bytes = 0.0
        self._used_offsets = 0

    def add(self, found: Range) -> None:
        """Adds a range to the current task, and the part that does not fit to the next tasks."""
        partition, first, end, size_bytes, is_from_start = found
        mean_bytes = max(1, size_bytes) / (end - first)
        while first < end:
            taken = self._fitting(end - first, mean_bytes)
            if not taken:
                self._close()
                continue
            self._pieces.append(Piece(partition, first, first + taken, is_from_start))
            self._used_bytes += taken * mean_bytes
            self._used_offsets += taken
            first += taken
            is_from_start = False
            if first < end:
                self._close()
                first = self._add_many(partition, first, end, mean_bytes)

    def _add_many(self, partition: TopicPartition, first: int, end: int, mean_bytes: float) -> int:
        """Fills tasks of equal size while enough is left for two; returns the next offset."""
        taken = self._fitting(end - first, mean_bytes)
        stop = end - taken - int((self._task_bytes + self._slack_bytes) / mean_bytes)
        firsts = range(first, stop, taken)
        self._splits += [(Piece(partition, each, each + taken, False),) for each in firsts]
        return first + len(firsts) * taken

    def _fitting(self, count: int, mean_bytes: float) -> int:
        """How many of `count` offsets fit into the current task; at least one if it is empty."""
        room_bytes = self._task_bytes - self._used_bytes
        beyond_bytes = count * mean_bytes - room_bytes
        if beyond_bytes <= min(room_bytes, self._slack_bytes):
            taken = count
        elif self._pieces and room_bytes <= self._slack_bytes:
            return 0
        else:
            taken = min(count, int(room_bytes / mean_bytes))
        if self._offsets_max is not None:
            taken = min(taken, self._offsets_max - self._used_offsets)
        return taken if self._pieces else max(1, taken)

    def _close(self) -> None:
        if self._pieces:
            self._splits.append(tuple(self._pieces))
            self._pieces = []
            self._used_bytes = 0.0
            self._used_offsets = 0

    def done(self) -> list[Split]:
        """Closes the last split and returns all of them."""
        self._close()
        return self._splits


# --- filters


@dataclass(slots=True)
class Cuts:
    """The part of the logs that can match the filters."""

    topics: Collection[str] | None = None
    numbers: Collection[int] | None = None
    """Partition numbers."""
    first: int = 0
    end: int = OFFSET_END
    since_ms: int | None = None

    def keeps(self, partition: TopicPartition) -> bool:
        """Whether a partition can hold matching records."""
        is_topic = self.topics is None or partition.topic in self.topics
        return is_topic and (self.numbers is None or partition.partition in self.numbers)


# --- limits of a micro-batch


def limited(limit: int, start: Offsets, end: Offsets) -> dict[TopicPartition, int]:
    """End offsets for about `limit` offsets in total, each partition in proportion to its backlog.

    As in the connector, a share below one offset counts as one, so that no partition starves; the total may then
    slightly exceed the limit.
    """
    sizes = {each: end[each] - start[each] for each in end if each in start and end[each] > start[each]}
    total = sum(sizes.values())
    if not total:
        return dict(end)
    result = dict(end)
    for each, size in sizes.items():
        share = limit * size // total
        result[each] = min(end[each], start[each] + max(1, share))
    return result


def count_between(start: Offsets, end: Offsets) -> int:
    """How many offsets lie between `start` and `end`."""
    return sum(max(0, offset - start.get(each, 0)) for each, offset in end.items())


class Patience:
    """Delays a micro-batch until there are enough new records or enough time has passed."""

    def __init__(self, offsets_min: int, delay_ms_max: int) -> None:
        self._offsets_min = offsets_min
        self._delay_ms_max = delay_ms_max
        self._last_ms: int | None = None

    def is_over(self, count: int, now_ms: int) -> bool:
        """Whether to start a micro-batch now. True on the first call."""
        is_long_ago = self._last_ms is None or now_ms - self._last_ms >= self._delay_ms_max
        if not is_long_ago and count < self._offsets_min:
            return False
        self._last_ms = now_ms
        return True


# --- tasks as sent to executors


class Task(NamedTuple):
    """A split as sent to executors: each topic once, with its id, and the rest as plain numbers."""

    topics: tuple[tuple[str, bytes], ...]
    pieces: tuple[tuple[int, int, int, int, bool], ...]
    """Index of the topic, partition, first offset, end offset, and `is_from_start`."""


def packed(split: Split, topic_ids: Mapping[str, bytes]) -> Task:
    """Packs a split; small, because a plan may have very many tasks."""
    if len(split) == 1:
        (((topic, partition), first, end, is_from_start),) = split
        return Task(((topic, topic_ids[topic]),), ((0, partition, first, end, is_from_start),))
    numbers: dict[str, int] = {}
    pieces = tuple(
        (numbers.setdefault(topic, len(numbers)), partition, first, end, is_from_start)
        for (topic, partition), first, end, is_from_start in split
    )
    return Task(tuple((name, topic_ids[name]) for name in numbers), pieces)


def unpacked(task: Task) -> Iterator[Piece]:
    """The pieces of a task."""
    names = [name for name, _ in task.topics]
    for number, partition, first, end, is_from_start in task.pieces:
        yield Piece(TopicPartition(names[number], partition), first, end, is_from_start)
