"""Reassignment of partitions to other brokers."""

import pytest

from penstock.metadata.cluster_commands import AlterReassignments, ListReassignments, PartitionRef, Reassignment
from penstock.metadata.copying import copying
from penstock.metadata.image import Partition
from penstock.model.errors import ErrorCode
from tests.unit.metadata.cluster_world import ClusterWorld


def shown(partition: Partition) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    return partition.replicas, partition.adding_replicas, partition.removing_replicas


@pytest.fixture
def world() -> ClusterWorld:
    world = ClusterWorld(brokers=(1, 2, 3, 4, 5))
    world.create((1, 2, 3))
    return world


def test_a_move_ends_when_those_who_come_are_in_sync(world: ClusterWorld) -> None:
    assert world.reassign((4, 2, 3)).code is ErrorCode.NONE
    assert shown(world.partition()) == ((4, 2, 3, 1), (4,), (1,))
    assert world.partition().leader == 1
    (moving,) = world.ask(ListReassignments())
    assert (moving.partition, moving.adding, moving.removing) == (("orders", 0), (4,), (1,))
    answer = world.alter(world.new_isr(1, 2, 3, 4))
    assert answer.code is ErrorCode.NEW_LEADER_ELECTED, "the old leader is no replica any more"
    after = world.partition()
    assert shown(after) == ((4, 2, 3), (), ())
    assert (after.leader, after.leader_epoch, sorted(after.isr)) == (4, 1, [2, 3, 4])
    assert after.directories == tuple(world.broker(each).log_dirs[0] for each in (4, 2, 3))
    assert world.ask(ListReassignments()) == ()


def test_a_replica_that_has_left_ends_an_epoch(world: ClusterWorld) -> None:
    """Otherwise its fetches would still count as a replica's."""
    world.reassign((1, 2))
    after = world.partition()
    assert (shown(after), after.leader, after.leader_epoch) == (((1, 2), (), ()), 1, 1)


def test_more_replicas(world: ClusterWorld) -> None:
    world.reassign((1, 2, 3, 4, 5))
    assert shown(world.partition()) == ((1, 2, 3, 4, 5), (4, 5), ())
    world.sync(1, 2, 3, 4)
    assert world.partition().adding_replicas == (4, 5), "one is missing"
    world.sync(1, 2, 3, 4, 5)
    assert shown(world.partition()) == ((1, 2, 3, 4, 5), (), ())
    (refused,) = world.ask(
        AlterReassignments((Reassignment(PartitionRef("orders", 0), (1, 2)),), allows_other_factor=False)
    )
    assert refused.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_order_alone_is_a_move_that_ends_at_once(world: ClusterWorld) -> None:
    world.reassign((3, 2, 1))
    after = world.partition()
    assert (shown(after), after.leader, after.leader_epoch) == (((3, 2, 1), (), ()), 1, 0)


def test_cancelling_brings_back_what_was(world: ClusterWorld) -> None:
    before = world.partition()
    assert world.reassign(None).code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    world.reassign((4, 5))
    world.sync(1, 2, 3, 4)
    assert world.reassign(None).code is ErrorCode.NONE
    after = world.partition()
    assert sorted(after.replicas) == [1, 2, 3]
    assert (shown(after)[1:], after.isr, after.leader) == (((), ()), (1, 2, 3), 1)
    assert after.leader_epoch == before.leader_epoch + 1, "the one that was on its way is refused from now on"


def test_it_cannot_be_cancelled_when_only_the_new_ones_have_the_records(world: ClusterWorld) -> None:
    world.reassign((4, 5))
    world.sync(1, 2, 3, 4)
    world.kill(1, 2, 3)
    assert world.partition().isr == (4,)
    refused = world.reassign(None)
    assert refused.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert "none of those that would be left is in sync" in str(refused.message)
    world.restart(2)
    world.sync(4, 2)
    refused = world.reassign(None)
    assert refused.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert "1 are sure to have every record, and 2 are needed" in str(refused.message)
    world.restart(3)
    world.sync(4, 2, 3)
    assert world.reassign(None).code is ErrorCode.NONE
    assert world.partition().leader == 2


def test_one_move_replaces_another(world: ClusterWorld) -> None:
    world.reassign((1, 2, 4))
    world.sync(1, 2, 3)
    world.reassign((1, 4, 5))
    assert shown(world.partition()) == ((1, 4, 5, 2, 3), (4, 5), (2, 3)), "the fourth is still on its way"
    world.reassign((1, 2, 5))
    assert shown(world.partition()) == ((1, 2, 5, 3), (5,), (3,)), "and now it is not wanted"


def test_a_move_does_not_end_below_the_minimum(world: ClusterWorld) -> None:
    world.reassign((1, 2, 4))
    world.kill(1)
    world.kill(2)
    world.sync(3, 4)
    assert world.partition().removing_replicas == (3,), "with the third gone one would be left of two"
    world.restart(2)
    world.sync(3, 4, 2)
    assert shown(world.partition()) == ((1, 2, 4), (), ())
    assert world.partition().isr == (4, 2)


def test_those_who_are_eligible_do_not_leave_while_too_few_are_whole(world: ClusterWorld) -> None:
    """One replica is in sync and another is eligible; if the first turns out to have lost its disk, the other leads."""
    world.reassign((1, 4, 5))
    world.kill(2, 3)
    world.sync(1, 4)
    world.kill(4)
    assert (world.partition().isr, world.partition().eligible_leader_replicas) == ((1,), (4,))
    assert world.reassign(None).code is ErrorCode.INVALID_REPLICA_ASSIGNMENT, "that leaves one of two"
    world.restart(4)
    world.kill(1)
    assert (world.partition().isr, world.partition().eligible_leader_replicas) == ((4,), (1,))
    assert world.reassign((4, 2, 3)).code is ErrorCode.NONE
    assert shown(world.partition()) == ((4, 2, 3, 1), (4,), (1,)), "the first is needed until another is in sync"
    world.restart(3)
    world.sync(4, 3)
    assert shown(world.partition()) == ((4, 2, 3), (), ())


def test_what_is_named_by_hand_is_checked(world: ClusterWorld) -> None:
    for wrong in ((), (1, 1), (1, 9)):
        assert world.reassign(wrong).code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert world.reassign((1,), name="bills").code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert world.reassign((1,), index=3).code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    twice = Reassignment(PartitionRef("orders", 0), (1, 2))
    answers = world.ask(AlterReassignments((twice, twice)))
    assert [answer.code for answer in answers] == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST]


def test_a_broker_copies_a_bounded_number_at_a_time_and_the_throttle_ends_by_itself() -> None:
    world = ClusterWorld(brokers=(1, 2, 3, 4), settings={"reassignment.replicas.per.broker.max": "2"})
    world.create(*((1, 2, 3),) * 4)
    for index in range(4):
        world.reassign((1, 2, 4), index=index)

    def copied() -> list[int]:
        now = copying(4, world.controller.index.of_broker(4), world.controller.settings)
        assert now.bytes_per_second_max == 50 * 1024 * 1024
        return [entry.number for entry in now.partitions]

    assert copied() == [0, 1]
    world.sync(1, 2, 3, 4, index=0)
    assert copied() == [1, 2]
    for index in (1, 2, 3):
        world.sync(1, 2, 3, 4, index=index)
    assert copied() == [], "nothing is throttled, and nothing had to be taken away"
