"""State of a replica in any role: its key, log, quorum state and voters, and the effects of the current step."""

from penstock.model.errors import ErrorCode
from penstock.model.ports import Entropy
from penstock.raft import reports
from penstock.raft.effects import Committed, Effect, Persist, Send, SyncLog
from penstock.raft.messages import NO_LEADER, Request
from penstock.raft.ports import RaftLog, Snapshots
from penstock.raft.replicas import ReplicaKey, VoterHistory, VotersAt, VoterSet
from penstock.raft.roles import QuorumState
from penstock.raft.settings import QuorumSettings
from penstock.wire.types import ZERO_UUID


class Inconsistent(Exception):
    """A state that cannot occur while all replicas follow the protocol. The node must stop and be examined."""


class Replica:
    """See the module. `bootstrap` is the configured voter set, for a log that holds none."""

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
        """A truncation or a snapshot installation is under way: the log's end is about to change."""
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

        Until the commit is known the others may need it: removed from a set of two, it may be the only one to have the
        record of that, and must be elected once more to commit it.
        """
        return self.voters.names(self.key, self.high_watermark)

    @property
    def has_leader(self) -> bool:
        """Whether the leader of its epoch is known."""
        return self.state.leader_id != NO_LEADER

    @property
    def is_empty(self) -> bool:
        """Whether the replica holds neither records nor a snapshot, as when it joins the cluster."""
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

    def learn_voters(self, found: VotersAt) -> None:
        """Adopts a voter set found in the log."""
        before = self.voters.latest
        self.voters.add(found)
        if found.voters.ids != before.ids:
            voters, were = (", ".join(map(str, each.ids)) for each in (found.voters, before))
            self.effects.append(reports.VOTERS(voters=voters, before=were or "nobody"))

    def send(self, to: int, request: Request) -> int:
        """Sends a request; returns its number."""
        self._last_number += 1
        self.effects.append(Send(to, self._last_number, request))
        return self._last_number

    def persist(self, state: QuorumState) -> None:
        """Adopts a new state, which is on disk before any later effect."""
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
        """Requests a sync of the log."""
        self.effects.append(SyncLog())

    def raise_high_watermark(self, offset: int) -> bool:
        """Raises the high watermark to `offset`; returns whether it rose."""
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        self.effects.append(Committed(offset))
        return True

    def with_jitter(self, timeout_ms: int) -> int:
        """A random time-out, one to two times as long, so that not all replicas act at once."""
        return timeout_ms + self.entropy.below(timeout_ms)

    @property
    def election_wait_ms(self) -> int:
        """How long to wait for others to campaign; 0 for the only voter."""
        is_alone = self.voters.latest.ids == (self.node_id,) and self.is_voter
        return 0 if is_alone else self.with_jitter(self.settings.election_timeout_ms)

    def refusal(self, asked_epoch: int) -> ErrorCode:
        """The error for a request of another epoch; NONE if its epoch is this replica's."""
        if asked_epoch < self.state.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if asked_epoch > self.state.epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        return ErrorCode.NONE
