"""Raft with one rule removed at a time: `python -m tests.simulation.raft_core.mutants --help`."""

import sys
from collections.abc import Callable
from typing import Any

import pytest

from penstock.raft.effects import Effect, LoadSnapshot, Persist, TrimLog
from penstock.raft.events import SnapshotTaken
from penstock.raft.follower import Follower
from penstock.raft.leader import Leader
from penstock.raft.messages import NO_LEADER, EndEpoch, Fetch, FetchReply, Vote
from penstock.raft.ports import EpochEnd, SnapshotId
from penstock.raft.raft import Raft
from penstock.raft.replica import Replica
from penstock.raft.replicas import VoterHistory, VoterSet
from penstock.raft.roles import QuorumState
from penstock.raft.voter_changes import changed_voters
from penstock.server.quorum import quorum_messages
from tests.simulation.kit.mutants import Measured, Mutants
from tests.simulation.raft_core.checks import INVARIANTS
from tests.simulation.raft_core.disk import Snapshot
from tests.simulation.raft_core.faults import run_seed
from tests.simulation.raft_core.world import Machine

MUTANTS = Mutants("raft", run_seed, seeds_max=500, must_fall=INVARIANTS)
caught_by = MUTANTS.caught_by


# --- votes and epochs -------------------------------------------------------------------------------------------------


@caught_by("ElectionSafety", "LeaderCompleteness")
def is_elected_by_half(patch: pytest.MonkeyPatch) -> None:
    build = VoterSet.__init__

    def counts_wrong(self: VoterSet, *voters: Any) -> None:
        build(self, *voters)
        self.majority = max(1, len(self.ids) // 2)

    patch.setattr(VoterSet, "__init__", counts_wrong)


@caught_by("OneVotePerEpoch", "ElectionSafety")
def forgets_its_vote_in_a_crash(patch: pytest.MonkeyPatch) -> None:
    build = Replica.__init__

    def forgets(self: Replica, *arguments: Any) -> None:
        build(self, *arguments)
        self.state = self.state._replace(voted_for=None)

    patch.setattr(Replica, "__init__", forgets)


@caught_by("OneVotePerEpoch", "ElectionSafety", "MonotonicEpoch")
def answers_before_the_vote_is_on_disk(patch: pytest.MonkeyPatch) -> None:
    take = Raft._taken_effects

    def persists_last(self: Raft) -> list[Effect]:
        return sorted(take(self), key=lambda effect: isinstance(effect, Persist))

    patch.setattr(Raft, "_taken_effects", persists_last)


@caught_by("MonotonicEpoch")
def keeps_an_epoch_in_mind_only(patch: pytest.MonkeyPatch) -> None:
    """An epoch that was only received from others is not persisted."""
    persist = Replica.persist

    def lazily(self: Replica, state: QuorumState) -> None:
        persist(self, state)
        if state.voted_for is None and not self.has_leader and self.effects and isinstance(self.effects[-1], Persist):
            self.effects.pop()

    patch.setattr(Replica, "persist", lazily)


@caught_by("LeaderCompleteness")
def votes_for_whoever_asks(patch: pytest.MonkeyPatch) -> None:
    """Even if the candidate's log is behind."""
    would_elect = Raft._would_elect
    patch.setattr(Raft, "_would_elect", lambda self, vote, now: would_elect(self, _far_ahead(vote), now))


def _far_ahead(vote: Vote) -> Vote:
    return vote._replace(last_epoch=1 << 30, end_offset=1 << 30)


@caught_by("LeaderCompleteness")
def compares_lengths_and_not_epochs(patch: pytest.MonkeyPatch) -> None:
    """The longer log wins, though the shorter one may end with a newer epoch."""
    would_elect = Raft._would_elect

    def by_length(self: Raft, vote: Vote, now: int) -> bool:
        log = self.replica.log
        is_longer = vote.end_offset >= log.end_offset
        return would_elect(self, vote._replace(last_epoch=log.last_epoch if is_longer else -1), now)

    patch.setattr(Raft, "_would_elect", by_length)


@caught_by("ValidRolesAndStates")
def keeps_the_leader_of_the_epoch_before(patch: pytest.MonkeyPatch) -> None:
    persist = Replica.persist

    def keeps(self: Replica, state: QuorumState) -> None:
        if state.epoch > self.state.epoch and state.leader_id < 0 and state.voted_for is None:
            state = state._replace(leader_id=self.state.leader_id)
        persist(self, state)

    patch.setattr(Replica, "persist", keeps)


# --- the high watermark -----------------------------------------------------------------------------------------------


@caught_by("OwnEpochFirst")
def shows_the_high_watermark_one_record_early(patch: pytest.MonkeyPatch) -> None:
    """R31, KAFKA-12619: at the epoch's first offset instead of after it."""

    def early(self: Leader) -> None:
        offset = self._majority_end()
        if offset >= self.start_offset and self._replica.raise_high_watermark(offset):
            self.answer_news()
            self._finish_change()

    patch.setattr(Leader, "advance", early)


@caught_by("OwnEpochFirst", "LeaderCompleteness")
def commits_what_older_leaders_wrote(patch: pytest.MonkeyPatch) -> None:
    """Figure 8 of the Raft paper: counting replicas of records of older epochs."""

    def counts_copies(self: Leader) -> None:
        if self._replica.raise_high_watermark(self._majority_end()):
            self.answer_news()
            self._finish_change()

    patch.setattr(Leader, "advance", counts_copies)


@caught_by("MonotonicHighWatermark")
def takes_the_high_watermark_back(patch: pytest.MonkeyPatch) -> None:
    raise_ = Replica.raise_high_watermark

    def follows_the_leader(self: Replica, offset: int) -> bool:
        if offset < self.high_watermark and self.state.leader_id != self.node_id:
            self.high_watermark = offset
        return raise_(self, offset)

    patch.setattr(Replica, "raise_high_watermark", follows_the_leader)


@caught_by("MajorityReachedHighWatermark")
def counts_its_own_log_before_the_sync(patch: pytest.MonkeyPatch) -> None:
    synced_end = Leader._synced_end

    def written_end(self: Leader, key: Any) -> int:
        return self._replica.log.end_offset if key == self._replica.key else synced_end(self, key)

    patch.setattr(Leader, "_synced_end", written_end)


@caught_by("MajorityReachedHighWatermark", "Durability")
def acknowledges_before_the_sync(patch: pytest.MonkeyPatch) -> None:
    """A follower fetches on while its records are not yet synced."""
    go_on = Follower.go_on

    def in_a_hurry(self: Follower, now: int) -> None:
        go_on(self, now)
        if self._is_syncing:
            self._is_syncing = False
            log = self._replica.log
            end, log.synced_end = log.synced_end, log.end_offset  # type: ignore[misc]
            go_on(self, now)
            log.synced_end = end  # type: ignore[misc]

    patch.setattr(Follower, "go_on", in_a_hurry)


@caught_by("MajorityReachedHighWatermark")
def applies_what_it_has_fetched(patch: pytest.MonkeyPatch) -> None:
    """A follower treats all its records as committed."""
    take_records = Follower._take_records

    def trusts(self: Follower, reply: FetchReply, now: int) -> None:
        take_records(self, reply._replace(high_watermark=1 << 30), now)

    patch.setattr(Follower, "_take_records", trusts)


@caught_by("MajorityReachedHighWatermark", "LogMatching")
def counts_a_diverging_fetch(patch: pytest.MonkeyPatch) -> None:
    """KAFKA-13141: progress is noted before the logs are compared."""
    misfit = Leader._misfit

    def notes_first(self: Leader, fetch: Fetch) -> FetchReply | None:
        self._contact(fetch.replica, self._elected_at).end_offset = min(fetch.offset, self._replica.log.end_offset)
        self.advance()
        return misfit(self, fetch)

    patch.setattr(Leader, "_misfit", notes_first)


@caught_by("MajorityReachedHighWatermark", "LogMatching", "Inconsistent")
def takes_the_high_watermark_before_it_cuts(patch: pytest.MonkeyPatch) -> None:
    """KAFKA-14704: the leader's high watermark is adopted from the response that reports the divergence."""
    on_reply = Follower.on_reply

    def too_soon(self: Follower, number: int, reply: Any, now: int) -> None:
        replica = self._replica
        if number == self._awaited and isinstance(reply, FetchReply) and reply.diverging is not None:
            replica.raise_high_watermark(min(reply.high_watermark, replica.log.end_offset))
        on_reply(self, number, reply, now)

    patch.setattr(Follower, "on_reply", too_soon)


# --- the log ----------------------------------------------------------------------------------------------------------


@caught_by("LogMatching", "LeaderCompleteness", "MajorityReachedHighWatermark")
def appends_without_comparing_epochs(patch: pytest.MonkeyPatch) -> None:
    """The leader compares offsets only, so a follower keeps diverging records."""
    misfit = Leader._misfit

    def by_offset(self: Leader, fetch: Fetch) -> FetchReply | None:
        found = misfit(self, fetch)
        is_inside = fetch.offset <= self._replica.log.end_offset
        return None if found is not None and found.diverging is not None and is_inside else found

    patch.setattr(Leader, "_misfit", by_offset)


@caught_by("NoTruncationBelowHighWatermark", "Inconsistent")
def cuts_one_record_too_many(patch: pytest.MonkeyPatch) -> None:
    cut = Follower._cut

    def too_far(self: Follower, leaders: EpochEnd) -> None:
        cut(self, leaders._replace(end_offset=max(self._replica.log.start_offset, leaders.end_offset - 1)))

    patch.setattr(Follower, "_cut", too_far)


@caught_by("NoTruncationBelowHighWatermark", "Inconsistent")
def cuts_to_where_its_log_begins(patch: pytest.MonkeyPatch) -> None:
    """R31, KAFKA-12460: truncates the whole log instead of to the point of divergence, whatever is committed."""
    cut = Follower._cut

    def everything(self: Follower, leaders: EpochEnd) -> None:
        replica = self._replica
        high_watermark, replica.high_watermark = replica.high_watermark, 0
        cut(self, EpochEnd(leaders.epoch, replica.log.start_offset))
        replica.high_watermark = high_watermark

    patch.setattr(Follower, "_cut", everything)


@caught_by("Durability", "LeaderCompleteness", "MajorityReachedHighWatermark")
def cuts_to_the_high_watermark_when_it_starts(patch: pytest.MonkeyPatch) -> None:
    """KIP-101: after a crash a replica does not know what is committed, and discards committed records."""
    start = Raft.start

    def trusts_only_what_it_knows(self: Raft, now: int) -> list[Effect]:
        log: Any = self.replica.log
        log.cut(self.replica.high_watermark)
        self.replica.voters.cut_end(self.replica.high_watermark)
        return start(self, now)

    patch.setattr(Raft, "start", trusts_only_what_it_knows)


@caught_by("ValidRolesAndStates")
def believes_others_that_it_leads(patch: pytest.MonkeyPatch) -> None:
    """R31, KAFKA-12181: a voter that comes back with an empty disk learns that it led, and follows itself."""

    def learns(self: Raft, epoch: int, leader_id: int, now: int) -> None:
        if epoch < self.epoch or (epoch == self.epoch and (self.replica.has_leader or leader_id == NO_LEADER)):
            return
        if leader_id == NO_LEADER:
            self._enter_epoch(epoch, now)
        else:
            self._follow(epoch, leader_id, now)

    patch.setattr(Raft, "_learn", learns)


# --- snapshots --------------------------------------------------------------------------------------------------------


@caught_by("SnapshotAtLogStart")
def trims_one_record_too_many(patch: pytest.MonkeyPatch) -> None:
    """R32: takes the end offset of a snapshot for the last offset in it."""
    taken = Raft._on_snapshot_taken

    def inclusive(self: Raft, event: SnapshotTaken, now: int) -> None:
        taken(self, event, now)
        effects = self.replica.effects
        if effects and isinstance(effects[-1], TrimLog) and effects[-1].start_offset < self.high_watermark:
            effects[-1] = TrimLog(effects[-1].start_offset + 1)

    patch.setattr(Raft, "_on_snapshot_taken", inclusive)


@caught_by("ConsistentCommittedData", "ValidRolesAndStates")
def snapshots_the_voters_of_one_record_later(patch: pytest.MonkeyPatch) -> None:
    """R32: the voter set at the snapshot's end instead of before it."""
    at = VoterHistory.at
    patch.setattr(VoterHistory, "at", lambda self, end_offset: at(self, end_offset + 1))


@caught_by("Inconsistent", "ConsistentCommittedData")
def takes_a_snapshot_id_for_inclusive(patch: pytest.MonkeyPatch) -> None:
    """R32: a follower assumes that it has one record more than the snapshot holds."""
    load = Machine.load

    def one_more(self: Machine, snapshot: Any, content: Any) -> None:
        load(self, snapshot, content)
        self.applied += 1

    patch.setattr(Machine, "load", one_more)


@caught_by("ConsistentCommittedData")
def snapshots_what_it_has_not_applied(patch: pytest.MonkeyPatch) -> None:
    """R32, KAFKA-13968: writes its state before it has applied the records up to the snapshot's end."""
    apply_up_to, snapshot = Machine.apply_up_to, Machine.snapshot
    earlier: dict[Machine, int] = {}

    def remembers(self: Machine, high_watermark: int) -> None:
        earlier[self] = self.digest
        apply_up_to(self, high_watermark)

    def too_early(self: Machine) -> tuple[SnapshotId, Snapshot]:
        digest, self.digest = self.digest, earlier.get(self, self.digest)
        taken = snapshot(self)
        self.digest = digest
        return taken

    patch.setattr(Machine, "apply_up_to", remembers)
    patch.setattr(Machine, "snapshot", too_early)


@caught_by("LeaderNeverLoadsSnapshot")
def loads_the_snapshot_that_it_has_just_taken(patch: pytest.MonkeyPatch) -> None:
    taken = Raft._on_snapshot_taken

    def and_loads(self: Raft, event: SnapshotTaken, now: int) -> None:
        taken(self, event, now)
        self.replica.effects.append(LoadSnapshot(event.snapshot))

    patch.setattr(Raft, "_on_snapshot_taken", and_loads)


@caught_by("Convergence", "LogMatching")
def never_sends_a_snapshot(patch: pytest.MonkeyPatch) -> None:
    """A follower behind the log start is answered as if it were at the log's end."""
    misfit = Leader._misfit

    def keeps_it(self: Leader, fetch: Fetch) -> FetchReply | None:
        found = misfit(self, fetch)
        return found._replace(snapshot=None) if found is not None and found.snapshot is not None else found

    patch.setattr(Leader, "_misfit", keeps_it)


# --- outsiders --------------------------------------------------------------------------------------------------------


@caught_by("OutsidersChangeNothing")
def follows_any_epoch(patch: pytest.MonkeyPatch) -> None:
    """Even if it is far ahead of all elections."""
    patch.setattr(Replica, "is_too_far_ahead", lambda _self, _epoch: False)


@caught_by("OutsidersChangeNothing")
def serves_other_clusters(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(quorum_messages, "check_cluster", lambda _named, _cluster_id: None)


@caught_by("OutsidersChangeNothing")
def serves_requests_without_a_cluster_id(patch: pytest.MonkeyPatch) -> None:
    """As Kafka does."""
    check = quorum_messages.check_cluster

    def only_if_named(named: str | None, cluster_id: str) -> None:
        if named is not None:
            check(named, cluster_id)

    patch.setattr(quorum_messages, "check_cluster", only_if_named)


@caught_by("OutsidersChangeNothing")
def takes_requests_to_other_voters(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Replica, "is_addressed", lambda _self, _named: True)


@caught_by("OutsidersChangeNothing")
def takes_requests_to_its_number_in_any_directory(patch: pytest.MonkeyPatch) -> None:
    """KIP-853: a voter is an id and a directory."""
    patch.setattr(Replica, "is_addressed", lambda self, named: named.node_id == self.node_id)


@caught_by("OutsidersChangeNothing")
def takes_requests_without_a_directory_for_good(patch: pytest.MonkeyPatch) -> None:
    """As Kafka does: also when a committed voter set names the directory."""
    patch.setattr(Replica, "_is_directory_committed", False)


@caught_by("OutsidersChangeNothing")
def lets_any_leader_resign_to_it(patch: pytest.MonkeyPatch) -> None:
    """An EndQuorumEpoch counts although this replica is not among the successors."""
    on_end_epoch = Raft._on_end_epoch

    def as_successor(self: Raft, token: Any, end: EndEpoch, now: int) -> None:
        on_end_epoch(self, token, end._replace(successors=(*end.successors, self.replica.key)), now)

    patch.setattr(Raft, "_on_end_epoch", as_successor)


# --- voters -----------------------------------------------------------------------------------------------------------


@caught_by("ElectionSafety", "LeaderCompleteness", "MajorityReachedHighWatermark", "LogMatching", "Convergence")
def changes_several_voters_at_once(patch: pytest.MonkeyPatch) -> None:
    """A change begins before the last one, or any record of the leader's epoch, is committed (KIP-853; Raft, 2015)."""

    def at_once(replica: Replica, leader: Leader, request: Any, now: int) -> VoterSet:
        change, leader.change = leader.change, None
        high_watermark, replica.high_watermark = replica.high_watermark, 1 << 30
        try:
            return changed_voters(replica, leader, request, now)
        finally:
            leader.change, replica.high_watermark = change, high_watermark

    patch.setattr("penstock.raft.raft.changed_voters", at_once)


@caught_by("AssertionError", "ConsistentCommittedData", "LeaderCompleteness", "ElectionSafety", "ValidRolesAndStates")
def keeps_voters_that_were_cut_off(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(VoterHistory, "cut_end", lambda _self, _end_offset: None)


@caught_by("MajorityReachedHighWatermark")
def counts_itself_after_its_removal(patch: pytest.MonkeyPatch) -> None:
    """A leader that removes itself does not count towards the majority that commits the removal."""
    majority_end = Leader._majority_end

    def counts_itself(self: Leader) -> int:
        replica = self._replica
        voters = replica.voters.latest
        if replica.key in voters:
            return majority_end(self)
        ends = sorted([replica.log.synced_end, *(self._synced_end(voters.key_of(voter_id)) for voter_id in voters.ids)])
        return ends[-voters.majority]

    patch.setattr(Leader, "_majority_end", counts_itself)


@caught_by("ValidRolesAndStates")
def leads_on_after_its_removal(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Raft, "_resign_if_removed", lambda _self, _now: None)


@caught_by("Convergence")
def is_no_voter_once_it_is_to_be_removed(patch: pytest.MonkeyPatch) -> None:
    """Two voters, one is removed, and only that one has the record: no replica can be elected any more."""
    patch.setattr(VoterHistory, "names", lambda self, key, _committed_end: key in self.latest)


# --- liveness ---------------------------------------------------------------------------------------------------------


@caught_by("Convergence")
def tells_old_logs_to_cut_at_the_start(patch: pytest.MonkeyPatch) -> None:
    """A log that diverges before the leader's log start is told to truncate there, instead of to fetch a snapshot."""
    misfit = Leader._misfit

    def diverges(self: Leader, fetch: Fetch) -> FetchReply | None:
        found = misfit(self, fetch)
        log = self._replica.log
        if found is not None and found.snapshot is not None and fetch.offset > log.start_offset:
            return self._reply(diverging=log.end_of_epoch(fetch.last_epoch))
        return found

    patch.setattr(Leader, "_misfit", diverges)


@caught_by("Convergence")
def waits_for_data_to_tell_of_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    """A held fetch is not answered for a new high watermark alone, and does not time out either."""

    def only_data(self: Leader) -> None:
        for progress in self.progress.values():
            if progress.held is not None and progress.held.fetch.offset < self._replica.log.end_offset:
                self._answer_held(progress)

    on_fetch = Leader.on_fetch
    patch.setattr(Leader, "answer_news", only_data)
    patch.setattr(
        Leader,
        "on_fetch",
        lambda self, token, fetch, now: on_fetch(self, token, fetch._replace(high_watermark=1 << 40), now),
    )
    patch.setattr(Leader, "_reply", _without_news(Leader._reply))


def _without_news(reply: Callable[..., FetchReply]) -> Callable[..., FetchReply]:
    def quiet(self: Leader, records: Any = None, **rest: Any) -> FetchReply:
        found = reply(self, records, **rest)
        return found if records else found._replace(high_watermark=-1)

    return quiet


# --- running them -----------------------------------------------------------------------------------------------------


def measure(name: str) -> Measured:
    return MUTANTS.measure(name)


TITLE = "Raft with one rule taken out"
ABOUT = """\
The raft core (`penstock.raft`) in worlds of raft cores (`tests/simulation/raft_core/mutants.py`)."""

if __name__ == "__main__":
    sys.exit(MUTANTS.main(measure, TITLE, ABOUT))
