"""One replica: the effects of each event, and their order."""

import pytest

from penstock.model.errors import ErrorCode
from penstock.raft.effects import Answer, Committed, CutLog, LeaderKnown, Persist, Send, SyncLog, TrimLog
from penstock.raft.events import Answered, Asked, LogCut, SnapshotInstalled, SnapshotTaken, TimePassed
from penstock.raft.messages import (
    AddVoter,
    BeginEpoch,
    Fetch,
    FetchReply,
    FetchSnapshot,
    RemoveVoter,
    Vote,
    VoteReply,
    VotersReply,
)
from penstock.raft.ports import EpochEnd, SnapshotId
from penstock.raft.raft import VAIN_CAMPAIGNS, NotLeader, Raft
from penstock.raft.replica import Inconsistent
from penstock.raft.replicas import ReplicaKey, Voter
from penstock.raft.roles import MOVES, QuorumState, Role
from penstock.raft.settings import QuorumSettings
from tests.simulation.raft_core.disk import Entry, Snapshot
from tests.unit.raft.lone_replica import KEYS, LoneReplica, NoChance, a_vote

NO_MAJORITY = "quorum-no-majority"

# --- votes ------------------------------------------------------------------------------------------------------------


def test_a_vote_is_on_disk_before_it_is_told() -> None:
    node = LoneReplica()
    effects = node.step(Asked("token", a_vote(3)))
    assert [type(effect) for effect in effects] == [Persist, Persist, Answer]
    assert effects[1] == Persist(QuorumState(3, -1, KEYS[2]))
    assert node.role() is Role.VOTED
    assert node.reports == ["quorum-vote"]


def test_one_vote_per_epoch() -> None:
    node = LoneReplica()
    assert node.asked(a_vote(3, candidate=2)).is_granted
    assert not node.asked(a_vote(3, candidate=3)).is_granted
    assert node.asked(a_vote(3, candidate=2)).is_granted, "the answer was lost, and the question comes again"
    assert node.asked(a_vote(4, candidate=3)).is_granted


def test_a_vote_outlives_a_crash() -> None:
    node = LoneReplica(stored=QuorumState(3, -1, KEYS[2]))
    assert node.role() is Role.VOTED
    assert not node.asked(a_vote(3, candidate=3)).is_granted


@pytest.mark.parametrize(
    ("last_epoch", "end_offset", "is_granted"), [(1, 9, False), (2, 1, False), (2, 2, True), (2, 3, True), (3, 1, True)]
)
def test_only_a_log_that_is_as_far_is_elected(last_epoch: int, end_offset: int, is_granted: bool) -> None:
    node = LoneReplica(entries=(Entry(1, 10), Entry(2, 20)))
    assert node.asked(a_vote(5, last_epoch=last_epoch, end_offset=end_offset)).is_granted is is_granted


def test_a_vote_of_an_old_epoch_is_fenced() -> None:
    node = LoneReplica(stored=QuorumState(7))
    reply = node.asked(a_vote(6))
    assert (reply.error, reply.epoch) == (ErrorCode.FENCED_LEADER_EPOCH, 7)


def test_a_vote_meant_for_another_directory_is_refused() -> None:
    node = LoneReplica()
    reply = node.asked(a_vote(1, voter=ReplicaKey(1, b"x" * 16)))
    assert (reply.error, reply.is_granted) == (ErrorCode.INVALID_VOTER_KEY, False)


def test_a_pre_vote_binds_nobody() -> None:
    node = LoneReplica(stored=QuorumState(3))
    assert node.asked(a_vote(3, candidate=2, is_pre_vote=True)).is_granted
    assert node.asked(a_vote(3, candidate=3, is_pre_vote=True)).is_granted
    assert node.raft.replica.state == QuorumState(3)


def test_who_hears_its_leader_grants_no_pre_vote() -> None:
    node = LoneReplica(stored=QuorumState(3, leader_id=3))
    assert node.asked(a_vote(3, is_pre_vote=True)).is_granted, "it has not heard from it yet"
    fetch = LoneReplica(stored=QuorumState(3, leader_id=3))
    fetch.step(Answered(fetch.sent(Fetch)[0].number, FetchReply(ErrorCode.NONE, 3, 3, 0, 0)))
    assert not fetch.asked(a_vote(3, is_pre_vote=True)).is_granted
    fetch.now = 1_999
    assert not fetch.asked(a_vote(3, is_pre_vote=True)).is_granted
    fetch.now = 2_000
    assert fetch.asked(a_vote(3, is_pre_vote=True)).is_granted


def test_a_candidate_is_not_resumed_after_a_crash() -> None:
    """Votes of its previous life were for the log that it had then."""
    node = LoneReplica(stored=QuorumState(3, -1, KEYS[1]))
    assert node.role() is Role.VOTED


def test_a_leader_does_not_lead_on_after_a_crash() -> None:
    node = LoneReplica(stored=QuorumState(3, 1, KEYS[1]))
    assert node.role() is Role.RESIGNED
    assert not node.asked(a_vote(3)).is_granted
    node.wait()
    assert (node.role(), node.raft.epoch) == (Role.UNATTACHED, 4)


def test_an_epoch_that_only_the_log_knows_counts() -> None:
    node = LoneReplica(stored=QuorumState(3), entries=(Entry(5, 1),))
    assert node.effects == [Persist(QuorumState(5))]


# --- leading ----------------------------------------------------------------------------------------------------------


def test_an_election_takes_two_rounds() -> None:
    node = LoneReplica()
    node.wait()
    assert node.role() is Role.PROSPECTIVE
    assert [send.request.epoch for send in node.sent(Vote)] == [0, 0]  # type: ignore[union-attr]
    node.step(Answered(node.sent(Vote)[0].number, VoteReply(ErrorCode.NONE, 0, -1, is_granted=True)))
    assert node.role() is Role.CANDIDATE
    assert [type(effect) for effect in node.effects] == [Persist, Send, Send]
    node.step(Answered(node.sent(Vote)[1].number, VoteReply(ErrorCode.NONE, 1, -1, is_granted=True)))
    assert node.role() is Role.LEADER
    assert [type(effect) for effect in node.effects] == [Persist, LeaderKnown, SyncLog, Send, Send]
    assert len(node.sent(BeginEpoch)) == 2
    assert node.reports == ["quorum-candidate", "quorum-leader"]


def test_answers_to_an_older_campaign_do_not_count() -> None:
    node = LoneReplica(voters=5)
    node.wait()
    old = node.sent(Vote)
    node.wait()
    node.wait()
    assert node.role() is Role.PROSPECTIVE
    for send in old:
        node.step(Answered(send.number, VoteReply(ErrorCode.NONE, 0, -1, is_granted=True)))
    assert node.role() is Role.PROSPECTIVE


def test_a_single_voter_elects_itself_and_waits_for_its_disk() -> None:
    node = LoneReplica(voters=1)
    node.wait()
    assert node.role() is Role.LEADER
    assert node.raft.high_watermark == 0
    assert Committed(2) in node.sync()


def test_records_are_committed_when_a_majority_has_them_on_disk() -> None:
    node = LoneReplica()
    node.elect()
    end_offset = node.raft.append(1, 77, 0).end_offset
    assert node.fetched(2, end_offset) is None, "it has nothing to hear, and waits"
    assert node.raft.high_watermark == 0, "the leader's own disk is not there yet"
    assert Committed(end_offset) in node.sync()


def test_only_a_leader_appends_and_only_in_its_epoch() -> None:
    node = LoneReplica()
    with pytest.raises(NotLeader):
        node.raft.append(0, 1, 0)
    node.elect()
    with pytest.raises(NotLeader):
        node.raft.append(7, 1, 0)


def test_a_held_fetch_is_answered_by_the_next_record() -> None:
    node = LoneReplica()
    node.elect()
    node.sync()
    node.fetched(2, 2)
    node.fetched(2, 2, high_watermark=2)
    effects = node.raft.append(1, 77, 0).effects
    answer = next(effect for effect in effects if isinstance(effect, Answer))
    assert isinstance(answer.reply, FetchReply)
    assert answer.reply.records == (2, (Entry(1, 77),))


def test_a_held_fetch_ends_with_the_time_that_it_asked_for() -> None:
    node = LoneReplica()
    node.elect()
    node.fetched(2, 2)
    node.now += 500
    assert [type(effect) for effect in node.step(TimePassed())] == [Answer]


def test_a_fetch_that_diverges_is_no_progress() -> None:
    node = LoneReplica(entries=(Entry(1, 1), Entry(1, 2)), stored=QuorumState(4))
    node.elect()
    node.sync()
    reply = node.fetched(2, 9, last_epoch=3)
    assert reply is not None
    assert reply.diverging == EpochEnd(1, 2)
    assert node.raft.leader is not None
    assert node.raft.leader.progress[KEYS[2]].end_offset == 0
    assert node.raft.high_watermark == 0


def test_whoever_waits_hears_of_the_end_of_a_leadership() -> None:
    node = LoneReplica()
    node.elect()
    node.fetched(2, 2)
    node.asked(a_vote(9))
    errors = [effect.reply.error for effect in node.effects if isinstance(effect, Answer)]
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER in errors


@pytest.mark.parametrize(("epoch", "error"), [(0, ErrorCode.FENCED_LEADER_EPOCH), (2, ErrorCode.UNKNOWN_LEADER_EPOCH)])
def test_requests_of_other_epochs_are_refused(epoch: int, error: ErrorCode) -> None:
    node = LoneReplica()
    node.elect()
    assert node.asked(Fetch(epoch, KEYS[2], 0, 0, 0, 0, 100)).error is error
    assert node.asked(FetchSnapshot(epoch, KEYS[2], SnapshotId(1, 1), 0, 10)).error is error


def test_a_snapshot_that_is_not_there() -> None:
    node = LoneReplica()
    node.elect()
    assert node.asked(FetchSnapshot(1, KEYS[2], SnapshotId(1, 1), 0, 10)).error is ErrorCode.SNAPSHOT_NOT_FOUND


def in_vain(node: LoneReplica, campaigns: int, *answering: int) -> None:
    """Campaigns, each of which these voters answer and nobody supports."""
    for _ in range(campaigns):
        while node.role() is not Role.PROSPECTIVE:
            node.wait()
        for send in node.sent(Vote):
            if send.to in answering:
                node.step(Answered(send.number, VoteReply(ErrorCode.NONE, node.raft.epoch, -1, is_granted=False)))
        if node.role() is Role.PROSPECTIVE:
            node.wait()


def test_a_survivor_tells_that_no_majority_answers() -> None:
    """Of three voters, the leader and the other follower are gone. Nobody resigns, and no election begins."""
    node = following()
    in_vain(node, VAIN_CAMPAIGNS - 1)
    assert NO_MAJORITY not in node.reports, "voters may answer a little later"
    in_vain(node, 1)
    assert node.reports.count(NO_MAJORITY) == 1
    assert "quorum-candidate" not in node.reports
    in_vain(node, 20)
    assert node.reports.count(NO_MAJORITY) == 1, "it is told once, however long it lasts"
    in_vain(node, 1, 2)
    in_vain(node, VAIN_CAMPAIGNS)
    assert node.reports.count(NO_MAJORITY) == 2, "it is told again after a majority has answered"


def test_a_leader_that_lost_its_followers_tells_that_no_majority_answers() -> None:
    node = LoneReplica()
    node.elect()
    while node.role() is Role.LEADER:
        node.wait()
    in_vain(node, VAIN_CAMPAIGNS)
    assert [each for each in node.reports if each.endswith(("-lost", "-no-majority"))] == [
        "quorum-majority-lost",
        NO_MAJORITY,
    ]


def test_no_majority_is_missing_while_one_answers() -> None:
    """Node 3 is gone, and node 2 does not support this one: it may have the longer log."""
    node = following()
    in_vain(node, 3 * VAIN_CAMPAIGNS, 2)
    assert NO_MAJORITY not in node.reports
    node = LoneReplica(voters=5)
    in_vain(node, 3 * VAIN_CAMPAIGNS, 2)
    assert node.reports.count(NO_MAJORITY) == 1, "two of five are none"


def test_a_leader_that_is_heard_again_ends_the_count() -> None:
    node = following()
    in_vain(node, VAIN_CAMPAIGNS - 1)
    assert node.role() is Role.FOLLOWER
    node.step(Answered(node.sent(Fetch)[-1].number, FetchReply(ErrorCode.NONE, 3, 2, 0, 0)))
    in_vain(node, VAIN_CAMPAIGNS - 1)
    assert NO_MAJORITY not in node.reports


# --- following --------------------------------------------------------------------------------------------------------


def following(entries: tuple[Entry, ...] = ()) -> LoneReplica:
    return LoneReplica(stored=QuorumState(3, leader_id=2), entries=entries)


def test_the_next_fetch_waits_for_the_disk() -> None:
    node = following()
    reply = FetchReply(ErrorCode.NONE, 3, 2, 0, 0, (0, (Entry(3, 5),)))
    effects = node.step(Answered(node.sent(Fetch)[0].number, reply))
    assert [type(effect) for effect in effects] == [SyncLog]
    node.sync()
    assert node.sent(Fetch)[0].request.offset == 1  # type: ignore[union-attr]


def test_an_answer_that_was_not_waited_for_is_dropped() -> None:
    node = following()
    number = node.sent(Fetch)[0].number
    node.now += 1_000
    node.step(TimePassed())
    assert node.sent(Fetch), "it was lost, so it is sent again"
    node.step(Answered(number, FetchReply(ErrorCode.NONE, 3, 2, 0, 0, (0, (Entry(3, 5),)))))
    assert node.disk.log.end_offset == 0


def test_nothing_is_asked_and_nobody_campaigns_while_the_log_is_cut() -> None:
    node = following(entries=(Entry(1, 1), Entry(2, 2), Entry(2, 3)))
    reply = FetchReply(ErrorCode.NONE, 3, 2, 0, 0, diverging=EpochEnd(1, 1))
    assert node.step(Answered(node.sent(Fetch)[0].number, reply)) == [CutLog(1)]
    for _ in range(20):
        assert node.wait() == []
    assert node.role() is Role.FOLLOWER
    assert node.reports.count("quorum-log-cut") == 1
    assert node.reports.count("quorum-leader-silent") == 1, "it is told once, however long it lasts"
    node.disk.log.cut(1)
    node.step(LogCut())
    assert node.sent(Fetch)[0].request[2:4] == (1, 1)


def test_nothing_committed_is_ever_cut() -> None:
    node = following(entries=(Entry(1, 1), Entry(2, 2)))
    node.step(Answered(node.sent(Fetch)[0].number, FetchReply(ErrorCode.NONE, 3, 2, 2, 0)))
    assert node.raft.high_watermark == 2
    reply = FetchReply(ErrorCode.NONE, 3, 2, 0, 0, diverging=EpochEnd(1, 1))
    with pytest.raises(Inconsistent):
        node.step(Answered(node.sent(Fetch)[0].number, reply))


def test_the_high_watermark_does_not_pass_what_it_has() -> None:
    node = following(entries=(Entry(1, 1),))
    assert Committed(1) in node.step(Answered(node.sent(Fetch)[0].number, FetchReply(ErrorCode.NONE, 3, 2, 50, 0)))


def test_a_leader_is_never_to_load_a_snapshot() -> None:
    node = LoneReplica()
    node.elect()
    with pytest.raises(Inconsistent):
        node.step(SnapshotInstalled(SnapshotId(1, 1)))


@pytest.mark.parametrize("snapshot", [SnapshotId(3, 1), SnapshotId(1, 2)])
def test_a_snapshot_of_more_than_is_committed_or_of_another_epoch_is_refused(snapshot: SnapshotId) -> None:
    node = LoneReplica(voters=1)
    node.wait()
    node.sync()
    with pytest.raises(Inconsistent):
        node.step(SnapshotTaken(snapshot))


def test_a_snapshot_that_is_being_read_is_kept() -> None:
    """Otherwise a slow reader would restart with every new snapshot."""
    node = leading()
    voters = node.raft.voters
    for end_offset in (1, 2):
        node.disk.shelf.put(SnapshotId(end_offset, 1), Snapshot(b"0123456789", voters))
        assert node.step(SnapshotTaken(SnapshotId(end_offset, 1))) == ([] if end_offset == 1 else [TrimLog(1)])
    node.disk.log.trim(1)
    node.raft.append(1, 77, 0)
    node.sync()
    node.fetched(2, 3)
    assert node.asked(FetchSnapshot(1, KEYS[3], SnapshotId(1, 1), 0, 4)).data == b"0123"
    node.disk.shelf.put(SnapshotId(3, 1), Snapshot(b"9876543210", voters))
    assert node.step(SnapshotTaken(SnapshotId(3, 1))) == []
    node.now += 2_001
    assert node.step(SnapshotTaken(SnapshotId(3, 1))) == [TrimLog(2)]


def test_who_lost_its_disk_and_hears_that_it_leads_asks_again_later() -> None:
    """The replica has a new directory id: no known replica leads, and an immediate retry is useless."""
    node = LoneReplica(stored=QuorumState(3))
    wiped = Raft(
        ReplicaKey(1, b"x" * 16),
        node.disk.log,
        node.disk.shelf,
        QuorumSettings(),
        NoChance(),
        bootstrap=node.raft.voters,
        stored=QuorumState(3),
    )
    asked = [effect for effect in wiped.start(0) if isinstance(effect, Send)]
    assert wiped.role is Role.OBSERVER
    reply = FetchReply(ErrorCode.NOT_LEADER_OR_FOLLOWER, 3, leader_id=1)
    assert wiped.step(Answered(asked[0].number, reply), 0) == []
    assert wiped.leader_id == -1
    assert wiped.wake_at == QuorumSettings().retry_backoff_ms


# --- voters -----------------------------------------------------------------------------------------------------------


def leading() -> LoneReplica:
    """A leader of three voters whose first records are committed."""
    node = LoneReplica()
    node.elect()
    node.sync()
    node.fetched(2, 2)
    assert node.raft.high_watermark == 2
    return node


def test_voters_are_changed_one_at_a_time() -> None:
    node = leading()
    node.fetched(4, 2)
    assert node.asked(AddVoter(Voter(KEYS[4]))) is None
    assert node.raft.voters.ids == (1, 2, 3, 4)
    reply = node.asked(RemoveVoter(KEYS[3]))
    assert isinstance(reply, VotersReply)
    assert reply.error is ErrorCode.REQUEST_TIMED_OUT


def test_no_voter_is_added_before_it_has_caught_up() -> None:
    node = leading()
    assert node.asked(AddVoter(Voter(KEYS[4]))).error is ErrorCode.REQUEST_TIMED_OUT
    node.fetched(4, 0, last_epoch=0)
    assert node.asked(AddVoter(Voter(KEYS[4]))).error is ErrorCode.REQUEST_TIMED_OUT
    node.fetched(4, 2)
    assert node.asked(AddVoter(Voter(KEYS[4]))) is None


def test_no_voter_is_changed_before_the_leader_knows_what_is_committed() -> None:
    node = LoneReplica()
    node.elect()
    assert node.asked(RemoveVoter(KEYS[3])).error is ErrorCode.REQUEST_TIMED_OUT


def test_voters_that_cannot_be_changed() -> None:
    node = leading()
    assert node.asked(AddVoter(Voter(KEYS[3]))).error is ErrorCode.DUPLICATE_VOTER
    assert node.asked(RemoveVoter(KEYS[5])).error is ErrorCode.VOTER_NOT_FOUND
    assert LoneReplica().asked(RemoveVoter(KEYS[3])).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    alone = LoneReplica(voters=1)
    alone.wait()
    alone.sync()
    assert alone.asked(RemoveVoter(KEYS[1])).error is ErrorCode.INVALID_REQUEST


# --- the table of role changes ----------------------------------------------------------------------------------------


def test_every_role_can_be_left_and_reached() -> None:
    assert {move[0] for move in MOVES} == set(Role) == {move[1] for move in MOVES}


def test_a_move_that_is_not_in_the_table_is_refused() -> None:
    with pytest.raises(AssertionError, match="no way leads from unattached to leader"):
        LoneReplica().raft._move(Role.LEADER)


@pytest.mark.parametrize("stored", [None, QuorumState(3, leader_id=1), QuorumState(3, voted_for=KEYS[1])])
def test_a_sole_voter_waits_for_nobody_however_it_ended(stored: QuorumState | None) -> None:
    alone = LoneReplica(voters=1, stored=stored)
    for _ in range(3):
        assert alone.raft.wake_at == 0
        alone.raft.step(TimePassed(), 0)
        if alone.role() is Role.LEADER:
            break
    assert alone.role() is Role.LEADER
