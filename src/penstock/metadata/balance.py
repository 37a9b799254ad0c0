"""Plans the next moves of replicas between brokers, as a function of the image alone.

A broker that is being decommissioned, or was unregistered, is emptied; a broker that has joined receives its share. The
load is even if no broker is further than TOLERANCE from the mean. A move replaces one broker of a partition by another
and never reduces the number of its racks. If the replaced broker was the first replica, the broker that is first least
often becomes first, so that leaders are spread as well. The number of moves in progress to one broker is bounded; moves
that are planned but not begun are not stored. Every balancing move makes loads more equal by at least one replica, so
moving ends.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from penstock.metadata.image import NO_LEADER, Broker, Partition
from penstock.metadata.index import PartitionEntry, PartitionIndex
from penstock.metadata.reassignment import target_replicas
from penstock.metadata.view import is_leaving

TOLERANCE: Final = 0.05


class Move(NamedTuple):
    """A partition and its target replicas."""

    entry: PartitionEntry
    replicas: tuple[int, ...]


def plan_moves(index: PartitionIndex, per_broker_max: int, moves_max: int) -> list[Move]:
    """Moves to begin now: at most `moves_max`, and at most `per_broker_max` in progress to each broker."""
    return _Plan(index, per_broker_max, moves_max).made()


class _Plan:
    """A plan under construction, with loads as they will be."""

    def __init__(self, index: PartitionIndex, per_broker_max: int, moves_max: int) -> None:
        image = index.image
        self._index = index
        self._per_broker_max = per_broker_max
        self._moves_max = moves_max
        self._brokers: Mapping[int, Broker] = image.brokers
        self._staying = [number for number in sorted(image.brokers) if not is_leaving(image, number)]
        self._load = {number: index.held.get(number, 0) for number in self._staying}
        self._first = {number: index.preferred.get(number, 0) for number in self._staying}
        self._arriving = {number: index.arriving.get(number, 0) for number in self._staying}
        self._lists: dict[int, list[PartitionEntry]] = {}
        self._moves: list[Move] = []
        self._taken: set[tuple[bytes, int]] = set()

    def made(self) -> list[Move]:
        if self._staying:
            self._redirect()
            self._drain()
            self._even_out()
        return self._moves

    # --- emptying -------------------------------------------------------------------------------------------------

    def _redirect(self) -> None:
        """Redirects replicas that are moving to a broker that leaves or is gone."""
        if not any(count and number not in self._load for number, count in self._index.arriving.items()):
            return
        for entry in self._index.moving:
            for gone in entry.partition.adding_replicas:
                if gone not in self._load and self._replace(entry, gone, target_replicas(entry.partition)):
                    break  # one at a time: the next plan handles the others

    def _drain(self) -> None:
        for number in sorted(self._index.held):
            if number in self._load or not self._index.held[number]:
                continue
            for entry in self._index.of_broker(number):
                if len(self._moves) >= self._moves_max or next(self._targets(), None) is None:
                    return
                if self._is_movable(entry):
                    self._replace(entry, number, entry.partition.replicas)

    def _replace(self, entry: PartitionEntry, old: int, replicas: tuple[int, ...]) -> bool:
        """Begins a move from `old` to the least loaded broker that can take the replica."""
        for new in sorted(self._targets(), key=lambda number: (self._load[number], number)):
            if self._fits(entry.partition, replicas, old, new):
                self._begin(entry, old, new, replicas)
                return True
        return False

    # --- balancing ------------------------------------------------------------------------------------------------

    def _even_out(self) -> None:
        mean = sum(self._load.values()) / len(self._load)
        slack = max(1.0, TOLERANCE * mean)
        tired: set[tuple[int, int]] = set()
        while len(self._moves) < self._moves_max:
            pair = self._next_pair(mean, slack, tired)
            if pair is None:
                return
            entry = self._candidate(*pair)
            if entry is None:
                tired.add(pair)
            else:
                self._begin(entry, *pair, entry.partition.replicas)

    def _next_pair(self, mean: float, slack: float, tired: set[tuple[int, int]]) -> tuple[int, int] | None:
        """The fullest source and the emptiest target of which one is too far from the mean."""
        targets = sorted(self._targets(), key=lambda number: (self._load[number], number))
        sources = sorted(self._load, key=lambda number: (-self._load[number], number))
        for target in targets:
            for source in sources:
                is_far = self._load[source] > mean + slack or self._load[target] < mean - slack
                if not is_far or self._load[source] - self._load[target] < 2:
                    break  # all others are closer still
                if (source, target) not in tired:
                    return source, target
        return None

    def _candidate(self, source: int, target: int) -> PartitionEntry | None:
        """A partition to move, preferably one that also balances the number of first replicas."""
        wants_first = self._first[source] > self._first[target]
        second: PartitionEntry | None = None
        if source not in self._lists:
            self._lists[source] = list(self._index.of_broker(source))
        for entry in self._lists[source]:
            if not self._is_movable(entry) or not self._fits(entry.partition, entry.partition.replicas, source, target):
                continue
            if (entry.partition.replicas[0] == source) == wants_first:
                return entry
            second = second or entry
        return second

    # --- one move -------------------------------------------------------------------------------------------------

    def _targets(self) -> Iterator[int]:
        for number in self._staying:
            if self._brokers[number].is_fit and self._arriving[number] < self._per_broker_max:
                yield number

    def _is_movable(self, entry: PartitionEntry) -> bool:
        partition = entry.partition
        is_moving = bool(partition.adding_replicas or partition.removing_replicas)
        is_taken = (entry.topic.topic_id, entry.number) in self._taken
        return not is_moving and not is_taken and partition.leader != NO_LEADER

    def _fits(self, partition: Partition, replicas: tuple[int, ...], old: int, new: int) -> bool:
        if new in partition.replicas:
            return False
        before = frozenset(self._rack(each) for each in replicas if each in self._brokers)
        after = frozenset(self._rack(new if each == old else each) for each in replicas if each in self._brokers)
        return len(after) >= len(before)

    def _rack(self, number: int) -> str:
        return self._brokers[number].rack or ""

    def _begin(self, entry: PartitionEntry, old: int, new: int, replicas: tuple[int, ...]) -> None:
        target = tuple(new if each == old else each for each in replicas)
        if replicas[0] == old:
            target = self._with_first(target)
            self._first[target[0]] += 1
            if old in self._first:
                self._first[old] -= 1
        self._moves.append(Move(entry, target))
        self._taken.add((entry.topic.topic_id, entry.number))
        self._load[new] += 1
        self._arriving[new] += 1
        if old in self._load:
            self._load[old] -= 1

    def _with_first(self, replicas: tuple[int, ...]) -> tuple[int, ...]:
        """The replicas reordered: the staying broker that is first least often comes first."""
        first = min((each for each in replicas if each in self._first), key=self._first.__getitem__)
        return first, *(each for each in replicas if each != first)
