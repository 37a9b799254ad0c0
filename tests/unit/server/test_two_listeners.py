"""Three whole nodes with two listeners on virtual time: answers name addresses of the listener of their request.

OUTSIDE advertises addresses that lead nowhere, so an answer with one of them cannot be mistaken for another. Node 3
lacks OUTSIDE. Brokers use INSIDE among themselves, which is not the first listener of their settings.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final, TypeVar

import pytest

from penstock.client.admin.admin import Admin
from penstock.client.bootstrap import Address
from penstock.client.client import Client
from penstock.client.cluster import Cluster
from penstock.client.connection.pool import Pool
from penstock.coordinator.placement import partition_of
from penstock.metadata.settings.layers import BrokerSettings
from penstock.model.errors import ErrorCode
from penstock.server.node import Node
from penstock.server.settings import ListenerSettings, NodeSettings
from penstock.wire.declare import Request, Response
from penstock.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from penstock.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from penstock.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from penstock.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.simulation.three_servers.world import NODES, PORT, settings_for
from tests.unit.server.handlers.bare_node import a_batch
from tests.unit.server.metrics.pages import told
from tests.unit.server.town import Town, tell

INSIDE: Final = "INSIDE"
OUTSIDE: Final = "OUTSIDE"
PORTS: Final = {INSIDE: PORT, OUTSIDE: 19092}
LACKING: Final = 3
TOPIC: Final = "orders"
GROUPS: Final = [f"group-{number}" for number in range(30)]
"""Enough for every node to coordinate some of them."""

R = TypeVar("R", bound=Response)


def with_listeners(node_id: int, outside: Address | None) -> NodeSettings:
    """A node with both listeners; OUTSIDE is advertised at this address, or missing."""
    listeners = [ListenerSettings(INSIDE, "", PORTS[INSIDE])]
    if outside is not None:
        listeners.insert(0, ListenerSettings(OUTSIDE, "", PORTS[OUTSIDE], advertised=outside))
    plain = settings_for(node_id)
    static = {**plain.broker.static, "broker.rack": f"rack {node_id}", "offsets.topic.num.partitions": "6"}
    return replace(
        plain,
        listeners=listeners,
        inter_broker_listener=INSIDE,
        broker=BrokerSettings(static),
        metrics=Address("", 9644),
    )


def apart(node_id: int) -> NodeSettings:
    return with_listeners(node_id, None if node_id == LACKING else Address(f"outside-{node_id}", 1000 + node_id))


def both(node_id: int) -> NodeSettings:
    return with_listeners(node_id, Address(f"node-{node_id}", PORTS[OUTSIDE]))


TOLD: Final = {
    INSIDE: {node_id: (f"node-{node_id}", PORTS[INSIDE]) for node_id in NODES},
    OUTSIDE: {node_id: (f"outside-{node_id}", 1000 + node_id) for node_id in NODES if node_id != LACKING},
}
"""What the clients of each listener are to receive."""


class Asking:
    """Requests to one listener of one node."""

    def __init__(self, town: Town, pool: Pool, listener: str, node_id: int = 1) -> None:
        self._town = town
        self._pool = pool
        self._place = Address(f"node-{node_id}", PORTS[listener])

    async def ask(self, request: Request, answer: type[R], version: int | None = None) -> R:
        connection = await self._pool.connection(self._place)
        return await connection.ask(request, answer, version=version, timeout_ms=20_000)

    async def produce(self, index: int) -> ProduceResponse:
        part = PartitionProduceData(index=index, records=a_batch())
        topic = TopicProduceData(topic_id=topic_id(self._town), partition_data=[part])
        return await self.ask(ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=[topic]), ProduceResponse)

    async def fetch(self, index: int, rack: str = "") -> FetchResponse:
        part = FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20)
        topic = FetchTopic(topic_id=topic_id(self._town), partitions=[part])
        return await self.ask(FetchRequest(max_wait_ms=0, min_bytes=1, topics=[topic], rack_id=rack), FetchResponse)


Story = Callable[[Town, Pool], Awaitable[None]]


def topic_id(town: Town) -> bytes:
    return town.nodes[1].member.controller.image.topics[TOPIC].topic_id


def leader_of(town: Town, topic: str, index: int) -> int:
    return town.nodes[1].member.controller.image.topics[topic].partitions[index].leader


def told_apart(story: Story, settings: Callable[[int], NodeSettings] = apart, created_through: str = INSIDE) -> None:
    """Runs a story with a topic of which each node leads the partition that is numbered one less."""

    async def main(town: Town) -> None:
        assert town.ports is not None
        cluster = Cluster(f"node-1:{PORTS[created_through]}", ports=town.ports, timeout_ms=10_000)
        await Admin(cluster).create_topic(TOPIC, assignments=[(1, 2, 3), (2, 3, 1), (3, 1, 2)])
        pool = Pool(town.ports, client_id="test", login=None, connect_timeout_ms=1_000, timeout_ms=20_000)
        try:
            await story(town, pool)
        finally:
            await pool.close()

    tell(main, settings)


# --- answers ----------------------------------------------------------------------------------------------------------


def test_all_listeners_are_registered() -> None:
    async def story(town: Town, _pool: Pool) -> None:
        brokers = town.nodes[2].member.controller.image.brokers
        assert {node_id: [each.name for each in brokers[node_id].listeners] for node_id in NODES} == {
            1: [INSIDE, OUTSIDE],
            2: [INSIDE, OUTSIDE],
            3: [INSIDE],
        }

    told_apart(story)


def test_metadata_names_addresses_of_the_listener() -> None:
    async def story(town: Town, pool: Pool) -> None:
        for listener, expected in TOLD.items():
            asking = Asking(town, pool, listener)
            for version in range(14):
                by_name = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)])
                everything = MetadataRequest(topics=() if version == 0 else None)
                for request in (by_name, everything):
                    found = await asking.ask(request, MetadataResponse, version)
                    assert {each.node_id: (each.host, each.port) for each in found.brokers} == expected
                    assert found.controller_id in (1, -1)
                    (topic,) = (each for each in found.topics if each.name == TOPIC)
                    check_leaders(topic.partitions, listener, version)

    def check_leaders(partitions: object, listener: str, version: int) -> None:
        lacks = listener == OUTSIDE
        lacking = ErrorCode.LISTENER_NOT_FOUND if version >= 6 else ErrorCode.LEADER_NOT_AVAILABLE
        found = {each.partition_index: each for each in partitions}  # type: ignore[attr-defined]
        assert {index: (each.error_code, each.leader_id) for index, each in found.items()} == {
            0: (ErrorCode.NONE, 1),
            1: (ErrorCode.NONE, 2),
            2: (lacking, -1) if lacks else (ErrorCode.NONE, 3),
        }
        assert all(sorted(each.replica_nodes) == [1, 2, 3] for each in found.values())
        if version >= 5:
            assert all(list(each.offline_replicas) == ([LACKING] if lacks else []) for each in found.values())

    told_apart(story)


def test_describe_cluster_names_addresses_of_the_listener() -> None:
    async def story(town: Town, pool: Pool) -> None:
        for listener, expected in TOLD.items():
            request = DescribeClusterRequest(include_cluster_authorized_operations=False)
            found = await Asking(town, pool, listener).ask(request, DescribeClusterResponse)
            assert {each.broker_id: (each.host, each.port) for each in found.brokers} == expected

    told_apart(story)


def test_describe_topic_partitions_has_no_leader_that_cannot_be_reached() -> None:
    async def story(town: Town, pool: Pool) -> None:
        for listener, last in ((INSIDE, 3), (OUTSIDE, -1)):
            request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=TOPIC)])
            found = await Asking(town, pool, listener).ask(request, DescribeTopicPartitionsResponse)
            partitions = found.topics[0].partitions
            assert [each.leader_id for each in partitions] == [1, 2, last]
            assert all(list(each.offline_replicas) == ([] if last > 0 else [LACKING]) for each in partitions)

    told_apart(story)


@pytest.mark.parametrize("version", [0, 3, 4, 6])
def test_a_coordinator_is_at_its_address_on_the_listener(version: int) -> None:
    async def story(town: Town, pool: Pool) -> None:
        for listener, expected in TOLD.items():
            asking, missing = Asking(town, pool, listener), 0
            for group in GROUPS:
                named = {"coordinator_keys": [group]} if version >= 4 else {"key": group}
                found = await asking.ask(FindCoordinatorRequest(**named), FindCoordinatorResponse, version)
                only = found.coordinators[0] if version >= 4 else found
                offsets = town.nodes[1].member.controller.image.topics["__consumer_offsets"]
                leader = leader_of(town, offsets.name, partition_of(group, len(offsets.partitions)))
                if leader in expected:
                    assert (only.error_code, only.node_id) == (ErrorCode.NONE, leader)
                    assert (only.host, only.port) == expected[leader]
                else:
                    missing += 1
                    assert (only.error_code, only.node_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)
                    assert version == 0 or "has no listener OUTSIDE" in (only.error_message or "")
            assert bool(missing) == (listener == OUTSIDE), "some groups are coordinated by every node"

    told_apart(story)


def test_a_refused_produce_or_fetch_names_the_leader_on_the_listener() -> None:
    async def story(town: Town, pool: Pool) -> None:
        for listener, expected in TOLD.items():
            asking = Asking(town, pool, listener)
            for index, leader in ((1, 2), (2, 3)):
                produced = await asking.produce(index)
                part = produced.responses[0].partition_responses[0]
                assert part.error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER
                assert part.current_leader.leader_id == leader
                fetched = await asking.fetch(index)
                data = fetched.responses[0].partitions[0]
                assert data.error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER
                assert data.current_leader.leader_id == leader
                for endpoints in (produced.node_endpoints, fetched.node_endpoints):
                    assert {each.node_id: (each.host, each.port) for each in endpoints} == (
                        {leader: expected[leader]} if leader in expected else {}
                    )

    told_apart(story)


def test_a_consumer_is_not_sent_to_a_replica_that_it_cannot_reach() -> None:
    async def story(town: Town, pool: Pool) -> None:
        await Asking(town, pool, INSIDE).produce(0)
        log = town.nodes[LACKING].storage.directory.logs[f"{TOPIC}-0"]
        await town.until(lambda: log.high_watermark == 1)
        for listener, rack, sent_to in ((INSIDE, 3, 3), (OUTSIDE, 3, -1), (OUTSIDE, 2, 2)):
            found = await Asking(town, pool, listener).fetch(0, f"rack {rack}")
            assert found.responses[0].partitions[0].preferred_read_replica == sent_to

    told_apart(story)


# --- traffic ----------------------------------------------------------------------------------------------------------


def kinds(node: Node, listener: str) -> set[bool]:
    """Whether the connections of a listener are those of brokers."""
    served = list(node.listeners.doors[listener].listener)
    return {each.client is not None and each.client.is_peer for each in served}


def test_brokers_use_their_own_listener_and_clients_follow_leaders_on_theirs() -> None:
    async def story(town: Town, _pool: Pool) -> None:
        async with Client([f"node-1:{PORTS[OUTSIDE]}"], ports=town.ports, timeout_ms=10_000) as client:
            for index in range(3):
                for _ in range(5):
                    await client.publish(TOPIC, b"v", partition=index)
            found = [record async for record in client.consume(TOPIC, "earliest", until_end=True)]
            assert len(found) == 15
            await client.commit_offset(TOPIC, "billing", 0, 1)
            for node in town.nodes.values():
                assert kinds(node, OUTSIDE) == {False}, "clients alone"
                assert kinds(node, INSIDE) == {True}, "brokers alone"
            before = {node_id: len(node.listeners.doors[OUTSIDE].listener) for node_id, node in town.nodes.items()}
            pages = await told(town)  # the lag of groups is computed with requests to the leaders
            after = {node_id: len(node.listeners.doors[OUTSIDE].listener) for node_id, node in town.nodes.items()}
            assert after == before
            assert any(
                dict(labels).get("listener") == OUTSIDE
                for labels in pages[1].values["kafka_network_requestmetrics_requests_total"]
            )

    told_apart(story, both, created_through=OUTSIDE)


def test_a_leader_without_the_inter_broker_listener_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    def settings(node_id: int) -> NodeSettings:
        chosen = apart(node_id)
        return replace(chosen, inter_broker_listener="ELSEWHERE") if node_id == LACKING else chosen

    async def story(town: Town, _pool: Pool) -> None:
        image = town.nodes[1].member.controller
        await town.until(lambda: image.image.topics[TOPIC].partitions[0].isr == (1, 2), limit_s=60)
        await asyncio.sleep(5.0)
        said = [each.getMessage() for each in caplog.records if "ELSEWHERE" in each.getMessage()]
        assert sorted(each[:36] for each in said) == [f"Nothing is fetched from broker {n}: it" for n in (1, 2)]

    with caplog.at_level(logging.WARNING):
        told_apart(story, settings)
