"""What replicas say to each other: the requests of KIP-595, 630, 853 and 996 without their envelopes.

Every answer tells the epoch and leader that its sender knows of; that is how news spreads. Handlers translate these
to and from `wire.messages`; the cluster id and the name of the topic are checked there.
"""

from typing import Any, Final, NamedTuple, TypeAlias

from penstock.model.errors import ErrorCode
from penstock.raft.ports import EpochEnd, SnapshotId
from penstock.raft.replicas import ReplicaKey, Voter

NO_LEADER: Final = -1


class Vote(NamedTuple):
    """Asks for a vote in `epoch`; a pre-vote asks whether one would be given, and binds nobody (KIP-996)."""

    epoch: int
    candidate: ReplicaKey
    voter: ReplicaKey
    last_epoch: int
    end_offset: int
    is_pre_vote: bool


class VoteReply(NamedTuple):
    """Whether the vote is given."""

    error: ErrorCode
    epoch: int
    leader_id: int
    is_granted: bool


class BeginEpoch(NamedTuple):
    """BeginQuorumEpoch: a leader tells a voter that it was elected."""

    epoch: int
    leader_id: int
    voter: ReplicaKey


class EndEpoch(NamedTuple):
    """EndQuorumEpoch: a leader steps down, and says who is fit to follow it, best first."""

    epoch: int
    leader_id: int
    successors: tuple[ReplicaKey, ...]


class EpochReply(NamedTuple):
    """Answers both of them."""

    error: ErrorCode
    epoch: int
    leader_id: int


class Fetch(NamedTuple):
    """Asks for records from `offset` on. It also acknowledges: everything before `offset` is on the sender's disk."""

    epoch: int
    replica: ReplicaKey
    offset: int
    last_epoch: int
    high_watermark: int
    max_wait_ms: int
    bytes_max: int


class FetchReply(NamedTuple):
    """Records, or where the logs part, or the snapshot to take instead."""

    error: ErrorCode
    epoch: int
    leader_id: int
    high_watermark: int = -1
    start_offset: int = -1
    records: Any = None
    diverging: EpochEnd | None = None
    snapshot: SnapshotId | None = None


class FetchSnapshot(NamedTuple):
    """Asks for the piece of a snapshot that begins at a position."""

    epoch: int
    replica: ReplicaKey
    snapshot: SnapshotId
    position: int
    bytes_max: int


class FetchSnapshotReply(NamedTuple):
    """A piece of a snapshot."""

    error: ErrorCode
    epoch: int
    leader_id: int
    snapshot: SnapshotId | None = None
    size_bytes: int = 0
    position: int = 0
    data: Any = None


class AddVoter(NamedTuple):
    """The quorum is to gain a voter, which must have fetched all there is before (KIP-853)."""

    voter: Voter
    waits_for_commit: bool = True


class RemoveVoter(NamedTuple):
    """The quorum is to lose a voter; it may be the leader itself."""

    key: ReplicaKey


class UpdateVoter(NamedTuple):
    """A voter listens elsewhere, or understands more, than the voter set says."""

    voter: Voter


class VotersReply(NamedTuple):
    """What became of a change of the voter set, and in words what to do about it."""

    error: ErrorCode
    epoch: int
    leader_id: int
    message: str = ""


Request: TypeAlias = Vote | BeginEpoch | EndEpoch | Fetch | FetchSnapshot | AddVoter | RemoveVoter | UpdateVoter
Reply: TypeAlias = VoteReply | EpochReply | FetchReply | FetchSnapshotReply | VotersReply
