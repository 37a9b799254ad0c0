"""A broker without disk space leads and stays in the ISR only where no other can; it returns when space is free."""

import pytest

from penstock.metadata.cluster_commands import ElectLeaders, Heartbeat, PartitionRef
from penstock.metadata.commands import CreateTopics, NewTopic
from penstock.metadata.image import LOST_DIRECTORY
from penstock.metadata.view import RECORDS_PER_STEP_MAX
from penstock.model.errors import ErrorCode
from tests.unit.metadata.cluster_world import ClusterWorld


@pytest.fixture
def world() -> ClusterWorld:
    """Three partitions with different leaders."""
    world = ClusterWorld()
    world.create((1, 2, 3), (2, 3, 1), (3, 1, 2))
    return world


def led(world: ClusterWorld) -> list[tuple[int, tuple[int, ...]]]:
    return [(each.leader, each.isr) for each in world.image.topics["orders"].partitions.values()]


def test_others_lead_and_nobody_waits_for_it(world: ClusterWorld) -> None:
    world.fill(1)
    assert led(world) == [(2, (2, 3)), (2, (2, 3)), (3, (3, 2))]
    assert [world.partition(index=index).leader_epoch for index in range(3)] == [1, 0, 0]
    broker = world.broker(1)
    assert (broker.is_active, broker.is_fit) == (True, False)
    assert LOST_DIRECTORY not in broker.log_dirs


def test_it_cannot_join_or_be_elected_before_there_is_room(world: ClusterWorld) -> None:
    world.fill(1)
    wanted = world.new_isr(2, 3, 1)
    assert world.alter(wanted).code is ErrorCode.INELIGIBLE_REPLICA
    assert world.alter(wanted).code is ErrorCode.INVALID_UPDATE_VERSION, "come late, it does nothing"
    (elected,) = world.ask(ElectLeaders((PartitionRef("orders", 0),)))
    assert elected.code is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    epoch = world.partition().partition_epoch
    world.pass_ms(301_000)
    assert world.partition().partition_epoch == epoch, "nothing goes to and fro"


def test_with_room_it_joins_and_leads_again(world: ClusterWorld) -> None:
    world.fill(1)
    world.empty(1)
    assert world.broker(1).is_fit
    assert led(world)[0] == (2, (2, 3)), "not before it has caught up"
    world.sync(2, 3, 1)
    world.pass_ms(301_000)
    assert led(world)[0] == (1, (2, 3, 1))


def test_where_nobody_else_is_in_sync_it_goes_on_leading(world: ClusterWorld) -> None:
    world.create((1,), name="alone", min_isr=1)
    world.create((1, 2), name="pair", min_isr=1)
    world.sync(1, name="pair")
    world.fill(1)
    for name in ("alone", "pair"):
        now = world.partition(name)
        assert (now.leader, now.isr, now.leader_epoch) == (1, (1,), 0)
    now = world.sync(1, 2, name="pair")
    assert (now.leader, now.isr) == (2, (2,)), "somebody has come who can write"


def test_the_last_in_sync_leads_though_its_disk_is_full(world: ClusterWorld) -> None:
    world.fill(1, 2, 3)
    assert led(world) == [(1, (1, 2, 3)), (2, (2, 3, 1)), (3, (3, 1, 2))], "one is as good as another"
    world.kill(1)
    assert led(world)[0] == (2, (2, 3))
    world.empty(3)
    assert led(world)[0] == (3, (3,))
    assert world.partition().eligible_leader_replicas == (2,), "below the minimum it has all that is committed"


def test_who_is_let_in_with_a_full_disk_is_not_in_sync(world: ClusterWorld) -> None:
    world.kill(1)
    world.full = {1}
    world.restart(1)
    assert not world.broker(1).can_write
    assert world.alter(world.new_isr(2, 3, 1)).code is ErrorCode.INELIGIBLE_REPLICA
    world.kill(1)
    world.full = set()
    world.restart(1)
    assert world.broker(1).is_fit


def test_a_heartbeat_that_was_overtaken_says_nothing_of_the_disk(world: ClusterWorld) -> None:
    broker = world.broker(1)
    late = Heartbeat(1, broker.epoch, len(world.log) - 1, len(world.log), offline_log_dirs=broker.log_dirs)
    world.fill(1)
    world.empty(1)
    epochs = [world.partition(index=index).partition_epoch for index in range(3)]
    world.controller.hear(late, world.now)
    world.ask(late)
    world.tick()
    assert world.broker(1).is_fit
    assert [world.partition(index=index).partition_epoch for index in range(3)] == epochs
    world.kill(1)
    world.restart(1)
    assert world.ask(late).code is ErrorCode.STALE_BROKER_EPOCH


def test_directories_that_are_not_its_own_say_nothing(world: ClusterWorld) -> None:
    broker = world.broker(1)
    world.ask(Heartbeat(1, broker.epoch, len(world.log) - 1, len(world.log), offline_log_dirs=(b"?" * 16,)))
    assert world.broker(1).is_fit


def test_a_large_broker_retreats_in_pieces() -> None:
    world = ClusterWorld()
    world.create(*[(1, 2, 3)] * (2 * RECORDS_PER_STEP_MAX + 5))
    world.records_most = 0
    world.fill(1)
    assert all(leader == 2 for leader, _ in led(world))
    assert world.records_most <= RECORDS_PER_STEP_MAX


def test_new_replicas_go_elsewhere_as_long_as_there_is_room(world: ClusterWorld) -> None:
    world.fill(1)
    world.ask(CreateTopics((NewTopic("two", 6, 2), NewTopic("three", 6, 3))))
    for partition in world.image.topics["two"].partitions.values():
        assert sorted(partition.replicas) == [2, 3]
    for partition in world.image.topics["three"].partitions.values():
        assert partition.replicas[2:] == (1,)
        assert 1 not in partition.isr
    world.fill(2, 3)
    world.ask(CreateTopics((NewTopic("full", 1, 3),)))
    assert len(world.partition("full").isr) == 3


def test_a_new_controller_knows_it(world: ClusterWorld) -> None:
    world.fill(1)
    again = world.replayed()
    assert again.image.brokers == world.image.brokers
    assert again.index.unfit == {1}


# --- a log has failed -------------------------------------------------------------------------------------------------


def test_a_leader_may_leave_its_place_to_those_in_sync(world: ClusterWorld) -> None:
    gives_up = world.new_isr(2, 3)
    assert world.alter(gives_up).code is ErrorCode.NEW_LEADER_ELECTED
    now = world.partition()
    assert (now.leader, now.isr, now.leader_epoch) == (2, (2, 3), 1)
    assert world.alter(gives_up, leader=1).code is ErrorCode.FENCED_LEADER_EPOCH, "come late, it does nothing"
    assert led(world)[1:] == [(2, (2, 3, 1)), (3, (3, 1, 2))]


def test_a_leader_below_the_minimum_stays_eligible_when_it_leaves() -> None:
    world = ClusterWorld()
    world.create((1, 2))
    world.sync(2)
    now = world.partition()
    assert (now.leader, now.isr, now.eligible_leader_replicas) == (2, (2,), (1,))
