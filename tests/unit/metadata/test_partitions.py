"""ISR changes, eligible leaders, and elections."""

from dataclasses import replace
from typing import Any

import pytest

from penstock.metadata.cluster_commands import AlterPartition, Assigned, AssignReplicas, ElectLeaders, PartitionRef
from penstock.metadata.commands import ConfigChanges, IncrementalAlterConfigs, Operation
from penstock.metadata.image import BROKER, LOST_DIRECTORY, TOPIC, Partition
from penstock.metadata.partition_change import Election, Rules, change_record, settle
from penstock.metadata.records import PartitionRecord
from penstock.model.epochs import INT32_EPOCH_MAX, EpochsExhausted
from penstock.model.errors import ErrorCode
from tests.unit.metadata.cluster_world import ClusterWorld

ORDERS = PartitionRef("orders", 0)


def shown(partition: Partition) -> tuple[int, tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    return partition.leader, partition.isr, partition.eligible_leader_replicas, partition.last_known_elr


# --- AlterPartition ---------------------------------------------------------------------------------------------------


def test_a_leader_says_who_is_in_sync() -> None:
    world = ClusterWorld()
    world.create((1, 2, 3))
    answer = world.alter(world.new_isr(1, 2))
    assert (answer.code, answer.isr, answer.leader, answer.partition_epoch) == (ErrorCode.NONE, (1, 2), 1, 1)
    assert world.partition().leader_epoch == 0, "nobody else leads"
    assert world.partition().isr == (1, 2)
    assert world.sync(1, 2, 3).partition_epoch == 2


def test_the_same_again_changes_nothing() -> None:
    world = ClusterWorld()
    world.create((1, 2, 3))
    answer = world.alter(world.new_isr(1, 2, 3))
    assert (answer.code, answer.partition_epoch) == (ErrorCode.NONE, 0)


@pytest.mark.parametrize(
    ("given", "sender", "code"),
    [
        ({"leader_epoch": -1}, 1, ErrorCode.FENCED_LEADER_EPOCH),
        ({"leader_epoch": 1}, 1, ErrorCode.NOT_CONTROLLER),
        ({"partition_epoch": 7}, 1, ErrorCode.NOT_CONTROLLER),
        ({"partition_epoch": -1}, 1, ErrorCode.INVALID_UPDATE_VERSION),
        ({}, 2, ErrorCode.INVALID_REQUEST),
        ({"recovery": 1}, 1, ErrorCode.INVALID_REQUEST),
    ],
)
def test_who_is_out_of_date_is_refused(given: dict[str, Any], sender: int, code: ErrorCode) -> None:
    world = ClusterWorld()
    world.create((1, 2, 3))
    assert world.alter(world.new_isr(1, 2, **given), leader=sender).code is code
    assert world.partition().isr == (1, 2, 3)


def test_in_sync_are_replicas_each_once_and_the_leader_among_them() -> None:
    world = ClusterWorld(brokers=(1, 2, 3, 4))
    world.create((1, 2, 3))
    world.sync(1, 2)
    for wrong in ((), (2, 3), (1, 4), (1, 1)):
        assert world.alter(world.new_isr(*wrong)).code is ErrorCode.INVALID_REQUEST


def test_unknown_topics_partitions_and_senders() -> None:
    world = ClusterWorld()
    world.create((1, 2, 3))
    wanted = world.new_isr(1, 2)
    stale = world.ask(AlterPartition(1, world.broker(1).epoch - 1, (wanted,)))
    assert stale.code is ErrorCode.STALE_BROKER_EPOCH
    strange = (replace(wanted, topic_id=b"?" * 16), replace(wanted, index=5), wanted, wanted)
    answers = world.ask(AlterPartition(1, world.broker(1).epoch, strange)).partitions
    assert [answer.code for answer in answers] == [
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
    ]


def test_a_replica_of_an_earlier_life_is_not_in_sync() -> None:
    """R08: the replica may have lost records that the leader saw it fetch."""
    world = ClusterWorld()
    world.create((1, 2, 3))
    world.kill(3)
    old = world.new_isr(1, 2, 3)
    world.restart(3, is_clean=False)
    assert world.alter(old).code is ErrorCode.INELIGIBLE_REPLICA
    assert world.alter(world.new_isr(1, 2, 3)).code is ErrorCode.NONE


def test_what_was_refused_as_ineligible_is_refused_for_good() -> None:
    """The leader commits without the refused replica; a late copy of its request must not add the replica."""
    world = ClusterWorld()
    world.create((1, 2, 3))
    world.sync(1, 2)
    wanted = world.new_isr(1, 2, 3)
    world.beat(3, fence=True)
    assert world.alter(wanted).code is ErrorCode.INELIGIBLE_REPLICA
    assert not world.beat(3).is_fenced
    assert world.alter(wanted).code is ErrorCode.INVALID_UPDATE_VERSION
    assert world.partition().isr == (1, 2)
    assert world.sync(1, 2, 3).isr == (1, 2, 3)


# --- eligible leaders (KIP-966) ---------------------------------------------------------------------------------------


def test_below_the_minimum_those_who_were_in_sync_stay_eligible() -> None:
    world = ClusterWorld()
    world.create((1, 2, 3))
    assert shown(world.sync(1, 2)) == (1, (1, 2), (), ())
    assert shown(world.sync(1)) == (1, (1,), (2,), ())
    assert shown(world.sync(1, 3)) == (1, (1, 3), (), ()), "enough are in sync: what was eligible may lack records"


def test_an_eligible_replica_leads_when_nobody_is_in_sync() -> None:
    world = ClusterWorld()
    world.create((1, 2, 3))
    world.sync(1, 2)
    world.sync(1)
    world.kill(1)
    assert shown(world.partition()) == (2, (2,), (1,), ())
    world.kill(2)
    assert shown(world.partition()) == (-1, (), (1, 2), ())
    assert [(p.topic.name, p.number) for p in world.controller.index.leaderless] == [("orders", 0)]
    world.pass_ms(500)
    assert world.broker(3).is_active
    assert world.partition().leader == -1, "the third one lacks records"
    world.restart(1)
    assert shown(world.partition()) == (1, (1,), (2,), ())


def test_without_the_feature_the_last_in_sync_stays_listed() -> None:
    world = ClusterWorld(has_elr=False)
    world.create((1, 2, 3))
    for broker_id in (1, 2, 3):
        world.kill(broker_id)
    assert shown(world.partition()) == (-1, (3,), (), ())
    world.restart(2)
    assert world.partition().leader == -1
    world.restart(3)
    assert shown(world.partition()) == (3, (3,), (), ())


def test_another_minimum_forgets_who_was_eligible() -> None:
    world = ClusterWorld()
    world.create((1, 2, 3))
    world.sync(1, 2)
    world.sync(1)
    assert world.partition().eligible_leader_replicas == (2,)
    lower = ConfigChanges(TOPIC, "orders", (("min.insync.replicas", Operation.SET, "1"),))
    world.ask(IncrementalAlterConfigs((lower,), asked_at=1))
    assert world.partition().eligible_leader_replicas == ()
    world.kill(1)
    assert world.partition().leader == -1, "the second one may lack what the first committed alone"


def test_the_default_of_the_cluster_does_so_too() -> None:
    world = ClusterWorld(settings={"min.insync.replicas": "2"})
    world.create((1, 2, 3))
    world.sync(1, 2)
    world.sync(1)
    lower = ConfigChanges(BROKER, "", (("min.insync.replicas", Operation.SET, "1"),))
    world.ask(IncrementalAlterConfigs((lower,), asked_at=1))
    assert world.partition().eligible_leader_replicas == ()


# --- elections --------------------------------------------------------------------------------------------------------


def test_whoever_returns_is_given_its_partitions_back_when_asked() -> None:
    world = ClusterWorld()
    world.create((1, 2, 3))
    preferred = ElectLeaders((ORDERS,))
    assert world.ask(preferred)[0].code is ErrorCode.ELECTION_NOT_NEEDED
    world.kill(1)
    assert world.ask(preferred)[0].code is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    world.restart(1)
    assert world.ask(preferred)[0].code is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "not in sync yet"
    world.sync(2, 3, 1)
    assert world.ask(preferred)[0].code is ErrorCode.NONE
    assert world.partition().leader == 1
    (missing,) = world.ask(ElectLeaders((PartitionRef("bills", 0),)))
    assert missing.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_everything_at_once_tells_only_what_there_was_to_elect() -> None:
    world = ClusterWorld()
    world.create((1, 2, 3), (2, 1, 3), (1, 3, 2))
    world.kill(1)
    world.restart(1)
    for index in (0, 2):
        world.sync(*world.partition(index=index).isr, 1, index=index)
    results = world.ask(ElectLeaders(None))
    assert [(result.partition.number, result.code) for result in results] == [(0, ErrorCode.NONE), (2, ErrorCode.NONE)]


def test_leadership_returns_by_itself() -> None:
    world = ClusterWorld(settings={"leader.imbalance.check.interval.seconds": "10"})
    world.create((1, 2, 3), (2, 1, 3))
    world.kill(1)
    world.restart(1)
    world.sync(2, 3, 1)
    world.pass_ms(10_100)
    assert [world.partition(index=index).leader for index in (0, 1)] == [1, 2]


def test_it_stays_away_when_that_is_set() -> None:
    settings = {"leader.imbalance.check.interval.seconds": "1", "auto.leader.rebalance.enable": "false"}
    world = ClusterWorld(settings=settings)
    world.create((1, 2, 3))
    world.kill(1)
    world.restart(1)
    world.sync(2, 3, 1)
    world.pass_ms(3_000)
    assert world.partition().leader == 2


def test_records_are_given_up_only_on_request() -> None:
    world = ClusterWorld()
    world.create((1, 2, 3))
    unclean = ElectLeaders((ORDERS,), is_unclean=True)
    assert world.ask(unclean)[0].code is ErrorCode.ELECTION_NOT_NEEDED
    for broker_id in (3, 2, 1):
        world.kill(broker_id)
    assert world.ask(unclean)[0].code is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    world.restart(3)
    assert world.partition().leader == -1
    assert world.ask(unclean)[0].code is ErrorCode.NONE
    after = world.partition()
    assert (*shown(after), after.leader_recovery_state) == (3, (3,), (), (), 1)
    recovered = world.alter(world.new_isr(3))
    assert (recovered.code, recovered.leader_recovery_state) == (ErrorCode.NONE, 0)


def test_or_where_the_topic_allows_it() -> None:
    world = ClusterWorld()
    world.create((1, 2, 3), unclean_leader_election_enable="true")
    for broker_id in (3, 2, 1):
        world.kill(broker_id)
    world.restart(3)
    assert world.partition().leader == 3
    assert world.partition().leader_recovery_state == 1


def test_allowing_it_elects_at_once() -> None:
    world = ClusterWorld()
    world.create((1, 2, 3))
    for broker_id in (3, 2, 1):
        world.kill(broker_id)
    world.restart(3)
    allow = ConfigChanges(TOPIC, "orders", (("unclean.leader.election.enable", Operation.SET, "true"),))
    world.ask(IncrementalAlterConfigs((allow,), asked_at=1))
    world.tick()
    assert world.partition().leader == 3


# --- partition functions ----------------------------------------------------------------------------------------------


def partition(**other: Any) -> Partition:
    return Partition((1, 2, 3), (1, 2, 3), 1, 5, 7)._replace(**other)


def test_nothing_to_settle_is_no_record() -> None:
    now = partition()
    assert change_record(b"t" * 16, 0, now, settle(now, now, {1, 2, 3}, Rules(2))) is None


def test_a_preferred_leader_that_is_out_of_sync_leaves_the_present_one() -> None:
    now = partition(isr=(2, 3), leader=3)
    assert settle(now, now, {1, 2, 3}, Rules(2), Election.PREFERRED).leader == 3


def test_the_last_known_leader_goes_first_when_records_are_given_up() -> None:
    now = partition(isr=(), leader=-1, last_known_elr=(3,))
    assert settle(now, now, {1, 2, 3}, Rules(2), Election.UNCLEAN).leader == 3


# --- the last epochs --------------------------------------------------------------------------------------------------


def at_the_end(*, leader_epoch: int, partition_epoch: int) -> ClusterWorld:
    """Creates partitions 0, with these epochs, and 1 of a topic."""
    world = ClusterWorld()
    world.create((1, 2, 3), (1, 2, 3))
    topic = world.image.topics["orders"]
    world.write(
        PartitionRecord(
            partition_id=0,
            topic_id=topic.topic_id,
            replicas=(1, 2, 3),
            isr=(1, 2, 3),
            removing_replicas=(),
            adding_replicas=(),
            leader=1,
            leader_epoch=leader_epoch,
            partition_epoch=partition_epoch,
        )
    )
    return world


def test_the_last_partition_epoch_is_not_followed_by_another() -> None:
    world = at_the_end(leader_epoch=0, partition_epoch=INT32_EPOCH_MAX - 1)
    assert world.alter(world.new_isr(1, 2)).partition_epoch == INT32_EPOCH_MAX
    first = world.new_isr(1)
    second = replace(world.new_isr(1, 2), index=1, partition_epoch=0)
    answers = world.ask(AlterPartition(1, world.broker(1).epoch, (first, second))).partitions
    assert [answer.code for answer in answers] == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE]
    assert (world.partition().isr, world.partition().partition_epoch) == ((1, 2), INT32_EPOCH_MAX)


def test_the_last_leader_epoch_is_not_followed_by_another() -> None:
    world = at_the_end(leader_epoch=INT32_EPOCH_MAX, partition_epoch=0)
    partition = world.partition()
    with pytest.raises(EpochsExhausted, match="last epoch"):
        settle(partition, partition, frozenset({2, 3}), Rules())
    assert settle(partition, partition, frozenset({1, 2}), Rules()).leader_epoch == INT32_EPOCH_MAX


def test_a_damaged_replica_is_refused_at_the_last_leader_epoch() -> None:
    world = at_the_end(leader_epoch=INT32_EPOCH_MAX, partition_epoch=0)
    before, topic_id = world.partition(), world.image.topics["orders"].topic_id
    damaged = Assigned(LOST_DIRECTORY, topic_id, 0)
    reply = world.ask(AssignReplicas(3, world.broker(3).epoch, (damaged,)))
    assert reply.replicas[0].code is ErrorCode.INVALID_REQUEST
    assert world.partition() == before
