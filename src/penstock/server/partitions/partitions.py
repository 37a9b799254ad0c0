"""The partitions that this node leads, and those that it follows, by topic name and by topic id."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeAlias, TypeVar

from penstock.metadata.records import BrokerEndpoint
from penstock.model.errors import ErrorCode
from penstock.server.partitions.partition import Followed, Partition
from penstock.server.partitions.traffic import Traffic

K = TypeVar("K", str, bytes)
P = TypeVar("P", Partition, Followed)


class Leader(NamedTuple):
    """The leader of a partition that this node does not lead (KIP-951)."""

    node_id: int
    epoch: int
    endpoints: Sequence[BrokerEndpoint] = ()
    """Its addresses, by listener."""
    rack: str | None = None


LeaderElsewhere: TypeAlias = Callable[[str | bytes, int], Leader | None]
"""Finds the leader by topic name or id and partition."""


def _nobody_leads(_topic: str | bytes, _index: int) -> None:
    return None


class Partitions:
    """A registry, which the node fills from the metadata image. Only `followed` returns followed partitions."""

    def __init__(self, leader_elsewhere: LeaderElsewhere = _nobody_leads) -> None:
        self._leader_elsewhere = leader_elsewhere
        self._by_name: dict[str, dict[int, Partition]] = {}
        self._by_id: dict[bytes, dict[int, Partition]] = {}
        self._by_log: dict[int, Partition] = {}
        self._followed_by_name: dict[str, dict[int, Followed]] = {}
        self._followed_by_id: dict[bytes, dict[int, Followed]] = {}
        self.traffic = Traffic()
        """Traffic counters."""

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._by_log.values())

    def __len__(self) -> int:
        return len(self._by_log)

    def named(self, topic: str, index: int) -> Partition | None:
        """The led partition of a topic name; None if there is none."""
        partitions = self._by_name.get(topic)
        return None if partitions is None else partitions.get(index)

    def identified(self, topic_id: bytes, index: int) -> Partition | None:
        """The led partition of a topic id; None if there is none."""
        partitions = self._by_id.get(topic_id)
        return None if partitions is None else partitions.get(index)

    def has_id(self, topic_id: bytes) -> bool:
        """Whether a led partition has the topic id: an unknown id is another error than an unknown partition."""
        return topic_id in self._by_id

    def find(self, topic: str | bytes, index: int) -> Partition | None:
        """The led partition of a topic name or id."""
        return self.named(topic, index) if isinstance(topic, str) else self.identified(topic, index)

    def why_missing(self, topic: str | bytes, index: int) -> tuple[ErrorCode, Leader | None]:
        """The error, and the leader if known, for a partition that this node does not lead."""
        leader = self._leader_elsewhere(topic, index)
        if leader is not None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER, leader
        if isinstance(topic, bytes) and not self.has_id(topic):
            return ErrorCode.UNKNOWN_TOPIC_ID, None
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None

    def of_log(self, log_number: int) -> Partition | None:
        """The led partition whose log has this number."""
        return self._by_log.get(log_number)

    def add(self, partition: Partition) -> None:
        """Registers a partition as led."""
        partition.traffic = self.traffic.of(partition.topic)
        self._by_name.setdefault(partition.topic, {})[partition.index] = partition
        self._by_id.setdefault(partition.topic_id, {})[partition.index] = partition
        self._by_log[partition.log.identity.number] = partition

    def remove(self, partition: Partition, *, is_deleted: bool = False) -> None:
        """Removes a partition that is no longer led, and fails its waiters."""
        _take(self._by_name, partition.topic, partition.index)
        _take(self._by_id, partition.topic_id, partition.index)
        del self._by_log[partition.log.identity.number]
        self._forget_topic(partition.topic)
        partition.retire(is_deleted=is_deleted)

    # --- followed

    def followed(self, topic: str | bytes, index: int) -> Followed | None:
        """The followed partition of a topic name or id; None if this node does not follow it."""
        places = self._followed_by_name.get(topic) if isinstance(topic, str) else self._followed_by_id.get(topic)
        return None if places is None else places.get(index)

    def follow(self, partition: Followed) -> None:
        """Registers a partition as followed in its leader epoch, in place of any earlier epoch."""
        self.unfollow(partition.topic_id, partition.index)
        partition.traffic = self.traffic.of(partition.topic)
        self._followed_by_name.setdefault(partition.topic, {})[partition.index] = partition
        self._followed_by_id.setdefault(partition.topic_id, {})[partition.index] = partition

    def unfollow(self, topic_id: bytes, index: int) -> None:
        """Removes a followed partition, if it is registered."""
        partition = self.followed(topic_id, index)
        if partition is not None:
            _take(self._followed_by_name, partition.topic, index)
            _take(self._followed_by_id, topic_id, index)
            self._forget_topic(partition.topic)
            partition.retire()

    def _forget_topic(self, topic: str) -> None:
        if topic not in self._by_name and topic not in self._followed_by_name:
            self.traffic.forget(topic)

    def clear(self) -> None:
        """Removes all led and followed partitions."""
        for led in list(self):
            self.remove(led)
        for followed in [each for places in self._followed_by_id.values() for each in places.values()]:
            self.unfollow(followed.topic_id, followed.index)


def _take(places: dict[K, dict[int, P]], key: K, index: int) -> None:
    partitions = places[key]
    del partitions[index]
    if not partitions:
        del places[key]
