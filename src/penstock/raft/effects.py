"""What a replica of the quorum wants done.

The driver carries effects out in the order of the steps that gave them, and in the order in which each step lists them.
`Persist` holds up all that follow it; `SyncLog`, `CutLog` and `InstallSnapshot` are begun in their place and report
their end as an event; the others are done at once.
"""

from typing import Any, NamedTuple, TypeAlias

from penstock.raft.messages import Reply, Request
from penstock.raft.ports import SnapshotId
from penstock.raft.roles import QuorumState


class Persist(NamedTuple):
    """Must be on disk before anything behind it is done: a vote that is forgotten can be given twice."""

    state: QuorumState


class Send(NamedTuple):
    """A request to a peer. What its `Answered` or `Unanswered` is to say is the number."""

    to: int
    number: int
    request: Request


class Answer(NamedTuple):
    """The answer to an `Asked`."""

    token: Any
    reply: Reply


class SyncLog(NamedTuple):
    """Makes what the log holds by now durable, then `LogSynced`. One sync may serve several of these."""


class CutLog(NamedTuple):
    """Cuts the log's end off, durably, then `LogCut`. Until then the core neither appends nor campaigns."""

    end_offset: int


class InstallSnapshot(NamedTuple):
    """The received snapshot is made durable, the log is emptied and begins at its end, then `SnapshotInstalled`."""

    snapshot: SnapshotId


class TrimLog(NamedTuple):
    """Everything before the start, and every snapshot that ends before it, may go."""

    start_offset: int


class LeaderKnown(NamedTuple):
    """Who leads which epoch, for the state machine. Where it leads itself, the epoch begins at `start_offset`."""

    leader_id: int
    epoch: int
    start_offset: int


class Committed(NamedTuple):
    """Everything before this offset is final; the state machine applies it."""

    high_watermark: int


class LoadSnapshot(NamedTuple):
    """The state machine drops what it has and begins with this snapshot. Never told to a leader."""

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
)
