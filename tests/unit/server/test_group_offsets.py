"""Committed offsets over the wire: topics and partitions that are missing or were recreated."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.client.cluster import Cluster
from penstock.coordinator.ports import AppendRefused, Now
from penstock.coordinator.records import GroupRecord
from penstock.metadata.image import Image
from penstock.model.errors import ErrorCode
from penstock.server.connections.serving import Client
from penstock.server.groups.group_log import PartitionLog
from penstock.server.handlers.groups.offset_fetch import GROUP_ELEMENTS, OffsetFetchHandler
from penstock.server.loop.pacing import Pacer
from penstock.server.loop.pieces import TURN_ELEMENTS
from penstock.server.node import Node
from penstock.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from penstock.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from penstock.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from penstock.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from penstock.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from tests.simulation.coordinating_servers.members import Asking, ClassicMember, ConsumerMember, until_settled
from tests.unit.server.grouped_town import NONE, PARTITIONS, TOPIC, coordinator_of, run
from tests.unit.server.town import Town

MISSING = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# --- deleted topics ---------------------------------------------------------------------------------------------------


def fetching_at(node: Node) -> OffsetFetchHandler:
    return OffsetFetchHandler(node.broker.groups, node.member.controller)


def test_what_was_read_of_a_deleted_topic_is_forgotten() -> None:
    async def story(town: Town, cluster: Cluster) -> None:
        await town.admin(1).create_topic("short", 1, 3)
        asking = Asking(cluster, "f")
        assert await asking.commit("short", {0: 5}) == {0: NONE}
        assert await asking.commit(TOPIC, {0: 6}) == {0: NONE}
        await town.admin(1).delete_topic("short")
        _, shard = await coordinator_of(town, cluster, "f")
        await town.until(lambda: shard.shard is not None and list(shard.shard.offsets.of("f")) == [(TOPIC, 0)])
        await town.until(lambda: shard.shard is not None and not shard.shard.offsets.orphans)

    run(story)


def test_also_by_who_learns_of_it_together_with_a_new_one_of_the_same_name(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(town: Town, cluster: Cluster) -> None:
        names = (f"g{number}" for number in range(50))
        name = next(names)
        while await cluster.coordinator(name) == town.leader:
            name = next(names)
        node, _ = await coordinator_of(town, cluster, name)
        assert town.leader is not None
        leader, asking, controller = town.nodes[town.leader], Asking(cluster, name), node.member.controller
        admin = town.admin(town.leader)
        await admin.create_topic("short", 2, 3)
        assert await asking.commit("short", {0: 41, 1: 42}) == {0: NONE, 1: NONE}
        images: list[Image] = []
        with monkeypatch.context() as patch:
            patch.setattr(controller.runtime, "_publish", images.append)
            await admin.delete_topic("short")
            await admin.create_topic("short", 2, 3)
            made = leader.member.controller.image.topics["short"].topic_id
            await town.until(lambda: bool(images) and images[-1].topic_by_id(made) is not None)
        controller.runtime._publish(images[-1])
        controller._driver.absorb(controller.runtime._wanted())
        assert await asking.committed("short", [0, 1]) == (NONE, {0: -1, 1: -1})
        assert await asking.commit("short", {0: 1}) == {0: NONE}
        await asyncio.sleep(2)
        assert await asking.committed("short", [0, 1]) == (NONE, {0: 1, 1: -1})

    run(story)


def test_also_by_who_could_not_write_it_down_before_there_was_a_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(town: Town, cluster: Cluster) -> None:
        asking, admin = Asking(cluster, "g"), town.admin(1)
        await admin.create_topic("short", 2, 3)
        assert await asking.commit("short", {0: 41, 1: 42}) == {0: NONE, 1: NONE}
        with monkeypatch.context() as patch:
            patch.setattr(PartitionLog, "append", _refuse)
            await admin.delete_topic("short")
            await asyncio.sleep(0.3)
        await admin.create_topic("short", 2, 3)
        assert await asking.commit("short", {0: 1}) == {0: NONE}
        await asyncio.sleep(2)
        assert await asking.committed("short", [0, 1]) == (NONE, {0: 1, 1: -1})
        _, shard = await coordinator_of(town, cluster, "g")
        assert shard.shard is not None
        assert not shard.shard.offsets.orphans

    run(story)


def _refuse(_log: PartitionLog, _epoch: int, _records: Sequence[GroupRecord], _now: Now) -> int:
    raise AppendRefused("too few replicas are in sync")


# --- missing topics and partitions ------------------------------------------------------------------------------------


def test_nothing_is_committed_for_partitions_that_are_not_there() -> None:
    async def story(town: Town, cluster: Cluster) -> None:
        asking = Asking(cluster, "g")
        topic_id = town.nodes[1].member.controller.image.topics[TOPIC].topic_id
        numbers = [PARTITIONS, 10**9, 2, -5]
        rows = [
            OffsetCommitRequestPartition(partition_index=each, committed_offset=1, committed_metadata="")
            for each in numbers
        ]
        for version in (9, 10):
            topic = OffsetCommitRequestTopic(name=TOPIC, topic_id=topic_id, partitions=rows)
            request = OffsetCommitRequest(group_id="g", member_id="", topics=[topic])
            (told,) = (await asking.ask(request, OffsetCommitResponse, version=version)).topics
            codes = {each.partition_index: each.error_code for each in told.partitions}
            assert codes == {2: NONE} | dict.fromkeys([PARTITIONS, 10**9, -5], MISSING)
        assert await asking.commit(TOPIC, {PARTITIONS: 1}) == {PARTITIONS: MISSING}
        _, shard = await coordinator_of(town, cluster, "g")
        assert shard.shard is not None
        assert list(shard.shard.offsets.of("g")) == [(TOPIC, 2)]

    run(story)


def test_nothing_is_deleted_of_them_either() -> None:
    async def story(_town: Town, cluster: Cluster) -> None:
        asking = Asking(cluster, "g")
        assert await asking.commit(TOPIC, {2: 1}) == {2: NONE}
        rows = [OffsetDeleteRequestPartition(partition_index=each) for each in (PARTITIONS, 2, -5)]
        topics = [OffsetDeleteRequestTopic(name=TOPIC, partitions=rows)]
        (told,) = (await asking.ask(OffsetDeleteRequest(group_id="g", topics=topics), OffsetDeleteResponse)).topics
        codes = {each.partition_index: each.error_code for each in told.partitions}
        assert codes == {2: NONE, PARTITIONS: MISSING, -5: MISSING}
        assert await asking.committed(TOPIC, [2]) == (NONE, {2: -1})

    run(story)


def test_who_is_not_a_member_is_told_so_in_all_versions() -> None:
    async def story(_town: Town, cluster: Cluster) -> None:
        member = ConsumerMember(cluster, "k", TOPIC, "member-1")
        await until_settled(member)
        stranger = OffsetFetchRequestGroup(group_id="k", member_id="nobody", member_epoch=7, topics=None)
        for version in (9, 10):
            told = await member.ask(OffsetFetchRequest(groups=[stranger]), OffsetFetchResponse, version=version)
            assert told.groups[0].error_code is ErrorCode.UNKNOWN_MEMBER_ID

    run(story)


# --- repeated names ---------------------------------------------------------------------------------------------------


def test_a_group_that_is_named_many_times_is_shown_once() -> None:
    async def story(_town: Town, cluster: Cluster) -> None:
        asking = Asking(cluster, "g")
        assert await asking.commit(TOPIC, {2: 1}) == {2: NONE}
        classic = await asking.ask(DescribeGroupsRequest(groups=["g"] * 3), DescribeGroupsResponse)
        assert [each.group_id for each in classic.groups] == ["g"]
        described = ConsumerGroupDescribeRequest(group_ids=["g"] * 3, include_authorized_operations=False)
        consumer = await asking.ask(described, ConsumerGroupDescribeResponse)
        assert [each.group_id for each in consumer.groups] == ["g"]
        whole = [OffsetFetchRequestGroup(group_id="g", topics=None)] * 3
        fetched = await asking.ask(OffsetFetchRequest(groups=whole), OffsetFetchResponse, version=9)
        assert [each.group_id for each in fetched.groups] == ["g"]

    run(story)


def test_so_is_a_partition() -> None:
    """Otherwise four bytes could request a whole metadata string, a million times."""

    async def story(town: Town, cluster: Cluster) -> None:
        asking = Asking(cluster, "g")
        assert await asking.commit(TOPIC, {1: 1, 2: 1}) == {1: NONE, 2: NONE}
        topic_id = town.nodes[1].member.controller.image.topics[TOPIC].topic_id
        many = OffsetFetchRequestTopics(name=TOPIC, topic_id=topic_id, partition_indexes=[2, 1, 2, 2])
        for version in OffsetFetchRequest.VERSIONS:
            groups = [OffsetFetchRequestGroup(group_id="g", topics=[many] * 3)] * 2
            request = OffsetFetchRequest(groups=groups)
            if version < 8:
                topics = [OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[2, 1, 2, 2])] * 3
                request = OffsetFetchRequest(group_id="g", topics=topics)
            told = await asking.ask(request, OffsetFetchResponse, version=version)
            found = [each.topics for each in told.groups] if version >= 8 else [told.topics]
            seen = [each for topics in found for topic in topics for each in topic.partitions]
            assert [(each.partition_index, each.committed_offset) for each in seen] == [(2, 1), (1, 1)]

    run(story)


def test_others_have_their_turn_while_many_groups_are_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    turns, turn = 0, Pacer.turn

    async def counted(pacer: Pacer) -> None:
        nonlocal turns
        turns += 1
        await turn(pacer)

    async def story(town: Town, cluster: Cluster) -> None:
        assert await Asking(cluster, "g").commit(TOPIC, {2: 1}) == {2: NONE}
        node, _ = await coordinator_of(town, cluster, "g")
        topics = [OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[2])]
        groups = [OffsetFetchRequestGroup(group_id=f"g{number}", topics=topics) for number in range(500)]
        call: Any = SimpleNamespace(version=9, client_id="c", peer="10.0.0.1:1", client=Client())
        monkeypatch.setattr(Pacer, "turn", counted)
        answered = await fetching_at(node).offset_fetch(OffsetFetchRequest(groups=groups), call)
        assert turns >= 500 * GROUP_ELEMENTS // TURN_ELEMENTS
        assert len(answered.groups) == 500

    run(story)


def test_a_group_whose_partitions_are_named_many_times_is_fetched_once() -> None:
    async def story(town: Town, cluster: Cluster) -> None:
        assert await Asking(cluster, "g").commit(TOPIC, {2: 1}) == {2: NONE}
        node, _ = await coordinator_of(town, cluster, "g")
        topics = [OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[2, 2])] * 3
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=topics)] * 200)
        call: Any = SimpleNamespace(version=9, client_id="c", peer="10.0.0.1:1", client=Client())
        (group,) = (await fetching_at(node).offset_fetch(request, call)).groups
        (topic,) = group.topics
        assert [each.partition_index for each in topic.partitions] == [2]

    run(story)


@pytest.mark.parametrize("version", [7, 9])
def test_only_librdkafka_is_told_nothing_by_who_does_not_coordinate(version: int) -> None:
    """Otherwise librdkafka would never retry."""

    async def story(town: Town, cluster: Cluster) -> None:
        assert await Asking(cluster, "g").commit(TOPIC, {2: 1}) == {2: NONE}
        coordinator, _ = await coordinator_of(town, cluster, "g")
        other = next(node for node in town.nodes.values() if node is not coordinator)
        whole = OffsetFetchRequestGroup(group_id="g", topics=None)
        request = OffsetFetchRequest(group_id="g", topics=None) if version < 8 else OffsetFetchRequest(groups=[whole])
        for name in ("apache-kafka-java", "librdkafka", "confluent-kafka-python"):
            client = Client(software_name=name, software_version="4.3.1" if "java" in name else "2.16.1-rdkafka-2.16.0")
            call: Any = SimpleNamespace(version=version, client_id="c", peer="10.0.0.1:1", client=client)
            if "java" in name:
                said = await fetching_at(other).offset_fetch(request, call)
                assert (said.groups[0] if said.groups else said).error_code is ErrorCode.NOT_COORDINATOR
            else:
                with pytest.raises(ConnectionAbortedError):
                    await fetching_at(other).offset_fetch(request, call)

    run(story)


def a_commit(offset: int, count: int, topic: str = "wide") -> OffsetCommitRequest:
    partitions = [
        OffsetCommitRequestPartition(partition_index=number, committed_offset=offset, committed_metadata="")
        for number in range(count)
    ]
    return OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[OffsetCommitRequestTopic(name=topic, partitions=partitions)],
    )


def test_commits_of_many_partitions_are_not_overtaken_and_are_fetched_whole() -> None:
    """Both are decided in parts: the second commit on the connection follows the whole first one."""

    async def story(town: Town, cluster: Cluster) -> None:
        await town.admin(1).create_topic("wide", 1_200, 3)
        asking = Asking(cluster, "g", timeout_ms=30_000)
        first, second = await asyncio.gather(
            asking.ask(a_commit(1, 1_300), OffsetCommitResponse, version=9),
            asking.ask(a_commit(2, 1_200), OffsetCommitResponse, version=9),
        )
        codes = Counter(each.error_code for topic in first.topics for each in topic.partitions)
        assert codes == {NONE: 1_200, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 100}
        assert {each.error_code for topic in second.topics for each in topic.partitions} == {NONE}
        for topics in (None, [OffsetFetchRequestTopics(name="wide", partition_indexes=range(1_200))]):
            group = OffsetFetchRequestGroup(group_id="g", topics=topics)
            (found,) = (await asking.ask(OffsetFetchRequest(groups=[group]), OffsetFetchResponse, version=9)).groups
            (topic,) = found.topics
            assert {each.committed_offset for each in topic.partitions} == {2}
            assert [each.partition_index for each in topic.partitions] == list(range(1_200))
        deleted = OffsetDeleteRequest(
            group_id="g",
            topics=[
                OffsetDeleteRequestTopic(
                    name="wide",
                    partitions=[OffsetDeleteRequestPartition(partition_index=number) for number in range(1_200)] * 2,
                )
            ],
        )
        (forgotten,) = (await asking.ask(deleted, OffsetDeleteResponse)).topics
        assert len(forgotten.partitions) == 1_200
        await asking.close()

    run(story)


def test_many_members_leave_in_parts_and_each_is_answered_once() -> None:
    async def story(town: Town, cluster: Cluster) -> None:
        member = ClassicMember(cluster, "g", TOPIC, PARTITIONS)
        assert await member.join() is NONE
        leaving = [MemberIdentity(member_id=f"nobody-{number}") for number in range(700)]
        request = LeaveGroupRequest(
            group_id="g", members=[*leaving, MemberIdentity(member_id=member.member_id), *leaving]
        )
        answer = await Asking(cluster, "g").ask(request, LeaveGroupResponse)
        codes = {each.member_id: each.error_code for each in answer.members}
        assert len(answer.members) == 701
        assert codes.pop(member.member_id) is NONE
        assert set(codes.values()) == {ErrorCode.UNKNOWN_MEMBER_ID}

    run(story)
