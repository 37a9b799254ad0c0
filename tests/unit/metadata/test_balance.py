"""The controller moves replicas and leaders to a balanced placement, automatically and in bounded steps."""

from collections import Counter
from itertools import pairwise

import pytest

from penstock.metadata.balance import plan_moves
from penstock.metadata.cluster_commands import AlterPartition, DecommissionBroker, NewIsr, UnregisterBroker
from penstock.metadata.commands import ConfigChanges, CreateTopics, IncrementalAlterConfigs, NewTopic, Operation
from penstock.metadata.image import BROKER
from penstock.model.errors import ErrorCode
from tests.unit.metadata.cluster_world import ClusterWorld

PACED = {"auto.balance.enable": "true", "leader.imbalance.check.interval.seconds": "5"}
ON = {**PACED, "reassignment.leader.interval.ms": "0"}


def held(world: ClusterWorld) -> Counter[int]:
    counts: Counter[int] = Counter()
    for topic in world.image.topics.values():
        for partition in topic.partitions.values():
            counts.update(partition.replicas)
    return counts


def led(world: ClusterWorld) -> Counter[int]:
    return Counter(p.leader for topic in world.image.topics.values() for p in topic.partitions.values())


def catch_up(world: ClusterWorld) -> None:
    """Lets all moving replicas join the ISR."""
    by_leader: dict[int, list[NewIsr]] = {}
    for topic, number, partition in world.controller.index.moving:
        isr = tuple(dict.fromkeys((*partition.isr, *partition.adding_replicas)))
        by_leader.setdefault(partition.leader, []).append(
            NewIsr(
                topic.topic_id,
                number,
                partition.leader_epoch,
                partition.partition_epoch,
                tuple((each, world.broker(each).epoch) for each in isr),
            )
        )
    for leader, wanted in by_leader.items():
        world.ask(AlterPartition(leader, world.broker(leader).epoch, tuple(wanted)))


def settle_down(world: ClusterWorld, moving_max: int, rounds_max: int = 2_000) -> int:
    for rounds in range(rounds_max):
        world.pass_ms(100)
        index = world.controller.index
        assert max(index.arriving.values(), default=0) <= moving_max, "too much is on its way to one broker"
        if not index.moving_count and rounds:
            return rounds
        catch_up(world)
    raise AssertionError("it never comes to rest")


def test_a_fourth_broker_receives_its_share() -> None:
    world = ClusterWorld(settings=ON)
    world.ask(CreateTopics((NewTopic("orders", 1_000, 3), NewTopic("bills", 2_000, 3))))
    world.start(4)
    settle_down(world, moving_max=10)
    even = 9_000 / 4
    for broker_id, count in held(world).items():
        assert abs(count - even) <= 0.1 * even, f"broker {broker_id} has {count}"
    world.pass_ms(6_000)
    for broker_id, count in led(world).items():
        assert abs(count - 750) <= 75, f"broker {broker_id} leads {count}"
    assert not plan_moves(world.controller.index, 10, 1_000), "and then it rests"


def test_replicas_that_lead_move_one_after_the_other_and_the_others_do_not_wait_for_them() -> None:
    world = ClusterWorld(brokers=(1, 2, 3, 4), settings=PACED)
    world.create(*((4, 1, 2),) * 6, *((1, 2, 4),) * 12)
    world.ask(DecommissionBroker(4))
    begun: dict[int, int] = {}
    while held(world)[4]:
        world.pass_ms(100)
        for _, number, partition in world.controller.index.moving:
            assert 4 in partition.removing_replicas
            begun.setdefault(number, world.now)
        catch_up(world)
    leading = sorted(begun[number] for number in range(6))
    others = sorted(begun[number] for number in range(6, 18))
    assert all(2_000 <= later - sooner <= 2_200 for sooner, later in pairwise(leading)), leading
    assert others[-1] < leading[-1], "they wait for those that lead"


def test_the_pace_of_leaders_is_changed_while_they_move() -> None:
    world = ClusterWorld(brokers=(1, 2, 3, 4), settings={**PACED, "reassignment.leader.interval.ms": "3600000"})
    world.create(*((4, 1, 2),) * 6)
    world.ask(DecommissionBroker(4))
    world.pass_ms(10_000)
    catch_up(world)
    assert held(world)[4] == 5
    at_once = ConfigChanges(BROKER, "", (("reassignment.leader.interval.ms", Operation.SET, "0"),))
    world.ask(IncrementalAlterConfigs((at_once,), asked_at=1))
    settle_down(world, moving_max=10)
    assert held(world)[4] == 0


def test_a_decommissioned_broker_is_drained_to_zero() -> None:
    world = ClusterWorld(brokers=(1, 2, 3, 4), settings=ON)
    world.ask(CreateTopics((NewTopic("orders", 300, 3),)))
    assert world.ask(DecommissionBroker(2)).code is ErrorCode.NONE
    settle_down(world, moving_max=10)
    assert held(world)[2] == 0
    assert world.controller.index.replicas_on(2) == 0
    assert sum(held(world).values()) == 900
    (made,) = world.ask(CreateTopics((NewTopic("later", 10, 3),)))
    assert made.code is ErrorCode.NONE
    assert held(world)[2] == 0, "and gets nothing new"
    assert world.ask(UnregisterBroker(2)).code is ErrorCode.NONE
    assert world.ask(DecommissionBroker(2)).code is ErrorCode.BROKER_ID_NOT_REGISTERED
    world.start(2)
    settle_down(world, moving_max=10)
    assert held(world)[2] > 0, "a new broker of that name is welcome again"


@pytest.mark.parametrize("leaving", [1, 2, 3, 4])
def test_what_a_decommissioned_broker_led_is_spread(leaving: int) -> None:
    world = ClusterWorld(brokers=(1, 2, 3, 4), settings=ON)
    world.ask(CreateTopics((NewTopic("orders", 60, 3),)))
    world.ask(DecommissionBroker(leaving))
    settle_down(world, moving_max=10)
    world.pass_ms(6_000)
    assert all(abs(count - 20) <= 1 for count in led(world).values()), led(world)


def test_changing_ones_mind() -> None:
    world = ClusterWorld(brokers=(1, 2, 3, 4), settings=ON)
    world.ask(CreateTopics((NewTopic("orders", 100, 3),)))
    world.ask(DecommissionBroker(2))
    world.pass_ms(200)
    world.ask(DecommissionBroker(2, is_on=False))
    settle_down(world, moving_max=10)
    assert min(held(world).values()) >= 65


def test_who_is_on_the_way_to_one_that_leaves_is_sent_elsewhere() -> None:
    world = ClusterWorld(settings=ON)
    world.ask(CreateTopics((NewTopic("orders", 60, 2),)))
    world.start(4)
    world.pass_ms(100)
    assert world.controller.index.arriving[4]
    world.ask(DecommissionBroker(4))
    settle_down(world, moving_max=10)
    assert held(world)[4] == 0


def test_a_forgotten_brokers_replicas_are_made_anew_elsewhere() -> None:
    world = ClusterWorld(brokers=(1, 2, 3, 4), settings=ON)
    world.ask(CreateTopics((NewTopic("orders", 40, 3),)))
    world.kill(4)
    assert held(world)[4], "a broker that fails keeps its replicas: it may come back"
    world.ask(UnregisterBroker(4))
    settle_down(world, moving_max=10)
    assert held(world)[4] == 0


def test_racks_are_kept_apart() -> None:
    world = ClusterWorld(brokers=(), settings=ON)
    for broker_id, rack in enumerate("aabbcc", start=1):
        world.start(broker_id, rack)
    world.ask(CreateTopics((NewTopic("orders", 120, 3),)))
    world.start(7, "a")
    world.ask(DecommissionBroker(4))
    settle_down(world, moving_max=10)
    assert held(world)[4] == 0
    assert held(world)[7] > 30
    for partition in world.image.topics["orders"].partitions.values():
        assert {world.broker(each).rack for each in partition.replicas} == {"a", "b", "c"}


def test_there_must_be_somewhere_to_go() -> None:
    world = ClusterWorld(settings=ON)
    world.ask(CreateTopics((NewTopic("orders", 10, 3),)))
    world.ask(DecommissionBroker(1))
    world.pass_ms(500)
    assert held(world)[1] == 10, "three replicas need three brokers"
    assert world.controller.index.moving_count == 0


def test_a_failed_broker_moves_nothing() -> None:
    world = ClusterWorld(brokers=(1, 2, 3, 4), settings=ON)
    world.ask(CreateTopics((NewTopic("orders", 40, 3),)))
    before = held(world)
    world.kill(4)
    world.pass_ms(5_000)
    assert held(world) == before


@pytest.mark.parametrize("limit", [1, 3])
def test_a_plan_is_bounded(limit: int) -> None:
    world = ClusterWorld(settings={"auto.balance.enable": "false"})
    world.ask(CreateTopics((NewTopic("orders", 100, 3),)))
    world.start(4)
    world.start(5)
    index = world.controller.index
    assert len(plan_moves(index, limit, 1_000)) == 2 * limit
    assert len(plan_moves(index, 10, limit)) == limit
    assert plan_moves(index, 10, 1_000) == plan_moves(index, 10, 1_000)
