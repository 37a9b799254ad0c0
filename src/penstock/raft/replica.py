"""What a replica is in whatever role: its name, its log, what it knows, and the effects of the step under way."""

from penstock.model.errors import ErrorCode
from penstock.model.ports import Entropy
from penstock.raft.effects import Committed, Effect, Persist, Send, SyncLog
from penstock.raft.messages import NO_LEADER, Request
from penstock.raft.ports import RaftLog, Snapshots
from penstock.raft.replicas import ReplicaKey, VoterHistory, VoterSet
from penstock.raft.roles import QuorumState
from penstock.raft.settings import QuorumSettings
from penstock.wire.types import ZERO_UUID


class Inconsistent(Exception):
    """What happened cannot happen while everybody keeps the rules. The node must stop, and somebody must look at it."""


class Replica:
    """The ground that all roles stand on. `bootstrap` are the voters as configured, for a log that names none."""

    __slots__ = (
        "_last_number",
        "effects",
        "entropy",
        "high_watermark",
        "is_rebuilding",
        "key",
        "log",
        "node_id",
        "settings",
        "snapshots",
        "state",
        "voters",
    )

    def __init__(
        self,
        key: ReplicaKey,
        log: RaftLog,
        snapshots: Snapshots,
        settings: QuorumSettings,
        entropy: Entropy,
        bootstrap: VoterSet,
        stored: QuorumState,
    ) -> None:
        self.key = key
        self.node_id = key.node_id
        self.log = log
        self.snapshots = snapshots
        self.settings = settings
        self.entropy = entropy
        self.state = stored
        self.effects: list[Effect] = []
        self.is_rebuilding = False
        """A cut or an installation is under way: what the log will end with is not yet what it ends with now."""
        self._last_number = 0
        ids = snapshots.ids
        self.voters = VoterHistory(snapshots.voters_of(ids[0]) if log.start_offset > 0 else bootstrap)
        for found in log.voter_sets():
            self.voters.add(found)
        self.high_watermark = ids[-1].end_offset if ids else 0
        """Everything before it is committed, and this replica has it."""

    @property
    def is_voter(self) -> bool:
        """Whether it is a voter, or was until a change that may not be committed.

        Until that is known the others may need it: removed from two voters, it may be the only one to have the record
        that says so, and must be elected once more to commit it.
        """
        return self.voters.names(self.key, self.high_watermark)

    @property
    def has_leader(self) -> bool:
        """Whether it knows who leads its epoch."""
        return self.state.leader_id != NO_LEADER

    @property
    def is_empty(self) -> bool:
        """Whether the replica holds neither records nor a snapshot, as one does that joins the cluster."""
        return self.log.end_offset == 0 and not self.snapshots.ids

    def is_too_far_ahead(self, epoch: int) -> bool:
        """Whether a peer's epoch is further above this replica's than elections can explain."""
        return epoch - self.state.epoch > self.settings.epochs_ahead_max

    def is_addressed(self, named: ReplicaKey) -> bool:
        """Whether a request names this replica.

        A sender without the directory id leaves it zero. It may do so until a committed voter set has the id: every
        replica that can be elected holds the committed records, and so knows the id from then on.
        """
        if named.node_id != self.node_id:
            return False
        is_unknown = named.directory_id == ZERO_UUID and not self._is_directory_committed
        return is_unknown or named.directory_id == self.key.directory_id

    @property
    def _is_directory_committed(self) -> bool:
        found = self.voters.found_at(self.high_watermark)
        is_configured = found.offset < 0 and self.log.start_offset == 0
        voter = found.voters.by_id.get(self.node_id)
        return not is_configured and voter is not None and voter.key == self.key

    def send(self, to: int, request: Request) -> int:
        """Sends a request; its number."""
        self._last_number += 1
        self.effects.append(Send(to, self._last_number, request))
        return self._last_number

    def persist(self, state: QuorumState) -> None:
        """Takes on a new state, on disk before anybody hears of it."""
        if state == self.state:
            return
        before = self.state
        if state.epoch < before.epoch:
            raise Inconsistent(f"epoch {state.epoch} after {before.epoch}")
        if state.epoch == before.epoch:
            if before.voted_for not in (None, state.voted_for):
                raise Inconsistent(f"a second vote in epoch {state.epoch}: {state.voted_for} after {before.voted_for}")
            if before.leader_id not in (NO_LEADER, state.leader_id):
                raise Inconsistent(f"a second leader of epoch {state.epoch}: {state.leader_id}, {before.leader_id}")
        self.state = state
        self.effects.append(Persist(state))

    def sync(self) -> None:
        """Has the log synced."""
        self.effects.append(SyncLog())

    def raise_high_watermark(self, offset: int) -> bool:
        """Everything before `offset` is committed; whether that is news."""
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        self.effects.append(Committed(offset))
        return True

    def with_chance(self, timeout_ms: int) -> int:
        """A time-out between once and twice as long, so that not all replicas act at once."""
        return timeout_ms + self.entropy.below(timeout_ms)

    @property
    def election_wait_ms(self) -> int:
        """How long to wait for others to campaign; where nobody else votes, there is nobody to wait for."""
        is_alone = self.voters.latest.ids == (self.node_id,) and self.is_voter
        return 0 if is_alone else self.with_chance(self.settings.election_timeout_ms)

    def refusal(self, asked_epoch: int) -> ErrorCode:
        """Why a request to the leader of an epoch cannot be served here; NONE if its epoch is this one's."""
        if asked_epoch < self.state.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if asked_epoch > self.state.epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        return ErrorCode.NONE
