"""Requests and replies that no replica of the quorum sends: they change nothing, and epochs do not overflow."""

from typing import Any

import pytest

from penstock.model.epochs import INT32_EPOCH_MAX
from penstock.model.errors import ErrorCode
from penstock.raft.effects import Effect, Persist, Warn
from penstock.raft.events import Answered, Asked
from penstock.raft.messages import (
    BeginEpoch,
    EndEpoch,
    Fetch,
    FetchReply,
    FetchSnapshot,
    UpdateVoter,
    Vote,
    VoteReply,
)
from penstock.raft.ports import SnapshotId
from penstock.raft.replicas import ReplicaKey, Voter, VoterSet
from penstock.raft.roles import QuorumState, Role
from penstock.raft.settings import QuorumSettings
from tests.simulation.raft_core.disk import Entry
from tests.unit.raft.lone_replica import KEYS, LoneReplica, a_vote

OUTSIDER = ReplicaKey(77, b"o" * 16)
OWN = 7
LIMIT = QuorumSettings().epochs_ahead_max
SOMETHING = (Entry(OWN, 1),)


def in_epoch(epoch: int = OWN, **rest: Any) -> LoneReplica:
    """A follower of node 2 with one record."""
    return LoneReplica(stored=QuorumState(epoch, leader_id=2), entries=SOMETHING, **rest)


def warnings(effects: list[Effect]) -> list[str]:
    return [effect.sentence for effect in effects if isinstance(effect, Warn)]


def requests_in(epoch: int) -> list[Any]:
    return [
        Vote(epoch, OUTSIDER, KEYS[1], epoch, 1 << 40, is_pre_vote=False),
        Vote(epoch, OUTSIDER, KEYS[1], epoch, 1 << 40, is_pre_vote=True),
        BeginEpoch(epoch, 77, KEYS[1]),
        EndEpoch(epoch, 77, (KEYS[1],)),
        Fetch(epoch, OUTSIDER, 0, 0, 0, 500, 100),
        FetchSnapshot(epoch, OUTSIDER, SnapshotId(0, 0), 0, 100),
    ]


# --- epochs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epoch", [OWN + LIMIT + 1, INT32_EPOCH_MAX])
@pytest.mark.parametrize("number", range(6))
def test_an_epoch_too_far_ahead_is_refused_and_reported(number: int, epoch: int) -> None:
    node = in_epoch()
    state, role = node.raft.replica.state, node.role()
    reply = node.asked(requests_in(epoch)[number])
    assert reply.error is ErrorCode.UNKNOWN_LEADER_EPOCH
    assert reply.epoch == OWN
    assert (node.raft.replica.state, node.role()) == (state, role)
    assert not any(isinstance(effect, Persist) for effect in node.effects)
    (sentence,) = warnings(node.effects)
    assert f"epoch {epoch}" in sentence
    assert "1,000,000" in sentence


@pytest.mark.parametrize("request_", requests_in(OWN + LIMIT)[:4])
def test_an_epoch_that_elections_can_explain_is_accepted(request_: Any) -> None:
    """KIP-853: also from a candidate or leader that is not yet in this log's voter set."""
    node = in_epoch()
    assert node.asked(request_).error is ErrorCode.NONE
    assert node.raft.epoch == OWN + LIMIT
    assert not warnings(node.effects)


def test_a_reply_too_far_ahead_counts_as_none() -> None:
    node = in_epoch()
    number = node.sent(Fetch)[0].number
    effects = node.step(Answered(number, FetchReply(ErrorCode.FENCED_LEADER_EPOCH, INT32_EPOCH_MAX, -1)))
    assert node.raft.epoch == OWN
    assert len(warnings(effects)) == 1
    node.wait()
    assert node.sent(Fetch), "the follower asks again"


def test_an_empty_replica_joins_a_cluster_of_any_epoch() -> None:
    node = LoneReplica()
    node.wait()
    number = node.sent(Vote)[0].number
    node.step(Answered(number, VoteReply(ErrorCode.FENCED_LEADER_EPOCH, 5 * LIMIT, 2, is_granted=False)))
    assert (node.raft.epoch, node.raft.leader_id) == (5 * LIMIT, 2)


@pytest.mark.parametrize("stored", [QuorumState(INT32_EPOCH_MAX), QuorumState(INT32_EPOCH_MAX, leader_id=2)])
def test_after_the_last_epoch_there_is_no_election_and_a_warning(stored: QuorumState) -> None:
    node = LoneReplica(stored=stored, entries=SOMETHING)
    found: list[str] = []
    for _ in range(20):
        node.now = node.raft.wake_at
        found += warnings(node.wait())
        assert not node.sent(Vote)
    assert found
    assert "last epoch" in found[0]
    assert node.raft.epoch == INT32_EPOCH_MAX


def test_a_leader_of_the_last_epoch_stays_resigned() -> None:
    node = LoneReplica(stored=QuorumState(INT32_EPOCH_MAX, leader_id=1, voted_for=KEYS[1]), entries=SOMETHING)
    assert warnings(node.wait())
    assert (node.role(), node.raft.epoch) == (Role.RESIGNED, INT32_EPOCH_MAX)


def test_the_last_epoch_itself_can_be_led() -> None:
    node = LoneReplica(stored=QuorumState(INT32_EPOCH_MAX - 1), entries=SOMETHING)
    node.elect()
    assert node.raft.epoch == INT32_EPOCH_MAX


# --- replica keys -----------------------------------------------------------------------------------------------------

WRONG_KEYS = [ReplicaKey(1, b"x" * 16), ReplicaKey(2, KEYS[1].directory_id), ReplicaKey(-1), ReplicaKey(-1, b"x" * 16)]


@pytest.mark.parametrize("key", WRONG_KEYS)
@pytest.mark.parametrize("kind", [Vote, BeginEpoch, EndEpoch])
def test_a_request_for_another_voter_changes_nothing(kind: type, key: ReplicaKey) -> None:
    node = in_epoch()
    state, role = node.raft.replica.state, node.role()
    named: dict[type, Any] = {
        Vote: a_vote(OWN + 1, voter=key, last_epoch=OWN + 1),
        BeginEpoch: BeginEpoch(OWN + 1, 3, key),
        EndEpoch: EndEpoch(OWN + 1, 3, (key, KEYS[2])),
    }
    assert node.asked(named[kind]).error is ErrorCode.INVALID_VOTER_KEY
    assert (node.raft.replica.state, node.role()) == (state, role)


def knowing_directories(*, is_committed: bool) -> LoneReplica:
    """A follower whose log holds a voter set, committed or not."""
    voters = VoterSet(Voter(KEYS[node_id]) for node_id in (1, 2, 3))
    node = LoneReplica(stored=QuorumState(OWN, leader_id=2), entries=(Entry(OWN, voters), Entry(OWN, 1)))
    high_watermark = 2 if is_committed else 0
    number = node.sent(Fetch)[0].number
    node.step(Answered(number, FetchReply(ErrorCode.NONE, OWN, 2, high_watermark, 0)))
    return node


@pytest.mark.parametrize(("is_committed", "error"), [(True, ErrorCode.INVALID_VOTER_KEY), (False, ErrorCode.NONE)])
def test_a_voter_key_needs_the_directory_once_a_committed_voter_set_has_it(
    is_committed: bool, error: ErrorCode
) -> None:
    """Before that, the right candidate may lack the voter set, because it is not committed."""
    for request in (
        a_vote(OWN + 1, voter=ReplicaKey(1), last_epoch=OWN + 1),
        BeginEpoch(OWN + 1, 3, ReplicaKey(1)),
        EndEpoch(OWN + 1, 3, (ReplicaKey(1),)),
    ):
        assert knowing_directories(is_committed=is_committed).asked(request).error is error


def test_configured_voters_do_not_bind_peers_that_were_configured_without_directories() -> None:
    assert in_epoch().asked(a_vote(OWN + 1, voter=ReplicaKey(1), last_epoch=OWN + 1)).is_granted


@pytest.mark.parametrize("leader_id", [-1, -5, 1])
def test_only_another_replica_announces_itself(leader_id: int) -> None:
    for request in (BeginEpoch(OWN + 1, leader_id, KEYS[1]), EndEpoch(OWN + 1, leader_id, (KEYS[1],))):
        node = in_epoch()
        assert node.asked(request).error is ErrorCode.INVALID_REQUEST
        assert node.raft.epoch == OWN


def test_a_candidate_without_an_id_is_refused() -> None:
    node = in_epoch()
    assert node.asked(a_vote(OWN + 1)._replace(candidate=ReplicaKey(-1))).error is ErrorCode.INVALID_REQUEST
    assert node.raft.epoch == OWN


def test_a_change_of_voters_carries_no_epoch() -> None:
    node = in_epoch()
    effects = node.step(Asked("token", UpdateVoter(Voter(KEYS[1]))))
    assert not warnings(effects)
