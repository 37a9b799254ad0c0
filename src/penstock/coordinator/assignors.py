"""Who is meant to read what in a consumer group: `uniform` and `range`, computed by the coordinator.

Both are pure functions of the members and topics, and order members by instance id, then by member id, so that a
restart changes nothing. Uniform is balanced first, sticky second, and prefers readers in a replica's rack third. Range
gives every topic out in runs, topics of equal size alike, so that joined topics meet in one member.
"""

from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush
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
    plan.level()
    return {member_id: frozenset(partitions) for member_id, partitions in plan.has.items()}


class _Plan:
    """An assignment in the making."""

    def __init__(self, wishes: list[Wish], topics: Mapping[str, Topic]) -> None:
        self.wishes = wishes
        self.rank = {wish.member_id: number for number, wish in enumerate(wishes)}
        self.rack = {wish.member_id: wish.rack_id for wish in wishes}
        self.has: dict[str, set[TopicPartition]] = {wish.member_id: set() for wish in wishes}
        readers = _readers(wishes, topics)
        self.topics = {topics[name].topic_id: topics[name] for name in sorted(readers)}
        self.readers = {topics[name].topic_id: [wish.member_id for wish in readers[name]] for name in sorted(readers)}
        self.is_even = all(len(members) == len(wishes) for members in self.readers.values())
        """Whether everybody wants the same."""
        self.free: list[TopicPartition] = []

    def keep(self) -> None:
        """Everybody keeps what it had, where it still may, up to its share."""
        taken: set[TopicPartition] = set()
        total = sum(topic.partitions for topic in self.topics.values())
        least, more = divmod(total, len(self.wishes)) if self.wishes else (0, 0)
        readers = {topic_id: frozenset(members) for topic_id, members in self.readers.items()}
        kept: dict[str, list[TopicPartition]] = {}
        for wish in self.wishes:
            mine = [
                each
                for each in sorted(wish.before)
                if each not in taken
                and each[0] in self.topics
                and each[1] < self.topics[each[0]].partitions
                and wish.member_id in readers[each[0]]
            ]
            taken.update(mine)
            kept[wish.member_id] = mine
        if self.is_even:
            # Who had more than its share until now is the first to have one more.
            for member_id in sorted(kept, key=lambda each: (-len(kept[each]), self.rank[each])):
                share = least
                if len(kept[member_id]) > least and more:
                    share, more = least + 1, more - 1
                mine = sorted(kept[member_id], key=lambda each: (not self._is_near(member_id, each), each))
                taken.difference_update(mine[share:])
                kept[member_id] = mine[:share]
        for member_id, mine in kept.items():
            self.has[member_id] = set(mine)
        self.free = [
            (topic_id, number)
            for topic_id, topic in self.topics.items()
            for number in range(topic.partitions)
            if (topic_id, number) not in taken
        ]

    def _is_near(self, member_id: str, partition: TopicPartition) -> bool:
        rack, racks = self.rack[member_id], self.topics[partition[0]].racks
        return rack is not None and bool(racks) and rack in racks[partition[1]]

    def give_out(self) -> None:
        """What nobody has goes to the reader with the least; among these to one nearby."""
        if self.is_even:
            self._give_out_evenly()
            return
        for partition in sorted(self.free, key=lambda each: (len(self.readers[each[0]]), each)):
            member_id = min(
                self.readers[partition[0]],
                key=lambda each: (len(self.has[each]), not self._is_near(each, partition), self.rank[each]),
            )
            self.has[member_id].add(partition)

    def _give_out_evenly(self) -> None:
        heap = [(len(partitions), self.rank[member_id], member_id) for member_id, partitions in self.has.items()]
        heapify(heap)
        has_racks = any(self.rack.values())
        for partition in self.free:
            aside = []
            if has_racks:
                least = heap[0][0]
                while heap and heap[0][0] == least and not self._is_near(heap[0][2], partition):
                    aside.append(heappop(heap))
                if not heap or heap[0][0] != least:  # nobody is near: the first of those
                    heappush(heap, aside.pop(0))
            size, rank, member_id = heappop(heap)
            self.has[member_id].add(partition)
            heappush(heap, (size + 1, rank, member_id))
            for each in aside:
                heappush(heap, each)

    def level(self) -> None:
        """Where wishes differ: partitions move from who has most to who has two fewer, as long as there are such."""
        if self.is_even or len(self.wishes) < 2:
            return
        moves_left = _MOVES_PER_PARTITION * sum(topic.partitions for topic in self.topics.values())
        readable = {wish.member_id: frozenset(wish.topics) for wish in self.wishes}
        is_uneven = True
        while is_uneven and moves_left > 0:
            is_uneven = False
            order = sorted(self.has, key=lambda each: (-len(self.has[each]), self.rank[each]))
            for giver in order:
                taker, partition = self._best_move(giver, readable)
                if partition is not None:
                    self.has[giver].discard(partition)
                    self.has[taker].add(partition)
                    moves_left -= 1
                    is_uneven = True
                    break

    def _best_move(self, giver: str, readable: Mapping[str, frozenset[str]]) -> tuple[str, TopicPartition | None]:
        size = len(self.has[giver])
        names = {topic_id: self.topics[topic_id].name for topic_id in sorted({each[0] for each in self.has[giver]})}
        for taker in sorted(self.has, key=lambda each: (len(self.has[each]), self.rank[each])):
            if size - len(self.has[taker]) < 2:
                break
            movable = [each for each in self.has[giver] if names[each[0]] in readable[taker]]
            if movable:
                return taker, max(movable)
        return "", None


_MOVES_PER_PARTITION: Final = 2

ASSIGNORS: Final = {"uniform": assign_uniform, "range": assign_range}
"""By the names under which members ask for them."""
