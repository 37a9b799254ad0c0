"""Messages between replicas: the requests of KIP-595, 630, 853 and 996 without their envelopes.

Every reply carries the epoch and leader that its sender knows; that is how they spread. Handlers translate these
to and from `wire.messages`, and check the cluster id and the topic name.
"""

from typing import Any, Final, NamedTuple, TypeAlias

from penstock.model.errors import ErrorCode
from penstock.raft.ports import EpochEnd, SnapshotId
from penstock.raft.replicas import ReplicaKey, Voter

NO_LEADER: Final = -1


class Vote(NamedTuple):
    """Requests a vote in `epoch`; a pre-vote asks whether one would be granted, without commitment (KIP-996)."""

    epoch: int
    candidate: ReplicaKey
    voter: ReplicaKey
    last_epoch: int
    end_offset: int
    is_pre_vote: bool


class VoteReply(NamedTuple):
    """Whether the vote is granted."""

    error: ErrorCode
    epoch: int
    leader_id: int
    is_granted: bool


class BeginEpoch(NamedTuple):
    """BeginQuorumEpoch: a leader announces its election to a voter."""

    epoch: int
    leader_id: int
    voter: ReplicaKey


class EndEpoch(NamedTuple):
    """EndQuorumEpoch: a leader resigns, and lists its successors, best first."""

    epoch: int
    leader_id: int
    successors: tuple[ReplicaKey, ...]


class EpochReply(NamedTuple):
    """The reply to BeginEpoch and EndEpoch."""

    error: ErrorCode
    epoch: int
    leader_id: int


class Fetch(NamedTuple):
    """Requests records from `offset` on, and acknowledges that all before it are on the sender's disk."""

    epoch: int
    replica: ReplicaKey
    offset: int
    last_epoch: int
    high_watermark: int
    max_wait_ms: int
    bytes_max: int


class FetchReply(NamedTuple):
    """Records, or where the logs diverge, or the snapshot to fetch instead."""

    error: ErrorCode
    epoch: int
    leader_id: int
    high_watermark: int = -1
    start_offset: int = -1
    records: Any = None
    diverging: EpochEnd | None = None
    snapshot: SnapshotId | None = None


class FetchSnapshot(NamedTuple):
    """Requests the chunk of a snapshot at a position."""

    epoch: int
    replica: ReplicaKey
    snapshot: SnapshotId
    position: int
    bytes_max: int


class FetchSnapshotReply(NamedTuple):
    """A chunk of a snapshot."""

    error: ErrorCode
    epoch: int
    leader_id: int
    snapshot: SnapshotId | None = None
    size_bytes: int = 0
    position: int = 0
    data: Any = None


class AddVoter(NamedTuple):
    """Adds a voter, which must have fetched the whole log before (KIP-853)."""

    voter: Voter
    waits_for_commit: bool = True


class RemoveVoter(NamedTuple):
    """Removes a voter, which may be the leader itself."""

    key: ReplicaKey


class UpdateVoter(NamedTuple):
    """Updates a voter's endpoints and kraft.version range in the voter set."""

    voter: Voter


class VotersReply(NamedTuple):
    """The outcome of a voter set change; the message says what to do about an error."""

    error: ErrorCode
    epoch: int
    leader_id: int
    message: str = ""


Request: TypeAlias = Vote | BeginEpoch | EndEpoch | Fetch | FetchSnapshot | AddVoter | RemoveVoter | UpdateVoter
Reply: TypeAlias = VoteReply | EpochReply | FetchReply | FetchSnapshotReply | VotersReply
