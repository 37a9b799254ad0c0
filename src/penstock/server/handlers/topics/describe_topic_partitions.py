"""DescribeTopicPartitions: partitions of topics, page by page.

Serves    DescribeTopicPartitions 0. A request without topics means all topics.
Answers   topics ordered by name, with at most as many partitions as the request and max.request.partition.size.limit
          (2,000) allow, and a cursor if there are more. INVALID_REQUEST for a cursor whose topic is not in the request,
          or whose partition index is negative. A leader whose broker lacks the listener of the request is -1, and
          replicas there are offline.
Departs   from Kafka 4.3: a page also ends after max.request.partition.size.limit topics that do not exist.
"""

from collections.abc import AsyncIterator, Mapping
from itertools import islice

from penstock.metadata.image import Broker, Image, Partition, Topic
from penstock.metadata.names import INTERNAL_TOPICS
from penstock.model.errors import ErrorCode
from penstock.server.connections.advertised import hidden_from
from penstock.server.connections.serving import Call, serves
from penstock.server.controller.controller_runner import ControllerRunner
from penstock.server.handlers.topics.metadata import why_missing
from penstock.server.handlers.topics.metadata_answer import TOPIC_OPERATIONS, leader_of, offline_replicas
from penstock.server.loop.pieces import Turns, each_once, in_order
from penstock.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseCursor,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from penstock.wire.types import ZERO_UUID


class DescribeTopicPartitionsHandler:
    """Describes partitions of topics, page by page."""

    def __init__(self, controller: ControllerRunner) -> None:
        self._controller = controller

    @serves(DescribeTopicPartitionsRequest)
    async def describe_topic_partitions(
        self, request: DescribeTopicPartitionsRequest, call: Call
    ) -> DescribeTopicPartitionsResponse:
        """Returns one page."""
        controller = self._controller
        image, cursor = controller.image, request.cursor
        turns = Turns()
        asked = await each_once((topic.name for topic in request.topics), turns)
        if cursor is not None and ((asked and cursor.topic_name not in asked) or cursor.partition_index < 0):
            refused = [_without_partitions(name, ErrorCode.INVALID_REQUEST) async for name in turns.through(asked)]
            return DescribeTopicPartitionsResponse(throttle_time_ms=0, topics=refused)
        first = "" if cursor is None else cursor.topic_name
        names = in_order([name for name in asked or image.topics if name >= first], turns)
        most = controller.settings.number("max.request.partition.size.limit")
        limit = max(1, min(most, request.response_partition_limit))
        hidden = hidden_from(image.brokers, call.client.listener)
        topics, next_cursor = await _page(names, image, hidden, cursor, limit, missing_left=most)
        return DescribeTopicPartitionsResponse(throttle_time_ms=0, topics=topics, next_cursor=next_cursor)


async def _page(
    names: AsyncIterator[str],
    image: Image,
    hidden: frozenset[int],
    cursor: Cursor | None,
    left: int,
    missing_left: int,
) -> tuple[list[DescribeTopicPartitionsResponseTopic], DescribeTopicPartitionsResponseCursor | None]:
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    async for name in names:
        if left <= 0 or missing_left <= 0:
            return topics, DescribeTopicPartitionsResponseCursor(topic_name=name, partition_index=0)
        topic = image.topics.get(name)
        if topic is None:
            topics.append(_without_partitions(name, why_missing(name), TOPIC_OPERATIONS))
            missing_left -= 1
            continue
        start = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
        end = min(len(topic.partitions), start + left)
        topics.append(_topic(topic, start, end, image.brokers, hidden))
        if end < len(topic.partitions):
            return topics, DescribeTopicPartitionsResponseCursor(topic_name=name, partition_index=end)
        left -= max(0, end - start)
    return topics, None


def _topic(
    topic: Topic, start: int, end: int, brokers: Mapping[int, Broker], hidden: frozenset[int]
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[
            _partition(index, partition, brokers, hidden)
            for index, partition in islice(topic.partitions.items(), start, max(start, end))
        ],
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _partition(
    index: int, partition: Partition, brokers: Mapping[int, Broker], hidden: frozenset[int]
) -> DescribeTopicPartitionsResponsePartition:
    return DescribeTopicPartitionsResponsePartition(
        error_code=ErrorCode.NONE,
        partition_index=index,
        leader_id=leader_of(partition, brokers, hidden),
        leader_epoch=partition.leader_epoch,
        replica_nodes=partition.replicas,
        isr_nodes=partition.isr,
        eligible_leader_replicas=partition.eligible_leader_replicas,
        last_known_elr=partition.last_known_elr,
        offline_replicas=offline_replicas(partition, brokers, hidden),
    )


def _without_partitions(
    name: str, code: ErrorCode, operations: int = -0x80000000
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=code,
        name=name,
        topic_id=ZERO_UUID,
        is_internal=name in INTERNAL_TOPICS and code is not ErrorCode.INVALID_REQUEST,
        partitions=(),
        topic_authorized_operations=operations,
    )
