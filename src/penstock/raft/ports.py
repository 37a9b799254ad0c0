"""What the quorum stands on: a log and a shelf of snapshots. The server has real ones, the simulator lossy ones.

Calls here return at once, and what they write may be lost to a power cut until the driver has carried out the effect
that makes it durable (`SyncLog`, `CutLog`, `InstallSnapshot`). Record data passes through the core unseen, hence `Any`.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from penstock.raft.replicas import ReplicaKey, VotersAt, VoterSet


class EpochEnd(NamedTuple):
    """An epoch and the offset behind its last record."""

    epoch: int
    end_offset: int


class SnapshotId(NamedTuple):
    """A snapshot holds everything before `end_offset` (exclusive, R32); `epoch` is that of the last record in it."""

    end_offset: int
    epoch: int


class Chunk(NamedTuple):
    """A piece of a snapshot, and how many bytes all of it has."""

    data: Any
    size_bytes: int


class LeaderChange(NamedTuple):
    """The control record with which every epoch begins."""

    leader_id: int
    voters: tuple[ReplicaKey, ...]
    granting: tuple[int, ...]


class RaftLog(Protocol):
    """The metadata log. Offsets are counted from `start_offset`, where the oldest snapshot ends, to `end_offset`."""

    @property
    def start_offset(self) -> int:
        """The first offset that can be read."""

    @property
    def end_offset(self) -> int:
        """The end of what is written."""

    @property
    def synced_end(self) -> int:
        """The end of what a power cut cannot take."""

    @property
    def last_epoch(self) -> int:
        """The epoch of the last record, or of the snapshot that an empty log starts from; 0 when there is nothing."""

    def append(self, epoch: int, batch: Any, now: int) -> int:
        """Writes a batch of the state machine as the leader of an epoch; the new end."""

    def append_control(self, epoch: int, records: Sequence[LeaderChange | VoterSet], now: int) -> int:
        """Writes control records as one batch; the new end."""

    def append_fetched(self, records: Any, now: int) -> Iterable[VotersAt]:
        """Writes what was fetched, offsets and epochs as they are; the voter sets among it."""

    def read(self, offset: int, bytes_max: int) -> Any:
        """Batches from an offset on, at least one if there is any."""

    def epoch_before(self, offset: int) -> int:
        """The epoch of the record before an offset, which the log or its snapshot has; 0 at the very beginning."""

    def end_of_epoch(self, epoch: int) -> EpochEnd:
        """The largest epoch up to this one, and its end; where all are newer, the snapshot's, at the start."""

    def voter_sets(self) -> Iterable[VotersAt]:
        """The voter sets in the log, oldest first. Read once, at the start."""


class Snapshots(Protocol):
    """Snapshots of the state machine, oldest first; at least the one at the log's start, unless that is 0."""

    @property
    def ids(self) -> Sequence[SnapshotId]:
        """Whole and durable snapshots."""

    def voters_of(self, snapshot: SnapshotId) -> VoterSet:
        """The voter set that a snapshot holds."""

    def read(self, snapshot: SnapshotId, position: int, bytes_max: int) -> Chunk | None:
        """A piece of a snapshot; None if there is no such snapshot any more."""

    def receive(self, snapshot: SnapshotId, position: int, data: Any) -> int:
        """Keeps a piece of the leader's snapshot for later; how many bytes of it are there. Position 0 begins anew."""
