"""Cached cluster metadata: brokers, topics, leaders. Plain values; `cluster` keeps them fresh.

A response may be older than an earlier one from another broker: a leader with a lower leader epoch never replaces one
with a higher epoch, unless the topic was recreated.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from penstock.client.bootstrap import Address
from penstock.model.errors import ErrorCode
from penstock.wire.messages.metadata import MetadataResponse, MetadataResponseTopic
from penstock.wire.types import ZERO_UUID

NO_LEADER = -1


class TopicPartition(NamedTuple):
    """A partition, by topic name and index."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]"


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker and its advertised address."""

    node_id: int
    host: str
    port: int
    rack: str | None = None

    @property
    def address(self) -> Address:
        """Host and port."""
        return Address(self.host, self.port)


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition and its replicas, by node id."""

    index: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic and its partitions, in order."""

    name: str
    topic_id: bytes
    is_internal: bool
    partitions: tuple[Partition, ...]

    @property
    def has_id(self) -> bool:
        """Whether the broker reported a topic id."""
        return self.topic_id != ZERO_UUID


class ClusterView:
    """The latest metadata that brokers have reported."""

    def __init__(self) -> None:
        self.brokers: dict[int, Broker] = {}
        self.topics: dict[str, Topic] = {}
        self.cluster_id: str | None = None
        self.controller_id = NO_LEADER

    def update(self, response: MetadataResponse) -> dict[str, ErrorCode]:
        """Applies a response; returns the error codes of topics that it does not describe."""
        self.cluster_id = response.cluster_id
        self.controller_id = response.controller_id
        if response.brokers:
            self.brokers = {b.node_id: Broker(b.node_id, b.host, b.port, b.rack) for b in response.brokers}
        refused: dict[str, ErrorCode] = {}
        for topic in response.topics:
            if topic.name is None:
                continue
            if topic.error_code is not ErrorCode.NONE:
                refused[topic.name] = topic.error_code
                if not topic.error_code.is_retriable or topic.error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    self.topics.pop(topic.name, None)
            else:
                self.topics[topic.name] = self._merged(topic.name, topic)
        return refused

    def _merged(self, name: str, found: MetadataResponseTopic) -> Topic:
        known = self.topics.get(name)
        newest = {}
        if known is not None and known.topic_id == found.topic_id:
            newest = {partition.index: partition for partition in known.partitions}
        partitions = []
        for each in sorted(found.partitions, key=lambda p: p.partition_index):
            partition = Partition(
                each.partition_index,
                each.leader_id,
                each.leader_epoch,
                tuple(each.replica_nodes),
                tuple(each.isr_nodes),
                tuple(each.offline_replicas),
                each.error_code,
            )
            before = newest.get(partition.index)
            partitions.append(before if before and before.leader_epoch > partition.leader_epoch else partition)
        return Topic(name, found.topic_id, found.is_internal, tuple(partitions))

    def keep_only(self, names: Iterable[str | None]) -> None:
        """Drops all topics but these."""
        kept = dict.fromkeys(names)
        self.topics = {name: topic for name, topic in self.topics.items() if name in kept}

    def partition(self, topic: str, index: int) -> Partition | None:
        """A partition, if it is known."""
        known = self.topics.get(topic)
        if known is None:
            return None
        if index < len(known.partitions) and known.partitions[index].index == index:
            return known.partitions[index]
        return next((each for each in known.partitions if each.index == index), None)

    def leader(self, topic: str, index: int) -> int | None:
        """The node id of a partition's leader, if one is known."""
        partition = self.partition(topic, index)
        return partition.leader if partition is not None and partition.leader in self.brokers else None

    def note_leader(
        self, topic: str, index: int, leader: int, leader_epoch: int, endpoints: Iterable[Broker] = ()
    ) -> bool:
        """Applies the leader named in an error response (KIP-951); returns whether it is newer and a known broker."""
        partition = self.partition(topic, index)
        if partition is None or leader < 0 or leader_epoch <= partition.leader_epoch:
            return False
        for broker in endpoints:
            self.brokers[broker.node_id] = broker
        known = self.topics[topic]
        moved = replace(partition, leader=leader, leader_epoch=leader_epoch)
        partitions = tuple(moved if each.index == index else each for each in known.partitions)
        self.topics[topic] = replace(known, partitions=partitions)
        return leader in self.brokers

    def name_of(self, topic_id: bytes) -> str | None:
        """The topic with this id, if it is known."""
        return next((topic.name for topic in self.topics.values() if topic.topic_id == topic_id), None)
