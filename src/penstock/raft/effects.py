"""Effects of a quorum replica: actions that a step requests from the driver.

The driver carries out effects in the order of the steps that returned them, and within a step in list order. `Persist`
blocks all effects behind it; `SyncLog`, `CutLog` and `InstallSnapshot` are started in order and report completion as an
event; the others are done at once.
"""

from typing import Any, NamedTuple, TypeAlias

from penstock.model.report import Report
from penstock.raft.messages import Reply, Request
from penstock.raft.ports import SnapshotId
from penstock.raft.roles import QuorumState


class Persist(NamedTuple):
    """Writes the quorum state to disk before any later effect: a forgotten vote could be given twice."""

    state: QuorumState


class Send(NamedTuple):
    """Sends a request to a peer; its `Answered` or `Unanswered` carries the same number."""

    to: int
    number: int
    request: Request


class Answer(NamedTuple):
    """The reply to an `Asked`."""

    token: Any
    reply: Reply


class SyncLog(NamedTuple):
    """Syncs the log's present records, then reports `LogSynced`. One sync may serve several effects."""


class CutLog(NamedTuple):
    """Truncates the log durably, then reports `LogCut`. Until then the core neither appends nor campaigns."""

    end_offset: int


class InstallSnapshot(NamedTuple):
    """Makes the received snapshot durable, restarts the log at its end, then reports `SnapshotInstalled`."""

    snapshot: SnapshotId


class TrimLog(NamedTuple):
    """Allows deletion of all records before `start_offset` and of all snapshots that end before it."""

    start_offset: int


class LeaderKnown(NamedTuple):
    """The leader of an epoch, for the state machine. If it is this node, the epoch starts at `start_offset`."""

    leader_id: int
    epoch: int
    start_offset: int


class Committed(NamedTuple):
    """Records before this offset are final; the state machine applies them."""

    high_watermark: int


class LoadSnapshot(NamedTuple):
    """The state machine drops its state and loads this snapshot. Never emitted on a leader."""

    snapshot: SnapshotId


class Warn(NamedTuple):
    """A warning for the operator. The driver logs it and limits how often it logs one kind."""

    kind: str
    sentence: str


Effect: TypeAlias = (
    Persist
    | Send
    | Answer
    | SyncLog
    | CutLog
    | InstallSnapshot
    | TrimLog
    | LeaderKnown
    | Committed
    | LoadSnapshot
    | Warn
    | Report
)
