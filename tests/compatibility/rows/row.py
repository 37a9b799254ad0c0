"""What every client is asked to do against a node, and the face behind which a client does it.

A client overrides the methods for what it offers and lists in `lacks` what it does not offer, with the reason; a test
holds that both together cover every operation. Checks do not trust the client's word: they look through a raw client.

A row is a module of its own in this folder, named in `table.py`, with one subclass of `Row`. Importing it is cheap:
tools are looked for and processes started when a method needs them, and what is missing is said by name.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum
from typing import ClassVar, Literal, NamedTuple

from penstock.client.partitioner import partition_for_key
from penstock.records.compression import Codec
from penstock.records.rows import Headers, Record

Acks = Literal["0", "1", "all"]
Protocol = Literal["classic", "consumer"]
Place = tuple[int, int]
"""A record of a topic: partition and offset."""

POLL_S = 0.1
AUTO_COMMIT_MS = 200
HEARTBEAT_MS = 200
"""Of classic members; those of the other protocol are told by the node."""


class Operation(Enum):
    """A column of the compatibility page."""

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
    """The same reason for several."""
    return dict.fromkeys(operations, reason)


class Message(NamedTuple):
    """What a producer is given."""

    key: bytes | None
    value: bytes | None
    partition: int | None = None
    timestamp_ms: int | None = None
    headers: Headers = ()


class Producing(NamedTuple):
    """How a producer is set up."""

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
    """The node refused a message for its size, and the client said so by name."""


class Joining(NamedTuple):
    """How a member comes to a group; where nothing is committed, it begins at the beginning."""

    bootstrap: str
    group: str
    topic: str
    protocol: Protocol = "classic"
    instance_id: str | None = None
    """Makes it a static member."""
    is_auto: bool = False
    """Whether it commits by itself, every AUTO_COMMIT_MS."""


class Member:
    """A consumer in a group. What its client does not offer is not overridden."""

    def poll(self) -> Sequence[Place]:
        """Records that came within a moment; raises what went wrong behind its back."""
        raise NotImplementedError

    def commit(self) -> None:
        """All that was polled; waits for the answer."""
        raise NotImplementedError

    def commit_async(self) -> None:
        """All that was polled; a later poll raises if it fails."""
        raise NotImplementedError

    def seek(self, partition: int, offset: int) -> None:
        """What is polled next of a partition."""
        raise NotImplementedError

    def pause(self, partition: int) -> None:
        """Nothing more of it, though it stays the member's."""
        raise NotImplementedError

    def resume(self, partition: int) -> None:
        """Goes on with it."""
        raise NotImplementedError

    def leave(self) -> None:
        """Closes the consumer. Whether a static one leaves by that is its client's affair."""
        raise NotImplementedError


class GroupShown(NamedTuple):
    """A group as the client lists and describes it."""

    is_listed: bool
    state: str
    members: int
    committed: Mapping[int, int]
    """Of the one topic that it reads, by partition."""


class Row:
    """One client; made once per test module, closed at its end."""

    name: ClassVar[str]
    lacks: ClassVar[Mapping[Operation, str]] = {}
    pipelines: ClassVar[bool] = True
    """Whether its idempotent producer keeps several requests under way; else it is one batch per partition."""
    member: ClassVar[type[Member] | None] = None
    """Its consumer in a group, if it has one."""
    protocols: ClassVar[Sequence[Protocol]] = ("classic",)
    """In which its members speak."""
    seldom: ClassVar[Collection[Operation]] = ()
    """What is told only when the page is written: dear, and little else than another row tells."""

    def version(self) -> str:
        """The version that was tested."""
        raise NotImplementedError

    def partition_of(self, key: bytes, partitions: int) -> int:
        """Where its producer, as the row sets it up, sends a record with this key: by default as Java's does."""
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
        """Lets a topic have `total` partitions."""
        raise NotImplementedError

    def delete_topic(self, bootstrap: str, topic: str) -> None:
        """Deletes a topic."""
        raise NotImplementedError

    def delete_records(self, bootstrap: str, topic: str, partition: int, before: int) -> None:
        """Deletes the records in front of an offset."""
        raise NotImplementedError

    def produce(self, bootstrap: str, topic: str, messages: Sequence[Message], how: Producing) -> None:
        """Sends all, and waits until the client says that they are stored; raises TooLarge or its own error."""
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
        """A member that is on its way into a group; it gets there while it is polled."""
        raise NotImplementedError

    def describe_group(self, bootstrap: str, group: str, topic: str) -> GroupShown:
        """A group as the client shows it."""
        raise NotImplementedError

    def reset_group(self, bootstrap: str, group: str, topic: str, partition: int, offset: int) -> None:
        """Lets a group that nobody is in go on elsewhere in one partition."""
        raise NotImplementedError

    def delete_group_offsets(self, bootstrap: str, group: str, topic: str, partition: int) -> None:
        """Lets a group forget where it was in one partition."""
        raise NotImplementedError

    def delete_group(self, bootstrap: str, group: str) -> None:
        """Deletes it; raises what the node says."""
        raise NotImplementedError

    def close(self) -> None:
        """Lets go of processes that the client needed."""
