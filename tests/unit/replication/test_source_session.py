"""The follower's end of a fetch session, tested with the real leader's end."""

from harness.metadata_world import Dice
from penstock.model.errors import ErrorCode
from penstock.replication.fetch_sessions import Fetching, FetchSessions
from penstock.replication.ports import Key
from penstock.replication.source_session import NAMED_MAX, FetchRequestData, SourceSession
from penstock.wire.messages.fetch import FetchPartition
from tests.unit.replication.builders import key


def wanted(offset: int, epoch: int = 0, number: int = 0) -> FetchPartition:
    return FetchPartition(partition=number, current_leader_epoch=epoch, fetch_offset=offset, partition_max_bytes=1_000)


def ask(session: SourceSession, **partitions: FetchPartition | None) -> FetchRequestData:
    """Builds a fetch; `p0=...` names partition 0."""
    everything: dict[Key, FetchPartition | None] = {key(int(name[1:])): each for name, each in partitions.items()}
    return session.ask(everything)


def arrive(sessions: FetchSessions, request: FetchRequestData) -> Fetching:
    return sessions.begin(
        request.session_id, request.epoch, request.topics, request.forgotten, 0, has_ids=True, is_follower=True
    )


def known(fetching: Fetching) -> dict[int, tuple[int, int]]:
    return {each.index: (each.offset, each.leader_epoch) for each in fetching.requested}


def test_after_the_first_request_only_changes_are_named() -> None:
    sessions, session = FetchSessions(Dice()), SourceSession()
    first = arrive(sessions, ask(session, p0=wanted(5), p1=wanted(6, number=1)))
    assert session.answered(ErrorCode.NONE, first.answer([], 0).session_id)
    second = ask(session, p0=wanted(5), p1=wanted(9, number=1))
    assert [each.fetch_offset for topic in second.topics for each in topic.partitions] == [9]
    assert known(arrive(sessions, second)) == {0: (5, 0), 1: (9, 0)}


def test_a_new_leader_epoch_alone_is_a_change() -> None:
    """KAFKA-9338."""
    sessions, session = FetchSessions(Dice()), SourceSession()
    session.answered(ErrorCode.NONE, arrive(sessions, ask(session, p0=wanted(5))).answer([], 0).session_id)
    assert known(arrive(sessions, ask(session, p0=wanted(5, epoch=1)))) == {0: (5, 1)}


def test_what_was_refused_is_named_once_more() -> None:
    sessions, session = FetchSessions(Dice()), SourceSession()
    first = arrive(sessions, ask(session, p0=wanted(5), p1=wanted(6, number=1)))
    session.answered(ErrorCode.NONE, first.answer([], 0).session_id)
    session.refused(key(1))
    again = ask(session, p0=wanted(5), p1=wanted(6, number=1))
    assert [each.partition for topic in again.topics for each in topic.partitions] == [1]
    session.answered(ErrorCode.NONE, arrive(sessions, again).answer([], 0).session_id)
    assert not ask(session, p0=wanted(5), p1=wanted(6, number=1)).topics


def test_what_is_wanted_no_longer_is_forgotten_and_an_empty_session_ends() -> None:
    sessions, session = FetchSessions(Dice()), SourceSession()
    session.answered(ErrorCode.NONE, arrive(sessions, ask(session, p0=wanted(5))).answer([], 0).session_id)
    request = ask(session, p0=None, p1=None)
    assert [list(topic.partitions) for topic in request.forgotten] == [[0]]
    fetching = arrive(sessions, request)
    assert not fetching.has_partitions
    assert len(sessions) == 0
    session.answered(ErrorCode.NONE, fetching.answer([], 0).session_id)
    assert not session.is_incremental


def test_after_a_lost_answer_everything_is_named_anew() -> None:
    """KAFKA-8052: it is unknown whether the source received the last request."""
    sessions, session = FetchSessions(Dice()), SourceSession()
    session.answered(ErrorCode.NONE, arrive(sessions, ask(session, p0=wanted(5))).answer([], 0).session_id)
    ask(session, p0=wanted(7))
    session.lost()
    again = ask(session, p0=wanted(7))
    assert again.epoch == 0
    assert known(arrive(sessions, again)) == {0: (7, 0)}
    assert len(sessions) == 0  # the full request has closed the previous session


def test_a_session_that_the_source_has_forgotten_begins_anew() -> None:
    sessions, session = FetchSessions(Dice()), SourceSession()
    session.answered(ErrorCode.NONE, arrive(sessions, ask(session, p0=wanted(5))).answer([], 0).session_id)
    refused = arrive(FetchSessions(Dice()), ask(session, p0=wanted(6)))
    assert refused.error_code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert not session.answered(refused.error_code, 0)
    assert known(arrive(sessions, ask(session, p0=wanted(6)))) == {0: (6, 0)}


def test_a_source_without_room_is_asked_for_everything_each_time() -> None:
    session = SourceSession()
    ask(session, p0=wanted(5))
    session.answered(ErrorCode.NONE, 0)
    assert not session.is_incremental


def test_session_epochs_begin_again_behind_the_last_one() -> None:
    session = SourceSession()
    ask(session, p0=wanted(5))
    session.answered(ErrorCode.NONE, 7)
    session.epoch = 2**31 - 1
    session.answered(ErrorCode.NONE, 7)
    assert session.epoch == 1


def many(first: int, count: int, offset: int = 0) -> dict[Key, FetchPartition | None]:
    return {key(n): wanted(offset, number=n) for n in range(first, first + count)}


def names(request: FetchRequestData) -> list[int]:
    return [each.partition for topic in request.topics for each in topic.partitions]


def test_many_partitions_are_named_in_several_requests() -> None:
    """10,000 in one request blocked the source's loop for a quarter of a second."""
    sessions, session = FetchSessions(Dice()), SourceSession()
    everything = many(0, 2 * NAMED_MAX + 5)
    first = session.ask(everything)
    assert (len(names(first)), first.has_more) == (NAMED_MAX, True)
    session.answered(ErrorCode.NONE, arrive(sessions, first).answer([], 0).session_id)
    seen = names(first)
    while session.marked:
        request = session.ask({each: everything[each] for each in session.marked})
        assert len(names(request)) <= NAMED_MAX
        assert session.answered(ErrorCode.NONE, arrive(sessions, request).answer([], 0).session_id)
        seen += names(request)
    assert not request.has_more
    assert seen == list(range(2 * NAMED_MAX + 5))


def test_without_a_session_all_have_their_turn() -> None:
    session = SourceSession()
    everything = many(0, 2 * NAMED_MAX)
    first = session.ask(everything)
    session.answered(ErrorCode.NONE, 0)
    for number in names(first):
        session.mark(key(number))  # all of them were in a response
    second = session.ask(everything)
    assert sorted(names(first) + names(second)) == list(range(2 * NAMED_MAX))


def test_what_was_refused_waits_for_its_turn_too() -> None:
    sessions, session = FetchSessions(Dice()), SourceSession()
    few = many(0, 2)
    session.answered(ErrorCode.NONE, arrive(sessions, session.ask(few)).answer([], 0).session_id)
    session.refused(key(1))
    request = session.ask({**many(10, NAMED_MAX), **few})
    assert 1 not in names(request)
    assert request.has_more
    session.answered(ErrorCode.NONE, arrive(sessions, request).answer([], 0).session_id)
    assert names(session.ask({each: few[each] for each in session.marked})) == [1]
