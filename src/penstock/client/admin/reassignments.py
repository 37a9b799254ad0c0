"""Partition reassignments: lists, starts, changes and cancels them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.client.cluster import Cluster
from penstock.client.errors import Refused, check
from penstock.client.metadata import TopicPartition
from penstock.client.offsets import by_topic
from penstock.model.errors import ErrorCode
from penstock.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from penstock.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

PARTITIONS_AT_ONCE = 1_000
"""The controller refuses a request that would produce too many records."""


@dataclass(frozen=True, slots=True)
class Moving:
    """A partition that is being reassigned."""

    partition: TopicPartition
    replicas: tuple[int, ...]
    """The target replicas, then those to be removed."""
    adding: tuple[int, ...]
    removing: tuple[int, ...]

    @property
    def target(self) -> tuple[int, ...]:
        """The target replicas."""
        return tuple(each for each in self.replicas if each not in self.removing)


async def list_reassignments(cluster: Cluster, *, timeout_ms: int | None = None) -> list[Moving]:
    """All reassignments in progress."""
    response = await cluster.ask_controller(
        ListPartitionReassignmentsRequest(topics=None),
        ListPartitionReassignmentsResponse,
        lambda answer: () if answer.error_code is ErrorCode.NONE else (answer.error_code,),
        timeout_ms=timeout_ms,
    )
    check(response.error_code, response.error_message, "moves under way")
    return [
        Moving(
            TopicPartition(topic.name, each.partition_index),
            tuple(each.replicas),
            tuple(each.adding_replicas),
            tuple(each.removing_replicas),
        )
        for topic in response.topics
        for each in topic.partitions
    ]


async def alter_reassignments(
    cluster: Cluster, targets: Mapping[TopicPartition, Sequence[int] | None], *, timeout_ms: int | None = None
) -> dict[TopicPartition, Refused | None]:
    """Reassigns partitions to brokers, the preferred leader first; None cancels a reassignment."""
    wanted = list(targets)
    done: dict[TopicPartition, Refused | None] = {}
    for first in range(0, len(wanted), PARTITIONS_AT_ONCE):
        piece = {each: targets[each] for each in wanted[first : first + PARTITIONS_AT_ONCE]}
        done |= await _alter(cluster, piece, timeout_ms)
    return done


async def _alter(
    cluster: Cluster, targets: Mapping[TopicPartition, Sequence[int] | None], timeout_ms: int | None
) -> dict[TopicPartition, Refused | None]:
    topics = [
        ReassignableTopic(
            name=topic,
            partitions=[
                ReassignablePartition(partition_index=each.partition, replicas=targets[each]) for each in partitions
            ],
        )
        for topic, partitions in by_topic(list(targets)).items()
    ]
    response = await cluster.ask_controller(
        AlterPartitionReassignmentsRequest(timeout_ms=cluster.request_timeout_ms, topics=topics),
        AlterPartitionReassignmentsResponse,
        lambda answer: () if answer.error_code is ErrorCode.NONE else (answer.error_code,),
        timeout_ms=timeout_ms,
    )
    check(response.error_code, response.error_message, "moves of partitions")
    done: dict[TopicPartition, Refused | None] = {}
    for topic in response.responses:
        for each in topic.partitions:
            partition = TopicPartition(topic.name, each.partition_index)
            is_well = each.error_code is ErrorCode.NONE
            done[partition] = None if is_well else Refused(each.error_code, each.error_message, str(partition))
    return done
