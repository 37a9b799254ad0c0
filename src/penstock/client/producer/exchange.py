"""Converts parcels to Produce requests, and responses to one result per parcel."""

from collections.abc import Sequence
from typing import NamedTuple

from penstock.client.connection.connection import BrokerConnection
from penstock.client.metadata import Broker, ClusterView, TopicPartition
from penstock.client.producer.outbox import Batch, Outbox
from penstock.model.errors import ErrorCode
from penstock.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from penstock.wire.types import ZERO_UUID

LAST_BY_NAME = 12
"""The last version with topic names; later ones have topic ids."""


class Parcel(NamedTuple):
    """A batch in flight and the outbox of its partition."""

    outbox: Outbox
    batch: Batch


class Result(NamedTuple):
    """The broker's response to a parcel."""

    code: ErrorCode
    message: str | None = None
    base_offset: int = -1
    append_time_ms: int = -1


NO_ANSWER = Result(ErrorCode.UNKNOWN_SERVER_ERROR, "the broker's answer leaves this partition out")


def produce_request(
    connection: BrokerConnection, view: ClusterView, parcels: Sequence[Parcel], acks: int, timeout_ms: int
) -> tuple[ProduceRequest, int]:
    """The request and its version: topics are sent by id if the broker supports this and all topics have one."""
    topics: dict[str, list[PartitionProduceData]] = {}
    for outbox, batch in parcels:
        data = PartitionProduceData(index=outbox.partition.partition, records=batch.data)
        topics.setdefault(outbox.partition.topic, []).append(data)
    ids = {name: known.topic_id if (known := view.topics.get(name)) else ZERO_UUID for name in topics}
    most = LAST_BY_NAME if ZERO_UUID in ids.values() else None
    request = ProduceRequest(
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[
            TopicProduceData(name=name, topic_id=ids[name], partition_data=data) for name, data in topics.items()
        ],
    )
    return request, connection.version_for(ProduceRequest, most)


def results(
    request: ProduceRequest, version: int, response: ProduceResponse, parcels: Sequence[Parcel]
) -> list[Result]:
    """The result of each parcel, in order."""
    names = {topic.topic_id: topic.name for topic in request.topic_data}
    found: dict[TopicPartition, PartitionProduceResponse] = {}
    for topic in response.responses:
        name = topic.name if version <= LAST_BY_NAME else names.get(topic.topic_id, "")
        for part in topic.partition_responses:
            found[TopicPartition(name, part.index)] = part
    return [_result(found.get(outbox.partition)) for outbox, _ in parcels]


def _result(part: PartitionProduceResponse | None) -> Result:
    if part is None:
        return NO_ANSWER
    message = part.error_message
    if part.record_errors:
        message = "; ".join(
            f"record {each.batch_index}: {each.batch_index_error_message}" for each in part.record_errors
        )
    return Result(part.error_code, message, part.base_offset, part.log_append_time_ms)


def note_leaders(view: ClusterView, request: ProduceRequest, version: int, response: ProduceResponse) -> bool:
    """Applies the leaders that the response names for moved partitions; returns whether any was new."""
    names = {topic.topic_id: topic.name for topic in request.topic_data}
    brokers = [Broker(each.node_id, each.host, each.port, each.rack) for each in response.node_endpoints]
    is_news = False
    for topic in response.responses:
        name = topic.name if version <= LAST_BY_NAME else names.get(topic.topic_id, "")
        for part in topic.partition_responses:
            leader = part.current_leader
            is_news |= view.note_leader(name, part.index, leader.leader_id, leader.leader_epoch, brokers)
    return is_news
