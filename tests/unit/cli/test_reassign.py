"""Reassignment plans move no more than necessary and use Kafka's file format; parsing and output of rates and times."""

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cli.errors import Failed, Misused
from penstock.cli.reassign.plan import Move, Placement, plan_moves, read_plan, write_plan
from penstock.cli.reassign.throttle import UNLIMITED, KafkaThrottle, parse_rate
from penstock.cli.reassign.watch import Pace, Standing
from penstock.client.admin.reassignments import Moving
from penstock.client.metadata import TopicPartition
from tests.unit.cli.conftest import Penstock


def placement(*replicas: tuple[int, ...]) -> Placement:
    return {TopicPartition("orders", index): each for index, each in enumerate(replicas)}


def racks(**where: str) -> dict[int, str | None]:
    return {int(name[1:]): rack or None for name, rack in where.items()}


NO_RACKS = dict.fromkeys((1, 2, 3, 4))


def loads(placed: Placement) -> Counter[int]:
    return Counter(broker for replicas in placed.values() for broker in replicas)


# --- planning ---------------------------------------------------------------------------------------------------------


def test_a_drain_moves_what_lies_there_and_nothing_else() -> None:
    placed = placement((1, 2), (2, 3), (3, 1), (1, 4), (3, 4))
    after = plan_moves(placed, {1: None, 2: None, 4: None}, evens=False)
    assert set(after) == {TopicPartition("orders", index) for index in (1, 2, 4)}
    for each, replicas in after.items():
        assert 3 not in replicas
        kept = [broker for broker in placed[each] if broker != 3]
        assert [broker for broker in replicas if broker in kept] == kept, "who may stay stays, in its place"
    assert max(loads(placed | after).values()) - min(loads(placed | after).values()) <= 1


def test_what_is_even_already_stays() -> None:
    placed = placement((1, 2), (2, 3), (3, 1))
    assert plan_moves(placed, {1: None, 2: None, 3: None}, evens=True) == {}


def test_a_new_broker_gets_its_share_and_leads_its_share() -> None:
    placed = placement(*[(1, 2, 3), (2, 3, 1), (3, 1, 2)] * 8)
    after = placed | plan_moves(placed, NO_RACKS, evens=True)
    assert loads(after) == dict.fromkeys((1, 2, 3, 4), 18)
    leaders = Counter(replicas[0] for replicas in after.values())
    assert max(leaders.values()) - min(leaders.values()) <= 1
    moved = sum(len(set(after[each]) - set(placed[each])) for each in placed)
    assert moved == 18, "what the new one gets, and no more"


def test_replicas_go_where_their_rack_is_not_yet() -> None:
    allowed = racks(b1="a", b2="b", b3="b", b4="c")
    (after,) = plan_moves(placement((1, 2, 9)), allowed, evens=False).values()
    assert after == (1, 2, 4), "broker 3 would have less, but stands beside broker 2"


def test_evenness_brings_no_racks_together() -> None:
    placed = placement(*[(1, 2)] * 8)
    allowed = racks(b1="a", b2="b", b3="b")
    after = placed | plan_moves(placed, allowed, evens=True)
    assert all(1 in replicas for replicas in after.values()), "nobody else stands in rack a"
    assert (loads(after)[2], loads(after)[3]) == (4, 4)


def test_too_few_brokers_are_refused() -> None:
    with pytest.raises(Failed, match=r"orders\[0\] has 3 replicas, and 2 brokers cannot"):
        plan_moves(placement((1, 2, 3)), {1: None, 2: None}, evens=True)


@given(
    st.lists(st.permutations(range(1, 7)).map(lambda each: tuple(each[:3])), min_size=1, max_size=30),
    st.sets(st.integers(1, 8), min_size=3),
    st.booleans(),
)
def test_every_plan_keeps_to_the_rules(replicas: list[tuple[int, ...]], allowed: set[int], evens: bool) -> None:
    placed = placement(*replicas)
    brokers: dict[int, str | None] = {each: "abc"[each % 3] for each in allowed}
    after = placed | plan_moves(placed, brokers, evens=evens)
    for each, those in after.items():
        assert len(set(those)) == 3
        assert set(those) <= allowed
        before = len({brokers[broker] for broker in placed[each] if broker in allowed})
        assert len({brokers[broker] for broker in those}) >= before
    assert placed | plan_moves(placed, brokers, evens=evens) == after
    assert plan_moves(after, brokers, evens=False) == {}


# --- files ------------------------------------------------------------------------------------------------------------


def test_a_plan_is_read_as_it_was_written_and_as_kafka_writes_it(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    write_plan(path, placement((1, 2), (2, 3)))
    assert read_plan(path) == placement((1, 2), (2, 3))
    assert json.loads(path.read_text())["version"] == 1
    kafka = {"topic": "orders", "partition": 0, "replicas": [3, 1], "log_dirs": ["any", "any"]}
    path.write_text(json.dumps({"version": 1, "partitions": [kafka]}))
    assert read_plan(path) == placement((3, 1))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "is not a plan"),
        ('{"partitions": [{"topic": "t"}]}', "is not a plan"),
        ('{"partitions": []}', "moves nothing"),
        (
            '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1], "log_dirs": ["/d"]}]}',
            "names log_dirs",
        ),
    ],
)
def test_what_is_no_plan_is_refused(tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(Misused, match=sentence):
        read_plan(tmp_path / "plan.json")


def test_a_plan_needs_to_know_where_to(penstock: Penstock) -> None:
    for arguments in ([], ["--to", "1,2", "--drain", "3"]):
        result = penstock("reassign", "plan", *arguments)
        assert result.code == 2
        assert "--to 1,2,3, or --drain 3" in result.err


# --- pace -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "rate"),
    [("50MB", 50_000_000), ("800kB/s", 800_000), ("1.5g", 1_500_000_000), ("4096", 4096), ("none", UNLIMITED)],
)
def test_rates(text: str, rate: int) -> None:
    assert parse_rate(text) == rate


@pytest.mark.parametrize("text", ["", "fast", "0", "-3MB", "MB"])
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(Misused, match="is no rate"):
        parse_rate(text)


def test_what_is_left_divided_by_how_fast_it_went_lately() -> None:
    pace = Pace()
    pace.note(1000, 0.0)
    assert (pace.bytes_per_second, pace.eta_s) == (0.0, None)
    for second in range(1, 21):
        pace.note(1000 if second < 10 else 1000 - 50 * (second - 10), float(second))
    assert pace.bytes_per_second == 50
    assert pace.eta_s == 10
    pace.note(0, 21.0)
    assert pace.eta_s == 0
    assert all(before < after for (before, _), (after, _) in pairwise(pace.samples))


def test_a_replica_is_as_far_as_its_log_is_large() -> None:
    moving = Moving(TopicPartition("orders", 0), (4, 5, 1), (4, 5), (1,))
    standing = Standing(moving, 100, 150)
    assert moving.target == (4, 5)
    assert (standing.total_bytes, standing.left_bytes) == (200, 50)


def test_apache_kafkas_throttle_names_who_sends_and_who_receives() -> None:
    moves = [
        Move(TopicPartition("orders", 0), (1, 2), (2, 3)),
        Move(TopicPartition("orders", 1), (1, 2), (2, 1)),
    ]
    throttle = KafkaThrottle(None, moves, 1000)  # type: ignore[arg-type]  # no request is sent
    assert throttle._replicas() == {
        "orders": {
            "leader.replication.throttled.replicas": "0:1,0:2",
            "follower.replication.throttled.replicas": "0:3",
        }
    }
    assert list(throttle._brokers()) == [1, 2, 3]
    assert throttle.trace is not None
    assert KafkaThrottle(None, moves, UNLIMITED).trace is None  # type: ignore[arg-type]
