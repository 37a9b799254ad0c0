"""What can happen to a replica of the quorum. The driver tells it, one event after the other."""

from typing import Any, NamedTuple, TypeAlias

from penstock.raft.messages import Reply, Request
from penstock.raft.ports import SnapshotId


class TimePassed(NamedTuple):
    """It is `wake_at` or later."""


class Asked(NamedTuple):
    """Somebody asks; the answer carries the token, at once or later."""

    token: Any
    request: Request


class Answered(NamedTuple):
    """A peer answers the request with this number."""

    number: int
    reply: Reply


class Unanswered(NamedTuple):
    """The connection on which the request with this number went out is lost, or never came about."""

    number: int


class LogSynced(NamedTuple):
    """A `SyncLog` is done; the log's `synced_end` says how far."""


class LogCut(NamedTuple):
    """The `CutLog` is done: the log ends there, durably."""


class SnapshotInstalled(NamedTuple):
    """The `InstallSnapshot` is done: the snapshot is durable, and the log begins and ends where it ends."""

    snapshot: SnapshotId


class SnapshotTaken(NamedTuple):
    """The state machine has written a snapshot of what it has applied, and it is durable."""

    snapshot: SnapshotId


class Resigning(NamedTuple):
    """This node is about to stop: if it leads, it says so instead of letting the others find out."""


Event: TypeAlias = (
    TimePassed | Asked | Answered | Unanswered | LogSynced | LogCut | SnapshotInstalled | SnapshotTaken | Resigning
)
