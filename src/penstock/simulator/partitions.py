"""Shapes of partitions, as lists of cut directions for `SimulatedNetwork.cut`."""

from collections.abc import Iterable, Sequence
from random import Random

Pairs = list[tuple[str, str]]


def one_way(source: str, target: str) -> Pairs:
    """Data from `source` to `target` does not arrive; the other direction works."""
    return [(source, target)]


def between(left: Iterable[str], right: Iterable[str]) -> Pairs:
    """No host on the left reaches a host on the right, nor the reverse."""
    right = list(right)
    return [pair for one in left for other in right for pair in ((one, other), (other, one))]


def isolate(one: str, others: Iterable[str]) -> Pairs:
    """One host is cut off from all others."""
    return between([one], [other for other in others if other != one])


def split(names: Sequence[str], random: Random) -> Pairs:
    """Two groups of random sizes, neither empty."""
    if len(names) < 2:
        return []
    shuffled = list(names)
    random.shuffle(shuffled)
    size = random.randrange(1, len(shuffled))
    return between(shuffled[:size], shuffled[size:])


def bridge(names: Sequence[str], random: Random) -> Pairs:
    """Two halves that do not reach each other, and one host that reaches both."""
    shuffled = list(names)
    random.shuffle(shuffled)
    halves = shuffled[1:]
    middle = len(halves) // 2
    return between(halves[:middle], halves[middle:])


def ring(names: Sequence[str], random: Random) -> Pairs:
    """Every host reaches a majority, and no two reach the same one."""
    shuffled = list(names)
    random.shuffle(shuffled)
    count = len(shuffled)
    reach = (count // 2 + 1) // 2
    pairs: Pairs = []
    for here, one in enumerate(shuffled):
        for there, other in enumerate(shuffled):
            apart = min((here - there) % count, (there - here) % count)
            if apart > reach:
                pairs.append((one, other))
    return pairs
