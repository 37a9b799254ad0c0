"""What a batch reads and how it is cut into tasks. Pure: offsets and sizes in, splits out.

Every offset is in exactly one split. A Python task costs some 40 ms before it reads anything, so small partitions share
one; a large partition is divided. Both happen by laying all ranges end to end and cutting where a task is full, a
little earlier or later if that spares a cut.
"""

import heapq
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from penstock.client.metadata import TopicPartition
from penstock.spark.offsets import Offsets

TASK_BYTES_MIN = 4 * 1024 * 1024
"""Less than this is not worth a task, however many cores are idle."""
OFFSET_END = 2**63
SLACK_DIVISOR = 8
"""A task may be an eighth larger or smaller than the others so that a range stays whole."""


class Range(NamedTuple):
    """Offsets of a partition, and how many bytes they may take up."""

    partition: TopicPartition
    first: int
    end: int
    size_bytes: int
    is_from_start: bool = False
    """Whether `first` is only where the log began when it was asked for."""


class Piece(NamedTuple):
    """What one task reads of one partition."""

    partition: TopicPartition
    first: int
    end: int
    is_from_start: bool


Split = tuple[Piece, ...]


def task_count(size_bytes: int, *, cores: int, task_bytes: int, tasks_min: int | None = None) -> int:
    """How many tasks so much is worth. More than one for each core come in whole rounds, so that none is left over."""
    by_size = -(-size_bytes // task_bytes)
    if tasks_min is not None:
        return max(tasks_min, by_size)
    if by_size > cores:
        return -(-by_size // cores) * cores
    return max(1, min(cores, -(-size_bytes // TASK_BYTES_MIN)))


def plan(ranges: Iterable[Range], tasks: int, task_offsets_max: int | None = None) -> list[Split]:
    """About so many splits of about the same size; more if one may not hold more than so many offsets."""
    wanted = [each for each in ranges if each.first < each.end]
    total_bytes = sum(max(1, each.size_bytes) for each in wanted)
    cutter = _Cutter(-(-total_bytes // tasks), task_offsets_max)
    for each in wanted:
        cutter.add(each)
    return cutter.done()


def plan_whole(ranges: Iterable[Range], tasks: int) -> list[Split]:
    """At most so many splits of about the same size, in which every range stays whole."""
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
        """Puts a range into this task and, as far as it does not fit, into the next ones."""
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
        """Fills one empty task after another, all alike, as long as there is enough for two; where it stopped."""
        taken = self._fitting(end - first, mean_bytes)
        stop = end - taken - int((self._task_bytes + self._slack_bytes) / mean_bytes)
        firsts = range(first, stop, taken)
        self._splits += [(Piece(partition, each, each + taken, False),) for each in firsts]
        return first + len(firsts) * taken

    def _fitting(self, count: int, mean_bytes: float) -> int:
        """How many of so many offsets go into this task; at least one if it is empty."""
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
        """All tasks."""
        self._close()
        return self._splits


# --- what filters leave


@dataclass(slots=True)
class Cuts:
    """What may be of interest of a log."""

    topics: Collection[str] | None = None
    numbers: Collection[int] | None = None
    """Of partitions."""
    first: int = 0
    end: int = OFFSET_END
    since_ms: int | None = None

    def keeps(self, partition: TopicPartition) -> bool:
        """Whether anything of a partition is of interest."""
        is_topic = self.topics is None or partition.topic in self.topics
        return is_topic and (self.numbers is None or partition.partition in self.numbers)


# --- how far a micro-batch goes


def limited(limit: int, start: Offsets, end: Offsets) -> dict[TopicPartition, int]:
    """Ends that are about so many offsets away in all, each partition in proportion to what it has.

    As the connector does it: a fraction of an offset counts as one, so that no partition starves; then a few more
    than the limit may come.
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
    """How many offsets lie between them."""
    return sum(max(0, offset - start.get(each, 0)) for each, offset in end.items())


class Patience:
    """Whether few new records are worth a micro-batch: not before there are enough, or it has been long enough."""

    def __init__(self, offsets_min: int, delay_ms_max: int) -> None:
        self._offsets_min = offsets_min
        self._delay_ms_max = delay_ms_max
        self._last_ms: int | None = None

    def is_over(self, count: int, now_ms: int) -> bool:
        """Whether to go on now. The first time, yes."""
        is_long_ago = self._last_ms is None or now_ms - self._last_ms >= self._delay_ms_max
        if not is_long_ago and count < self._offsets_min:
            return False
        self._last_ms = now_ms
        return True


# --- between the planner and its tasks


class Task(NamedTuple):
    """A split as it travels: topics once, with their ids, and the rest as plain numbers."""

    topics: tuple[tuple[str, bytes], ...]
    pieces: tuple[tuple[int, int, int, int, bool], ...]
    """Number of the topic, partition, first offset, end, and whether it began where the log did."""


def packed(split: Split, topic_ids: Mapping[str, bytes]) -> Task:
    """As small as a planner of very many tasks wants it."""
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
