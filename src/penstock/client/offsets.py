"""ListOffsets and DeleteRecords: requests that only the leader of each partition can answer."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple, TypeVar

from penstock.client.cluster import Cluster
from penstock.client.connection.connection import BrokerConnection
from penstock.client.errors import ClientError, Refused, check
from penstock.client.metadata import TopicPartition
from penstock.model.errors import ErrorCode
from penstock.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from penstock.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

V = TypeVar("V")

NO_OFFSET = -1
_CONSUMER = -1


class Isolation(IntEnum):
    """Isolation level of a consumer."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class Moment(IntEnum):
    """Special timestamps of ListOffsets. Any other number is a timestamp in milliseconds."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3


class OffsetAt(NamedTuple):
    """An offset, and the timestamp and leader epoch of its record (-1 where there is none)."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


Answered = Mapping[TopicPartition, V | ErrorCode]
Ask = Callable[[BrokerConnection, Sequence[TopicPartition]], Awaitable[Answered[V]]]


async def list_offsets(
    cluster: Cluster,
    moments: Mapping[TopicPartition, int],
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
    *,
    timeout_ms: int | None = None,
) -> dict[TopicPartition, OffsetAt]:
    """Offsets at moments or timestamps; offset -1 if every record is older than the timestamp."""

    async def ask(connection: BrokerConnection, asked: Sequence[TopicPartition]) -> Answered[OffsetAt]:
        epochs = {each: cluster.view.partition(*each) for each in asked}
        topics = [
            ListOffsetsTopic(
                name=topic,
                partitions=[
                    ListOffsetsPartition(
                        partition_index=each.partition,
                        current_leader_epoch=known.leader_epoch if (known := epochs[each]) else -1,
                        timestamp=moments[each],
                    )
                    for each in partitions
                ],
            )
            for topic, partitions in by_topic(asked).items()
        ]
        request = ListOffsetsRequest(
            replica_id=_CONSUMER, isolation_level=isolation, topics=topics, timeout_ms=cluster.request_timeout_ms
        )
        response = await connection.ask(request, ListOffsetsResponse)
        return {
            TopicPartition(topic.name, part.partition_index): part.error_code
            if part.error_code is not ErrorCode.NONE
            else OffsetAt(part.offset, part.timestamp, part.leader_epoch)
            for topic in response.topics
            for part in topic.partitions
        }

    return await ask_leaders(cluster, list(moments), ask, timeout_ms)


async def delete_records(
    cluster: Cluster, before: Mapping[TopicPartition, int], *, timeout_ms: int | None = None
) -> dict[TopicPartition, int]:
    """Deletes records before offsets (-1: high watermark) on all replicas; returns the new log start offsets."""

    async def ask(connection: BrokerConnection, asked: Sequence[TopicPartition]) -> Answered[int]:
        topics = [
            DeleteRecordsTopic(
                name=topic,
                partitions=[
                    DeleteRecordsPartition(partition_index=each.partition, offset=before[each]) for each in partitions
                ],
            )
            for topic, partitions in by_topic(asked).items()
        ]
        # The leader waits for other replicas, and must time out before this client does.
        request = DeleteRecordsRequest(topics=topics, timeout_ms=cluster.request_timeout_ms * 3 // 4)
        response = await connection.ask(request, DeleteRecordsResponse)
        return {
            TopicPartition(topic.name, part.partition_index): part.error_code
            if part.error_code is not ErrorCode.NONE
            else part.low_watermark
            for topic in response.topics
            for part in topic.partitions
        }

    return await ask_leaders(cluster, list(before), ask, timeout_ms)


async def ask_leaders(
    cluster: Cluster, partitions: Sequence[TopicPartition], ask: Ask[V], timeout_ms: int | None
) -> dict[TopicPartition, V]:
    """Queries the leaders of partitions, retrying those that moved; raises the first error that is not retriable."""
    retry = cluster.retry(timeout_ms)
    done: dict[TopicPartition, V] = {}
    while missing := [each for each in partitions if each not in done]:
        for topic in by_topic(missing):
            await cluster.topic(topic, timeout_ms=retry.left_ms)
        leaders: dict[int, list[TopicPartition]] = {}
        trouble: ClientError | None = None
        stale: list[str] = []
        for each in missing:
            _check_known(cluster, each)
            leader = cluster.leader(each)
            if leader is None:
                trouble = refusal(ErrorCode.LEADER_NOT_AVAILABLE, str(each))
                stale.append(each.topic)
            else:
                leaders.setdefault(leader, []).append(each)
        answers = await asyncio.gather(*(_ask_one(cluster, node, asked, ask) for node, asked in leaders.items()))
        for answer in answers:
            for partition, value in answer.items():
                if isinstance(value, ClientError):
                    if not value.is_retriable:
                        raise value
                    trouble = value
                    stale.append(partition.topic)
                else:
                    done[partition] = value
        for topic in stale:
            cluster.distrust(topic)
        if trouble is not None:
            await retry.after(trouble)
    return {each: done[each] for each in partitions}


async def _ask_one(
    cluster: Cluster, node_id: int, asked: list[TopicPartition], ask: Ask[V]
) -> dict[TopicPartition, V | ClientError]:
    try:
        answered = await ask(await cluster.connection(node_id), asked)
    except ClientError as error:
        return dict.fromkeys(asked, error)
    found: dict[TopicPartition, V | ClientError] = {}
    for each in asked:
        value = answered.get(each, ErrorCode.UNKNOWN_SERVER_ERROR)
        found[each] = refusal(value, str(each)) if isinstance(value, ErrorCode) else value
    return found


def refusal(code: ErrorCode, subject: str) -> Refused:
    """Returns the error that `check` would raise."""
    try:
        check(code, None, subject)
    except Refused as refused:
        return refused
    raise AssertionError(f"{code.name} is no refusal")


def _check_known(cluster: Cluster, partition: TopicPartition) -> None:
    topic = cluster.view.topics.get(partition.topic)
    if topic is not None and cluster.view.partition(*partition) is None:
        text = f"the topic has {len(topic.partitions)} partitions, counted from 0"
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text, str(partition))


def by_topic(partitions: Sequence[TopicPartition]) -> dict[str, list[TopicPartition]]:
    """Groups partitions by topic."""
    found: dict[str, list[TopicPartition]] = {}
    for each in partitions:
        found.setdefault(each.topic, []).append(each)
    return found
