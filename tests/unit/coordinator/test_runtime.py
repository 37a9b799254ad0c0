"""The shard runtime: nothing is answered before it is committed, nothing survives that was not, old news is no news."""

import pytest

from penstock.coordinator.events import (
    Asked,
    AskedTogether,
    Committed,
    Elected,
    Leased,
    LogRead,
    ReadFailed,
    ReadLog,
    Refuse,
    Resigned,
    TimePassed,
)
from penstock.coordinator.ports import AppendLost, AppendRefused
from penstock.coordinator.runtime import MOVES, Role, ShardRuntime
from penstock.coordinator.work import Ask
from penstock.model.errors import ErrorCode
from tests.unit.coordinator.stage import Stage, commit, fetch, fetched, join


def test_an_answer_waits_until_everything_it_rests_on_is_committed() -> None:
    stage = Stage()
    stage.commits = False
    first = stage.send(commit({0: 5}))
    read = stage.send(fetch())
    assert not stage.answers
    stage.do(Committed(0))
    assert not stage.answers
    stage.do(Committed(1))
    assert list(stage.answers) == [first, read]
    assert fetched(stage.answers[read]) == {("a", 0): 5}


def test_who_waits_too_long_is_told_to_try_again() -> None:
    stage = Stage()
    stage.commits = False
    ticket = stage.send(commit({0: 5}))
    stage.pass_time(5_000)
    assert stage.refusals == {ticket: ErrorCode.COORDINATOR_NOT_AVAILABLE}
    stage.do(Committed(1))
    assert not stage.answers


def test_lost_leadership_refuses_whoever_waits_and_throws_the_shard_away() -> None:
    stage = Stage()
    waiting = [stage.send(join(instance="x")), stage.send(join(instance="y"))]
    stage.commits = False
    waiting.append(stage.send(commit({0: 5}, topic_name="b", group_id="other")))
    before = stage.answers.copy()
    stage.resign()
    assert stage.runtime.shard is None
    assert all(stage.refusals.get(ticket) is ErrorCode.NOT_COORDINATOR for ticket in waiting if ticket not in before)
    assert stage.ask(fetch()) is ErrorCode.NOT_COORDINATOR


def test_what_was_not_committed_and_is_lost_is_not_there_after_the_reload() -> None:
    stage = Stage()
    assert stage.ask(commit({0: 5})).topics[0].partitions[0].error_code is ErrorCode.NONE
    stage.commits = False
    stage.send(commit({0: 9}))
    stage.resign()
    del stage.log.rows[1:]
    stage.commits = True
    stage.elect()
    assert fetched(stage.ask(fetch())) == {("a", 0): 5}


def test_a_refused_append_changes_nothing() -> None:
    stage = Stage()
    stage.log.refusal = AppendRefused("too few replicas")
    assert stage.ask(commit({0: 5})) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert stage.group() is None
    assert fetched(stage.ask(fetch())) == {}


def together(*offsets: int) -> list[Asked]:
    """Commits of partition 0, of one group after the other."""
    return [
        Asked(900 + number, Ask(commit({0: offset}, group_id=f"g{number}"), 9)) for number, offset in enumerate(offsets)
    ]


def test_those_who_ask_together_are_written_together_and_answered_each() -> None:
    stage = Stage()
    stage.do(AskedTogether(together(5, 6, 7)))
    assert stage.log.appends == 1
    assert sorted(stage.answers) == [900, 901, 902]
    assert [fetched(stage.ask(fetch(f"g{each}"))) for each in range(3)] == [{("a", 0): each} for each in (5, 6, 7)]


def test_what_is_refused_together_is_tried_singly() -> None:
    stage = Stage()
    stage.log.refusal = AppendRefused("too large")
    stage.do(AskedTogether(together(5, 6)))
    assert sorted(stage.answers) == [900, 901]
    assert not stage.refusals


def test_an_append_that_is_lost_is_lost_for_all_who_asked_together() -> None:
    stage = Stage()
    stage.log.refusal = AppendLost("another leads")
    stage.do(AskedTogether(together(5, 6)))
    assert stage.refusals == {900: ErrorCode.NOT_COORDINATOR, 901: ErrorCode.NOT_COORDINATOR}
    stage.do(AskedTogether(together(5, 6)))
    assert stage.refusals == {900: ErrorCode.NOT_COORDINATOR, 901: ErrorCode.NOT_COORDINATOR}


def test_a_lost_append_throws_the_shard_away() -> None:
    stage = Stage()
    stage.log.refusal = AppendLost("another leads")
    assert stage.ask(commit({0: 5})) is ErrorCode.NOT_COORDINATOR
    assert stage.runtime.role is Role.ELSEWHERE


def test_while_it_loads_nothing_is_decided() -> None:
    stage = Stage()
    stage.ask(commit({0: 5}))
    effects = stage.runtime.step(Elected(7, 0), stage.now)
    assert effects == [ReadLog(7, 0, 1)]
    ask = Asked(99, Ask(fetch(), 9))
    assert stage.runtime.step(ask, stage.now) == [Refuse(99, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)]


def test_a_gap_at_the_end_of_the_log_ends_the_load() -> None:
    """R26, KAFKA-9065: compaction took the last records, and there is nothing to read up to the end."""
    stage = Stage()
    for offset in range(3):
        stage.ask(commit({0: offset}))
    runtime = stage.runtime
    assert runtime.step(Elected(7, 0), stage.now) == [ReadLog(7, 0, 3)]
    assert runtime.step(LogRead(7, 0, stage.log.records()[:1], 1), stage.now) == [ReadLog(7, 1, 3)]
    assert runtime.step(LogRead(7, 1, (), 1), stage.now) == []
    assert runtime.role is Role.ACTIVE
    assert runtime.applied_end == 3


def test_news_of_older_epochs_are_none() -> None:
    """R26, KAFKA-10614: elections and resignations that arrive out of order."""
    stage = Stage()
    runtime = stage.runtime
    runtime.step(Elected(7, 0), stage.now)
    roles = []
    for event in (Resigned(5), LogRead(6, 0, (), 0)):
        runtime.step(event, stage.now)
        roles.append(runtime.role)
    assert roles == [Role.LOADING, Role.LOADING]
    runtime.step(Resigned(8), stage.now)
    runtime.step(Elected(7, 0), stage.now)
    runtime.step(LogRead(7, 0, (), 0), stage.now)
    assert runtime.role is Role.ELSEWHERE


def test_a_log_that_cannot_be_read_is_told() -> None:
    """R26, KAFKA-16030: the partition goes offline while it is loaded; the next election tries again."""
    stage = Stage()
    runtime = stage.runtime
    runtime.step(Elected(7, 0), stage.now)
    runtime.step(ReadFailed(7), stage.now)
    ask = Asked(99, Ask(fetch(), 9))
    assert runtime.step(ask, stage.now) == [Refuse(99, ErrorCode.COORDINATOR_NOT_AVAILABLE)]
    runtime.step(Elected(8, 0), stage.now)
    assert runtime.role is Role.LOADING


def test_a_leader_of_yesterday_answers_nothing() -> None:
    """Heartbeats and reads need no append, which would fail: only a lease tells that nobody else leads."""
    stage = Stage()
    stage.ask(commit({0: 5}))
    stage.do(Leased(stage.now_ms + 100))
    waiting = stage.send(join(instance="x"))
    assert fetched(stage.ask(fetch())) == {("a", 0): 5}
    stage.now_ms += 100
    assert stage.ask(fetch()) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    stage.do(TimePassed())
    assert waiting not in stage.answers
    assert stage.runtime.wake_at is None
    stage.do(Leased(stage.now_ms + 100))
    stage.do(TimePassed())
    assert waiting in stage.answers


def test_moves_are_those_of_the_table() -> None:
    assert len({role for move in MOVES for role in move}) == len(Role)
    runtime = ShardRuntime(lambda: pytest.fail("not made"), Stage().log)
    with pytest.raises(AssertionError, match="no move"):
        runtime._move(Role.ACTIVE)
