"""Events and effects of a node's controller. A driver delivers the events and carries out the effects."""

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

from penstock.metadata.changes import Changes
from penstock.metadata.declare import MetadataRecord
from penstock.metadata.image import Image
from penstock.model.report import Report
from penstock.model.shard import Command

# --- events -----------------------------------------------------------------------------------------------------------


class LeaderKnown(NamedTuple):
    """The leader of the metadata quorum; if this node leads, its epoch begins at `start_offset`."""

    leader_id: int
    epoch: int
    start_offset: int


class Committed(NamedTuple):
    """Everything before `end_offset` is committed."""

    end_offset: int


class SnapshotFound(NamedTuple):
    """Start again from this snapshot; until it is read, the image does not change."""

    snapshot: Any


class LogRead(NamedTuple):
    """A piece of the result of the `ReadLog` or `ReadSnapshot` with this number."""

    number: int
    records: Sequence[MetadataRecord]
    end_offset: int | None
    """Set in the last piece: everything before it was read. Earlier pieces are not visible before then."""
    size_bytes: int = 0


class ReadFailed(NamedTuple):
    """The log or snapshot does not match the data that was written."""

    number: int
    reason: str


class Asked(NamedTuple):
    """A command; the ticket, from 1 on, is the driver's id of the waiting request."""

    ticket: int
    command: Command[Any]


class AskedInTurn(NamedTuple):
    """Several commands; each is decided after the one before it, with turns for other work between them."""

    asks: Sequence[Asked]


class BrokerLost(NamedTuple):
    """A probe found no process at the broker's address."""

    broker_id: int
    broker_epoch: int


class TurnCame(NamedTuple):
    """Other work has run: long work may continue."""


class TimePassed(NamedTuple):
    """The time `wake_at` has been reached."""


Event: TypeAlias = (
    LeaderKnown
    | Committed
    | SnapshotFound
    | LogRead
    | ReadFailed
    | Asked
    | AskedInTurn
    | BrokerLost
    | TurnCame
    | TimePassed
)

# --- effects ----------------------------------------------------------------------------------------------------------


class ReadLog(NamedTuple):
    """Read from `offset` to at most `end_offset`; answered by `LogRead` in pieces, or `ReadFailed`."""

    number: int
    offset: int
    end_offset: int


class ReadSnapshot(NamedTuple):
    """Read a snapshot; answered by `LogRead` in pieces, or `ReadFailed`."""

    number: int
    snapshot: Any


class Publish(NamedTuple):
    """The new committed image, and its differences from the one before."""

    changes: Changes
    image: Image


class Answer(NamedTuple):
    """The reply to a request; everything that it depends on is committed."""

    ticket: int
    reply: Any


class Refuse(NamedTuple):
    """Error for a request. If leadership or the log was lost meanwhile, the command may have been carried out."""

    ticket: int
    error: Exception


class TakeTurn(NamedTuple):
    """Let other work run, then deliver `TurnCame`."""


class RoleChanged(NamedTuple):
    """This node becomes or ceases to be the active controller, or another leader is known."""

    is_active: bool
    epoch: int
    """Epoch of the leader."""


class Mistaken(NamedTuple):
    """A bug, or a disk error, in the controller's own work, which is retried."""

    error: Exception


class GoOffline(NamedTuple):
    """The node can no longer follow the cluster."""

    reason: str
    """Includes the remedy."""


Effect: TypeAlias = (
    ReadLog | ReadSnapshot | Publish | Answer | Refuse | TakeTurn | RoleChanged | Mistaken | GoOffline | Report
)
