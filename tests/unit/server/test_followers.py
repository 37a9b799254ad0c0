"""Follower sessions at a partition: which ones are notified of changes, and which no longer."""

from random import Random

from penstock.replication.fetch_sessions import FetchSessions, RequestedPartition
from penstock.server.partitions.followers import Followers
from penstock.simulator.entropy import SimulatedEntropy
from penstock.wire.hot.fetch import FetchedPartition
from penstock.wire.messages.fetch import FetchPartition, FetchTopic

FOLLOWER = 2


def wanted_in_a_new_session(sessions: FetchSessions) -> RequestedPartition:
    part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=100)
    fetching = sessions.begin(0, 0, [FetchTopic(topic="t", partitions=[part])], (), 0, has_ids=False, is_follower=True)
    (requested,) = fetching.requested
    fetching.answer([(requested, FetchedPartition(0, 0, 0, records=b""))], 0)
    assert requested.session is not None
    requested.session.unsettled.clear()
    return requested


def is_told(requested: RequestedPartition) -> bool:
    assert requested.session is not None
    return requested in requested.session.unsettled


def test_a_request_of_an_older_session_that_comes_late_takes_nobodys_place() -> None:
    sessions, followers = FetchSessions(SimulatedEntropy(Random(1))), Followers()
    old, new = wanted_in_a_new_session(sessions), wanted_in_a_new_session(sessions)
    assert followers.stand(FOLLOWER, old)
    assert followers.stand(FOLLOWER, new)
    assert not followers.stand(FOLLOWER, old)
    followers.mark()
    assert is_told(new)
    assert not is_told(old)


def test_who_is_forgotten_or_over_is_told_no_more_and_gives_way() -> None:
    sessions, followers = FetchSessions(SimulatedEntropy(Random(1))), Followers()
    first, second = wanted_in_a_new_session(sessions), wanted_in_a_new_session(sessions)
    assert first.session is not None
    assert followers.stand(FOLLOWER, first)
    assert followers.stand(FOLLOWER + 1, second)
    first.session.forget(("t", 0))
    assert second.session is not None
    second.session.is_over = True
    followers.notify()
    assert followers.standing == {}
    assert not followers.stand(FOLLOWER, first)
