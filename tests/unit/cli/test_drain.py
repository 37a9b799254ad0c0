"""Emptying a broker: it is refused with a reason where it is impossible, and moves no more than necessary."""

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.cli.decommission import drain
from penstock.cli.decommission.drain import STUCK_S, Situation, new_places, obstacles
from penstock.cli.errors import Failed
from penstock.client.metadata import Broker, TopicPartition


def brokers(*node_ids: int) -> dict[int, Broker]:
    return {each: Broker(each, "host", 9090 + each) for each in node_ids}


def situation(*node_ids: int, leaves: int, **placed: tuple[int, ...]) -> Situation:
    """Topics of one partition each, with every replica in sync."""
    places = {TopicPartition(topic, 0): replicas for topic, replicas in placed.items()}
    held = tuple(each for each, replicas in places.items() if leaves in replicas)
    return Situation(brokers(*node_ids), placed=places, in_sync=places, held=held)


def test_topics_with_as_many_replicas_as_there_are_brokers_are_named() -> None:
    now = situation(1, 2, 3, leaves=3, orders=(1, 2, 3), visits=(3, 1), payments=(2, 3, 1))
    (why,) = obstacles(3, now)
    assert "orders, payments have 3 replicas, and without broker 3 there are only 2 brokers to take them" in why
    assert "visits" not in why
    assert "add a broker" in why
    assert not obstacles(3, replace(now, brokers=brokers(1, 2, 3, 4)))


def test_another_broker_that_is_leaving_takes_nothing() -> None:
    now = situation(1, 2, 3, 4, leaves=3, orders=(1, 2, 3))
    assert not obstacles(3, now)
    (why,) = obstacles(3, replace(now, leaving=frozenset([4])))
    assert "orders has 3 replicas" in why


def test_the_only_broker_stays() -> None:
    (why,) = obstacles(1, situation(1, leaves=1, orders=(1,)))
    assert "orders has 1 replica, and without broker 1 there is no other broker" in why


def test_a_voter_is_removed_from_the_quorum_first() -> None:
    now = replace(situation(1, 2, 3, 4, leaves=3, orders=(3,)), voters=(1, 2, 3))
    (why,) = obstacles(3, now)
    assert "node 3 is a voter of the metadata quorum (1, 2, 3)" in why
    assert "remove it from the quorum first, with `penstock quorum remove 3`" in why
    (alone,) = obstacles(3, replace(now, voters=(3,)))
    assert "add another voter first" in alone
    assert not obstacles(4, now)


def test_a_broker_that_is_unknown_or_gone_is_told_apart() -> None:
    now = situation(1, 2, leaves=9, orders=(1, 2))
    (why,) = obstacles(9, now)
    assert "there is no broker 9 in this cluster, and nothing is left of it; its brokers are 1, 2" in why


def test_a_broker_that_is_down_can_be_emptied_unless_it_alone_is_in_sync() -> None:
    now = situation(1, 2, 4, leaves=3, orders=(3, 1), visits=(3, 2))
    assert not obstacles(3, now)
    in_sync = {TopicPartition("orders", 0): (3,), TopicPartition("visits", 0): (3, 2)}
    (why,) = obstacles(3, replace(now, in_sync=in_sync))
    assert "broker 3 is down, and no broker that is up is in sync for orders[0]: start broker 3 first" in why


def test_what_moves_away_already_is_no_obstacle() -> None:
    now = situation(1, 2, 3, leaves=3, orders=(1, 2))
    assert not obstacles(3, replace(now, held=(TopicPartition("orders", 0),)))


def test_only_the_leaving_broker_is_replaced() -> None:
    now = situation(1, 2, 4, leaves=3, orders=(3, 1), visits=(1, 2), payments=(5, 3))
    after = new_places(3, now)
    assert {each.topic for each in after} == {"orders", "payments"}
    assert after[TopicPartition("orders", 0)][1] == 1
    assert after[TopicPartition("orders", 0)][0] in (2, 4)
    assert after[TopicPartition("payments", 0)][0] == 5, "a replica on a broker that is down stays"
    assert after[TopicPartition("payments", 0)][1] in (1, 2, 4)


class Clock:
    """Time that passes only while somebody sleeps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 0.0
        monkeypatch.setattr(drain, "time", SimpleNamespace(monotonic=lambda: self.now_s))
        monkeypatch.setattr(drain, "asyncio", SimpleNamespace(sleep=self._sleep))

    async def _sleep(self, seconds: float) -> None:
        self.now_s += seconds


def drained(monkeypatch: pytest.MonkeyPatch, seen: Iterable[Situation]) -> int:
    """Drains broker 2 of a cluster that is seen in these situations, one after the other."""
    first, *rest = seen

    async def next_situation(*_: Any) -> Situation:
        return rest.pop(0) if len(rest) > 1 else rest[0]

    async def nothing(*_: Any) -> int:
        return 0

    monkeypatch.setattr(drain, "situation", next_situation)
    monkeypatch.setattr(drain, "_begin", nothing)
    monkeypatch.setattr(drain, "_left_bytes", nothing)
    return asyncio.run(drain.drain(SimpleNamespace(), 2, first, None, lambda *_: None))  # type: ignore[arg-type]


def test_replicas_that_one_broker_still_lists_where_they_were_do_not_end_a_drain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A finished move of a topic to its last replica: the listed broker has not applied it, the controller has."""
    Clock(monkeypatch)
    moving = replace(situation(1, 2, leaves=2, moved=(1,)), held=(TopicPartition("moved", 0),))
    lagging, done = situation(1, 2, leaves=2, moved=(2, 1)), situation(1, 2, leaves=2, moved=(1,))
    assert obstacles(2, lagging)
    assert drained(monkeypatch, [moving, lagging, lagging, done]) == 0


def test_replicas_that_cannot_move_any_more_end_a_drain(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    stuck = situation(1, 2, leaves=2, moved=(2, 1))
    with pytest.raises(Failed, match="broker 2 still has 1 replica, and the rest cannot move: moved has 2 replicas"):
        drained(monkeypatch, [situation(1, 2, leaves=2, moved=(2,)), stuck])
    assert STUCK_S <= clock.now_s < 2 * STUCK_S
