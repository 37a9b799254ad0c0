"""Commands of the controller and their replies: one result per item, with Kafka's codes and messages.

Authorization happens before: a command holds only items that the requester is allowed.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from penstock.metadata.records import BrokerEndpoint, BrokerFeature
from penstock.metadata.settings.setting import Source
from penstock.model.errors import ErrorCode
from penstock.model.shard import Command

ZERO_ID = bytes(16)


class Refusal(Exception):
    """Error for one item of a command."""

    def __init__(self, code: ErrorCode, message: str | None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


# --- topics -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create; -1 selects the broker's default. With `assignments`, both numbers must be -1."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    assignments: tuple[tuple[int, tuple[int, ...]], ...] = ()
    """Pairs of partition and brokers."""
    configs: tuple[tuple[str, str | None], ...] = ()


@dataclass(frozen=True, slots=True)
class CreateTopics(Command[tuple["CreatedTopic", ...]]):
    """Creates topics. Answered by a tuple of CreatedTopic."""

    topics: tuple[NewTopic, ...]
    validate_only: bool = False


class TopicConfig(NamedTuple):
    """One setting of a topic that was created."""

    name: str
    value: str | None
    source: Source
    is_sensitive: bool
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """Result for a new topic."""

    name: str
    code: ErrorCode = ErrorCode.NONE
    message: str | None = None
    topic_id: bytes = ZERO_ID
    partitions: int = -1
    replication_factor: int = -1
    configs: tuple[TopicConfig, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicRef:
    """A topic by name or by id, never by both."""

    name: str | None = None
    topic_id: bytes = ZERO_ID


@dataclass(frozen=True, slots=True)
class DeleteTopics(Command[tuple["DeletedTopic", ...]]):
    """Deletes topics. Answered by a tuple of DeletedTopic."""

    topics: tuple[TopicRef, ...]


@dataclass(frozen=True, slots=True)
class DeletedTopic:
    """Result for a topic to delete."""

    name: str | None
    topic_id: bytes = ZERO_ID
    code: ErrorCode = ErrorCode.NONE
    message: str | None = None


@dataclass(frozen=True, slots=True)
class MorePartitions:
    """The new number of partitions of a topic, and optionally the brokers of each new one."""

    name: str
    count: int
    assignments: tuple[tuple[int, ...], ...] | None = None


@dataclass(frozen=True, slots=True)
class CreatePartitions(Command[tuple["GrownTopic", ...]]):
    """Adds partitions. Answered by a tuple of GrownTopic."""

    topics: tuple[MorePartitions, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class GrownTopic:
    """Result for a topic that gets more partitions."""

    name: str
    code: ErrorCode = ErrorCode.NONE
    message: str | None = None


# --- settings ---------------------------------------------------------------------------------------------------------


class Operation(IntEnum):
    """Operation on a setting, numbered as in IncrementalAlterConfigs."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class NewConfigs:
    """The complete new settings of a resource."""

    kind: int
    name: str
    configs: tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True)
class AlterConfigs(Command[tuple["AlteredConfigs", ...]]):
    """`asked_at` is the broker that received the request; None if it was checked before."""

    resources: tuple[NewConfigs, ...]
    asked_at: int | None
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class ConfigChanges:
    """Changes of single settings of a resource: name, operation as received, value."""

    kind: int
    name: str
    changes: tuple[tuple[str, int, str | None], ...]


@dataclass(frozen=True, slots=True)
class IncrementalAlterConfigs(Command[tuple["AlteredConfigs", ...]]):
    """`asked_at` is the broker that received the request; None if it was checked before."""

    resources: tuple[ConfigChanges, ...]
    asked_at: int | None
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class AlteredConfigs:
    """Result for a resource."""

    kind: int
    name: str
    code: ErrorCode = ErrorCode.NONE
    message: str | None = None


# --- brokers and producers --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RegisterBroker(Command["RegisteredBroker"]):
    """Registers a broker. Answered by RegisteredBroker; the same incarnation gets the same epoch again."""

    broker_id: int
    incarnation_id: bytes
    epoch: int
    """The end offset of the metadata log, which no earlier registration can have had."""
    listeners: tuple[BrokerEndpoint, ...]
    features: tuple[BrokerFeature, ...] = ()
    rack: str | None = None
    log_dirs: tuple[bytes, ...] = ()
    is_fenced: bool = False
    """A single node is never fenced; in a cluster a broker is fenced until it has caught up."""
    previous_epoch: int = -1
    """The broker's last epoch, if it has lost nothing since; -1 if it may have. A broker that was active in a later
    epoch is distrusted. `but_for_unsynced` of an epoch: it may have lost records that it need not have synced."""


def but_for_unsynced(epoch: int) -> int:
    """Encodes a previous epoch since which only topics with durability 'replicated' may have lost records.

    The value fits Kafka's field. Other implementations read it, like all values below 0, as "may have lost anything".
    """
    return -2 - epoch


def epoch_but_for_unsynced(previous_epoch: int) -> int:
    """Decodes `but_for_unsynced`; -1 for any other value."""
    return -2 - previous_epoch if previous_epoch <= -2 else -1


@dataclass(frozen=True, slots=True)
class RegisteredBroker:
    """Result of a registration."""

    epoch: int
    code: ErrorCode = ErrorCode.NONE
    message: str | None = None


@dataclass(frozen=True, slots=True)
class AllocateProducerIds(Command["ProducerIds"]):
    """Allocates a block of producer ids to a broker. Answered by ProducerIds."""

    broker_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class ProducerIds:
    """A block of producer ids that is never allocated again."""

    first: int = -1
    count: int = 0
    code: ErrorCode = ErrorCode.NONE
    message: str | None = None
