"""Three whole nodes on virtual time that coordinate groups: over the wire, in all versions, across failovers."""

import asyncio
from dataclasses import replace
from typing import Final

import pytest

from penstock.client.cluster import Cluster
from penstock.client.errors import ClientError
from penstock.coordinator.placement import OFFSETS_TOPIC
from penstock.metadata.settings.layers import BrokerSettings
from penstock.model.errors import ErrorCode
from penstock.server.controller.topic_creation import needed_topic
from penstock.server.groups.group_coordinator import GroupCoordinator
from penstock.server.loop.pieces import TOO_LARGE
from penstock.server.settings import NodeSettings
from penstock.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from penstock.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from penstock.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from penstock.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from penstock.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from penstock.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
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
from penstock.wire.messages.produce import ProduceRequest, ProduceResponse
from penstock.wire.types import ZERO_UUID
from tests.simulation.coordinating_servers.members import Asking, ClassicMember, ConsumerMember, until_settled
from tests.simulation.three_servers.world import NODES, PORT
from tests.unit.server.grouped_town import NONE, PARTITIONS, SHARDS, TOPIC, coordinator_of, run, settings_of
from tests.unit.server.handlers.bare_node import a_batch, to_produce
from tests.unit.server.town import Town, cluster_of, tell

STRANGER: Final = bytes(range(16))


def test_a_group_shares_partitions_and_its_commits_outlive_its_coordinator() -> None:
    async def story(town: Town, cluster: Cluster) -> None:
        members = [ClassicMember(cluster, "g", TOPIC, PARTITIONS) for _ in range(2)]
        assert await asyncio.gather(*(member.join() for member in members)) == [NONE, NONE]
        assert sorted(members[0].assigned + members[1].assigned) == list(range(PARTITIONS))
        assert members[0].generation == members[1].generation
        for member in members:
            assert await member.heartbeat() is NONE
            assert set((await member.commit_own(41)).values()) == {NONE}
        node, _ = await coordinator_of(town, cluster, "g")
        town.kill(node.settings.node_id)
        for member in members:
            member.look_elsewhere()
        reader = Asking(cluster, "g")
        deadline = asyncio.get_running_loop().time() + 20
        while True:
            try:
                code, found = await reader.committed(TOPIC, range(PARTITIONS))
                if code is NONE:
                    break
            except ClientError:
                pass
            assert asyncio.get_running_loop().time() < deadline
            reader.look_elsewhere()
            await asyncio.sleep(0.1)
        assert found == dict.fromkeys(range(PARTITIONS), 41)
        for member in members:  # the next coordinator has loaded the members and their assignments
            assert await member.heartbeat() is NONE
            assert set((await member.commit_own(42)).values()) == {NONE}
        assert await members[0].leave() is NONE
        assert await members[1].heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
        assert await members[1].join() is NONE
        assert sorted(members[1].assigned) == list(range(PARTITIONS))
        assert (await reader.committed(TOPIC, [0]))[1] == {0: 42}

    run(story)


def test_members_without_meetings_share_partitions_over_a_change_of_coordinators() -> None:
    async def story(town: Town, cluster: Cluster) -> None:
        one, two = (ConsumerMember(cluster, "k", TOPIC, f"member-{number}") for number in range(2))
        await until_settled(one)
        assert len(one.assigned) == PARTITIONS
        await until_settled(one, two)
        await until_settled(one, two)
        assert sorted(len(member.assigned) for member in (one, two)) == [PARTITIONS // 2] * 2
        assert not {*one.assigned} & {*two.assigned}
        assert set((await one.commit(TOPIC, {0: 7}, one.epoch, one.member_id)).values()) == {NONE}
        assert set((await one.commit(TOPIC, {0: 7}, one.epoch - 1, one.member_id)).values()) == {
            ErrorCode.STALE_MEMBER_EPOCH
        }
        before = one.epoch, one.assigned
        node, shard = await coordinator_of(town, cluster, "k")
        # Another broker takes over, loads the log, and continues.
        placed = node.member.controller.image.topics[OFFSETS_TOPIC].partitions[shard.index]
        town.kill(node.settings.node_id)
        await town.until(
            lambda: all(
                each.member.controller.image.topics[OFFSETS_TOPIC].partitions[shard.index].leader != placed.leader
                for each in town.nodes.values()
            )
        )
        for member in (one, two):
            member.look_elsewhere()
            while await member.heartbeat() is not NONE:
                member.look_elsewhere()
                await asyncio.sleep(0.05)
        assert (one.epoch, one.assigned) == before
        described = await one.ask(
            ConsumerGroupDescribeRequest(group_ids=["k", "nobody"], include_authorized_operations=True),
            ConsumerGroupDescribeResponse,
        )
        found, missing = described.groups
        assert (found.group_state, len(found.members), found.assignor_name) == ("Stable", 2, "uniform")
        assert found.authorized_operations > 0
        assert missing.error_code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.NOT_COORDINATOR)
        assert await two.leave() is NONE

    run(story)


def test_answers_about_groups_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.server.handlers.groups.group_admin.DESCRIBED_BYTES_MAX", 50)
    monkeypatch.setattr("penstock.server.handlers.groups.consumer_groups.DESCRIBED_BYTES_MAX", 50)

    async def story(_town: Town, cluster: Cluster) -> None:
        classic = ClassicMember(cluster, "classic", TOPIC, PARTITIONS)
        assert await classic.join() is NONE
        for version in DescribeGroupsRequest.VERSIONS:
            request = DescribeGroupsRequest(groups=["classic"])
            (found,) = (await classic.ask(request, DescribeGroupsResponse, version=version)).groups
            assert (found.error_code, found.members) == (ErrorCode.POLICY_VIOLATION, ())
            assert found.error_message == (TOO_LARGE if version >= 6 else None)
        member = ConsumerMember(cluster, "consumer", TOPIC, "m")
        await until_settled(member)
        asked = ConsumerGroupDescribeRequest(group_ids=["consumer"], include_authorized_operations=False)
        (shown,) = (await member.ask(asked, ConsumerGroupDescribeResponse)).groups
        assert (shown.error_code, shown.error_message) == (ErrorCode.POLICY_VIOLATION, TOO_LARGE)

    run(story)


def test_offsets_are_committed_in_all_versions() -> None:
    async def story(town: Town, cluster: Cluster) -> None:
        asking = Asking(cluster, "all")
        topic_id = town.nodes[1].member.controller.image.topics[TOPIC].topic_id
        for version in OffsetCommitRequest.VERSIONS:
            rows = [OffsetCommitRequestPartition(partition_index=2, committed_offset=version, committed_metadata="m")]
            known = OffsetCommitRequestTopic(name=TOPIC, topic_id=topic_id, partitions=rows)
            gone = OffsetCommitRequestTopic(name="gone", topic_id=STRANGER, partitions=rows)
            request = OffsetCommitRequest(group_id="all", member_id="", topics=[gone, known])
            response = await asking.ask(request, OffsetCommitResponse, version=version)
            why = ErrorCode.UNKNOWN_TOPIC_ID if version >= 10 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            first, second = response.topics
            assert (first.partitions[0].error_code, second.partitions[0].error_code) == (NONE, why)
            assert (first.topic_id, second.topic_id) == ((topic_id, STRANGER) if version >= 10 else (ZERO_UUID,) * 2)
            assert (first.name, second.name) == (("", "") if version >= 10 else (TOPIC, "gone"))
            assert (await asking.committed(TOPIC, [2]))[1] == {2: version}

    run(story)


def test_offsets_of_one_group_are_fetched_in_all_versions() -> None:
    async def story(_town: Town, cluster: Cluster) -> None:
        asking = Asking(cluster, "one")
        assert await asking.commit(TOPIC, {2: 10}) == {2: NONE}
        named = [OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[2, 3])]
        for version in range(1, 8):
            for topics in (named, None) if version >= 2 else (named,):
                request = OffsetFetchRequest(group_id="one", topics=topics)
                response = await asking.ask(request, OffsetFetchResponse, version=version)
                found = [(p.partition_index, p.committed_offset, p.metadata) for p in response.topics[0].partitions]
                assert found == ([(2, 10, ""), (3, -1, "")] if topics else [(2, 10, "")])
        node_id = await cluster.coordinator("one")
        elsewhere = await cluster.connection(next(each for each in NODES if each != node_id))
        for version in (1, 2):
            request = OffsetFetchRequest(group_id="one", topics=named)
            response = await elsewhere.ask(request, OffsetFetchResponse, version=version)
            codes = [each.error_code for topic in response.topics for each in topic.partitions]
            assert codes == ([ErrorCode.NOT_COORDINATOR] * 2 if version == 1 else [])
            assert response.error_code is (NONE if version == 1 else ErrorCode.NOT_COORDINATOR)

    run(story)


def test_offsets_of_several_groups_are_fetched_in_all_versions() -> None:
    async def story(town: Town, cluster: Cluster) -> None:
        asking = Asking(cluster, "all")
        topic_id = town.nodes[1].member.controller.image.topics[TOPIC].topic_id
        assert await asking.commit(TOPIC, {2: 10}) == {2: NONE}
        for version in (8, 9, 10):
            has_ids = version >= 10
            wanted = [OffsetFetchRequestTopics(name=TOPIC, topic_id=topic_id, partition_indexes=[2])]
            if has_ids:
                wanted.append(OffsetFetchRequestTopics(topic_id=STRANGER, partition_indexes=[2]))
            groups = [
                OffsetFetchRequestGroup(group_id="all", topics=wanted),
                OffsetFetchRequestGroup(group_id="all", topics=None),
                OffsetFetchRequestGroup(group_id="nobody", topics=None),
            ]
            response = await asking.ask(OffsetFetchRequest(groups=groups), OffsetFetchResponse, version=version)
            first, second, third = response.groups
            codes = [(p.committed_offset, p.error_code) for topic in first.topics for p in topic.partitions]
            assert codes == [(10, NONE), *([(-1, ErrorCode.UNKNOWN_TOPIC_ID)] if has_ids else [])]
            (shown,) = second.topics
            assert (shown.topic_id, shown.name) == ((topic_id, "") if has_ids else (ZERO_UUID, TOPIC))
            assert third.error_code in (NONE, ErrorCode.NOT_COORDINATOR)
            assert third.topics == ()

    run(story)


def test_coordinators_are_found_in_all_versions_and_the_topic_is_made_once() -> None:
    async def story(town: Town, cluster: Cluster) -> None:
        assert OFFSETS_TOPIC not in town.nodes[1].member.controller.image.topics
        at_once = await asyncio.gather(*(cluster.coordinator(f"g{number}") for number in range(8)))
        assert len(set(at_once)) > 1, "they are spread"
        for version in FindCoordinatorRequest.VERSIONS:
            connection = await cluster.connection(1)
            if version < 4:
                request = FindCoordinatorRequest(key="g0")
                one = await connection.ask(request, FindCoordinatorResponse, version=version)
                assert (one.error_code, one.node_id, one.host) == (NONE, at_once[0], f"node-{at_once[0]}")
                continue
            request = FindCoordinatorRequest(coordinator_keys=[f"g{number}" for number in range(8)])
            many = await connection.ask(request, FindCoordinatorResponse, version=version)
            assert [each.node_id for each in many.coordinators] == at_once
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=OFFSETS_TOPIC)])
        (topic,) = (await connection.ask(asked, MetadataResponse)).topics
        assert (topic.is_internal, len(topic.partitions)) == (True, SHARDS)
        assert all(len(each.replica_nodes) == 3 for each in topic.partitions)

    run(story)


def test_operators_see_groups_and_take_them_away_in_all_versions() -> None:
    async def story(town: Town, cluster: Cluster) -> None:
        names = [f"op-{number}" for number in range(6)]
        for name in names:
            assert (await Asking(cluster, name).commit(TOPIC, {0: 1})) == {0: NONE}
        member = ClassicMember(cluster, "op-0", TOPIC, PARTITIONS)
        assert await member.join() is NONE
        for version in ListGroupsRequest.VERSIONS:
            seen: dict[str, str] = {}
            for node_id in NODES:
                connection = await cluster.connection(node_id)
                listed = await connection.ask(ListGroupsRequest(), ListGroupsResponse, version=version)
                assert listed.error_code is NONE
                seen |= {each.group_id: each.group_state for each in listed.groups}
            assert sorted(seen) == names
            assert version < 4 or (seen["op-0"], seen["op-1"]) == ("Stable", "Empty")
        for version in DescribeGroupsRequest.VERSIONS:
            request = DescribeGroupsRequest(groups=[*names, "op-0"], include_authorized_operations=version >= 3)
            described = await member.ask(request, DescribeGroupsResponse, version=version)
            assert [each.group_id for each in described.groups] == names
            assert (described.groups[0].group_state, len(described.groups[0].members)) == ("Stable", 1)
            assert {each.error_code for each in described.groups} <= {NONE, ErrorCode.NOT_COORDINATOR}
            assert described.groups[0].members[0].client_host.startswith("/")
        forget = OffsetDeleteRequest(
            group_id="op-1",
            topics=[
                OffsetDeleteRequestTopic(name=name, partitions=[OffsetDeleteRequestPartition(partition_index=0)])
                for name in (TOPIC, "gone")
            ],
        )
        one = Asking(cluster, "op-1")
        forgotten = await one.ask(forget, OffsetDeleteResponse)
        codes = {topic.name: topic.partitions[0].error_code for topic in forgotten.topics}
        assert codes == {TOPIC: NONE, "gone": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert (await one.committed(TOPIC, [0]))[1] == {0: -1}
        for version, name in enumerate(names[:3]):
            asking = Asking(cluster, name)
            deleted = await asking.ask(DeleteGroupsRequest(groups_names=[name]), DeleteGroupsResponse, version=version)
            (result,) = deleted.results
            assert result.error_code is (ErrorCode.NON_EMPTY_GROUP if version == 0 else NONE)

    run(story)


def test_a_group_goes_however_much_there_is_to_forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.coordinator.offsets.TOMBSTONES_MAX", 1)

    async def story(town: Town, cluster: Cluster) -> None:
        asking = Asking(cluster, "g")
        assert await asking.commit(TOPIC, dict.fromkeys(range(PARTITIONS), 1)) == dict.fromkeys(range(PARTITIONS), NONE)
        names = ["x", "g", "g"]
        deleted = await asking.ask(DeleteGroupsRequest(groups_names=names), DeleteGroupsResponse)
        told = {each.group_id: each.error_code for each in deleted.results}
        assert told["g"] is NONE
        assert told["x"] in {ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.NOT_COORDINATOR}
        assert len(deleted.results) == 2
        _, shard = await coordinator_of(town, cluster, "g")
        assert shard.shard is not None
        assert shard.shard.groups == {}
        assert shard.shard.offsets.groups() == []

    run(story)


def test_who_hangs_up_is_kept_waiting_for_nowhere() -> None:
    async def story(town: Town, cluster: Cluster) -> None:
        first = ClassicMember(cluster, "w", TOPIC, PARTITIONS, timeout_ms=20_000)
        assert await first.join() is NONE
        _, shard = await coordinator_of(town, cluster, "w")
        joining = asyncio.ensure_future(ClassicMember.join(other := ClassicMember(cluster, "w", TOPIC, PARTITIONS)))
        await town.until(lambda: len(shard._waiting) == 1)
        await other.close()
        with pytest.raises(ClientError):
            await joining
        await town.until(lambda: not shard._waiting)
        assert await first.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS

    run(story)


def test_a_heartbeat_that_was_overtaken_closes_its_connection() -> None:
    async def story(town: Town, cluster: Cluster) -> None:
        old, new = (ConsumerMember(cluster, "o", TOPIC, "same") for _ in range(2))
        await until_settled(old)
        new.epoch, new.assigned = old.epoch, old.assigned
        assert await new.heartbeat() is NONE
        with pytest.raises(ClientError):
            await old.heartbeat()
        assert await new.heartbeat() is NONE

    run(story)


def test_so_does_a_join_that_was_overtaken() -> None:
    async def story(town: Town, cluster: Cluster) -> None:
        old, new = (ClassicMember(cluster, "o", TOPIC, PARTITIONS) for _ in range(2))
        assert await old.join() is NONE
        new.member_id = old.member_id
        assert await new.join() is NONE
        with pytest.raises(ClientError):
            await old.join()
        assert await new.heartbeat() is NONE

    run(story)


def test_what_cannot_be_kept_is_refused() -> None:
    async def story(town: Town, cluster: Cluster) -> None:
        asking = Asking(cluster, "big")
        for bytes_of, code in ((2_000_000, ErrorCode.INVALID_REQUEST), (1_000, ErrorCode.MEMBER_ID_REQUIRED)):
            protocol = JoinGroupRequestProtocol(name="range", metadata=bytes(bytes_of))
            request = JoinGroupRequest(
                group_id="big", session_timeout_ms=6_000, member_id="", protocol_type="consumer", protocols=[protocol]
            )
            assert (await asking.ask(request, JoinGroupResponse)).error_code is code
        long = Asking(cluster, "g" * 32_767)
        assert await long.commit(TOPIC, {0: 1}) == {0: NONE}
        rows = [OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")] * 40
        much = OffsetCommitRequest(
            group_id=long.group_id, member_id="", topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=rows)]
        )
        (told,) = (await long.ask(much, OffsetCommitResponse, version=9)).topics
        assert {each.error_code for each in told.partitions} == {ErrorCode.INVALID_COMMIT_OFFSET_SIZE}
        batch = to_produce((OFFSETS_TOPIC, 0, a_batch()))
        assert isinstance(batch, ProduceRequest)
        index = town.nodes[1].member.controller.image.topics[OFFSETS_TOPIC].partitions[0].leader
        connection = await cluster.connection(index)
        produced = await connection.ask(batch, ProduceResponse, version=9)
        assert produced.responses[0].partition_responses[0].error_code is ErrorCode.INVALID_TOPIC_EXCEPTION

    run(story)


def test_without_replicas_nothing_is_acknowledged_until_they_are_back() -> None:
    async def story(town: Town, cluster: Cluster) -> None:
        asking = Asking(cluster, "r")
        assert await asking.commit(TOPIC, {0: 1}) == {0: NONE}
        node, shard = await coordinator_of(town, cluster, "r")
        others = [each for each in NODES if each != node.settings.node_id]
        partition = node.broker.partitions.named(OFFSETS_TOPIC, shard.index)
        assert partition is not None
        town.kill(others[0])
        await town.until(lambda: partition.in_sync_count == 2)
        assert await asking.commit(TOPIC, {0: 2}) == {0: NONE}
        partition.in_sync_count = 1
        assert await asking.commit(TOPIC, {0: 3}) == {0: ErrorCode.COORDINATOR_NOT_AVAILABLE}
        partition.in_sync_count = 2
        assert (await asking.committed(TOPIC, [0])) == (NONE, {0: 2})
        town.kill(others[1])  # no controller is left, and the lease of any leader ends
        await town.until(lambda: not node.broker.lease.is_in_touch)
        with_code, _ = await asking.committed(TOPIC, [0])
        assert with_code in (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)
        for each in others:
            town.start(each)
        await town.until(lambda: len(town.nodes) == 3 and partition.in_sync_count == 3)
        assert (await asking.committed(TOPIC, [0]))[1] in ({0: 2}, {})

    run(story)


def test_a_coordinator_that_is_cut_off_tells_nobody_what_was_so_yesterday() -> None:
    """It does not learn of its successor, and a read needs no append that could fail: only its lease ends."""

    async def story(town: Town, cluster: Cluster) -> None:
        asking = Asking(cluster, "r")
        assert await asking.commit(TOPIC, {0: 1}) == {0: NONE}
        node, _ = await coordinator_of(town, cluster, "r")
        old = node.settings.node_id
        others = [each for each in NODES if each != old]
        cut = town.world.network.cut([(f"node-{old}", f"node-{each}") for each in others])
        index = node.broker.groups.index_of("r")

        def has_successor() -> bool:
            images = (town.nodes[each].member.controller.image for each in others)
            return all(image.topics[OFFSETS_TOPIC].partitions[index].leader != old for image in images)

        await town.until(has_successor)
        assert town.ports is not None
        rest = Cluster([f"node-{each}:{PORT}" for each in others], ports=town.ports, timeout_ms=20_000)
        assert await Asking(rest, "r").commit(TOPIC, {0: 2}) == {0: NONE}
        assert node.member.controller.image.topics[OFFSETS_TOPIC].partitions[index].leader == old, (
            "it has heard nothing"
        )
        assert await asking.committed(TOPIC, [0]) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, {})
        cut.heal()
        await rest.close()

    run(story)


def test_a_cluster_without_the_feature_has_no_groups_without_meetings() -> None:
    async def story(town: Town) -> None:
        cluster = cluster_of(town)
        request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=0)
        said = await Asking(cluster, "g").ask(request, ConsumerGroupHeartbeatResponse)
        assert said.error_code is ErrorCode.UNSUPPORTED_VERSION
        await cluster.close()

    def without(node_id: int) -> NodeSettings:
        settings = settings_of(node_id)
        return replace(settings, features=[each for each in settings.features if each.name != "group.version"])

    tell(story, without)


def test_a_node_may_be_told_to_serve_nothing_but_classic_groups() -> None:
    async def story(town: Town) -> None:
        cluster = cluster_of(town)
        asking = Asking(cluster, "g")
        request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=0)
        said = await asking.ask(request, ConsumerGroupHeartbeatResponse)
        assert said.error_code is ErrorCode.UNSUPPORTED_VERSION
        describe = ConsumerGroupDescribeRequest(group_ids=["g", "g"], include_authorized_operations=False)
        (described,) = (await asking.ask(describe, ConsumerGroupDescribeResponse)).groups
        assert described.error_code is ErrorCode.UNSUPPORTED_VERSION
        await cluster.close()

    def classic(node_id: int) -> NodeSettings:
        settings = settings_of(node_id)
        given = {**settings.broker.static, "group.coordinator.rebalance.protocols": "classic"}
        return replace(settings, broker=BrokerSettings(given))

    tell(story, classic)


def test_members_are_remembered_by_their_latest_connection_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.server.groups.group_coordinator.HEARD_MAX", 3)
    coordinator = GroupCoordinator.__new__(GroupCoordinator)
    coordinator._heard = {}
    assert coordinator.is_latest("g", "a", 5)
    assert not coordinator.is_latest("g", "a", 4)
    assert coordinator.is_latest("g", "a", 5)
    for member in "bcd":
        assert coordinator.is_latest("g", member, 6)
    assert list(coordinator._heard) == [("g", "b"), ("g", "c"), ("g", "d")]


def test_a_cluster_of_one_needs_no_second_replica() -> None:
    settings = BrokerSettings({})
    assert needed_topic(OFFSETS_TOPIC, settings).replication_factor == 3
    assert needed_topic(OFFSETS_TOPIC, settings, is_alone=True).replication_factor == 1
    assert needed_topic("orders", settings, is_alone=True).replication_factor == -1
