"""Damage reports of brokers (AssignReplicasToDirs): other replicas lead, and a last copy is never discarded."""

import pytest

from penstock.metadata.cluster_commands import AlterPartition, Assigned, AssignReplicas, ElectLeaders, NewIsr
from penstock.metadata.cluster_commands import PartitionRef as Ref
from penstock.metadata.image import LOST_DIRECTORY, NO_LEADER, Partition
from penstock.model.errors import ErrorCode
from tests.unit.metadata.cluster_world import ClusterWorld


def a_world() -> ClusterWorld:
    world = ClusterWorld()
    world.create((1, 2, 3))
    return world


def report(world: ClusterWorld, broker_id: int, *, is_damaged: bool = True) -> ErrorCode:
    broker = world.broker(broker_id)
    topic = world.image.topics["orders"]
    directory = LOST_DIRECTORY if is_damaged else broker.log_dirs[0]
    reply = world.ask(AssignReplicas(broker_id, broker.epoch, (Assigned(directory, topic.topic_id, 0),)))
    world.tick()
    return reply.code or reply.replicas[0].code


def relied_on(partition: Partition) -> set[int]:
    return {*partition.isr, *partition.eligible_leader_replicas}


def test_a_damaged_leader_hands_over() -> None:
    world = a_world()
    assert report(world, 1) is ErrorCode.NONE
    partition = world.partition()
    assert (partition.leader, partition.isr, partition.leader_epoch) == (2, (2, 3), 1)
    assert partition.damaged == (1,)
    assert 1 not in relied_on(partition)


def test_a_damaged_follower_begins_a_leader_epoch_once() -> None:
    """Within one leader and broker epoch a follower's offset never goes back: its empty log would count as complete."""
    world = a_world()
    report(world, 3)
    partition = world.partition()
    assert (partition.leader, partition.isr, partition.leader_epoch) == (1, (1, 2), 1)
    report(world, 3)
    assert world.partition() == partition, "it was told before"


def test_a_damaged_replica_leaves_the_eligible_ones_too() -> None:
    world = a_world()
    for each in (1, 2):
        world.beat(each, fence=True)
    world.tick()
    assert relied_on(world.partition()) == {2, 3}
    report(world, 2)
    partition = world.partition()
    assert relied_on(partition) == {3}
    assert partition.last_known_elr == (2,)


def test_the_last_copy_stays_eligible_and_is_not_elected() -> None:
    world = a_world()
    for each in (1, 2, 3):
        report(world, each)
    partition = world.partition()
    assert (partition.leader, partition.isr, partition.eligible_leader_replicas) == (NO_LEADER, (), (3,))
    assert partition.damaged == (1, 2, 3)
    world.pass_ms(10_000)
    assert world.partition().leader == NO_LEADER
    report(world, 3, is_damaged=False)
    partition = world.partition()
    assert (partition.leader, partition.isr, partition.damaged) == (3, (3,), (1, 2)), "it was repaired"


def test_a_lone_replica_is_kept() -> None:
    world = ClusterWorld()
    world.create((2,))
    report(world, 2)
    partition = world.partition()
    assert (partition.leader, relied_on(partition)) == (NO_LEADER, {2})


def test_an_operator_may_go_on_without_the_last_copy_but_with_no_damaged_one() -> None:
    world = a_world()
    for each in (1, 2, 3):
        report(world, each)
    (elected,) = world.ask(ElectLeaders((Ref("orders", 0),), is_unclean=True))
    assert elected.code is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    report(world, 1, is_damaged=False)
    (elected,) = world.ask(ElectLeaders((Ref("orders", 0),), is_unclean=True))
    assert elected.code is ErrorCode.NONE
    partition = world.partition()
    assert (partition.leader, partition.isr, partition.eligible_leader_replicas) == (1, (1,), ())


def test_a_damaged_replica_does_not_join() -> None:
    world = a_world()
    report(world, 3)
    partition, topic = world.partition(), world.image.topics["orders"]
    isr = tuple((each, world.broker(each).epoch) for each in (1, 2, 3))
    new = NewIsr(topic.topic_id, 0, partition.leader_epoch, partition.partition_epoch, isr)
    reply = world.ask(AlterPartition(1, world.broker(1).epoch, (new,)))
    assert reply.partitions[0].code is ErrorCode.INELIGIBLE_REPLICA
    report(world, 3, is_damaged=False)
    new = NewIsr(topic.topic_id, 0, partition.leader_epoch, world.partition().partition_epoch, isr)
    world.ask(AlterPartition(1, world.broker(1).epoch, (new,)))
    assert world.partition().isr == (1, 2, 3)


@pytest.mark.parametrize("is_damaged", [False, True])
def test_reports_of_former_lives_and_of_others_replicas_are_refused(is_damaged: bool) -> None:
    world = a_world()
    topic_id, broker = world.image.topics["orders"].topic_id, world.broker(1)
    directory = LOST_DIRECTORY if is_damaged else broker.log_dirs[0]
    before = world.partition()
    for epoch in (broker.epoch - 1, broker.epoch + 1):
        reply = world.ask(AssignReplicas(1, epoch, (Assigned(directory, topic_id, 0),)))
        assert reply.code is ErrorCode.STALE_BROKER_EPOCH
    wrong = (Assigned(directory, bytes(16), 0), Assigned(directory, topic_id, 9), Assigned(b"?" * 16, topic_id, 0))
    codes = [each.code for each in world.ask(AssignReplicas(1, broker.epoch, wrong)).replicas]
    assert codes == [ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_REQUEST]
    assert world.partition() == before
    world.create((2, 3), name="u")
    other = world.image.topics["u"].topic_id
    reply = world.ask(AssignReplicas(1, broker.epoch, (Assigned(directory, other, 0),)))
    assert reply.replicas[0].code is ErrorCode.NOT_LEADER_OR_FOLLOWER
