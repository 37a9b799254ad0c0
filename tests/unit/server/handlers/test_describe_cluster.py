"""DescribeCluster, and DescribeTopicPartitions page by page."""

from dataclasses import replace
from typing import Any

import pytest

from penstock.metadata.commands import NewTopic
from penstock.model.errors import ErrorCode
from penstock.wire.messages.describe_cluster import DescribeClusterRequest
from penstock.wire.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest, TopicRequest
from penstock.wire.types import ZERO_UUID
from tests.unit.server.handlers.bare_node import NONE
from tests.unit.server.handlers.cluster import NODE, Cluster, clustered

UNTOLD = -0x80000000

# --- DescribeCluster --------------------------------------------------------------------------------------------------


async def cluster_of(cluster: Cluster, version: int, *, operations: bool = False, **options: Any) -> Any:
    request = DescribeClusterRequest(include_cluster_authorized_operations=operations, **options)
    return await cluster.ask(cluster.describing_cluster.describe_cluster, request, version)


@pytest.mark.parametrize("version", range(3))
def test_every_version_tells_the_cluster(version: int) -> None:
    async def story(cluster: Cluster) -> None:
        response = await cluster_of(cluster, version)
        assert (response.error_code, response.error_message) == (NONE, None)
        assert (response.cluster_id, response.controller_id, response.endpoint_type) == ("c", NODE, 1)
        (broker,) = response.brokers
        assert (broker.broker_id, broker.host, broker.port) == (NODE, "192.168.7.7", 9092)
        assert (broker.rack, broker.is_fenced) == (None, False)
        assert response.cluster_authorized_operations == UNTOLD
        response = await cluster_of(cluster, version, operations=True)
        assert response.cluster_authorized_operations == 8096

    clustered(story)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    ("kind", "code"), [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)]
)
def test_this_is_no_controller(version: int, kind: int, code: ErrorCode) -> None:
    async def story(cluster: Cluster) -> None:
        response = await cluster_of(cluster, version, endpoint_type=kind)
        assert (response.error_code, response.cluster_id, response.brokers) == (code, "", ())
        assert "endpoint" in response.error_message

    clustered(story)


def test_fenced_brokers_are_told_on_request() -> None:
    async def story(cluster: Cluster) -> None:
        image = cluster.controller.image
        other = replace(image.brokers[NODE], broker_id=7, is_fenced=True)
        mute = replace(image.brokers[NODE], broker_id=8, listeners=())
        cluster.controller.image = replace(image, brokers={**image.brokers, 7: other, 8: mute})
        assert [broker.broker_id for broker in (await cluster_of(cluster, 2)).brokers] == [NODE]
        found = (await cluster_of(cluster, 2, include_fenced_brokers=True)).brokers
        assert [(b.broker_id, b.host, b.is_fenced) for b in found] == [
            (NODE, "192.168.7.7", False),
            (7, "localhost", True),
        ]
        assert [broker.node_id for broker in (await cluster.metadata()).brokers] == [NODE]

    clustered(story)


# --- DescribeTopicPartitions ------------------------------------------------------------------------------------------


async def page(cluster: Cluster, *names: str, limit: int = 2_000, cursor: tuple[str, int] | None = None) -> Any:
    at = None if cursor is None else Cursor(topic_name=cursor[0], partition_index=cursor[1])
    topics = [TopicRequest(name=name) for name in names]
    request = DescribeTopicPartitionsRequest(topics=topics, response_partition_limit=limit, cursor=at)
    return await cluster.ask(cluster.describing_partitions.describe_topic_partitions, request, 0)


def shown(response: Any) -> list[tuple[str, list[int]]]:
    return [(topic.name, [part.partition_index for part in topic.partitions]) for topic in response.topics]


def next_of(response: Any) -> tuple[str, int] | None:
    cursor = response.next_cursor
    return None if cursor is None else (cursor.topic_name, cursor.partition_index)


def test_topics_come_sorted_once_with_all_that_is_known() -> None:
    async def story(cluster: Cluster) -> None:
        b, a = await cluster.create(NewTopic("b", 2), "a")
        response = await page(cluster, "b", "a", "b", "nobody", "x y", "__consumer_offsets")
        assert [(topic.name, topic.error_code) for topic in response.topics] == [
            ("__consumer_offsets", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ("a", NONE),
            ("b", NONE),
            ("nobody", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ("x y", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ]
        assert [topic.topic_id for topic in response.topics][1:4] == [a.topic_id, b.topic_id, ZERO_UUID]
        assert [topic.is_internal for topic in response.topics] == [True, False, False, False, False]
        assert all(topic.topic_authorized_operations == 3576 for topic in response.topics)
        part = response.topics[2].partitions[1]
        assert (part.error_code, part.partition_index, part.leader_id, part.leader_epoch) == (NONE, 1, NODE, 0)
        assert (part.replica_nodes, part.isr_nodes, part.offline_replicas) == ((NODE,), (NODE,), ())
        assert (part.eligible_leader_replicas, part.last_known_elr) == ((), ())
        assert response.next_cursor is None

    clustered(story)


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 6, 7, 100])
@pytest.mark.parametrize("asks_for_all", [True, False])
def test_pages_follow_each_other_without_gap_or_overlap(limit: int, asks_for_all: bool) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(NewTopic("a", 3), NewTopic("b", 1), NewTopic("c", 3))
        asked = () if asks_for_all else ("c", "a", "b")
        seen: list[tuple[str, int]] = []
        cursor, pages = None, 0
        while True:
            response = await page(cluster, *asked, limit=limit, cursor=cursor)
            found = [(name, index) for name, indexes in shown(response) for index in indexes]
            assert len(found) <= limit
            seen += found
            pages += 1
            cursor = next_of(response)
            if cursor is None:
                break
        assert seen == [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("c", 0), ("c", 1), ("c", 2)]
        assert pages == -(-7 // limit)

    clustered(story)


def test_the_brokers_limit_counts_too() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(NewTopic("t", 2_100))
        response = await page(cluster, "t", limit=5_000)
        assert len(response.topics[0].partitions) == 2_000
        assert next_of(response) == ("t", 2_000)
        rest = await page(cluster, limit=5_000, cursor=("t", 2_000))
        assert shown(rest) == [("t", list(range(2_000, 2_100)))]

    async def small(cluster: Cluster) -> None:
        await cluster.create(NewTopic("t", 5))
        assert next_of(await page(cluster, "t")) == ("t", 3)

    clustered(story)
    clustered(small, settings={"max.request.partition.size.limit": "3"})


def test_cursors_that_point_nowhere() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(NewTopic("b", 2), NewTopic("d", 2))
        for cursor in (("zzz", 0), ("aaa", 2), ("b", -1)):
            (topic,) = (await page(cluster, "b", cursor=cursor)).topics
            assert (topic.error_code, topic.name) == (ErrorCode.INVALID_REQUEST, "b")
            assert topic.topic_authorized_operations == UNTOLD
        assert shown(await page(cluster, "b", cursor=("b", 100))) == [("b", [])]
        assert shown(await page(cluster, cursor=("aaa", 5))) == [("b", [0, 1]), ("d", [0, 1])]
        assert shown(await page(cluster, cursor=("c", 5))) == [("d", [0, 1])]
        assert shown(await page(cluster, cursor=("zzz", 5))) == []
        response = await page(cluster, limit=1, cursor=("b", 100))
        assert (shown(response), next_of(response)) == ([("b", []), ("d", [0])], ("d", 1))
        for limit in (0, -1):
            response = await page(cluster, limit=limit)
            assert (shown(response), next_of(response)) == ([("b", [0])], ("b", 1))

    clustered(story)
