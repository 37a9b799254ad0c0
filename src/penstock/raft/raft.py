"""The quorum's stepper: events in, effects out. No clock, no disk, no network, no chance of its own.

    raft = Raft(key, log, snapshots, settings, entropy, bootstrap=voters, stored=state)
    effects = raft.start(now)
    effects = raft.step(event, now)        again whenever something happens, and at `raft.wake_at`
    effects = raft.append(epoch, batch, now).effects

This file holds elections and the moves between roles (`roles.MOVES`); `leader`, `follower` and `voter_changes` hold the
rest. An `Inconsistent` out of a step means that somebody broke the rules: the replica must not be used any more.
"""

from typing import Any, Final, NamedTuple

from penstock.model.epochs import INT32_EPOCH_MAX, next_epoch
from penstock.model.errors import ErrorCode
from penstock.model.ports import Entropy
from penstock.raft.campaign import Campaign, Outcome
from penstock.raft.effects import Answer, Effect, LeaderKnown, LoadSnapshot, TrimLog, Warn
from penstock.raft.events import (
    Answered,
    Asked,
    Event,
    LogCut,
    LogSynced,
    Resigning,
    SnapshotInstalled,
    SnapshotTaken,
    TimePassed,
    Unanswered,
)
from penstock.raft.follower import Follower
from penstock.raft.leader import Leader
from penstock.raft.messages import (
    NO_LEADER,
    AddVoter,
    BeginEpoch,
    EndEpoch,
    EpochReply,
    Fetch,
    FetchReply,
    FetchSnapshot,
    FetchSnapshotReply,
    RemoveVoter,
    Reply,
    UpdateVoter,
    Vote,
    VoteReply,
    VotersReply,
)
from penstock.raft.ports import RaftLog, SnapshotId, Snapshots
from penstock.raft.replica import Inconsistent, Replica
from penstock.raft.replicas import NOBODY, ReplicaKey, VoterHistory, VoterSet
from penstock.raft.roles import MOVES, QuorumState, Role
from penstock.raft.settings import QuorumSettings
from penstock.raft.voter_changes import Refused, changed_voters


class NotLeader(Exception):
    """Only the leader of an epoch appends in it."""


class Appended(NamedTuple):
    """Where a batch ends in the log. It is committed when `Committed` reaches that, in the same epoch."""

    end_offset: int
    effects: list[Effect]


class Raft:
    """One replica of the metadata quorum."""

    def __init__(
        self,
        key: ReplicaKey,
        log: RaftLog,
        snapshots: Snapshots,
        settings: QuorumSettings,
        entropy: Entropy,
        *,
        bootstrap: VoterSet = NOBODY,
        stored: QuorumState | None = None,
    ) -> None:
        self.replica = Replica(key, log, snapshots, settings, entropy, bootstrap, stored or QuorumState())
        self.role = Role.UNATTACHED
        self.leader: Leader | None = None
        self.follower: Follower | None = None
        self.campaign: Campaign | None = None
        self._deadline = 0
        """When the time of a role ends that neither leads nor fetches."""

    # --- the outside ----------------------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """The newest epoch that it knows of."""
        return self.replica.state.epoch

    @property
    def leader_id(self) -> int:
        """Who leads that epoch, as far as it knows; -1 if it does not."""
        return self.replica.state.leader_id

    @property
    def high_watermark(self) -> int:
        """The end of what is committed, as far as it knows."""
        return self.replica.high_watermark

    @property
    def voters(self) -> VoterSet:
        """The voter set in force."""
        return self.replica.voters.latest

    @property
    def wake_at(self) -> int:
        """When `TimePassed` is due."""
        if self.leader is not None:
            return self.leader.wake_at
        if self.follower is not None:
            return self.follower.wake_at
        return self._deadline

    def start(self, now: int) -> list[Effect]:
        """The first step of a life: takes up the role that the stored state leaves to it."""
        replica = self.replica
        if replica.log.last_epoch > replica.state.epoch:
            # Records can reach the disk before the state that tells of their epoch. No vote was given in it.
            replica.persist(QuorumState(replica.log.last_epoch))
        if replica.snapshots.ids:
            replica.effects.append(LoadSnapshot(replica.snapshots.ids[-1]))
        state = replica.state
        if state.leader_id == replica.node_id:
            # It led, and no longer knows how far the others were; it may not vote in this epoch, nor follow.
            self.role = Role.RESIGNED
            self._deadline = now + replica.election_wait_ms
        elif not replica.is_voter:
            self.role = Role.OBSERVER
            self._begin_to_follow(now)
        elif replica.has_leader:
            self.role = Role.FOLLOWER
            self._begin_to_follow(now)
        else:
            # Even if it voted for itself: the votes of others were for the log that it had then.
            self.role = Role.UNATTACHED if state.voted_for is None else Role.VOTED
            self._deadline = now + replica.election_wait_ms
        return self._taken_effects()

    def step(self, event: Event, now: int) -> list[Effect]:
        """What is to be done about an event."""
        getattr(self, _STEPS[type(event)])(event, now)
        return self._taken_effects()

    def append(self, epoch: int, batch: Any, now: int) -> Appended:
        """Appends a batch of the state machine, which applies it before it decides anything else."""
        if self.leader is None or epoch != self.epoch:
            raise NotLeader(f"node {self.replica.node_id} does not lead epoch {epoch}")
        end_offset = self.replica.log.append(epoch, batch, now)
        self.leader.appended()
        return Appended(end_offset, self._taken_effects())

    def _taken_effects(self) -> list[Effect]:
        effects, self.replica.effects = self.replica.effects, []
        return effects

    # --- moves ----------------------------------------------------------------------------------------------------

    def _take_role(self, role: Role) -> None:
        assert (self.role, role) in MOVES, f"no way leads from {self.role.value} to {role.value}"
        self.role = role

    def _move(self, role: Role) -> None:
        self._take_role(role)
        self.campaign = None
        self.follower = None
        if self.leader is not None:
            self.leader.close()
            self.leader = None

    def _follow(self, epoch: int, leader_id: int, now: int) -> None:
        """Somebody else leads."""
        replica = self.replica
        state = replica.state
        voted_for = state.voted_for if state.epoch == epoch else None
        is_news = (epoch, leader_id) != (state.epoch, state.leader_id)
        replica.persist(QuorumState(epoch, leader_id, voted_for))
        self._move(Role.FOLLOWER if replica.is_voter else Role.OBSERVER)
        if is_news:
            replica.effects.append(LeaderKnown(leader_id, epoch, NO_LEADER))
        self._begin_to_follow(now)

    def _begin_to_follow(self, now: int, patience_ms: int | None = None) -> None:
        self.follower = Follower(self.replica, now, patience_ms)
        self.follower.go_on(now)

    def _enter_epoch(self, epoch: int, now: int) -> None:
        """There is a newer epoch, and nobody has said who leads it."""
        replica = self.replica
        replica.persist(QuorumState(epoch))
        if replica.is_voter:
            self._wait(now)
        else:
            self._move(Role.OBSERVER)
            self._begin_to_follow(now)

    def _rest(self, now: int) -> None:
        """Back to what it was before it campaigned."""
        if self.replica.has_leader:
            # Others hear the leader, or did a moment ago: if it does not answer, the question is soon asked again.
            self._move(Role.FOLLOWER)
            self._begin_to_follow(now, self.replica.settings.election_timeout_ms // 2)
        else:
            self._wait(now)

    def _wait(self, now: int) -> None:
        """Nobody leads this epoch; perhaps somebody will."""
        replica = self.replica
        self._move(Role.UNATTACHED if replica.state.voted_for is None else Role.VOTED)
        self._deadline = now + replica.election_wait_ms

    def _learn(self, epoch: int, leader_id: int, now: int) -> None:
        """Somebody told which epoch it is, and perhaps who leads it; what is told is true, if perhaps old."""
        if leader_id == self.replica.node_id:
            leader_id = NO_LEADER  # if it does not know that itself, it was in a former life, on a disk that is gone
        if epoch < self.epoch or (epoch == self.epoch and (self.replica.has_leader or leader_id == NO_LEADER)):
            return
        if leader_id == NO_LEADER:
            self._enter_epoch(epoch, now)
        else:
            self._follow(epoch, leader_id, now)

    def _fit_role_to_voters(self, now: int) -> None:
        """The log may name other voters than before."""
        is_voter = self.replica.is_voter
        if self.role is Role.FOLLOWER and not is_voter:
            self._take_role(Role.OBSERVER)
        elif self.role is Role.OBSERVER and is_voter:
            if self.replica.has_leader:
                self._take_role(Role.FOLLOWER)
            else:
                self._wait(now)
        elif self.role in (Role.UNATTACHED, Role.VOTED) and not is_voter:
            self._move(Role.OBSERVER)
            self._begin_to_follow(now)

    # --- elections ------------------------------------------------------------------------------------------------

    def _ask_around(self, now: int) -> None:
        """Would a majority elect it? Nobody is disturbed by the question."""
        self._move(Role.PROSPECTIVE)
        self._campaign(now, is_pre_vote=True)

    def _stand(self, now: int) -> None:
        """Stands for election in a new epoch."""
        replica = self.replica
        replica.persist(QuorumState(next_epoch(self.epoch, "the metadata quorum"), voted_for=replica.key))
        self._move(Role.CANDIDATE)
        self._campaign(now, is_pre_vote=False)

    def _campaign(self, now: int, *, is_pre_vote: bool) -> None:
        self._deadline = now + self.replica.with_chance(self.replica.settings.election_timeout_ms)
        self.campaign = Campaign(self.replica, is_pre_vote=is_pre_vote)
        self._look_at_outcome(now)

    def _look_at_outcome(self, now: int) -> None:
        assert self.campaign is not None
        outcome = self.campaign.outcome
        if outcome is Outcome.WON:
            if self.role is Role.PROSPECTIVE:
                self._stand(now)
            else:
                self._lead(now)
        elif outcome is Outcome.LOST and self.role is Role.PROSPECTIVE:
            self._rest(now)  # a candidate waits for its time-out: somebody else is being elected

    def _lead(self, now: int) -> None:
        replica = self.replica
        assert self.campaign is not None
        granting = self.campaign.granted
        replica.persist(replica.state._replace(leader_id=replica.node_id))
        self._move(Role.LEADER)
        self.leader = Leader(replica, granting, now)
        replica.effects.append(LeaderKnown(replica.node_id, self.epoch, self.leader.start_offset))
        self.leader.appended()
        self.leader.on_time(now)

    def _resign(self, now: int) -> None:
        replica = self.replica
        assert self.leader is not None
        successors = self.leader.successors()
        self._move(Role.RESIGNED)
        self._deadline = now + replica.with_chance(replica.settings.election_timeout_ms)
        for key in successors:
            replica.send(key.node_id, EndEpoch(self.epoch, replica.node_id, successors))

    def _on_vote(self, token: Any, vote: Vote, now: int) -> None:
        replica = self.replica
        error, is_granted = ErrorCode.NONE, False
        if not replica.is_addressed(vote.voter):
            error = ErrorCode.INVALID_VOTER_KEY
        elif vote.candidate.node_id < 0:
            error = ErrorCode.INVALID_REQUEST
        elif vote.epoch < self.epoch:
            error = ErrorCode.FENCED_LEADER_EPOCH
        else:
            if vote.epoch > self.epoch:
                self._enter_epoch(vote.epoch, now)
            is_granted = self._would_elect(vote, now)
            if is_granted and not vote.is_pre_vote:
                self._give_vote(vote.candidate, now)
        replica.effects.append(Answer(token, VoteReply(error, self.epoch, self.leader_id, is_granted)))

    def _would_elect(self, vote: Vote, now: int) -> bool:
        log, state = self.replica.log, self.replica.state
        if (vote.last_epoch, vote.end_offset) < (log.last_epoch, log.end_offset):
            return False
        if vote.is_pre_vote:
            return self.leader is None and not self._has_living_leader(now)
        if self.replica.has_leader:
            return False
        return state.voted_for is None or state.voted_for == vote.candidate

    def _has_living_leader(self, now: int) -> bool:
        return self.follower is not None and now < self.follower.loyal_until

    def _give_vote(self, candidate: ReplicaKey, now: int) -> None:
        replica = self.replica
        if replica.state.voted_for is not None:
            return  # the same request once more
        replica.persist(replica.state._replace(voted_for=candidate))
        if self.role is not Role.OBSERVER:  # one that does not know yet that it is a voter
            self._wait(now)

    def _on_begin_epoch(self, token: Any, begin: BeginEpoch, now: int) -> None:
        replica = self.replica
        error = ErrorCode.NONE
        if not replica.is_addressed(begin.voter):
            error = ErrorCode.INVALID_VOTER_KEY
        elif not self._is_peer(begin.leader_id):
            error = ErrorCode.INVALID_REQUEST
        elif begin.epoch < self.epoch:
            error = ErrorCode.FENCED_LEADER_EPOCH
        elif begin.epoch == self.epoch and self.leader_id not in (NO_LEADER, begin.leader_id):
            error = ErrorCode.INVALID_REQUEST
        elif begin.epoch > self.epoch or not replica.has_leader or self.role is Role.PROSPECTIVE:
            self._follow(begin.epoch, begin.leader_id, now)
        replica.effects.append(Answer(token, EpochReply(error, self.epoch, self.leader_id)))

    def _on_end_epoch(self, token: Any, end: EndEpoch, now: int) -> None:
        replica = self.replica
        error = ErrorCode.NONE
        if not any(map(replica.is_addressed, end.successors)):  # a leader resigns to its successors only
            error = ErrorCode.INVALID_VOTER_KEY
        elif not self._is_peer(end.leader_id):
            error = ErrorCode.INVALID_REQUEST
        elif end.epoch < self.epoch:
            error = ErrorCode.FENCED_LEADER_EPOCH
        else:
            self._learn(end.epoch, end.leader_id, now)
            if self.follower is not None and self.leader_id == end.leader_id and self.epoch == end.epoch:
                self.follower.step_forward(end.successors, now)
        replica.effects.append(Answer(token, EpochReply(error, self.epoch, self.leader_id)))

    def _is_peer(self, leader_id: int) -> bool:
        """Whether a request can come from this leader: no replica announces itself to itself."""
        return leader_id >= 0 and leader_id != self.replica.node_id

    # --- requests to the leader -----------------------------------------------------------------------------------

    def _on_fetch(self, token: Any, fetch: Fetch, now: int) -> None:
        error = self._refusal(fetch.epoch)
        if error is not ErrorCode.NONE:
            self.replica.effects.append(Answer(token, FetchReply(error, self.epoch, self._leader_to_tell)))
            return
        assert self.leader is not None
        self.leader.on_fetch(token, fetch, now)
        self._resign_if_removed(now)

    def _on_fetch_snapshot(self, token: Any, fetch: FetchSnapshot, now: int) -> None:
        error = self._refusal(fetch.epoch)
        if error is not ErrorCode.NONE:
            self.replica.effects.append(Answer(token, FetchSnapshotReply(error, self.epoch, self._leader_to_tell)))
            return
        assert self.leader is not None
        self.leader.on_fetch_snapshot(token, fetch, now)

    def _on_voters(self, token: Any, request: AddVoter | RemoveVoter | UpdateVoter, now: int) -> None:
        replica, leader = self.replica, self.leader
        if leader is None:
            message = "This node does not lead the quorum; ask the leader."
            reply = VotersReply(ErrorCode.NOT_LEADER_OR_FOLLOWER, self.epoch, self._leader_to_tell, message)
            replica.effects.append(Answer(token, reply))
            return
        try:
            voters = changed_voters(replica, leader, request, now)
        except Refused as refused:
            replica.effects.append(
                Answer(token, VotersReply(refused.error, self.epoch, self.leader_id, refused.sentence))
            )
            return
        if isinstance(request, AddVoter) and not request.waits_for_commit:
            replica.effects.append(Answer(token, VotersReply(ErrorCode.NONE, self.epoch, self.leader_id)))
            token = None
        leader.replace_voters(voters, token, now)

    def _refusal(self, epoch: int) -> ErrorCode:
        error = self.replica.refusal(epoch)
        return ErrorCode.NOT_LEADER_OR_FOLLOWER if error is ErrorCode.NONE and self.leader is None else error

    @property
    def _leader_to_tell(self) -> int:
        """Who leads, for whoever asked the wrong node; one that has resigned names nobody."""
        return NO_LEADER if self.role is Role.RESIGNED else self.leader_id

    def _resign_if_removed(self, now: int) -> None:
        if self.leader is not None and self.leader.is_removed:
            self._resign(now)

    # --- events ---------------------------------------------------------------------------------------------------

    def _on_asked(self, event: Asked, now: int) -> None:
        token, request = event
        if isinstance(request, _OF_PEERS) and self.replica.is_too_far_ahead(request.epoch):
            self._refuse_epoch(token, request)
            return
        getattr(self, _REQUESTS[type(request)])(token, request, now)

    def _refuse_epoch(self, token: Any, request: Vote | BeginEpoch | EndEpoch | Fetch | FetchSnapshot) -> None:
        """An epoch that elections cannot explain would end all elections: epochs never go back, and they end."""
        error, leader_id = ErrorCode.UNKNOWN_LEADER_EPOCH, self._leader_to_tell
        reply: Reply = EpochReply(error, self.epoch, leader_id)
        if isinstance(request, Vote):
            reply = VoteReply(error, self.epoch, leader_id, is_granted=False)
        elif isinstance(request, Fetch):
            reply = FetchReply(error, self.epoch, leader_id)
        elif isinstance(request, FetchSnapshot):
            reply = FetchSnapshotReply(error, self.epoch, leader_id)
        self._warn_of_epoch(f"A {type(request).__name__} request", request.epoch)
        self.replica.effects.append(Answer(token, reply))

    def _warn_of_epoch(self, what: str, epoch: int) -> None:
        self.replica.effects.append(
            Warn(
                "quorum epoch",
                f"{what} names epoch {epoch} of the metadata quorum; this node is in epoch {self.epoch}, and more than "
                f"{self.replica.settings.epochs_ahead_max:,} epochs above that are refused. Keep other hosts from the "
                "controller listener. If the cluster really is that far ahead, empty this node's data directory and "
                "start it again.",
            )
        )

    def _on_answered(self, event: Answered, now: int) -> None:
        number, reply = event
        if self.replica.is_too_far_ahead(reply.epoch) and not self.replica.is_empty:
            # One replica with a broken state must not take the others along. An empty replica joins at any epoch.
            self._warn_of_epoch("The reply of a voter", reply.epoch)
            self._on_unanswered(Unanswered(number), now)
            return
        self._learn(reply.epoch, reply.leader_id, now)
        if self.follower is not None and isinstance(reply, FetchReply | FetchSnapshotReply):
            self.follower.on_reply(number, reply, now)
            self._fit_role_to_voters(now)
        elif self.campaign is not None and isinstance(reply, VoteReply) and reply.epoch == self.epoch:
            self.campaign.count(number, is_granted=reply.is_granted)
            if not reply.is_granted and (self.role is Role.CANDIDATE or self.replica.has_leader):
                # Somebody else stands, or led until a moment ago, and who does not answer may be dead: try again soon.
                wait_ms = self.replica.with_chance(self.replica.settings.election_timeout_ms // 4)
                self._deadline = min(self._deadline, now + wait_ms)
            self._look_at_outcome(now)

    def _on_unanswered(self, event: Unanswered, now: int) -> None:
        if self.follower is not None:
            self.follower.on_unanswered(event.number, now)

    def _on_time_passed(self, _event: TimePassed, now: int) -> None:
        if self.leader is not None:
            if not self.leader.on_time(now):
                self._resign(now)
        elif self.follower is not None:
            if not self.follower.on_time(now):
                self._campaign_if_whole(now)
        elif now >= self._deadline:
            match self.role:
                case Role.UNATTACHED | Role.VOTED | Role.CANDIDATE:
                    self._campaign_if_whole(now)
                case Role.PROSPECTIVE:
                    self._rest(now)
                case Role.RESIGNED if self._has_next_epoch(now):
                    self._enter_epoch(next_epoch(self.epoch, "the metadata quorum"), now)

    def _campaign_if_whole(self, now: int) -> None:
        replica = self.replica
        if replica.is_rebuilding:  # it would promise a log that it is about to lose
            self._deadline = now + replica.settings.retry_backoff_ms
            if self.follower is not None:
                self.follower.give_up_at = self._deadline
            return
        if self._has_next_epoch(now):
            self._ask_around(now)

    def _has_next_epoch(self, now: int) -> bool:
        """Whether there can be another election; if not, the replica says so and waits."""
        if self.epoch < INT32_EPOCH_MAX:
            return True
        self._deadline = now + self.replica.with_chance(self.replica.settings.election_timeout_ms)
        if self.follower is not None:
            self.follower.give_up_at = self._deadline
        self.replica.effects.append(
            Warn(
                "quorum epoch",
                f"The metadata quorum is in its last epoch, {self.epoch}, and cannot elect a leader any more. Restore "
                "the quorum's state of a majority of the voters from a backup.",
            )
        )
        return False

    def _on_log_synced(self, _event: LogSynced, now: int) -> None:
        if self.leader is not None:
            self.leader.advance()
            self._resign_if_removed(now)
        elif self.follower is not None:
            self.follower.on_synced(now)

    def _on_log_cut(self, _event: LogCut, now: int) -> None:
        self._rebuilt(now)

    def _on_snapshot_installed(self, event: SnapshotInstalled, now: int) -> None:
        replica, snapshot = self.replica, event.snapshot
        if self.leader is not None:
            raise Inconsistent(f"a leader is to load snapshot {snapshot}")
        replica.voters = VoterHistory(replica.snapshots.voters_of(snapshot))
        replica.effects.append(LoadSnapshot(snapshot))
        replica.raise_high_watermark(snapshot.end_offset)
        self._rebuilt(now)

    def _rebuilt(self, now: int) -> None:
        self.replica.is_rebuilding = False
        self._fit_role_to_voters(now)
        if self.follower is not None:
            self.follower.go_on(now)

    def _on_snapshot_taken(self, event: SnapshotTaken, now: int) -> None:
        replica = self.replica
        self._check_snapshot(event.snapshot)
        kept = replica.snapshots.ids[-replica.settings.snapshots_kept :]
        start_offset = kept[0].end_offset
        is_read = self.leader is not None and self.leader.is_read(start_offset, now)
        if len(kept) == replica.settings.snapshots_kept and start_offset > replica.log.start_offset and not is_read:
            replica.voters.cut_start(start_offset)
            replica.effects.append(TrimLog(start_offset))

    def _check_snapshot(self, snapshot: SnapshotId) -> None:
        replica = self.replica
        if snapshot.end_offset > replica.high_watermark:
            raise Inconsistent(f"{snapshot} holds more than what is committed, {replica.high_watermark}")
        if snapshot.epoch != replica.log.epoch_before(snapshot.end_offset):
            raise Inconsistent(f"{snapshot} has not the epoch of its last record")

    def _on_resigning(self, _event: Resigning, now: int) -> None:
        if self.leader is not None:
            self._resign(now)


_OF_PEERS: Final = (Vote, BeginEpoch, EndEpoch, Fetch, FetchSnapshot)
_STEPS: Final[dict[type, str]] = {
    TimePassed: "_on_time_passed",
    Asked: "_on_asked",
    Answered: "_on_answered",
    Unanswered: "_on_unanswered",
    LogSynced: "_on_log_synced",
    LogCut: "_on_log_cut",
    SnapshotInstalled: "_on_snapshot_installed",
    SnapshotTaken: "_on_snapshot_taken",
    Resigning: "_on_resigning",
}
_REQUESTS: Final[dict[type, str]] = {
    Vote: "_on_vote",
    BeginEpoch: "_on_begin_epoch",
    EndEpoch: "_on_end_epoch",
    Fetch: "_on_fetch",
    FetchSnapshot: "_on_fetch_snapshot",
    AddVoter: "_on_voters",
    RemoveVoter: "_on_voters",
    UpdateVoter: "_on_voters",
}
