"""What goes in and out, per topic: plain numbers that those who move the bytes add to.

Only topics with a partition here are counted by name: what clients ask for in vain must not make this grow. A topic
that goes leaves its numbers in `gone`, so that the sum over all topics never goes back.
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
"""Errors by which clients learn where things are now: no failures."""


class TopicTraffic:
    """Of one topic on this node, since it came here."""

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
        """To consumers."""
        self.produces = 0
        """Batches that were taken or refused; those that had come before, too."""
        self.produce_failures = 0
        self.fetches = 0
        """Partitions that consumers were told something of."""
        self.fetch_failures = 0

    def add(self, other: "TopicTraffic") -> None:
        """Takes the other's numbers in."""
        for name in self.NAMES:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class Traffic:
    """Of the node."""

    def __init__(self) -> None:
        self.by_topic: dict[str, TopicTraffic] = {}
        self.gone = TopicTraffic()
        """Of topics that are here no longer, or never were."""
        self.replication_bytes_out = 0
        """To followers."""

    def of(self, topic: str) -> TopicTraffic:
        """That of a topic with a partition here."""
        found = self.by_topic.get(topic)
        if found is None:
            found = self.by_topic[topic] = TopicTraffic()
        return found

    def forget(self, topic: str) -> None:
        """The topic has no partition here any more."""
        found = self.by_topic.pop(topic, None)
        if found is not None:
            self.gone.add(found)

    def produce_failed(self, topic: TopicTraffic | None, code: ErrorCode) -> None:
        """A batch was refused; None for a topic that is not here."""
        if code not in EXPECTED:
            counted = self.gone if topic is None else topic
            counted.produces += 1
            counted.produce_failures += 1

    def total(self) -> TopicTraffic:
        """Of all topics, since the start."""
        total = TopicTraffic()
        total.add(self.gone)
        for each in self.by_topic.values():
            total.add(each)
        return total
