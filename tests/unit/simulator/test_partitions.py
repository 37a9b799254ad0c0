"""Network partitions have the shapes that their names state."""

from random import Random

from penstock.simulator.partitions import Pairs, between, bridge, isolate, one_way, ring, split

NAMES = ["a", "b", "c", "d", "e"]


def neighbours(pairs: Pairs) -> dict[str, list[str]]:
    return {name: [other for other in NAMES if other == name or (name, other) not in pairs] for name in NAMES}


def is_symmetric(pairs: Pairs) -> bool:
    return sorted(pairs) == sorted((target, source) for source, target in pairs)


def test_one_way_and_both_ways() -> None:
    assert one_way("a", "b") == [("a", "b")]
    assert between(["a"], ["b", "c"]) == [("a", "b"), ("b", "a"), ("a", "c"), ("c", "a")]


def test_isolate_leaves_one_alone() -> None:
    assert neighbours(isolate("a", NAMES))["a"] == ["a"]
    assert neighbours(isolate("a", NAMES))["b"] == ["b", "c", "d", "e"]


def test_split_makes_two_groups_that_do_not_meet() -> None:
    for seed in range(50):
        pairs = split(NAMES, Random(seed))
        groups = {tuple(seen) for seen in neighbours(pairs).values()}
        assert is_symmetric(pairs)
        assert len(groups) == 2
        assert sorted(name for group in groups for name in group) == NAMES
    assert split(["a"], Random(1)) == []


def test_a_bridge_sees_both_halves() -> None:
    for seed in range(50):
        pairs = bridge(NAMES, Random(seed))
        assert is_symmetric(pairs)
        assert sorted(len(seen) for seen in neighbours(pairs).values()) == [3, 3, 3, 3, 5]


def test_in_a_ring_everybody_sees_another_majority() -> None:
    for seed in range(50):
        pairs = ring(NAMES, Random(seed))
        seen = [tuple(group) for group in neighbours(pairs).values()]
        assert is_symmetric(pairs)
        assert all(len(group) == 3 for group in seen)
        assert len(set(seen)) == 5
