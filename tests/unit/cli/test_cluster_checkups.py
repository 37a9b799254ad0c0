"""Findings about a cluster: each problem is reported in a sentence with its fix."""

from dataclasses import replace

import pytest

from penstock.cli.cluster.checkups import health_findings
from penstock.cli.cluster.state import ClusterState
from penstock.client.admin.brokers import LogDir
from penstock.client.admin.leaders import Unled
from penstock.client.admin.quorum import QuorumReplica
from penstock.client.admin.reassignments import Moving
from penstock.client.errors import ClientError, TimedOut, Unsupported
from penstock.client.metadata import Partition, Topic, TopicPartition
from penstock.model.errors import ErrorCode
from tests.unit.cli.cluster_states import NOW_MS, START, WELL, a_quorum, brokers, complaints, orders
from tests.unit.cli.conftest import Penstock


def test_a_cluster_that_is_well_has_a_line_for_everything_and_no_complaint() -> None:
    found = health_findings(WELL, START)
    assert all(each.is_well for each in found)
    assert [each.check for each in found] == ["controller", "broker", "offline", "replicas", "moves", "disk"]


def test_a_fenced_broker_is_named_and_so_is_what_it_lacks() -> None:
    state = replace(
        WELL, brokers=brokers(1, 2), fenced=brokers(3), topics=(orders(isr=(1, 2)),), in_sync_min={"orders": 2}
    )
    found = complaints(state)
    assert found.keys() == {"broker", "replicas"}
    assert "broker 3 is down, and fenced" in found["broker"].found
    assert "1 partition is behind on broker 3: orders[0]" in found["replicas"].found
    assert found["broker"].fix == found["replicas"].fix == START


def test_a_broker_that_nobody_knows_any_more_is_missed_for_its_replicas() -> None:
    found = complaints(replace(WELL, brokers=brokers(1, 2)))
    assert "broker 3 is not there, and has replicas" in found["broker"].found


def test_a_follower_that_is_there_and_behind_is_not_to_be_started() -> None:
    found = complaints(replace(WELL, topics=(orders(isr=(1, 2)),)))
    assert found.keys() == {"replicas"}
    assert "catches up by itself" in str(found["replicas"].fix)


def test_fewer_in_sync_than_the_topic_asks_for() -> None:
    state = replace(
        WELL, brokers=brokers(1), fenced=brokers(2, 3), topics=(orders(isr=(1,)),), in_sync_min={"orders": 2}
    )
    found = complaints(state)
    assert "1 partition refuses acks=all" in found["in-sync"].found
    assert "in-sync" not in complaints(replace(state, in_sync_min={"orders": 1}))


@pytest.mark.parametrize("leader", [-1, 3])
def test_a_partition_that_nobody_leads(leader: int) -> None:
    state = replace(WELL, brokers=brokers(1, 2), topics=(orders(leader=leader, isr=(3,), replicas=(3,)),))
    found = complaints(state)
    assert "1 partition can be neither written nor read: orders[0]" in found["offline"].found
    assert f"broker 3 has them: {START}" in str(found["offline"].fix)
    assert "replicas" not in found, "one complaint is enough"


@pytest.mark.parametrize(("has_all", "check"), [((), "lost"), ((3,), "offline")])
def test_a_partition_that_nobody_vouches_for_may_have_lost_records(has_all: tuple[int, ...], check: str) -> None:
    unled = Unled(TopicPartition("orders", 0), has_all, (1, 2))
    found = complaints(replace(WELL, topics=(orders(leader=-1, isr=()),), unled=(unled,)))
    assert found.keys() == {check}
    if check == "lost":
        assert "orders[0]; brokers 1, 2 had them all, and came back after a power cut" in found["lost"].found
        assert "penstock topic elect TOPIC --unclean" in str(found["lost"].fix)


def test_a_replica_on_its_way_lacks_nothing() -> None:
    moving = Moving(TopicPartition("orders", 0), (1, 2, 3, 4), (4,), (3,))
    state = replace(WELL, brokers=brokers(1, 2, 3, 4), topics=(orders(replicas=(1, 2, 4, 3)),))
    assert "replicas" in complaints(state)
    state = replace(state, moving=(moving,))
    assert not complaints(state)
    assert "1 partition moves" in next(each.found for each in health_findings(state) if each.check == "moves")


def test_no_controller_and_one_that_is_too_old_to_tell() -> None:
    found = complaints(replace(WELL, quorum=TimedOut("nobody leads"), moving=TimedOut("nobody leads")))
    assert found.keys() == {"controller"}
    assert "no controller is active" in found["controller"].found
    assert not complaints(replace(WELL, quorum=Unsupported("too old"), moving=Unsupported("too old")))
    assert complaints(replace(WELL, moving=TimedOut("no answer"))).keys() == {"moves"}


def test_a_voter_that_was_not_heard_is_told_with_how_many_more_may_fail() -> None:
    found = complaints(replace(WELL, quorum=a_quorum(0, 200, 60_000)))
    assert "controller 3 of 3 is not heard" in found["controller"].found
    assert "if one more fails, nothing can be decided" in found["controller"].found
    found = complaints(replace(WELL, quorum=a_quorum(0, 1, 2, 3, 60_000)))
    assert "1 more may fail" in found["controller"].found


def test_a_broker_that_does_not_follow_the_metadata() -> None:
    observers = (QuorumReplica(2, b"", 50, NOW_MS - 60_000, NOW_MS), QuorumReplica(9, b"", 1, 0, 0))
    found = complaints(replace(WELL, quorum=replace(a_quorum(0, 1, 2), observers=observers)))
    assert "broker 2 is let in, but did not follow" in found["controller"].found


def test_a_broker_that_does_not_answer_and_disks() -> None:
    offline = LogDir("/a", ErrorCode.KAFKA_STORAGE_ERROR, -1, -1, {})
    full = LogDir("/b", ErrorCode.NONE, 10**12, 10**6, {})
    silent: ClientError = TimedOut("no answer")
    rows = health_findings(replace(WELL, log_dirs={1: [offline], 2: [full], 3: silent}), START)
    told = [each.found for each in rows if not each.is_well]
    assert any("broker 3 is let in, but does not answer at host:9093" in each for each in told)
    assert any("/a of broker 1 is offline" in each for each in told)
    assert any("free at /b of broker 2" in each for each in told)


def test_a_fenced_broker_that_answers_is_not_to_be_started() -> None:
    full = LogDir("/b", ErrorCode.NONE, -1, 10**6, {})
    found = complaints(replace(WELL, brokers=brokers(1, 2), fenced=brokers(3), log_dirs={3: [full]}))
    assert "broker 3 runs, but leads nothing" in found["broker"].found
    assert START not in str(found["broker"].fix)
    assert "free at /b of broker 3" in found["disk"].found


def test_many_partitions_are_not_all_named() -> None:
    parts = tuple(Partition(index, 1, 1, (1, 2), (1,), ()) for index in range(9))
    found = complaints(replace(WELL, topics=(Topic("orders", b"", False, parts),)))
    assert found["replicas"].found.endswith("orders[4] and 4 more")


def test_nobody_answers_is_another_exit_code(penstock: Penstock) -> None:
    result = penstock("cluster", "health", "-b", "127.0.0.1:1", "-o", "json")
    assert result.code == 2
    assert "nobody answers" in result.out


def with_damage(leader: int, isr: tuple[int, ...], damaged: tuple[int, ...]) -> ClusterState:
    partition = Partition(0, leader, 5, (1, 2, 3), isr, damaged)
    return replace(WELL, topics=(Topic("orders", b"0" * 16, False, (partition,)),))


def test_a_damaged_replica_is_named_and_mended_by_the_broker() -> None:
    found = complaints(with_damage(1, (1, 3), (2,)))
    assert found["damaged"].found == "the log of 1 partition on broker 2 is damaged: orders[0]"
    assert "fetches it anew" in (found["damaged"].fix or "")


def test_a_damaged_last_copy_is_kept_and_an_operator_asked() -> None:
    state = with_damage(-1, (), (2,))
    unled = Unled(TopicPartition("orders", 0), has_all=(2,), had_all=())
    found = complaints(replace(state, unled=(unled,)))
    assert "the only replica there that has every acknowledged record is on broker 2" in found["damaged"].found
    assert "--unclean" in (found["damaged"].fix or "")
    assert "offline" not in found


def test_a_replica_on_a_broker_that_is_down_is_not_called_damaged() -> None:
    state = replace(with_damage(1, (1, 3), (2,)), brokers=brokers(1, 3), fenced=brokers(2))
    assert "damaged" not in complaints(state)
