"""The operations that every client performs against a node, and the interface of a client.

A client overrides the methods for the operations that it offers and lists the others in `lacks`, with the reason; a
test checks that both together cover every operation. Checks do not rely on the client's report: they use a raw client.

A row is a module of its own in this folder, named in `table.py`, with one subclass of `Row`. Importing it is cheap:
tools are located and processes started when a method needs them, and a missing tool is reported by name.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum
from typing import ClassVar, Literal, NamedTuple

from penstock.client.producer.partitioner import partition_for_key
from penstock.records.compression import Codec
from penstock.records.rows import Headers, Record

Acks = Literal["0", "1", "all"]
Protocol = Literal["classic", "consumer"]
Place = tuple[int, int]
"""A record of a topic: partition and offset."""

POLL_S = 0.1
AUTO_COMMIT_MS = 200
HEARTBEAT_MS = 200
"""Of classic members; members of the other protocol get the interval from the node."""


class Operation(Enum):
    """An operation, which is a line of the compatibility page."""

    CREATE_TOPIC = "create a topic with settings"
    DESCRIBE_TOPIC = "describe a topic and its settings"
    ALTER_TOPIC = "alter a topic's settings"
    ADD_PARTITIONS = "add partitions"
    DELETE_TOPIC = "delete a topic"
    PRODUCE_NONE = "produce uncompressed"
    PRODUCE_GZIP = "produce gzip"
    PRODUCE_SNAPPY = "produce snappy"
    PRODUCE_LZ4 = "produce lz4"
    PRODUCE_ZSTD = "produce zstd"
    ACKS_0 = "produce with acks=0"
    ACKS_1 = "produce with acks=1"
    ACKS_ALL = "produce with acks=all"
    KEYED = "partition by key"
    ROUND_ROBIN = "spread records without keys"
    CONSUME_OFFSET = "consume by assignment from an offset"
    CONSUME_TIMESTAMP = "consume by assignment from a timestamp"
    DELETE_RECORDS = "delete records"
    AT_THE_LIMIT = "messages at the size limit pass, larger ones are refused by name"
    IDEMPOTENT = "idempotent, 5 in flight, under connection resets"
    CLASSIC_SHARE = "classic group: join, rebalance, leave"
    CLASSIC_STATIC = "classic group: a static member restarts, nobody rebalances"
    CLASSIC_COMMIT_SYNC = "classic group: commit and wait"
    CLASSIC_COMMIT_ASYNC = "classic group: commit without waiting"
    CLASSIC_COMMIT_AUTO = "classic group: commit by itself"
    CLASSIC_SEEK = "classic group: seek"
    CLASSIC_PAUSE = "classic group: pause and resume"
    CONSUMER_SHARE = "consumer group (KIP-848): join, rebalance, leave"
    CONSUMER_STATIC = "consumer group (KIP-848): a static member restarts, nobody rebalances"
    CONSUMER_COMMIT_SYNC = "consumer group (KIP-848): commit and wait"
    CONSUMER_COMMIT_ASYNC = "consumer group (KIP-848): commit without waiting"
    CONSUMER_COMMIT_AUTO = "consumer group (KIP-848): commit by itself"
    CONSUMER_SEEK = "consumer group (KIP-848): seek"
    CONSUMER_PAUSE = "consumer group (KIP-848): pause and resume"
    DESCRIBE_GROUP = "list and describe groups, and what they have committed"
    RESET_GROUP = "move a group to other offsets"
    DELETE_GROUP_OFFSETS = "delete some of a group's offsets"
    DELETE_GROUP = "delete a group; one at work is refused"


CLASSIC = tuple(each for each in Operation if each.name.startswith("CLASSIC_"))
CONSUMER = tuple(each for each in Operation if each.name.startswith("CONSUMER_"))
OF_MEMBERS = CLASSIC + CONSUMER
OF_GROUPS = (Operation.DESCRIBE_GROUP, Operation.RESET_GROUP, Operation.DELETE_GROUP_OFFSETS, Operation.DELETE_GROUP)


def lacking(operations: Iterable[Operation], reason: str) -> dict[Operation, str]:
    """Maps several operations to the same reason."""
    return dict.fromkeys(operations, reason)


class Message(NamedTuple):
    """A message for a producer."""

    key: bytes | None
    value: bytes | None
    partition: int | None = None
    timestamp_ms: int | None = None
    headers: Headers = ()


class Producing(NamedTuple):
    """The settings of a producer."""

    codec: Codec = Codec.NONE
    acks: Acks = "all"
    idempotent: bool = False
    in_flight_max: int = 5
    request_bytes_max: int | None = None
    batch_bytes: int | None = None
    linger_ms: int | None = None


class TopicSeen(NamedTuple):
    """A topic as the client describes it; settings as text."""

    partitions: int
    settings: Mapping[str, str]


class TooLarge(Exception):
    """The node rejected a message for its size, and the client reported this by name."""


class Joining(NamedTuple):
    """How a member joins a group; without committed offsets it begins at the beginning."""

    bootstrap: str
    group: str
    topic: str
    protocol: Protocol = "classic"
    instance_id: str | None = None
    """Makes it a static member."""
    is_auto: bool = False
    """Whether it commits automatically, every AUTO_COMMIT_MS."""


class Member:
    """A consumer in a group. Methods that its client does not offer are not overridden."""

    def poll(self) -> Sequence[Place]:
        """Records that arrived within a moment; raises errors of background work."""
        raise NotImplementedError

    def commit(self) -> None:
        """Commits everything polled; waits for the response."""
        raise NotImplementedError

    def commit_async(self) -> None:
        """Commits everything polled; a later poll raises if it fails."""
        raise NotImplementedError

    def seek(self, partition: int, offset: int) -> None:
        """Sets the next offset to poll of a partition."""
        raise NotImplementedError

    def pause(self, partition: int) -> None:
        """Stops fetching from a partition, which stays assigned."""
        raise NotImplementedError

    def resume(self, partition: int) -> None:
        """Resumes a partition."""
        raise NotImplementedError

    def leave(self) -> None:
        """Closes the consumer. Whether a static member leaves by that depends on its client."""
        raise NotImplementedError


class GroupShown(NamedTuple):
    """A group as the client lists and describes it."""

    is_listed: bool
    state: str
    members: int
    committed: Mapping[int, int]
    """Of the one topic that it reads, by partition."""


class Row:
    """One client; created once per test module, closed at its end."""

    name: ClassVar[str]
    lacks: ClassVar[Mapping[Operation, str]] = {}
    pipelines: ClassVar[bool] = True
    """Whether its idempotent producer keeps several requests in flight; else it is one batch per partition."""
    member: ClassVar[type[Member] | None] = None
    """Its consumer in a group, if it has one."""
    protocols: ClassVar[Sequence[Protocol]] = ("classic",)
    """The group protocols that its members support."""
    seldom: ClassVar[Collection[Operation]] = ()
    """Operations that run only when the page is written: expensive, and mostly covered by another row."""

    def version(self) -> str:
        """The version that was tested."""
        raise NotImplementedError

    def partition_of(self, key: bytes, partitions: int) -> int:
        """The partition to which its producer, as configured, sends a key: by default as Java's does."""
        return partition_for_key(key, partitions)

    def create_topic(self, bootstrap: str, topic: str, partitions: int, settings: Mapping[str, str]) -> None:
        """Creates a topic and waits until it is there."""
        raise NotImplementedError

    def describe_topic(self, bootstrap: str, topic: str) -> TopicSeen:
        """Describes it with all its settings."""
        raise NotImplementedError

    def alter_topic(self, bootstrap: str, topic: str, settings: Mapping[str, str]) -> None:
        """Sets some settings and leaves the others as they are."""
        raise NotImplementedError

    def add_partitions(self, bootstrap: str, topic: str, total: int) -> None:
        """Increases a topic to `total` partitions."""
        raise NotImplementedError

    def delete_topic(self, bootstrap: str, topic: str) -> None:
        """Deletes a topic."""
        raise NotImplementedError

    def delete_records(self, bootstrap: str, topic: str, partition: int, before: int) -> None:
        """Deletes the records before an offset."""
        raise NotImplementedError

    def produce(self, bootstrap: str, topic: str, messages: Sequence[Message], how: Producing) -> None:
        """Sends all, and waits until the client reports that they are stored; raises TooLarge or its own error."""
        raise NotImplementedError

    def consume(self, bootstrap: str, topic: str, partition: int, offset: int, count: int) -> Sequence[Record]:
        """At least `count` records of one partition from an offset on, by assignment, without a group."""
        raise NotImplementedError

    def consume_since(
        self, bootstrap: str, topic: str, partition: int, timestamp_ms: int, count: int
    ) -> Sequence[Record]:
        """The same from the first record that is not older than a timestamp."""
        raise NotImplementedError

    def join(self, how: Joining) -> Member:
        """A member that is joining a group; it becomes a member while it is polled."""
        raise NotImplementedError

    def describe_group(self, bootstrap: str, group: str, topic: str) -> GroupShown:
        """A group as the client shows it."""
        raise NotImplementedError

    def reset_group(self, bootstrap: str, group: str, topic: str, partition: int, offset: int) -> None:
        """Moves the committed offset of a group without members in one partition."""
        raise NotImplementedError

    def delete_group_offsets(self, bootstrap: str, group: str, topic: str, partition: int) -> None:
        """Deletes the committed offset of a group in one partition."""
        raise NotImplementedError

    def delete_group(self, bootstrap: str, group: str) -> None:
        """Deletes a group; raises the node's error."""
        raise NotImplementedError

    def close(self) -> None:
        """Ends processes that the client needed."""
