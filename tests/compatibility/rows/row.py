"""What every client is asked to do against a node, and the face behind which a client does it.

A client overrides the methods for what it offers and lists in `lacks` what it does not offer, with the reason; a test
holds that both together cover every operation. Checks do not trust the client's word: they look through a raw client.

A row is a module of its own in this folder, named in `table.py`, with one subclass of `Row`. Importing it is cheap:
tools are looked for and processes started when a method needs them, and what is missing is said by name.
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import ClassVar, Literal, NamedTuple

from penstock.client.partitioner import partition_for_key
from penstock.records.compression import Codec
from penstock.records.rows import Headers, Record

Acks = Literal["0", "1", "all"]


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


class Row:
    """One client; made once per test module, closed at its end."""

    name: ClassVar[str]
    lacks: ClassVar[Mapping[Operation, str]] = {}
    pipelines: ClassVar[bool] = True
    """Whether its idempotent producer keeps several requests under way; else it is one batch per partition."""

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

    def close(self) -> None:
        """Lets go of processes that the client needed."""
