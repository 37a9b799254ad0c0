"""Deletion of committed offsets of a group."""

from collections.abc import Sequence

from penstock.client.cluster import Cluster
from penstock.client.errors import Refused, check
from penstock.client.metadata import TopicPartition
from penstock.client.offsets import by_topic, refusal
from penstock.model.errors import ErrorCode
from penstock.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)


async def delete_offsets(
    cluster: Cluster, group_id: str, partitions: Sequence[TopicPartition], *, timeout_ms: int | None = None
) -> dict[TopicPartition, Refused | None]:
    """Deletes the offsets that a group has committed for these partitions; refused for topics that members read."""
    request = OffsetDeleteRequest(
        group_id=group_id,
        topics=[
            OffsetDeleteRequestTopic(
                name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=each.partition) for each in some]
            )
            for topic, some in by_topic(partitions).items()
        ],
    )
    response = await cluster.ask_coordinator(
        group_id,
        request,
        OffsetDeleteResponse,
        lambda answer: () if answer.error_code is ErrorCode.NONE else (answer.error_code,),
        timeout_ms=timeout_ms,
    )
    check(response.error_code, None, f"group {group_id}")
    return {
        TopicPartition(topic.name, each.partition_index): None
        if each.error_code is ErrorCode.NONE
        else refusal(each.error_code, f"group {group_id}, {TopicPartition(topic.name, each.partition_index)}")
        for topic in response.topics
        for each in topic.partitions
    }
