"""Commands that brokers and operators send to the controller of a cluster, and their replies.

`Heartbeat` and `Tick` also drive the soft state of an active controller (the time of each broker's last heartbeat):
`Controller.hear` and `Controller.time_passes` are called before the command is decided.
"""

from dataclasses import dataclass
from typing import NamedTuple

from penstock.metadata.image import NO_LEADER
from penstock.metadata.records import ControllerEndpoint, ControllerFeature
from penstock.model.errors import ErrorCode
from penstock.model.shard import Command


@dataclass(frozen=True, slots=True)
class Result:
    """Success, or the error."""

    code: ErrorCode = ErrorCode.NONE
    message: str | None = None


# --- broker lifecycle -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Heartbeat(Command["Heard"]):
    """Heartbeat of a broker, with its position in the metadata log and its requests."""

    broker_id: int
    broker_epoch: int
    metadata_offset: int
    """The last offset that the broker has applied."""
    log_end: int
    """The end of the metadata log at the controller."""
    wants_fence: bool = False
    wants_shutdown: bool = False
    offline_log_dirs: tuple[bytes, ...] = ()
    """Directories of the broker that accept no records now."""


@dataclass(frozen=True, slots=True)
class Heard:
    """Reply to a heartbeat: the state of the broker."""

    is_caught_up: bool = False
    is_fenced: bool = True
    should_shut_down: bool = False
    code: ErrorCode = ErrorCode.NONE
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Tick(Command["Ticked"]):
    """Performs one bounded piece of the controller's own work that is due."""


@dataclass(frozen=True, slots=True)
class Ticked:
    """Work done by a Tick, for logs and metrics."""

    fenced: tuple[int, ...] = ()
    elected: int = 0
    moves_begun: int = 0


@dataclass(frozen=True, slots=True)
class UnregisterBroker(Command[Result]):
    """Removes a broker that will not come back. It is done in pieces: REQUEST_TIMED_OUT means to send it again."""

    broker_id: int


@dataclass(frozen=True, slots=True)
class DecommissionBroker(Command[Result]):
    """Starts or stops emptying a broker: it gets no replicas, and those that it has move away."""

    broker_id: int
    is_on: bool = True


@dataclass(frozen=True, slots=True)
class RegisterController(Command[Result]):
    """Registers the endpoints and features of a controller."""

    controller_id: int
    incarnation_id: bytes
    end_points: tuple[ControllerEndpoint, ...]
    features: tuple[ControllerFeature, ...]


# --- partitions -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NewIsr:
    """The ISR proposed by the leader: pairs of broker and broker epoch."""

    topic_id: bytes
    index: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[tuple[int, int], ...]
    leader_recovery_state: int = 0


@dataclass(frozen=True, slots=True)
class AlterPartition(Command["AlteredPartitions"]):
    """Changes the ISR of partitions, sent by their leader."""

    broker_id: int
    broker_epoch: int
    partitions: tuple[NewIsr, ...]


@dataclass(frozen=True, slots=True)
class AlteredPartition:
    """State of a partition after the command."""

    topic_id: bytes
    index: int
    code: ErrorCode = ErrorCode.NONE
    leader: int = NO_LEADER
    leader_epoch: int = -1
    isr: tuple[int, ...] = ()
    leader_recovery_state: int = 0
    partition_epoch: int = -1


@dataclass(frozen=True, slots=True)
class AlteredPartitions:
    """One reply per partition, or one code for all."""

    partitions: tuple[AlteredPartition, ...] = ()
    code: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class Assigned:
    """The directory of a replica; LOST_DIRECTORY if its log is damaged."""

    directory: bytes
    topic_id: bytes
    index: int
    code: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class AssignReplicas(Command["AssignedReplicas"]):
    """Reports the directories of a broker's replicas, or that they are damaged."""

    broker_id: int
    broker_epoch: int
    replicas: tuple[Assigned, ...]


@dataclass(frozen=True, slots=True)
class AssignedReplicas:
    """One reply per replica, or one code for all."""

    replicas: tuple[Assigned, ...] = ()
    code: ErrorCode = ErrorCode.NONE


class PartitionRef(NamedTuple):
    """A partition by topic name and number."""

    topic: str
    number: int


@dataclass(frozen=True, slots=True)
class ElectLeaders(Command[tuple["Elected", ...]]):
    """Elects preferred leaders or, if unclean, any leaders; without partitions, wherever an election is needed."""

    partitions: tuple[PartitionRef, ...] | None
    is_unclean: bool = False


@dataclass(frozen=True, slots=True)
class Elected:
    """Result of an election."""

    partition: PartitionRef
    code: ErrorCode = ErrorCode.NONE
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Reassignment:
    """Target replicas of a partition; None cancels the move in progress."""

    partition: PartitionRef
    replicas: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class AlterReassignments(Command[tuple["Reassigned", ...]]):
    """Starts or cancels moves of partitions."""

    reassignments: tuple[Reassignment, ...]
    allows_other_factor: bool = True


@dataclass(frozen=True, slots=True)
class Reassigned:
    """Result of a reassignment."""

    partition: PartitionRef
    code: ErrorCode = ErrorCode.NONE
    message: str | None = None


@dataclass(frozen=True, slots=True)
class ListReassignments(Command[tuple["Moving", ...]]):
    """Lists partitions that are being moved; without `partitions`, all of them."""

    partitions: tuple[PartitionRef, ...] | None = None


@dataclass(frozen=True, slots=True)
class Moving:
    """A partition that is being moved."""

    partition: PartitionRef
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


# --- features ---------------------------------------------------------------------------------------------------------


class FeatureUpdate(NamedTuple):
    """New level of a feature; 0 turns it off. A lower level requires `allows_downgrade`."""

    name: str
    level: int
    allows_downgrade: bool = False


@dataclass(frozen=True, slots=True)
class UpdateFeatures(Command[Result]):
    """Sets feature levels, all of them or none."""

    updates: tuple[FeatureUpdate, ...]
    validate_only: bool = False
