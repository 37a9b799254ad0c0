"""Server-side assignors: complete, balanced, sticky where possible, and rack-aware where balance permits."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.coordinator.assignors import ASSIGNORS, Wish, assign_range, assign_uniform
from penstock.coordinator.consumer import Partitions
from penstock.coordinator.topics import Topic
from tests.unit.coordinator.shard_driver import topic

TOPICS = {each.name: each for each in (topic("a", 4), topic("b", 4), topic("c", 3))}


def wishes(*names: str, count: int = 2, before: dict[str, Partitions] | None = None) -> list[Wish]:
    return [
        Wish(f"m{number}", None, None, names, (before or {}).get(f"m{number}", frozenset())) for number in range(count)
    ]


def sizes(found: dict[str, Partitions]) -> list[int]:
    return [len(each) for each in found.values()]


def numbers(found: Partitions, name: str) -> list[int]:
    return sorted(number for topic_id, number in found if topic_id == TOPICS[name].topic_id)


def test_range_gives_runs_and_equal_topics_alike() -> None:
    found = assign_range(wishes("a", "b", "c"), TOPICS)
    assert [numbers(found["m0"], name) for name in "abc"] == [[0, 1], [0, 1], [0, 1]]
    assert [numbers(found["m1"], name) for name in "abc"] == [[2, 3], [2, 3], [2]]


def test_range_with_more_members_than_partitions() -> None:
    assert sizes(assign_range(wishes("c", count=5), TOPICS)) == [1, 1, 1, 0, 0]


def test_uniform_is_even_over_all_topics() -> None:
    assert sizes(assign_uniform(wishes("a", "b", "c", count=3), TOPICS)) == [4, 4, 3]


def test_uniform_moves_no_more_than_it_must() -> None:
    before = assign_uniform(wishes("a", "b", "c", count=2), TOPICS)
    after = assign_uniform(wishes("a", "b", "c", count=3, before=before), TOPICS)
    assert all(after[name] <= before[name] for name in before)
    assert sorted(sizes(after)) == [3, 4, 4]
    again = assign_uniform(wishes("a", "b", "c", count=3, before=after), TOPICS)
    assert again == after


def test_static_members_keep_their_place_in_the_order() -> None:
    one = [Wish("x", "i1", None, ("a",)), Wish("y", "i2", None, ("a",))]
    other = [Wish("z", "i1", None, ("a",)), Wish("y", "i2", None, ("a",))]
    assert assign_range(one, TOPICS)["x"] == assign_range(other, TOPICS)["z"]


def test_readers_in_the_rack_of_a_replica_come_first() -> None:
    topics = {"r": topic("r", 4, (("1",), ("2",), ("1",), ("2",)))}
    members = [Wish("m", None, "2", ("r",)), Wish("n", None, "1", ("r",))]
    found = assign_uniform(members, topics)
    assert {number for _, number in found["m"]} == {1, 3}
    assert {number for _, number in found["n"]} == {0, 2}


def test_where_wishes_differ_it_is_as_even_as_they_allow() -> None:
    members = [Wish("m", None, None, ("a", "b")), Wish("n", None, None, ("a",)), Wish("o", None, None, ("b", "c"))]
    found = assign_uniform(members, TOPICS)
    assert sorted(sizes(found)) == [3, 4, 4]


def test_what_many_have_goes_to_many_who_join_without_asking_all_who_cannot_give() -> None:
    """Thousands of moves past hundreds of members that own more but cannot give: a scan per move would never end."""
    topics = {each.name: each for each in (topic("big", 8_000), topic("small", 4_000))}
    members = [Wish(f"b{number:03}", None, None, ("big",)) for number in range(399)]
    members += [Wish(f"s{number:03}", None, None, ("small",)) for number in range(200)]
    before = assign_uniform(members, topics)
    joined = [wish._replace(before=before[wish.member_id]) for wish in members]
    joined += [Wish(f"t{number:03}", None, None, ("small",)) for number in range(200)]
    after = assign_uniform(joined, topics)
    assert {len(after[wish.member_id]) for wish in joined[:399]} == {20, 21}
    assert {len(after[wish.member_id]) for wish in joined[399:]} == {10}
    assert all(after[wish.member_id] <= before[wish.member_id] for wish in members)


def test_who_could_give_nothing_gives_again_when_another_has_given() -> None:
    """A can give only to B, which owns one less; once B has given to C, B owns two less."""
    before = {"A": numbered("a", 4), "B": numbered("b", 3), "C": frozenset()}
    members = [
        Wish(name, None, None, names, before[name]) for name, names in (("A", ("a",)), ("B", ("a", "b")), ("C", ("b",)))
    ]
    found = assign_uniform(members, {"a": topic("a", 4), "b": topic("b", 3)})
    assert {name: len(has) for name, has in found.items()} == {"A": 3, "B": 2, "C": 2}


def numbered(name: str, count: int) -> Partitions:
    return frozenset((topic(name, count).topic_id, number) for number in range(count))


topics_drawn = st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 12), min_size=1).map(
    lambda drawn: {name: topic(name, count) for name, count in drawn.items()}
)
members_drawn = st.lists(st.lists(st.sampled_from("abcdefg"), max_size=4), min_size=1, max_size=8).map(
    lambda drawn: [Wish(f"m{number}", None, None, tuple(sorted(set(names)))) for number, names in enumerate(drawn)]
)


def legal(found: dict[str, Partitions], members: list[Wish], topics: dict[str, Topic]) -> None:
    everything = [each for has in found.values() for each in has]
    assert len(everything) == len(set(everything)), "given out twice"
    read = {name for wish in members for name in wish.topics if name in topics}
    wanted = {(topics[name].topic_id, number) for name in read for number in range(topics[name].partitions)}
    assert set(everything) == wanted
    for wish in members:
        mine = {topics[name].topic_id for name in wish.topics if name in topics}
        assert {topic_id for topic_id, _ in found[wish.member_id]} <= mine


@given(topics_drawn, members_drawn, st.sampled_from(sorted(ASSIGNORS)))
def test_everything_is_given_out_once_to_who_wants_it(topics: dict[str, Topic], members: list[Wish], name: str) -> None:
    legal(ASSIGNORS[name](members, topics), members, topics)


@given(topics_drawn, members_drawn, members_drawn)
def test_uniform_stays_legal_and_even_as_members_change(
    topics: dict[str, Topic], before: list[Wish], after: list[Wish]
) -> None:
    first = assign_uniform(before, topics)
    members = [wish._replace(before=first.get(wish.member_id, frozenset())) for wish in after]
    found = assign_uniform(members, topics)
    legal(found, members, topics)
    for giver in members:
        for taker in members:
            movable = {topics[name].topic_id for name in taker.topics if name in topics}
            if len(found[giver.member_id]) - len(found[taker.member_id]) >= 2:
                assert not {topic_id for topic_id, _ in found[giver.member_id]} & movable, "could be more even"
