"""Cooperative-sticky assignment: balanced and sticky; no member gets a partition that another still owns."""

import random

import pytest

from penstock.client.groups.assigning import (
    Wish,
    assigned,
    assignment_bytes,
    read_assignment,
    read_wish,
    subscription_bytes,
)
from penstock.client.metadata import TopicPartition
from penstock.model.errors import MalformedMessage


def places(topic: str, *numbers: int) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(topic, number) for number in numbers)


def test_words_come_back() -> None:
    wish = Wish(("a", "b"), places("a", 1, 2), 7)
    assert read_wish(subscription_bytes(wish)) == wish
    assert read_assignment(assignment_bytes(places("a", 2, 0))) == places("a", 0, 2)
    assert read_assignment(b"") == ()
    with pytest.raises(MalformedMessage):
        read_wish(b"\0")


def test_a_partition_that_moves_is_nobodys_for_one_round() -> None:
    wishes = {"old": Wish(("t",), places("t", 0, 1, 2, 3), 4), "new": Wish(("t",))}
    first = assigned(wishes, {"t": 4})
    assert sorted(first["old"]) == list(places("t", 0, 1))
    assert first["new"] == []
    wishes = {"old": Wish(("t",), tuple(first["old"]), 5), "new": Wish(("t",), (), 5)}
    assert sorted(assigned(wishes, {"t": 4})["new"]) == list(places("t", 2, 3))


def test_of_two_who_claim_a_partition_the_newer_has_it() -> None:
    wishes = {"a": Wish(("t",), places("t", 0), 3), "b": Wish(("t",), places("t", 0), 4)}
    assert assigned(wishes, {"t": 1}) == {"a": [], "b": list(places("t", 0))}


def test_topics_that_are_not_there_and_those_that_nobody_wants() -> None:
    wishes = {"a": Wish(("gone",), places("gone", 3), 1), "b": Wish(("t", "t"))}
    assert assigned(wishes, {"gone": 0, "t": 2}) == {"a": [], "b": list(places("t", 0, 1))}


@pytest.mark.parametrize("seed", range(50))
def test_no_more_moves_than_it_takes(seed: int) -> None:
    chance = random.Random(seed)
    owned: dict[str, list[int]] = {f"m{number}": [] for number in range(chance.randint(1, 8))}
    count = chance.randint(1, 40)
    for number in range(count):
        owned[chance.choice(list(owned)[: chance.randint(1, len(owned))])].append(number)
    wishes = {name: Wish(("t",), places("t", *some), 1) for name, some in owned.items()}
    kept = assigned(wishes, {"t": count})
    each, more = divmod(count, len(owned))
    rich = sum(len(some) > each for some in owned.values())
    assert all(set(kept[name]) <= set(wishes[name].owned) for name in kept)
    assert sum(map(len, kept.values())) == sum(min(len(some), each) for some in owned.values()) + min(more, rich)


@pytest.mark.parametrize("seed", range(50))
def test_whatever_members_want(seed: int) -> None:
    chance = random.Random(seed)
    counts = {f"t{number}": chance.randrange(8) for number in range(chance.randint(1, 4))}
    wishes: dict[str, Wish] = {}
    for round_number in range(6):
        members = [f"m{number}" for number in range(6) if chance.random() < 0.7] or ["m0"]
        wishes = {
            name: wishes[name]
            if name in wishes
            else Wish(tuple(sorted(chance.sample(sorted(counts), chance.randint(1, len(counts))))))
            for name in members
        }
        for turn in range(5):
            given = assigned(wishes, counts)
            owned = {each: name for name, wish in wishes.items() for each in wish.owned}
            taken = [each for share in given.values() for each in share]
            assert len(taken) == len(set(taken))
            for name, share in given.items():
                assert all(each.topic in wishes[name].topics for each in share)
                assert all(owned.get(each, name) == name for each in share), "somebody else still has it"
            wishes = {name: wish._replace(owned=tuple(given[name]), generation=turn) for name, wish in wishes.items()}
        wanted = {topic for wish in wishes.values() for topic in wish.topics}
        assert sorted(taken) == sorted(
            TopicPartition(topic, number) for topic in wanted for number in range(counts[topic])
        ), f"after a few rounds everything is read (round {round_number})"
        for name, share in given.items():
            for other, wish in wishes.items():
                movable = [each for each in share if each.topic in wish.topics]
                assert not movable or len(given[other]) + 1 >= len(share), f"{name} has too much, {other} too little"
        assert assigned(wishes, counts) == given, "nothing moves without need"
