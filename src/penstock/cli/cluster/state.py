"""The state that a cluster reports: brokers, partitions, the quorum, reassignments, disks.

If a broker or the controller does not answer, its error takes the place of the answer: it is part of the state.
"""

import asyncio
from collections.abc import Awaitable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from penstock.cli.connection.majority import is_confirmed
from penstock.client.admin.brokers import LogDir, log_dirs_at
from penstock.client.admin.leaders import Unled
from penstock.client.admin.majority import Majority, QuorumProbe
from penstock.client.admin.quorum import QuorumDescription
from penstock.client.admin.quorum_probe import probe_quorum
from penstock.client.admin.reassignments import Moving
from penstock.client.client import Client
from penstock.client.errors import ClientError, TimedOut
from penstock.client.metadata import NO_LEADER, Broker, Partition, Topic, TopicPartition

T = TypeVar("T")

ANSWER_MS = 5_000
"""The time that one broker, or the controller, has to answer; a healthy cluster needs a fraction of it."""
DISKS_MS_MIN = 500
DISKS_MS_MAX = 3_000
IN_SYNC_MIN = "min.insync.replicas"
NO_ANSWER = QuorumProbe(Majority.LOST, (), None, True, 0)


@dataclass(frozen=True)
class ClusterState:
    """See the module."""

    brokers: dict[int, Broker]
    """Brokers that are registered and not fenced."""
    fenced: dict[int, Broker] = field(default_factory=dict)
    """Brokers that are registered and fenced."""
    topics: tuple[Topic, ...] = ()
    in_sync_min: dict[str, int] = field(default_factory=dict)
    """Of topics that have partitions with an incomplete ISR."""
    quorum: QuorumDescription | ClientError | None = None
    moving: tuple[Moving, ...] | ClientError = ()
    unled: tuple[Unled, ...] | ClientError = ()
    """Requested only if a partition has no leader."""
    log_dirs: "dict[int, list[LogDir] | ClientError]" = field(default_factory=dict)
    probe: QuorumProbe | None = None
    """Whether a majority of controllers is confirmed; without one, topics and brokers may be out of date."""

    def partitions(self) -> Iterator[tuple[str, Partition]]:
        """All partitions, with their topic's name."""
        return ((topic.name, each) for topic in self.topics for each in topic.partitions)

    def adding(self) -> dict[TopicPartition, tuple[int, ...]]:
        """Replicas that are being added, by partition."""
        return {} if isinstance(self.moving, ClientError) else {each.partition: each.adding for each in self.moving}

    @property
    def missing(self) -> list[int]:
        """Brokers that are fenced, or that have replicas and are not registered."""
        placed = {each for _, partition in self.partitions() for each in partition.replicas}
        return sorted((placed | self.fenced.keys()) - self.brokers.keys())


def lacking(partition: Partition, adding: tuple[int, ...]) -> list[int]:
    """Replicas that should be in the ISR and are not; replicas that are being added do not count."""
    return [each for each in partition.replicas if each not in partition.isr and each not in adding]


async def survey(client: Client, timeout_ms: int = 2 * ANSWER_MS) -> ClusterState:
    """Queries the controllers and all brokers. Raises if no broker can be reached.

    Without a majority of controllers only requests that brokers answer by themselves are sent: others would be held.
    """
    clock = client.cluster.ports.clock
    end_ms = clock.monotonic_ms() + timeout_ms
    answer_ms = min(ANSWER_MS, timeout_ms * 6 // 10)  # what is left is for the brokers' disks
    await client.cluster.refresh(timeout_ms=1)
    probe, described, topics = await asyncio.gather(
        _or_error(probe_quorum(client.cluster, answer_ms)),
        client.admin.describe_cluster(timeout_ms=answer_ms),
        client.admin.list_topics(with_internal=True, timeout_ms=answer_ms),
    )
    brokers = {each.node_id: each for each in described.brokers}
    fenced = {each.node_id: each for each in described.fenced}
    if isinstance(probe, ClientError) or not is_confirmed(probe):
        lost = NO_ANSWER if isinstance(probe, ClientError) else probe
        left_ms = end_ms - clock.monotonic_ms()
        found = await _log_dirs(client, brokers | fenced, left_ms)
        return ClusterState(brokers, fenced, tuple(topics), log_dirs=found, probe=lost)
    quorum, moving = await asyncio.gather(
        _quorum(client, probe), _or_error(client.admin.list_reassignments(timeout_ms=answer_ms))
    )
    leaderless = [each.name for each in topics if any(part.leader == NO_LEADER for part in each.partitions)]
    unled = await _or_error(client.admin.unled(leaderless, timeout_ms=answer_ms)) if leaderless else []
    behind = [each.name for each in topics if any(len(part.isr) < len(part.replicas) for part in each.partitions)]
    return ClusterState(
        brokers,
        fenced,
        tuple(topics),
        await _in_sync_min(client, behind),
        quorum,
        moving if isinstance(moving, ClientError) else tuple(moving),
        unled if isinstance(unled, ClientError) else tuple(unled),
        await _log_dirs(client, brokers | fenced, end_ms - clock.monotonic_ms()),
        probe,
    )


async def _quorum(client: Client, probe: QuorumProbe) -> QuorumDescription | ClientError:
    """The leader's answer to the probe; without one, the reason why this cluster does not describe its quorum."""
    if probe.quorum is not None:
        return probe.quorum
    return await _or_error(client.admin.describe_quorum(timeout_ms=ANSWER_MS))


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


async def _log_dirs(
    client: Client, brokers: dict[int, Broker], limit_ms: int
) -> "dict[int, list[LogDir] | ClientError]":
    """Log directories by broker, without their replicas, which are not needed. A fenced broker may be up and answer."""
    limit_ms = max(DISKS_MS_MIN, min(DISKS_MS_MAX, limit_ms))

    async def ask(broker: Broker) -> "list[LogDir]":
        try:
            async with asyncio.timeout(limit_ms / 1000):
                return await log_dirs_at(client.cluster, broker)
        except TimeoutError:
            raise TimedOut(f"{broker.address} did not answer within {limit_ms} ms") from None

    found = await asyncio.gather(*(_or_error(ask(each)) for each in brokers.values()))
    return dict(zip(brokers, found, strict=True))
