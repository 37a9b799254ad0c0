"""Eligible leader replicas outside the ISR (KIP-966), and elections on demand."""

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.client.cluster import Cluster
from penstock.client.errors import Refused, check
from penstock.client.metadata import NO_LEADER, TopicPartition
from penstock.client.offsets import by_topic
from penstock.model.errors import ErrorCode
from penstock.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from penstock.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions

PREFERRED, UNCLEAN = 0, 1


@dataclass(frozen=True, slots=True)
class Unled:
    """A partition without a leader, and the replicas that are known to hold all committed records."""

    partition: TopicPartition
    has_all: tuple[int, ...]
    """ISR and ELR: the first of them that returns becomes the leader."""
    had_all: tuple[int, ...]
    """The last known ELR: replicas that have since returned without a guarantee that they hold all records."""


async def unled(cluster: Cluster, topics: Sequence[str], *, timeout_ms: int | None = None) -> list[Unled]:
    """Partitions of topics without a leader. Raises Unsupported if brokers do not report the ELR."""
    found: list[Unled] = []
    cursor: Cursor | None = None
    while topics:
        request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name) for name in topics], cursor=cursor)
        page = await cluster.ask_checked(
            request, DescribeTopicPartitionsResponse, lambda _answer: (), timeout_ms=timeout_ms
        )
        found += [
            Unled(
                TopicPartition(topic.name or "", each.partition_index),
                (*each.isr_nodes, *(each.eligible_leader_replicas or ())),
                tuple(each.last_known_elr or ()),
            )
            for topic in page.topics
            for each in topic.partitions
            if each.leader_id == NO_LEADER
        ]
        if page.next_cursor is None:
            break
        cursor = Cursor(topic_name=page.next_cursor.topic_name, partition_index=page.next_cursor.partition_index)
    return found


async def elect_leaders(
    cluster: Cluster, partitions: Sequence[TopicPartition], *, is_unclean: bool = False, timeout_ms: int | None = None
) -> dict[TopicPartition, Refused | None]:
    """Elects the preferred replica; if unclean, any live replica where none leads, even if records are lost."""
    response = await cluster.ask_controller(
        ElectLeadersRequest(
            election_type=UNCLEAN if is_unclean else PREFERRED,
            topic_partitions=[
                TopicPartitions(topic=topic, partitions=[each.partition for each in some])
                for topic, some in by_topic(list(partitions)).items()
            ],
            timeout_ms=cluster.request_timeout_ms,
        ),
        ElectLeadersResponse,
        lambda answer: () if answer.error_code is ErrorCode.NONE else (answer.error_code,),
        timeout_ms=timeout_ms,
    )
    check(response.error_code, None, "an election")
    done: dict[TopicPartition, Refused | None] = {}
    for topic in response.replica_election_results:
        for each in topic.partition_result:
            partition = TopicPartition(topic.topic, each.partition_id)
            is_well = each.error_code in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED)
            done[partition] = None if is_well else Refused(each.error_code, each.error_message, str(partition))
    return done
