"""Where replicas should lie that do not: what to move next, and from where to where. A function of the image alone.

A broker that is being decommissioned, or was forgotten, is emptied; one that has joined receives its share; evenly
means that no broker is further than TOLERANCE from the mean. A move replaces one broker of a partition by another,
never brings replicas closer together than they are (racks). Where the one that goes was first, whoever is first least
often is first now, so that leaders are spread as well. How many are under way to one broker is bounded; what is planned
but not begun is not remembered anywhere. Every move that evens out makes loads more equal by at least one replica, so
that moving ends.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from penstock.metadata.image import NO_LEADER, Broker, Partition
from penstock.metadata.index import PartitionIndex, Placed
from penstock.metadata.reassignment import target_replicas
from penstock.metadata.view import is_leaving

TOLERANCE: Final = 0.05


class Move(NamedTuple):
    """A partition and where it shall lie."""

    placed: Placed
    replicas: tuple[int, ...]


def plan_moves(index: PartitionIndex, per_broker_max: int, moves_max: int) -> list[Move]:
    """What to begin now: at most `moves_max`, and not more than may be under way to each broker."""
    return _Plan(index, per_broker_max, moves_max).made()


class _Plan:
    """A plan in the making: loads as they will be."""

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
        self._lists: dict[int, list[Placed]] = {}
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
        """Who is on the way to a broker that leaves, or that is gone, goes elsewhere."""
        if not any(count and number not in self._load for number, count in self._index.arriving.items()):
            return
        for placed in self._index.moving:
            for gone in placed.partition.adding_replicas:
                if gone not in self._load and self._replace(placed, gone, target_replicas(placed.partition)):
                    break  # one at a time: the next plan sees to the others

    def _drain(self) -> None:
        for number in sorted(self._index.held):
            if number in self._load or not self._index.held[number]:
                continue
            for placed in self._index.of_broker(number):
                if len(self._moves) >= self._moves_max or next(self._targets(), None) is None:
                    return
                if self._is_movable(placed):
                    self._replace(placed, number, placed.partition.replicas)

    def _replace(self, placed: Placed, old: int, replicas: tuple[int, ...]) -> bool:
        """Begins a move away from `old` to the broker that has least of those who can take it."""
        for new in sorted(self._targets(), key=lambda number: (self._load[number], number)):
            if self._fits(placed.partition, replicas, old, new):
                self._begin(placed, old, new, replicas)
                return True
        return False

    # --- evening out ----------------------------------------------------------------------------------------------

    def _even_out(self) -> None:
        mean = sum(self._load.values()) / len(self._load)
        slack = max(1.0, TOLERANCE * mean)
        tired: set[tuple[int, int]] = set()
        while len(self._moves) < self._moves_max:
            pair = self._next_pair(mean, slack, tired)
            if pair is None:
                return
            placed = self._candidate(*pair)
            if placed is None:
                tired.add(pair)
            else:
                self._begin(placed, *pair, placed.partition.replicas)

    def _next_pair(self, mean: float, slack: float, tired: set[tuple[int, int]]) -> tuple[int, int] | None:
        """From the fullest to the emptiest, where one of them is too far from the mean."""
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

    def _candidate(self, source: int, target: int) -> Placed | None:
        """A partition to move, preferably one that also makes the number of first replicas more equal."""
        wants_first = self._first[source] > self._first[target]
        second: Placed | None = None
        if source not in self._lists:
            self._lists[source] = list(self._index.of_broker(source))
        for placed in self._lists[source]:
            if not self._is_movable(placed) or not self._fits(
                placed.partition, placed.partition.replicas, source, target
            ):
                continue
            if (placed.partition.replicas[0] == source) == wants_first:
                return placed
            second = second or placed
        return second

    # --- one move -------------------------------------------------------------------------------------------------

    def _targets(self) -> Iterator[int]:
        for number in self._staying:
            if self._brokers[number].is_fit and self._arriving[number] < self._per_broker_max:
                yield number

    def _is_movable(self, placed: Placed) -> bool:
        partition = placed.partition
        is_moving = bool(partition.adding_replicas or partition.removing_replicas)
        is_taken = (placed.topic.topic_id, placed.number) in self._taken
        return not is_moving and not is_taken and partition.leader != NO_LEADER

    def _fits(self, partition: Partition, replicas: tuple[int, ...], old: int, new: int) -> bool:
        if new in partition.replicas:
            return False
        before = frozenset(self._rack(each) for each in replicas if each in self._brokers)
        after = frozenset(self._rack(new if each == old else each) for each in replicas if each in self._brokers)
        return len(after) >= len(before)

    def _rack(self, number: int) -> str:
        return self._brokers[number].rack or ""

    def _begin(self, placed: Placed, old: int, new: int, replicas: tuple[int, ...]) -> None:
        target = tuple(new if each == old else each for each in replicas)
        if replicas[0] == old:
            target = self._with_first(target)
            self._first[target[0]] += 1
            if old in self._first:
                self._first[old] -= 1
        self._moves.append(Move(placed, target))
        self._taken.add((placed.topic.topic_id, placed.number))
        self._load[new] += 1
        self._arriving[new] += 1
        if old in self._load:
            self._load[old] -= 1

    def _with_first(self, replicas: tuple[int, ...]) -> tuple[int, ...]:
        """In another order: first whoever of those that stay is first least often."""
        first = min((each for each in replicas if each in self._first), key=self._first.__getitem__)
        return first, *(each for each in replicas if each != first)
