"""Who is meant to read what in a consumer group: `uniform` and `range`, computed by the coordinator.

Both are pure functions of the members and topics, and order members by instance id, then by member id, so that a
restart changes nothing. Uniform is balanced first, sticky second, and prefers readers in a replica's rack third. Range
gives every topic out in runs, topics of equal size alike, so that joined topics meet in one member.
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
    """What it was meant to read until now."""


def _ordered(wishes: Sequence[Wish]) -> list[Wish]:
    return sorted(wishes, key=lambda wish: (wish.instance_id is None, wish.instance_id or "", wish.member_id))


# --- range ------------------------------------------------------------------------------------------------------------


def assign_range(wishes: Sequence[Wish], topics: Mapping[str, Topic]) -> dict[str, Partitions]:
    """Of every topic a run of partitions for each of its readers; the first readers have one more."""
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
    """As even as wishes allow, and as it was as far as that goes."""
    plan = _Plan(_ordered(wishes), topics)
    plan.keep()
    plan.give_out()
    if not plan.is_even:
        _Levelling(plan).run()
    return {wish.member_id: frozenset(has) for wish, has in zip(plan.wishes, plan.has, strict=True)}


class _Line:
    """Readers of the same topics, who has least in front; members by their rank.

    Who has got more since is sent back when it comes to the front. Who has less than when it was put is put again.
    """

    def __init__(self, plan: "_Plan", ranks: Iterable[int]) -> None:
        self._has = plan.has
        self._wishes = plan.wishes
        self._heaps: dict[str | None, list[tuple[int, int]]] = {}
        """By rack; under None everybody."""
        for rank in ranks:
            for heap in self._heaps_of(rank):
                heap.append((len(self._has[rank]), rank))
        for heap in self._heaps.values():
            heapify(heap)

    def _heaps_of(self, rank: int) -> list[list[tuple[int, int]]]:
        rack = self._wishes[rank].rack_id
        return [self._heaps.setdefault(each, []) for each in ((None,) if rack is None else (None, rack))]

    def put(self, rank: int) -> None:
        """Somebody stands where it belongs."""
        for heap in self._heaps_of(rank):
            heappush(heap, (len(self._has[rank]), rank))

    def first(self, racks: Iterable[str] = ()) -> tuple[int, int]:
        """How much it has, and its rank: who has least, among these one in such a rack."""
        first = self._front(self._heaps[None])
        near = min((self._front(self._heaps[rack]) for rack in racks if rack in self._heaps), default=first)
        return near if near[0] == first[0] else first

    def _front(self, heap: list[tuple[int, int]]) -> tuple[int, int]:
        while (size := len(self._has[heap[0][1]])) != heap[0][0]:
            heapreplace(heap, (size, heap[0][1]))
        return heap[0]


class _Plan:
    """An assignment in the making; members by their rank."""

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
        """Whether everybody wants the same."""
        self.free: list[TopicPartition] = []
        self.lines: dict[tuple[int, ...], _Line] = {}
        """By who stands in them."""

    def keep(self) -> None:
        """Everybody keeps what it had, where it still may, up to its share."""
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
        """Who had more than its share until now is the first to have one more."""
        least, more = divmod(self.total(), len(self.wishes)) if self.wishes else (0, 0)
        for rank in sorted(range(len(kept)), key=lambda each: (-len(kept[each]), each)):
            share = least
            if len(kept[rank]) > least and more:
                share, more = least + 1, more - 1
            mine = sorted(kept[rank], key=lambda each: (self.wishes[rank].rack_id not in self.racks(each), each))
            taken.difference_update(mine[share:])
            kept[rank] = mine[:share]

    def total(self) -> int:
        """Partitions that somebody wants."""
        return sum(topic.partitions for topic in self.topics.values())

    def racks(self, partition: TopicPartition) -> Sequence[str]:
        """Where its replicas are, as far as that is known."""
        racks = self.topics[partition[0]].racks
        return racks[partition[1]] if racks else ()

    def give_out(self) -> None:
        """What nobody has goes to the reader with the least; among these to one nearby."""
        self.lines = {ranks: _Line(self, ranks) for ranks in self.readers.values()}
        lines = {topic_id: self.lines[ranks] for topic_id, ranks in self.readers.items()}
        if not self.is_even:
            self.free.sort(key=lambda each: (len(self.readers[each[0]]), each))
        for partition in self.free:
            _, rank = lines[partition[0]].first(self.racks(partition))
            self.has[rank].add(partition)


class _Levelling:
    """Where wishes differ: partitions move from who has most to who has two fewer, as long as there are such.

    Who can give nothing waits until it has more, or until somebody who reads what it has falls two below it by giving.
    As who has most gives first, nobody who gave is a taker again but of those who waited: lines need not know the rest.
    """

    def __init__(self, plan: _Plan) -> None:
        self._has = plan.has
        self._moves_left = _MOVES_PER_PARTITION * plan.total()
        self._lines = list(plan.lines.values())
        numbers = {ranks: number for number, ranks in enumerate(plan.lines)}
        line_of = {topic_id: numbers[ranks] for topic_id, ranks in plan.readers.items()}
        self._reads: list[list[int]] = [[] for _ in plan.wishes]
        """The lines in which a member stands."""
        for ranks, number in numbers.items():
            for rank in ranks:
                self._reads[rank].append(number)
        self._stock: list[dict[int, list[TopicPartition]]] = [{} for _ in plan.wishes]
        """What a member has, sorted, by the line of those who would take it."""
        for rank, has in enumerate(plan.has):
            for partition in sorted(has):
                self._stock[rank].setdefault(line_of[partition[0]], []).append(partition)
        self._givers = [(-len(has), rank) for rank, has in enumerate(plan.has)]
        heapify(self._givers)
        self._waiting: dict[tuple[int, int], list[int]] = {}
        """By line and how much they have."""

    def run(self) -> None:
        """Until nobody can give."""
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
        """Who waits and has two more than this one by now can give again."""
        size = len(self._has[taker]) + 2
        for number in self._reads[taker]:
            woken = self._waiting.pop((number, size), ())
            if woken:
                self._lines[number].put(taker)
            for rank in woken:
                heappush(self._givers, (-size, rank))


_MOVES_PER_PARTITION: Final = 2

ASSIGNORS: Final = {"uniform": assign_uniform, "range": assign_range}
"""By the names under which members ask for them."""
