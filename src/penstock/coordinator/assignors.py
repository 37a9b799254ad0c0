"""Assignors of consumer groups, run by the coordinator: `uniform` and `range`.

Both are pure functions of the members and topics, and order members by instance id, then by member id, so that a
restart changes nothing. Uniform is balanced first, sticky second, and prefers members in a replica's rack third. Range
assigns every topic in contiguous runs, topics of equal size alike, so that joined topics meet in one member.
"""

from bisect import insort
from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from typing import Final, NamedTuple

from penstock.coordinator.consumer import NOTHING, Partitions, TopicPartition
from penstock.coordinator.topics import Topic


class Wish(NamedTuple):
    """A member, as assignors see it."""

    member_id: str
    instance_id: str | None
    rack_id: str | None
    topics: tuple[str, ...]
    before: Partitions = NOTHING
    """Its target assignment until now."""


def _ordered(wishes: Sequence[Wish]) -> list[Wish]:
    return sorted(wishes, key=lambda wish: (wish.instance_id is None, wish.instance_id or "", wish.member_id))


# --- range ------------------------------------------------------------------------------------------------------------


def assign_range(wishes: Sequence[Wish], topics: Mapping[str, Topic]) -> dict[str, Partitions]:
    """Assigns a run of partitions of every topic to each subscriber; the first ones may get one more."""
    found: dict[str, set[TopicPartition]] = {wish.member_id: set() for wish in wishes}
    readers = _readers(_ordered(wishes), topics)
    for name in sorted(readers):
        topic, members = topics[name], readers[name]
        least, more = divmod(topic.partitions, len(members))
        start = 0
        for number, wish in enumerate(members):
            end = start + least + (number < more)
            found[wish.member_id].update((topic.topic_id, each) for each in range(start, end))
            start = end
    return {member_id: frozenset(partitions) for member_id, partitions in found.items()}


def _readers(wishes: Sequence[Wish], topics: Mapping[str, Topic]) -> dict[str, list[Wish]]:
    readers: dict[str, list[Wish]] = {}
    for wish in wishes:
        for name in wish.topics:
            if name in topics:
                readers.setdefault(name, []).append(wish)
    return readers


# --- uniform ----------------------------------------------------------------------------------------------------------


def assign_uniform(wishes: Sequence[Wish], topics: Mapping[str, Topic]) -> dict[str, Partitions]:
    """Assigns as evenly as subscriptions allow, with as few changes as that permits."""
    plan = _Plan(_ordered(wishes), topics)
    plan.keep()
    plan.give_out()
    if not plan.is_even:
        _Levelling(plan).run()
    return {wish.member_id: frozenset(has) for wish, has in zip(plan.wishes, plan.has, strict=True)}


class _Line:
    """Priority queue of the subscribers of a topic, fewest partitions first; members by their rank.

    A member that has gained partitions is moved back when it reaches the front. One that has lost some is put again.
    """

    def __init__(self, plan: "_Plan", ranks: Iterable[int]) -> None:
        self._has = plan.has
        self._wishes = plan.wishes
        self._heaps: dict[str | None, list[tuple[int, int]]] = {}
        """By rack; under None all members."""
        for rank in ranks:
            for heap in self._heaps_of(rank):
                heap.append((len(self._has[rank]), rank))
        for heap in self._heaps.values():
            heapify(heap)

    def _heaps_of(self, rank: int) -> list[list[tuple[int, int]]]:
        rack = self._wishes[rank].rack_id
        return [self._heaps.setdefault(each, []) for each in ((None,) if rack is None else (None, rack))]

    def put(self, rank: int) -> None:
        """Adds a member at its present size."""
        for heap in self._heaps_of(rank):
            heappush(heap, (len(self._has[rank]), rank))

    def first(self, racks: Iterable[str] = ()) -> tuple[int, int]:
        """Size and rank of the member with the fewest partitions, on a tie one in these racks."""
        first = self._front(self._heaps[None])
        near = min((self._front(self._heaps[rack]) for rack in racks if rack in self._heaps), default=first)
        return near if near[0] == first[0] else first

    def _front(self, heap: list[tuple[int, int]]) -> tuple[int, int]:
        while (size := len(self._has[heap[0][1]])) != heap[0][0]:
            heapreplace(heap, (size, heap[0][1]))
        return heap[0]


class _Plan:
    """An assignment under construction; members by their rank."""

    def __init__(self, wishes: list[Wish], topics: Mapping[str, Topic]) -> None:
        self.wishes = wishes
        self.has: list[set[TopicPartition]] = [set() for _ in wishes]
        ranks = {wish.member_id: rank for rank, wish in enumerate(wishes)}
        readers = _readers(wishes, topics)
        self.topics = {topics[name].topic_id: topics[name] for name in sorted(readers)}
        self.readers = {
            topics[name].topic_id: tuple(ranks[wish.member_id] for wish in readers[name]) for name in sorted(readers)
        }
        self.is_even = all(len(members) == len(wishes) for members in self.readers.values())
        """Whether all members have the same subscription."""
        self.free: list[TopicPartition] = []
        self.lines: dict[tuple[int, ...], _Line] = {}
        """By the ranks of their members."""

    def keep(self) -> None:
        """Members keep their former partitions, if still subscribed, up to their share."""
        taken: set[TopicPartition] = set()
        readers = {topic_id: frozenset(members) for topic_id, members in self.readers.items()}
        kept: list[list[TopicPartition]] = []
        for rank, wish in enumerate(self.wishes):
            mine = [
                each
                for each in sorted(wish.before)
                if each not in taken
                and each[0] in self.topics
                and each[1] < self.topics[each[0]].partitions
                and rank in readers[each[0]]
            ]
            taken.update(mine)
            kept.append(mine)
        if self.is_even:
            self._cut_to_shares(kept, taken)
        for rank, mine in enumerate(kept):
            self.has[rank].update(mine)
        self.free = [
            (topic_id, number)
            for topic_id, topic in self.topics.items()
            for number in range(topic.partitions)
            if (topic_id, number) not in taken
        ]

    def _cut_to_shares(self, kept: list[list[TopicPartition]], taken: set[TopicPartition]) -> None:
        """Cuts members to their share; those with the most partitions are the first to keep one more."""
        least, more = divmod(self.total(), len(self.wishes)) if self.wishes else (0, 0)
        for rank in sorted(range(len(kept)), key=lambda each: (-len(kept[each]), each)):
            share = least
            if len(kept[rank]) > least and more:
                share, more = least + 1, more - 1
            mine = sorted(kept[rank], key=lambda each: (self.wishes[rank].rack_id not in self.racks(each), each))
            taken.difference_update(mine[share:])
            kept[rank] = mine[:share]

    def total(self) -> int:
        """Number of partitions of subscribed topics."""
        return sum(topic.partitions for topic in self.topics.values())

    def racks(self, partition: TopicPartition) -> Sequence[str]:
        """Racks of its replicas, if known."""
        racks = self.topics[partition[0]].racks
        return racks[partition[1]] if racks else ()

    def give_out(self) -> None:
        """Assigns free partitions to the subscriber with the fewest; on a tie to one in a replica's rack."""
        self.lines = {ranks: _Line(self, ranks) for ranks in self.readers.values()}
        lines = {topic_id: self.lines[ranks] for topic_id, ranks in self.readers.items()}
        if not self.is_even:
            self.free.sort(key=lambda each: (len(self.readers[each[0]]), each))
        for partition in self.free:
            _, rank = lines[partition[0]].first(self.racks(partition))
            self.has[rank].add(partition)


class _Levelling:
    """Balances unequal subscriptions: moves partitions from the largest members to ones with at least two fewer.

    A member that can give nothing waits until it has more, or until a subscriber of its topics falls two below it by
    giving. As the largest member gives first, one that gave takes again only from those that waited: lines need no
    other updates.
    """

    def __init__(self, plan: _Plan) -> None:
        self._has = plan.has
        self._moves_left = _MOVES_PER_PARTITION * plan.total()
        self._lines = list(plan.lines.values())
        numbers = {ranks: number for number, ranks in enumerate(plan.lines)}
        line_of = {topic_id: numbers[ranks] for topic_id, ranks in plan.readers.items()}
        self._reads: list[list[int]] = [[] for _ in plan.wishes]
        """The lines of each member."""
        for ranks, number in numbers.items():
            for rank in ranks:
                self._reads[rank].append(number)
        self._stock: list[dict[int, list[TopicPartition]]] = [{} for _ in plan.wishes]
        """Each member's partitions, sorted, by the line of their subscribers."""
        for rank, has in enumerate(plan.has):
            for partition in sorted(has):
                self._stock[rank].setdefault(line_of[partition[0]], []).append(partition)
        self._givers = [(-len(has), rank) for rank, has in enumerate(plan.has)]
        heapify(self._givers)
        self._waiting: dict[tuple[int, int], list[int]] = {}
        """Waiting members by line and size."""

    def run(self) -> None:
        """Moves partitions until no member can give one, or the limit of moves is reached."""
        while self._givers and self._moves_left > 0:
            size, giver = heappop(self._givers)
            if -size == len(self._has[giver]):
                self._give(giver)

    def _give(self, giver: int) -> None:
        size, stock = len(self._has[giver]), self._stock[giver]
        firsts = {number: self._lines[number].first() for number in stock}
        least, taker = min(firsts.values(), default=(size, giver))
        if size - least < 2:
            for number in stock:
                self._waiting.setdefault((number, size), []).append(giver)
            return
        number = max((each for each in stock if firsts[each][1] == taker), key=lambda each: stock[each][-1])
        self._move(giver, taker, number)

    def _move(self, giver: int, taker: int, number: int) -> None:
        self._moves_left -= 1
        partition = self._stock[giver][number].pop()
        if not self._stock[giver][number]:
            del self._stock[giver][number]
        insort(self._stock[taker].setdefault(number, []), partition)
        self._has[giver].discard(partition)
        self._has[taker].add(partition)
        for rank in (giver, taker):
            heappush(self._givers, (-len(self._has[rank]), rank))
        self._wake(giver)

    def _wake(self, taker: int) -> None:
        """Wakes waiting members that have two partitions more than this one by now."""
        size = len(self._has[taker]) + 2
        for number in self._reads[taker]:
            woken = self._waiting.pop((number, size), ())
            if woken:
                self._lines[number].put(taker)
            for rank in woken:
                heappush(self._givers, (-size, rank))


_MOVES_PER_PARTITION: Final = 2

ASSIGNORS: Final = {"uniform": assign_uniform, "range": assign_range}
"""By the names that members request."""
