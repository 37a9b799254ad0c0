"""What brokers and operators may ask of the controller of a cluster, and what it answers.

`Heartbeat` and `Tick` are also what an active controller lives on: their soft side (who was heard when) is told to
`Controller.hear` and `Controller.time_passes`, before the command is decided.
"""

from dataclasses import dataclass
from typing import NamedTuple

from penstock.metadata.image import NO_LEADER
from penstock.metadata.records import ControllerEndpoint, ControllerFeature
from penstock.model.errors import ErrorCode
from penstock.model.shard import Command


@dataclass(frozen=True, slots=True)
class Result:
    """Done, or why not."""

    code: ErrorCode = ErrorCode.NONE
    message: str | None = None


# --- brokers come, live and go ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Heartbeat(Command["Heard"]):
    """A broker says that it lives, how far it has followed the metadata log, and what it wants."""

    broker_id: int
    broker_epoch: int
    metadata_offset: int
    """The last offset that it has applied."""
    log_end: int
    """The end of the metadata log at the controller."""
    wants_fence: bool = False
    wants_shutdown: bool = False
    offline_log_dirs: tuple[bytes, ...] = ()
    """Its directories that take no records now."""


@dataclass(frozen=True, slots=True)
class Heard:
    """What a broker is told about itself."""

    is_caught_up: bool = False
    is_fenced: bool = True
    should_shut_down: bool = False
    code: ErrorCode = ErrorCode.NONE
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Tick(Command["Ticked"]):
    """Has the controller do what is due without anybody asking: one bounded piece of it."""


@dataclass(frozen=True, slots=True)
class Ticked:
    """What was done, for logs and metrics."""

    fenced: tuple[int, ...] = ()
    elected: int = 0
    moves_begun: int = 0


@dataclass(frozen=True, slots=True)
class UnregisterBroker(Command[Result]):
    """A broker that will not come back is forgotten. REQUEST_TIMED_OUT asks for the same again: it goes in pieces."""

    broker_id: int


@dataclass(frozen=True, slots=True)
class DecommissionBroker(Command[Result]):
    """A broker is to be emptied (or, after all, not): it gets no replicas, and those that it has move away."""

    broker_id: int
    is_on: bool = True


@dataclass(frozen=True, slots=True)
class RegisterController(Command[Result]):
    """A controller tells its endpoints and features."""

    controller_id: int
    incarnation_id: bytes
    end_points: tuple[ControllerEndpoint, ...]
    features: tuple[ControllerFeature, ...]


# --- partitions -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NewIsr:
    """Who shall be in sync, as their leader sees it: pairs of broker and broker epoch."""

    topic_id: bytes
    index: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[tuple[int, int], ...]
    leader_recovery_state: int = 0


@dataclass(frozen=True, slots=True)
class AlterPartition(Command["AlteredPartitions"]):
    """A leader changes the in-sync replicas of its partitions."""

    broker_id: int
    broker_epoch: int
    partitions: tuple[NewIsr, ...]


@dataclass(frozen=True, slots=True)
class AlteredPartition:
    """What a partition is now."""

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
    """One answer per partition, or one code for all."""

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
    """A broker tells where its replicas lie, or that they are damaged."""

    broker_id: int
    broker_epoch: int
    replicas: tuple[Assigned, ...]


@dataclass(frozen=True, slots=True)
class AssignedReplicas:
    """One answer per replica, or one code for all."""

    replicas: tuple[Assigned, ...] = ()
    code: ErrorCode = ErrorCode.NONE


class PartitionRef(NamedTuple):
    """A partition as operators name it."""

    topic: str
    number: int


@dataclass(frozen=True, slots=True)
class ElectLeaders(Command[tuple["Elected", ...]]):
    """Preferred leaders, or any at all; without partitions, wherever there is something to elect."""

    partitions: tuple[PartitionRef, ...] | None
    is_unclean: bool = False


@dataclass(frozen=True, slots=True)
class Elected:
    """What became of an election."""

    partition: PartitionRef
    code: ErrorCode = ErrorCode.NONE
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Reassignment:
    """Where a partition shall lie; None cancels the move that is under way."""

    partition: PartitionRef
    replicas: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class AlterReassignments(Command[tuple["Reassigned", ...]]):
    """Partitions move, or stop moving."""

    reassignments: tuple[Reassignment, ...]
    allows_other_factor: bool = True


@dataclass(frozen=True, slots=True)
class Reassigned:
    """What became of a reassignment."""

    partition: PartitionRef
    code: ErrorCode = ErrorCode.NONE
    message: str | None = None


@dataclass(frozen=True, slots=True)
class ListReassignments(Command[tuple["Moving", ...]]):
    """Partitions that are on the move; without names, all of them."""

    partitions: tuple[PartitionRef, ...] | None = None


@dataclass(frozen=True, slots=True)
class Moving:
    """A partition on the move."""

    partition: PartitionRef
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


# --- features ---------------------------------------------------------------------------------------------------------


class FeatureUpdate(NamedTuple):
    """A level for a feature; 0 turns it off. Lower than now only where that is said."""

    name: str
    level: int
    allows_downgrade: bool = False


@dataclass(frozen=True, slots=True)
class UpdateFeatures(Command[Result]):
    """All of them or none."""

    updates: tuple[FeatureUpdate, ...]
    validate_only: bool = False
