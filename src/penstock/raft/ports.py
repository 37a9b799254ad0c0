"""Ports of the quorum: its log and its snapshots. The server has real ones, the simulator lossy ones.

Calls return at once, and a power cut may lose what they write until the driver has carried out the effect that makes it
durable (`SyncLog`, `CutLog`, `InstallSnapshot`). The core does not read record data, hence `Any`.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from penstock.raft.replicas import ReplicaKey, VotersAt, VoterSet


class EpochEnd(NamedTuple):
    """An epoch and the offset after its last record."""

    epoch: int
    end_offset: int


class SnapshotId(NamedTuple):
    """A snapshot holds everything before `end_offset` (exclusive, R32); `epoch` is that of the last record in it."""

    end_offset: int
    epoch: int


class Chunk(NamedTuple):
    """A chunk of a snapshot, and the size of the whole snapshot."""

    data: Any
    size_bytes: int


class LeaderChange(NamedTuple):
    """The control record that begins every epoch."""

    leader_id: int
    voters: tuple[ReplicaKey, ...]
    granting: tuple[int, ...]


class RaftLog(Protocol):
    """The metadata log. Its offsets run from `start_offset`, where the oldest snapshot ends, to `end_offset`."""

    @property
    def start_offset(self) -> int:
        """The first offset that can be read."""

    @property
    def end_offset(self) -> int:
        """The offset after the last written record."""

    @property
    def synced_end(self) -> int:
        """The end of the records that survive a power cut."""

    @property
    def last_epoch(self) -> int:
        """The epoch of the last record, or of the snapshot that an empty log starts from; 0 if there is neither."""

    def append(self, epoch: int, batch: Any, now: int) -> int:
        """Appends a batch of the state machine as the leader of an epoch; returns the new end."""

    def append_control(self, epoch: int, records: Sequence[LeaderChange | VoterSet], now: int) -> int:
        """Appends control records as one batch; returns the new end."""

    def append_fetched(self, records: Any, now: int) -> Iterable[VotersAt]:
        """Appends fetched records with their offsets and epochs; returns the voter sets in them."""

    def read(self, offset: int, bytes_max: int) -> Any:
        """Batches from an offset on, at least one if there is any."""

    def epoch_before(self, offset: int) -> int:
        """The epoch of the record before an offset, from the log or its snapshot; 0 for offset 0."""

    def end_of_epoch(self, epoch: int) -> EpochEnd:
        """The largest epoch up to this one, and its end; if all are newer, the snapshot's, at the log's start."""

    def voter_sets(self) -> Iterable[VotersAt]:
        """The voter sets in the log, oldest first. Read once, at startup."""


class Snapshots(Protocol):
    """Snapshots of the state machine, oldest first; at least the one at the log's start, unless that is 0."""

    @property
    def ids(self) -> Sequence[SnapshotId]:
        """Complete and durable snapshots."""

    def voters_of(self, snapshot: SnapshotId) -> VoterSet:
        """The voter set that a snapshot holds."""

    def read(self, snapshot: SnapshotId, position: int, bytes_max: int) -> Chunk | None:
        """A chunk of a snapshot; None if the snapshot no longer exists."""

    def receive(self, snapshot: SnapshotId, position: int, data: Any) -> int:
        """Stores a chunk of the leader's snapshot; returns the bytes stored so far. Position 0 starts over."""
