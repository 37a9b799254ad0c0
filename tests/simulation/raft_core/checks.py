"""The invariants of the metadata quorum, checked after every event of a world of raft cores.

Each has the name that the specifications give it. A check covers what the event touched: the replica that took the
step, and the list of all entries ever committed, which no replica may contradict. `Broken.name` names the invariant.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.raft.effects import CutLog, Effect, InstallSnapshot, LoadSnapshot, Send
from penstock.raft.messages import NO_LEADER, Vote
from penstock.raft.ports import SnapshotId
from penstock.raft.replicas import ReplicaKey, VoterSet
from penstock.raft.roles import Role
from tests.simulation.kit.invariants import broken
from tests.simulation.raft_core.disk import Entry, Snapshot

if TYPE_CHECKING:
    from tests.simulation.raft_core.world import Node, World


INVARIANTS = (
    "ElectionSafety",
    "MonotonicEpoch",
    "MonotonicHighWatermark",
    "MajorityReachedHighWatermark",
    "LogMatching",
    "LeaderCompleteness",
    "Durability",
    "SnapshotAtLogStart",
    "LeaderNeverLoadsSnapshot",
    "ConsistentCommittedData",
    "ValidRolesAndStates",
    "NoTruncationBelowHighWatermark",
    "OwnEpochFirst",
    "OutsidersChangeNothing",
)
"""The invariants of the quorum; `raft_core.outsider` checks the last. Besides: `OneVotePerEpoch` and `Convergence`."""


class Checks:
    """The state so far, against which later events are checked."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self.leaders: dict[int, ReplicaKey] = {}
        self.committed: list[Entry] = []
        """Every entry that a leader ever committed, by offset."""
        self._committed_in: list[int] = []
        """The epochs of the committing leaders, which may be later than those of the entries."""
        self.committing_voters = VoterSet()
        """The voter set by whose majority the last entry was committed."""
        self.snapshots: dict[SnapshotId, Snapshot] = {}
        self.votes: dict[tuple[ReplicaKey, int], ReplicaKey] = {}
        self.wiped: set[ReplicaKey] = set()
        self.acknowledged = 0
        self._values: set[int] = set()

    # --- after every step -----------------------------------------------------------------------------------------

    def after_step(self, node: "Node", effects: Sequence[Effect]) -> None:
        raft = node.raft
        assert raft is not None
        state = raft.replica.state
        if state.epoch < node.epoch:
            broken("MonotonicEpoch", f"{node} went from epoch {node.epoch} to {state.epoch}")
        is_campaigning = raft.role in _CAMPAIGNING or (raft.role is Role.LEADER and node.role is not Role.LEADER)
        is_leading = raft.role is Role.LEADER or (node.role is Role.LEADER and state.epoch == node.epoch)
        if state.epoch != node.epoch or raft.role is not node.role:
            node.epoch = state.epoch
            self._role_changed(node)
        self._is_legal(node)
        high_watermark = raft.replica.high_watermark
        if high_watermark != node.high_watermark:
            self._high_watermark_moved(node, high_watermark, is_leading=is_leading)
        log, ids = node.disk.log, node.disk.shelf.ids
        if log.start_offset and (not ids or ids[0].end_offset != log.start_offset):
            broken("SnapshotAtLogStart", f"the log of {node} starts at {log.start_offset}, its snapshots are {ids}")
        for effect in effects:
            if type(effect) is CutLog:
                self._cutting(node, effect.end_offset)
            elif type(effect) is InstallSnapshot:
                self._cutting(node, effect.snapshot.end_offset)
            elif type(effect) is LoadSnapshot and raft.role is Role.LEADER:
                broken("LeaderNeverLoadsSnapshot", f"{node} leads epoch {state.epoch} and loads {effect.snapshot}")
            elif type(effect) is Send and type(effect.request) is Vote and not is_campaigning:
                broken("ValidRolesAndStates", f"{node} asks for votes as {raft.role.value}")

    def _role_changed(self, node: "Node") -> None:
        raft = node.raft
        assert raft is not None
        node.role = raft.role
        if raft.role is Role.LEADER:
            first = self.leaders.setdefault(raft.epoch, raft.replica.key)
            if first != raft.replica.key:
                broken("ElectionSafety", f"epoch {raft.epoch} is led by {first} and {raft.replica.key}")
            self._holds_all_committed(node)

    def _holds_all_committed(self, node: "Node") -> None:
        """Counts only entries committed in epochs up to its own: a late-elected leader may not be the newest."""
        log, raft = node.disk.log, node.raft
        assert raft is not None
        end = len(self.committed)
        while end and self._committed_in[end - 1] > raft.epoch:
            end -= 1
        if log.end_offset < end:
            broken(
                "LeaderCompleteness", f"{node} leads epoch {raft.epoch}, ends at {log.end_offset}, lacks up to {end}"
            )
        start = log.start_offset
        if log.entries[: max(0, end - start)] != self.committed[start:end]:
            broken("LeaderCompleteness", f"{node} leads epoch {raft.epoch} with other entries than were committed")

    def _is_legal(self, node: "Node") -> None:
        raft = node.raft
        assert raft is not None
        replica, role = raft.replica, raft.role
        _, leader_id, voted_for = replica.state
        is_legal = (
            (raft.leader is not None) == (role is Role.LEADER)
            and (raft.campaign is not None) == (role in _CAMPAIGNING)
            and (raft.follower is not None) == (role in _FETCHING)
        )
        if role is Role.FOLLOWER:
            is_legal = is_legal and leader_id not in (NO_LEADER, replica.node_id) and replica.is_voter
        elif role is Role.LEADER:
            voters = replica.voters
            is_removed = replica.key not in voters.latest and voters.latest_offset < replica.high_watermark
            is_legal = is_legal and leader_id == replica.node_id and not is_removed
        elif role is Role.RESIGNED:
            is_legal = is_legal and leader_id == replica.node_id
        elif role is Role.OBSERVER:
            is_legal = is_legal and leader_id != replica.node_id and not replica.is_voter
        elif role is Role.UNATTACHED:
            is_legal = is_legal and leader_id == NO_LEADER and voted_for is None
        elif role is Role.VOTED:
            is_legal = is_legal and leader_id == NO_LEADER and voted_for is not None
        elif role is Role.CANDIDATE:
            is_legal = is_legal and leader_id == NO_LEADER and voted_for == replica.key and replica.is_voter
        else:
            is_legal = is_legal and leader_id != replica.node_id and replica.is_voter
        if not is_legal:
            broken("ValidRolesAndStates", f"{node} is {role.value} with {replica.state}")

    # --- the high watermark ---------------------------------------------------------------------------------------

    def _high_watermark_moved(self, node: "Node", high_watermark: int, *, is_leading: bool) -> None:
        """Checks a new high watermark; `is_leading` includes a leader that commits its own removal and so resigns."""
        raft, log, committed = node.raft, node.disk.log, self.committed
        assert raft is not None
        before, node.high_watermark = node.high_watermark, high_watermark
        if high_watermark < before:
            broken("MonotonicHighWatermark", f"{node} went from {before} to {high_watermark}")
        if high_watermark > log.end_offset:
            broken("MajorityReachedHighWatermark", f"{node} says {high_watermark} but ends at {log.end_offset}")
        if is_leading:
            self._leader_commits(node, high_watermark)
        elif high_watermark > len(committed):
            broken("MajorityReachedHighWatermark", f"{node} follows and says {high_watermark}, no leader did so yet")
        first = max(before, log.start_offset)
        if log.start_offset > before and log.start_offset and committed[log.start_offset - 1].epoch != log.start_epoch:
            broken("LogMatching", f"{node} starts behind epoch {log.start_epoch}, other than what was committed")
        start = log.start_offset
        if log.entries[first - start : high_watermark - start] != committed[first:high_watermark]:
            broken("LogMatching", f"{node} has other entries between {first} and {high_watermark} than were committed")

    def _leader_commits(self, node: "Node", high_watermark: int) -> None:
        raft, log = node.raft, node.disk.log
        assert raft is not None
        epoch = log.epoch_before(high_watermark)
        if epoch != raft.epoch:
            broken(
                "OwnEpochFirst", f"{node} leads epoch {raft.epoch} and commits up to {high_watermark}, of epoch {epoch}"
            )
        voters = raft.voters
        holders = self.holders(voters, high_watermark, epoch)
        if holders < voters.majority:
            what = f"{node} commits up to {high_watermark}, on disk with {holders} of {voters}"
            broken("MajorityReachedHighWatermark", what)
        if high_watermark > len(self.committed):  # otherwise a former leader commits it late
            self.committing_voters = voters
        for offset in range(len(self.committed), high_watermark):
            entry = log.entry(offset)
            self.committed.append(entry)
            self._committed_in.append(raft.epoch)
            if isinstance(entry.content, int):
                if entry.content in self._values:
                    broken("ConsistentCommittedData", f"{entry.content} is committed twice")
                self._values.add(entry.content)
                self.acknowledged += 1
            self._world.committed(entry)

    def holders(self, voters: VoterSet, end_offset: int, epoch: int) -> int:
        """The number of voters that hold everything up to an offset on disk, or held it on a disk that was wiped."""
        count = 0
        for node_id in voters.ids:
            key = voters.key_of(node_id)
            disk = self._world.nodes[node_id].disk
            log = disk.log
            if key in self.wiped:
                count += 1
            elif disk.directory_id == key.directory_id and log.synced_end >= end_offset:
                count += log.start_offset >= end_offset or log.epoch_before(end_offset) == epoch
        return count

    # --- truncation and loss --------------------------------------------------------------------------------------

    def _cutting(self, node: "Node", end_offset: int) -> None:
        if end_offset < node.high_watermark:
            broken("NoTruncationBelowHighWatermark", f"{node} cuts to {end_offset} below {node.high_watermark}")
        log = node.disk.log
        if (
            end_offset < min(len(self.committed), log.end_offset)
            and log.entry(end_offset) == self.committed[end_offset]
        ):
            broken("NoTruncationBelowHighWatermark", f"{node} cuts offset {end_offset}, which is committed")

    def after_loss(self) -> None:
        """Checks after a loss that a majority still holds the committed entries."""
        end = len(self.committed)
        if end:
            voters = self.committing_voters
            holders = self.holders(voters, end, self.committed[-1].epoch)
            if holders < voters.majority:
                broken("Durability", f"only {holders} of {voters} have what was committed up to {end}")

    def started(self, node: "Node") -> None:
        """Begins a new life: an epoch that was sent to others still counts, state that was only in memory does not."""
        node.epoch = node.epoch_told
        node.high_watermark = 0
        node.role = None

    # --- votes, applied entries, snapshots ------------------------------------------------------------------------

    def voted(self, voter: ReplicaKey, epoch: int, candidate: ReplicaKey) -> None:
        first = self.votes.setdefault((voter, epoch), candidate)
        if first != candidate:
            broken("OneVotePerEpoch", f"{voter} votes in epoch {epoch} for {first} and for {candidate}")

    def applied(self, node: "Node", offset: int, entry: Entry) -> None:
        """Checks an entry that the state machine applies."""
        if offset >= len(self.committed) or self.committed[offset] != entry:
            broken("ConsistentCommittedData", f"{node} applies {entry} at {offset}, which is not what was committed")

    def snapshot(self, node: "Node", snapshot: SnapshotId, content: Snapshot) -> None:
        """Checks a snapshot that was taken or received: all snapshots of one id are equal."""
        first = self.snapshots.setdefault(snapshot, content)
        if first != content:
            broken(
                "ConsistentCommittedData", f"{node} has another {snapshot} than others: {content} instead of {first}"
            )

    def end(self) -> None:
        """Checks that all replicas hold all committed entries, once all faults are healed."""
        for node in self._world.nodes.values():
            raft, log = node.raft, node.disk.log
            assert raft is not None
            if raft.high_watermark != len(self.committed) or node.machine.applied != len(self.committed):
                what = f"{node} as {raft.role.value} has {raft.high_watermark} of {len(self.committed)} in the end"
                broken("Convergence", what)
            if log.entries[: len(self.committed) - log.start_offset] != self.committed[log.start_offset :]:
                broken("ConsistentCommittedData", f"{node} has other entries in the end than were committed")


_CAMPAIGNING = (Role.PROSPECTIVE, Role.CANDIDATE)
_FETCHING = (Role.FOLLOWER, Role.OBSERVER)
