"""Traffic counters per topic: plain numbers, incremented where the bytes are moved.

Only topics with a partition on this node are counted by name: requests for unknown topics must not make the table grow.
The counters of a topic that leaves are added to `gone`, so that the sum over all topics never decreases.
"""

from typing import Final

from penstock.model.errors import ErrorCode

EXPECTED: Final = frozenset(
    (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_OUT_OF_RANGE,
    )
)
"""Errors after which clients refresh their metadata or offsets; not counted as failures."""


class TopicTraffic:
    """Counters of one topic on this node, since its first partition was added."""

    __slots__ = NAMES = (
        "bytes_in",
        "bytes_out",
        "fetch_failures",
        "fetches",
        "messages_in",
        "produce_failures",
        "produces",
    )

    def __init__(self) -> None:
        self.bytes_in = 0
        self.messages_in = 0
        self.bytes_out = 0
        """Sent to consumers."""
        self.produces = 0
        """Batches that were appended or failed, duplicates included."""
        self.produce_failures = 0
        self.fetches = 0
        """Partitions in responses to consumers."""
        self.fetch_failures = 0

    def add(self, other: "TopicTraffic") -> None:
        """Adds the counters of `other`."""
        for name in self.NAMES:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class Traffic:
    """Counters of the node."""

    def __init__(self) -> None:
        self.by_topic: dict[str, TopicTraffic] = {}
        self.gone = TopicTraffic()
        """Counters of topics that no longer have a partition here, or never had one."""
        self.replication_bytes_out = 0
        """Sent to followers."""

    def of(self, topic: str) -> TopicTraffic:
        """Counters of a topic with a partition here."""
        found = self.by_topic.get(topic)
        if found is None:
            found = self.by_topic[topic] = TopicTraffic()
        return found

    def forget(self, topic: str) -> None:
        """Moves the counters of a topic that has no partition here any more to `gone`."""
        found = self.by_topic.pop(topic, None)
        if found is not None:
            self.gone.add(found)

    def produce_failed(self, topic: TopicTraffic | None, code: ErrorCode) -> None:
        """Counts a refused batch; `topic` is None without a partition here."""
        if code not in EXPECTED:
            counted = self.gone if topic is None else topic
            counted.produces += 1
            counted.produce_failures += 1

    def total(self) -> TopicTraffic:
        """Sum over all topics, since the start."""
        total = TopicTraffic()
        total.add(self.gone)
        for each in self.by_topic.values():
            total.add(each)
        return total
