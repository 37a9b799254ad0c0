"""Events of a quorum replica. The driver passes them in, one after the other."""

from typing import Any, NamedTuple, TypeAlias

from penstock.raft.messages import Reply, Request
from penstock.raft.ports import SnapshotId


class TimePassed(NamedTuple):
    """It is `wake_at` or later."""


class Asked(NamedTuple):
    """A request has arrived; its `Answer` carries the token, at once or later."""

    token: Any
    request: Request


class Answered(NamedTuple):
    """A peer has replied to the request with this number."""

    number: int
    reply: Reply


class Unanswered(NamedTuple):
    """The connection of the request with this number broke, or was never established."""

    number: int


class LogSynced(NamedTuple):
    """A `SyncLog` is done; the log's `synced_end` is up to date."""


class LogCut(NamedTuple):
    """The `CutLog` is done, durably."""


class SnapshotInstalled(NamedTuple):
    """The `InstallSnapshot` is done: the snapshot is durable, and the log starts and ends at its end."""

    snapshot: SnapshotId


class SnapshotTaken(NamedTuple):
    """The state machine has written a durable snapshot of its applied state."""

    snapshot: SnapshotId


class Resigning(NamedTuple):
    """This node is about to stop: a leader resigns, so that the others need not wait for a time-out."""


Event: TypeAlias = (
    TimePassed | Asked | Answered | Unanswered | LogSynced | LogCut | SnapshotInstalled | SnapshotTaken | Resigning
)
