"""The quorum's stepper: events in, effects out. No clock, disk, network or randomness of its own.

    raft = Raft(key, log, snapshots, settings, entropy, bootstrap=voters, stored=state)
    effects = raft.start(now)
    effects = raft.step(event, now)        again whenever something happens, and at `raft.wake_at`
    effects = raft.append(epoch, batch, now).effects

This module holds elections and the moves between roles (`roles.MOVES`); `leader`, `follower` and `voter_changes` hold
the rest. A step that raises `Inconsistent` has found a breach of the protocol: the replica must not be used any more.
"""

from typing import Any, Final, NamedTuple, assert_never

from penstock.model.epochs import INT32_EPOCH_MAX, next_epoch
from penstock.model.errors import ErrorCode
from penstock.model.ports import Entropy
from penstock.model.report import Report
from penstock.raft import reports
from penstock.raft.campaign import Campaign, CampaignOutcome
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
from penstock.raft.voter_changes import VoterChangeRefused, changed_voters

VAIN_CAMPAIGNS: Final = 3
"""Campaigns in a row that no majority has answered, after which the operator is told."""


class NotLeader(Exception):
    """Only the leader of an epoch appends in it."""


class Appended(NamedTuple):
    """The end offset of a batch, which is committed when `Committed` reaches it in the same epoch."""

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
        self._silence_told = -1
        """The epoch whose leader was reported as silent."""
        self._vain_campaigns = 0
        """Campaigns in a row that no majority of the voters has answered."""
        self._deadline = 0
        """Deadline of a role that neither leads nor fetches."""

    # --- interface ------------------------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """The newest known epoch."""
        return self.replica.state.epoch

    @property
    def leader_id(self) -> int:
        """The leader of that epoch; -1 if unknown."""
        return self.replica.state.leader_id

    @property
    def high_watermark(self) -> int:
        """The end of the records known to be committed."""
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
        """The first step after a start: takes the role that the stored state allows."""
        replica = self.replica
        if replica.log.last_epoch > replica.state.epoch:
            # Records can reach the disk before the state with their epoch. No vote was given in that epoch.
            replica.persist(QuorumState(replica.log.last_epoch))
        if replica.snapshots.ids:
            replica.effects.append(LoadSnapshot(replica.snapshots.ids[-1]))
        state = replica.state
        if state.leader_id == replica.node_id:
            # It led, and has lost the others' progress; it may neither vote nor follow in this epoch.
            self.role = Role.RESIGNED
            self._deadline = now + replica.election_wait_ms
        elif not replica.is_voter:
            self.role = Role.OBSERVER
            self._begin_to_follow(now)
        elif replica.has_leader:
            self.role = Role.FOLLOWER
            self._begin_to_follow(now)
        else:
            # Even if it voted for itself: the others voted for the log that it had then.
            self.role = Role.UNATTACHED if state.voted_for is None else Role.VOTED
            self._deadline = now + replica.election_wait_ms
        return self._taken_effects()

    def step(self, event: Event, now: int) -> list[Effect]:
        """Handles an event and returns its effects."""
        match event:
            case Asked():
                self._on_asked(event, now)
            case Answered():
                self._on_answered(event, now)
            case LogSynced():
                self._on_log_synced(now)
            case TimePassed():
                self._on_time_passed(now)
            case Unanswered():
                self._on_unanswered(event, now)
            case LogCut():
                self._rebuilt(now)
            case SnapshotInstalled():
                self._on_snapshot_installed(event, now)
            case SnapshotTaken():
                self._on_snapshot_taken(event, now)
            case Resigning():
                if self.leader is not None:
                    self._resign(now, reports.RESIGNED(epoch=self.epoch, why="the node stops"))
            case _:
                assert_never(event)
        return self._taken_effects()

    def append(self, epoch: int, batch: Any, now: int) -> Appended:
        """Appends a batch of the state machine, which applies it before its next decision."""
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
        """Follows another leader."""
        replica = self.replica
        state = replica.state
        voted_for = state.voted_for if state.epoch == epoch else None
        is_news = (epoch, leader_id) != (state.epoch, state.leader_id)
        replica.persist(QuorumState(epoch, leader_id, voted_for))
        self._move(Role.FOLLOWER if replica.is_voter else Role.OBSERVER)
        if is_news:
            before = _shown(state)
            replica.effects.append(reports.FOLLOWS(leader=leader_id, epoch=epoch, before=before))
            replica.effects.append(LeaderKnown(leader_id, epoch, NO_LEADER))
        self._begin_to_follow(now)

    def _begin_to_follow(self, now: int, patience_ms: int | None = None) -> None:
        self.follower = Follower(self.replica, now, patience_ms)
        self.follower.go_on(now)

    def _enter_epoch(self, epoch: int, now: int) -> None:
        """Enters a newer epoch whose leader is unknown."""
        replica = self.replica
        replica.persist(QuorumState(epoch))
        if replica.is_voter:
            self._wait(now)
        else:
            self._move(Role.OBSERVER)
            self._begin_to_follow(now)

    def _rest(self, now: int) -> None:
        """Returns to the role before the campaign."""
        if self.replica.has_leader:
            # Others reach the leader, or did recently: if it stays silent, pre-votes are soon requested again.
            self._move(Role.FOLLOWER)
            self._begin_to_follow(now, self.replica.settings.election_timeout_ms // 2)
        else:
            self._wait(now)

    def _wait(self, now: int) -> None:
        """Waits for a leader to be elected in this epoch."""
        replica = self.replica
        self._move(Role.UNATTACHED if replica.state.voted_for is None else Role.VOTED)
        self._deadline = now + replica.election_wait_ms

    def _learn(self, epoch: int, leader_id: int, now: int) -> None:
        """Adopts a peer's epoch, and its leader if named, unless outdated; peers report the truth."""
        if leader_id == self.replica.node_id:
            leader_id = NO_LEADER  # unless it knows so itself, it led with a disk that is gone
        if epoch < self.epoch or (epoch == self.epoch and (self.replica.has_leader or leader_id == NO_LEADER)):
            return
        if leader_id == NO_LEADER:
            self._enter_epoch(epoch, now)
        else:
            self._follow(epoch, leader_id, now)

    def _fit_role_to_voters(self, now: int) -> None:
        """Adapts the role to a voter set that may have changed."""
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
        """Requests pre-votes, which disturb no leader."""
        self._move(Role.PROSPECTIVE)
        self._campaign(now, is_pre_vote=True)

    def _stand(self, now: int) -> None:
        """Stands for election in a new epoch."""
        replica = self.replica
        replica.persist(QuorumState(next_epoch(self.epoch, "the metadata quorum"), voted_for=replica.key))
        replica.effects.append(reports.CANDIDATE(epoch=self.epoch, end_offset=replica.log.end_offset))
        self._move(Role.CANDIDATE)
        self._campaign(now, is_pre_vote=False)

    def _campaign(self, now: int, *, is_pre_vote: bool) -> None:
        self._deadline = now + self.replica.with_jitter(self.replica.settings.election_timeout_ms)
        self.campaign = Campaign(self.replica, is_pre_vote=is_pre_vote)
        self._look_at_outcome(now)

    def _look_at_outcome(self, now: int) -> None:
        assert self.campaign is not None
        outcome = self.campaign.outcome
        if self.campaign.is_answered:
            self._vain_campaigns = 0
        if outcome is CampaignOutcome.WON:
            if self.role is Role.PROSPECTIVE:
                self._stand(now)
            else:
                self._lead(now)
        elif outcome is CampaignOutcome.LOST and self.role is Role.PROSPECTIVE:
            self._rest(now)  # a candidate waits for its time-out: another is being elected

    def _lead(self, now: int) -> None:
        replica = self.replica
        assert self.campaign is not None
        granting = self.campaign.granted
        replica.persist(replica.state._replace(leader_id=replica.node_id))
        self._move(Role.LEADER)
        self.leader = Leader(replica, granting, now)
        voters = ", ".join(f"node {each}" for each in sorted(granting))
        start_offset = self.leader.start_offset
        replica.effects.append(reports.LEADER(epoch=self.epoch, start_offset=start_offset, voters=voters))
        replica.effects.append(LeaderKnown(replica.node_id, self.epoch, self.leader.start_offset))
        self.leader.appended()
        self.leader.on_time(now)

    def _resign(self, now: int, report: Report) -> None:
        replica = self.replica
        assert self.leader is not None
        replica.effects.append(report)
        successors = self.leader.successors()
        self._move(Role.RESIGNED)
        self._deadline = now + replica.with_jitter(replica.settings.election_timeout_ms)
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
            return  # a repeated request
        replica.persist(replica.state._replace(voted_for=candidate))
        replica.effects.append(reports.VOTED(candidate=candidate.node_id, epoch=self.epoch))
        if self.role is not Role.OBSERVER:  # an observer does not know yet that it is a voter
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
        if not any(map(replica.is_addressed, end.successors)):  # a leader sends it to its successors only
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
        except VoterChangeRefused as refused:
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
        """The leader to name in a refusal; a resigned leader names none."""
        return NO_LEADER if self.role is Role.RESIGNED else self.leader_id

    def _resign_if_removed(self, now: int) -> None:
        if self.leader is not None and self.leader.is_removed:
            self._resign(now, reports.RESIGNED(epoch=self.epoch, why="this node is a voter no longer"))

    # --- events ---------------------------------------------------------------------------------------------------

    def _on_asked(self, event: Asked, now: int) -> None:
        token, request = event
        if isinstance(request, _OF_PEERS) and self.replica.is_too_far_ahead(request.epoch):
            self._refuse_epoch(token, request)
            return
        match request:
            case Fetch():
                self._on_fetch(token, request, now)
            case FetchSnapshot():
                self._on_fetch_snapshot(token, request, now)
            case Vote():
                self._on_vote(token, request, now)
            case BeginEpoch():
                self._on_begin_epoch(token, request, now)
            case EndEpoch():
                self._on_end_epoch(token, request, now)
            case AddVoter() | RemoveVoter() | UpdateVoter():
                self._on_voters(token, request, now)
            case _:
                assert_never(request)

    def _refuse_epoch(self, token: Any, request: Vote | BeginEpoch | EndEpoch | Fetch | FetchSnapshot) -> None:
        """Refuses an inexplicably high epoch: epochs are finite and never go back, so it could end all elections."""
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
            # A replica with a broken state must not affect the others. An empty replica joins at any epoch.
            self._warn_of_epoch("The reply of a voter", reply.epoch)
            self._on_unanswered(Unanswered(number), now)
            return
        self._learn(reply.epoch, reply.leader_id, now)
        if self.follower is not None and isinstance(reply, FetchReply | FetchSnapshotReply):
            if self.follower.on_reply(number, reply, now):
                self._tell_heard()
            self._fit_role_to_voters(now)
        elif self.campaign is not None and isinstance(reply, VoteReply) and reply.epoch == self.epoch:
            self.campaign.count(number, is_granted=reply.is_granted)
            if not reply.is_granted and (self.role is Role.CANDIDATE or self.replica.has_leader):
                # Another candidate stands, or led recently, and voters that do not reply may be dead: retry soon.
                wait_ms = self.replica.with_jitter(self.replica.settings.election_timeout_ms // 4)
                self._deadline = min(self._deadline, now + wait_ms)
            self._look_at_outcome(now)

    def _on_unanswered(self, event: Unanswered, now: int) -> None:
        if self.follower is not None:
            self.follower.on_unanswered(event.number, now)

    def _on_time_passed(self, now: int) -> None:
        if self.leader is not None:
            if not self.leader.on_time(now):
                silent_ms = self.replica.settings.check_quorum_ms
                self._resign(now, reports.MAJORITY_LOST(epoch=self.epoch, silent_ms=silent_ms))
        elif self.follower is not None:
            if not self.follower.on_time(now):
                self._tell_silence(self.follower, now)
                self._campaign_if_whole(now)
        elif now >= self._deadline:
            self._tell_no_majority()
            match self.role:
                case Role.UNATTACHED | Role.VOTED | Role.CANDIDATE:
                    self._campaign_if_whole(now)
                case Role.PROSPECTIVE:
                    self._rest(now)
                case Role.RESIGNED if self._has_next_epoch(now):
                    self._enter_epoch(next_epoch(self.epoch, "the metadata quorum"), now)

    def _tell_silence(self, follower: Follower, now: int) -> None:
        replica = self.replica
        if replica.has_leader and self._silence_told != self.epoch:
            self._silence_told = self.epoch
            silent_ms = now - follower.heard_ms
            leader = self.leader_id
            replica.effects.append(reports.LEADER_SILENT(leader=leader, epoch=self.epoch, silent_ms=silent_ms))

    def _tell_no_majority(self) -> None:
        """Reports once, until a majority answers, that campaigns end without the replies of one.

        Not after the first: at the start of a cluster, and on a busy machine, voters answer a little later.
        """
        campaign = self.campaign
        if campaign is not None and not campaign.is_answered:
            self._vain_campaigns += 1
            if self._vain_campaigns == VAIN_CAMPAIGNS:
                report = reports.NO_MAJORITY(answering=campaign.answering, voters=campaign.voters)
                self.replica.effects.append(report)

    def _tell_heard(self) -> None:
        self._vain_campaigns = 0
        if self._silence_told == self.epoch and self.replica.has_leader:
            self._silence_told = -1
            self.replica.effects.append(reports.LEADER_HEARD(leader=self.leader_id, epoch=self.epoch))

    def _campaign_if_whole(self, now: int) -> None:
        replica = self.replica
        if replica.is_rebuilding:  # it would campaign with a log that it is about to lose
            self._deadline = now + replica.settings.retry_backoff_ms
            if self.follower is not None:
                self.follower.give_up_at = self._deadline
            return
        if self._has_next_epoch(now):
            self._ask_around(now)

    def _has_next_epoch(self, now: int) -> bool:
        """Whether another election is possible; if not, the replica warns and waits."""
        if self.epoch < INT32_EPOCH_MAX:
            return True
        self._deadline = now + self.replica.with_jitter(self.replica.settings.election_timeout_ms)
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

    def _on_log_synced(self, now: int) -> None:
        if self.leader is not None:
            self.leader.advance()
            self._resign_if_removed(now)
        elif self.follower is not None:
            self.follower.on_synced(now)

    def _on_snapshot_installed(self, event: SnapshotInstalled, now: int) -> None:
        replica, snapshot = self.replica, event.snapshot
        if self.leader is not None:
            raise Inconsistent(f"a leader is to load snapshot {snapshot}")
        replica.voters = VoterHistory(replica.snapshots.voters_of(snapshot))
        report = reports.SNAPSHOT_LOADED(end_offset=snapshot.end_offset, leader=self.leader_id)
        replica.effects += [report, LoadSnapshot(snapshot)]
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


_OF_PEERS: Final = (Vote, BeginEpoch, EndEpoch, Fetch, FetchSnapshot)


def _shown(state: QuorumState) -> str:
    return "nobody" if state.leader_id == NO_LEADER else f"node {state.leader_id}, in epoch {state.epoch}"
