"""What the controller may be asked, and what it answers: one result per item, in Kafka's codes and words.

Who may ask for what has been settled before: a command holds only what its asker is allowed.
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
    """Why one item of a command is refused."""

    def __init__(self, code: ErrorCode, message: str | None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


# --- topics -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create; -1 takes the broker's default. With `assignments`, both numbers must be -1."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    assignments: tuple[tuple[int, tuple[int, ...]], ...] = ()
    """Pairs of partition and brokers."""
    configs: tuple[tuple[str, str | None], ...] = ()


@dataclass(frozen=True, slots=True)
class CreateTopics(Command[tuple["CreatedTopic", ...]]):
    """Answered by a tuple of CreatedTopic."""

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
    """What became of a new topic."""

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
    """Answered by a tuple of DeletedTopic."""

    topics: tuple[TopicRef, ...]


@dataclass(frozen=True, slots=True)
class DeletedTopic:
    """What became of a topic to delete."""

    name: str | None
    topic_id: bytes = ZERO_ID
    code: ErrorCode = ErrorCode.NONE
    message: str | None = None


@dataclass(frozen=True, slots=True)
class MorePartitions:
    """The number of partitions that a topic shall have, and on request the brokers of each new one."""

    name: str
    count: int
    assignments: tuple[tuple[int, ...], ...] | None = None


@dataclass(frozen=True, slots=True)
class CreatePartitions(Command[tuple["GrownTopic", ...]]):
    """Answered by a tuple of GrownTopic."""

    topics: tuple[MorePartitions, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class GrownTopic:
    """What became of a topic to grow."""

    name: str
    code: ErrorCode = ErrorCode.NONE
    message: str | None = None


# --- settings ---------------------------------------------------------------------------------------------------------


class Operation(IntEnum):
    """What to do with a setting, as IncrementalAlterConfigs numbers it."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class NewConfigs:
    """All settings that a resource shall have."""

    kind: int
    name: str
    configs: tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True)
class AlterConfigs(Command[tuple["AlteredConfigs", ...]]):
    """`asked_at` is the broker that the client asked; None where that has been looked at."""

    resources: tuple[NewConfigs, ...]
    asked_at: int | None
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class ConfigChanges:
    """Changes of single settings of a resource: name, operation as it came, value."""

    kind: int
    name: str
    changes: tuple[tuple[str, int, str | None], ...]


@dataclass(frozen=True, slots=True)
class IncrementalAlterConfigs(Command[tuple["AlteredConfigs", ...]]):
    """`asked_at` is the broker that the client asked; None where that has been looked at."""

    resources: tuple[ConfigChanges, ...]
    asked_at: int | None
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class AlteredConfigs:
    """What became of a resource."""

    kind: int
    name: str
    code: ErrorCode = ErrorCode.NONE
    message: str | None = None


# --- brokers and producers --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RegisterBroker(Command["RegisteredBroker"]):
    """A broker comes up. Answered by RegisteredBroker; the same incarnation again is told its epoch again."""

    broker_id: int
    incarnation_id: bytes
    epoch: int
    """The end offset of the metadata log, which no earlier registration can have had."""
    listeners: tuple[BrokerEndpoint, ...]
    features: tuple[BrokerFeature, ...] = ()
    rack: str | None = None
    log_dirs: tuple[bytes, ...] = ()
    is_fenced: bool = False
    """One node is never fenced; in a cluster a broker is, until it has caught up."""
    previous_epoch: int = -1
    """The last epoch that it learned of and since which it has lost nothing, -1 if it may have. Who was active in a
    later one is distrusted. `but_for_unsynced` of an epoch: it may have lost what it need not have synced."""


def but_for_unsynced(epoch: int) -> int:
    """A previous epoch of which a broker has everything but what topics with durability 'replicated' may have lost.

    Kafka's field has room for it: whoever does not know it takes it for "may have lost anything", as all below 0.
    """
    return -2 - epoch


def epoch_but_for_unsynced(previous_epoch: int) -> int:
    """The other way round; -1 for what is no such epoch."""
    return -2 - previous_epoch if previous_epoch <= -2 else -1


@dataclass(frozen=True, slots=True)
class RegisteredBroker:
    """What became of a registration."""

    epoch: int
    code: ErrorCode = ErrorCode.NONE
    message: str | None = None


@dataclass(frozen=True, slots=True)
class AllocateProducerIds(Command["ProducerIds"]):
    """A broker asks for a block of producer ids. Answered by ProducerIds."""

    broker_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class ProducerIds:
    """A block that is nobody else's, ever."""

    first: int = -1
    count: int = 0
    code: ErrorCode = ErrorCode.NONE
    message: str | None = None
