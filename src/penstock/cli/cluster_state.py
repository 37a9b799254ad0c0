"""What a cluster says of itself, gathered at one moment: brokers, partitions, the quorum, moves, disks.

Whoever cannot be asked leaves its error in place of the answer: to know that is the point of looking.
"""

import asyncio
from collections.abc import Awaitable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from penstock.client.brokers import LogDir, log_dirs_at
from penstock.client.client import Client
from penstock.client.errors import ClientError
from penstock.client.leaders import Unled
from penstock.client.metadata import NO_LEADER, Broker, Partition, Topic, TopicPartition
from penstock.client.quorum import QuorumDescription
from penstock.client.reassignments import Moving

T = TypeVar("T")

ANSWER_MS = 5_000
"""What one broker, or the controller, has to answer; a cluster that is well needs a fraction of it."""
IN_SYNC_MIN = "min.insync.replicas"


@dataclass(frozen=True)
class ClusterState:
    """See the module."""

    brokers: dict[int, Broker]
    """Those that are let in."""
    fenced: dict[int, Broker] = field(default_factory=dict)
    """Those that are known and not let in."""
    topics: tuple[Topic, ...] = ()
    in_sync_min: dict[str, int] = field(default_factory=dict)
    """Of topics that have partitions with less than all in sync."""
    quorum: QuorumDescription | ClientError | None = None
    moving: tuple[Moving, ...] | ClientError = ()
    unled: tuple[Unled, ...] | ClientError = ()
    """Asked only where a partition has no leader."""
    log_dirs: "dict[int, list[LogDir] | ClientError]" = field(default_factory=dict)

    def partitions(self) -> Iterator[tuple[str, Partition]]:
        """All, with their topic's name."""
        return ((topic.name, each) for topic in self.topics for each in topic.partitions)

    def adding(self) -> dict[TopicPartition, tuple[int, ...]]:
        """Replicas on their way, by partition."""
        return {} if isinstance(self.moving, ClientError) else {each.partition: each.adding for each in self.moving}

    @property
    def missing(self) -> list[int]:
        """Brokers that are known to have been here, by their registration or by their replicas, and are not."""
        placed = {each for _, partition in self.partitions() for each in partition.replicas}
        return sorted((placed | self.fenced.keys()) - self.brokers.keys())


def lacking(partition: Partition, adding: tuple[int, ...]) -> list[int]:
    """Replicas that should be in sync and are not; one that is only on its way lacks nothing yet."""
    return [each for each in partition.replicas if each not in partition.isr and each not in adding]


async def survey(client: Client) -> ClusterState:
    """Asks everybody at once. Raises if nobody can be reached."""
    await client.cluster.refresh(timeout_ms=1)
    described, topics, quorum, moving = await asyncio.gather(
        client.admin.describe_cluster(timeout_ms=ANSWER_MS),
        client.admin.list_topics(with_internal=True, timeout_ms=ANSWER_MS),
        _or_error(client.admin.describe_quorum(timeout_ms=ANSWER_MS)),
        _or_error(client.admin.list_reassignments(timeout_ms=ANSWER_MS)),
    )
    brokers = {each.node_id: each for each in described.brokers}
    fenced = {each.node_id: each for each in described.fenced}
    leaderless = [each.name for each in topics if any(part.leader == NO_LEADER for part in each.partitions)]
    unled = await _or_error(client.admin.unled(leaderless, timeout_ms=ANSWER_MS)) if leaderless else []
    behind = [each.name for each in topics if any(len(part.isr) < len(part.replicas) for part in each.partitions)]
    return ClusterState(
        brokers,
        fenced,
        tuple(topics),
        await _in_sync_min(client, behind),
        quorum,
        moving if isinstance(moving, ClientError) else tuple(moving),
        unled if isinstance(unled, ClientError) else tuple(unled),
        await _log_dirs(client, brokers | fenced),
    )


async def _or_error(question: Awaitable[T]) -> T | ClientError:
    try:
        return await question
    except ClientError as error:
        return error


async def _in_sync_min(client: Client, topics: list[str]) -> dict[str, int]:
    if not topics:
        return {}
    found = await client.admin.describe_topic_configs(topics, names=[IN_SYNC_MIN], timeout_ms=ANSWER_MS)
    return {topic: int(entries[IN_SYNC_MIN].value or 1) for topic, entries in found.items() if IN_SYNC_MIN in entries}


async def _log_dirs(client: Client, brokers: dict[int, Broker]) -> "dict[int, list[LogDir] | ClientError]":
    """Without their replicas: that would be long, and nobody needs it here. A fenced broker may be up and answer."""
    found = await asyncio.gather(*(_or_error(log_dirs_at(client.cluster, each)) for each in brokers.values()))
    return dict(zip(brokers, found, strict=True))
