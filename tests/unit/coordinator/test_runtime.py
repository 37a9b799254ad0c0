"""The shard runtime: responses wait for the commit, uncommitted changes are dropped, stale events are ignored."""

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
from penstock.coordinator.groups import GroupShard
from penstock.coordinator.ports import AppendLost, AppendRefused, Now
from penstock.coordinator.requests import Ask, group_id_of
from penstock.coordinator.runtime import MOVES, Role, ShardRuntime
from penstock.coordinator.shard import Cause, GroupDecision
from penstock.coordinator.timers import Timer
from penstock.model.errors import ErrorCode
from tests.unit.coordinator.shard_driver import QUICK, Counter, ShardDriver, commit, fetch, fetched, join


def test_an_answer_waits_until_everything_it_rests_on_is_committed() -> None:
    driver = ShardDriver()
    driver.commits = False
    first = driver.send(commit({0: 5}))
    read = driver.send(fetch())
    assert not driver.answers
    driver.do(Committed(0))
    assert not driver.answers
    driver.do(Committed(1))
    assert list(driver.answers) == [first, read]
    assert fetched(driver.answers[read]) == {("a", 0): 5}


def test_who_waits_too_long_is_told_to_try_again() -> None:
    driver = ShardDriver()
    driver.commits = False
    ticket = driver.send(commit({0: 5}))
    driver.pass_time(5_000)
    assert driver.refusals == {ticket: ErrorCode.COORDINATOR_NOT_AVAILABLE}
    driver.do(Committed(1))
    assert not driver.answers


def test_lost_leadership_refuses_whoever_waits_and_throws_the_shard_away() -> None:
    driver = ShardDriver()
    waiting = [driver.send(join(instance="x")), driver.send(join(instance="y"))]
    driver.commits = False
    waiting.append(driver.send(commit({0: 5}, topic_name="b", group_id="other")))
    before = driver.answers.copy()
    driver.resign()
    assert driver.runtime.shard is None
    assert all(driver.refusals.get(ticket) is ErrorCode.NOT_COORDINATOR for ticket in waiting if ticket not in before)
    assert driver.ask(fetch()) is ErrorCode.NOT_COORDINATOR


def test_what_was_not_committed_and_is_lost_is_not_there_after_the_reload() -> None:
    driver = ShardDriver()
    assert driver.ask(commit({0: 5})).topics[0].partitions[0].error_code is ErrorCode.NONE
    driver.commits = False
    driver.send(commit({0: 9}))
    driver.resign()
    del driver.log.rows[1:]
    driver.commits = True
    driver.elect()
    assert fetched(driver.ask(fetch())) == {("a", 0): 5}


def test_a_refused_append_changes_nothing() -> None:
    driver = ShardDriver()
    driver.log.refusal = AppendRefused("too few replicas")
    assert driver.ask(commit({0: 5})) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert driver.group() is None
    assert fetched(driver.ask(fetch())) == {}


def together(*offsets: int) -> list[Asked]:
    """Returns commits for partition 0, each of another group."""
    return [
        Asked(900 + number, Ask(commit({0: offset}, group_id=f"g{number}"), 9)) for number, offset in enumerate(offsets)
    ]


def test_those_who_ask_together_are_written_together_and_answered_each() -> None:
    driver = ShardDriver()
    driver.do(AskedTogether(together(5, 6, 7)))
    assert driver.log.appends == 1
    assert sorted(driver.answers) == [900, 901, 902]
    assert [fetched(driver.ask(fetch(f"g{each}"))) for each in range(3)] == [{("a", 0): each} for each in (5, 6, 7)]


def test_what_is_refused_together_is_tried_singly() -> None:
    driver = ShardDriver()
    driver.log.refusal = AppendRefused("too large")
    driver.do(AskedTogether(together(5, 6)))
    assert sorted(driver.answers) == [900, 901]
    assert not driver.refusals


def test_an_append_that_is_lost_is_lost_for_all_who_asked_together() -> None:
    driver = ShardDriver()
    driver.log.refusal = AppendLost("another leads")
    driver.do(AskedTogether(together(5, 6)))
    assert driver.refusals == {900: ErrorCode.NOT_COORDINATOR, 901: ErrorCode.NOT_COORDINATOR}
    driver.do(AskedTogether(together(5, 6)))
    assert driver.refusals == {900: ErrorCode.NOT_COORDINATOR, 901: ErrorCode.NOT_COORDINATOR}


def test_a_lost_append_throws_the_shard_away() -> None:
    driver = ShardDriver()
    driver.log.refusal = AppendLost("another leads")
    assert driver.ask(commit({0: 5})) is ErrorCode.NOT_COORDINATOR
    assert driver.runtime.role is Role.ELSEWHERE


def test_while_it_loads_nothing_is_decided() -> None:
    driver = ShardDriver()
    driver.ask(commit({0: 5}))
    effects = driver.runtime.step(Elected(7, 0), driver.now)
    assert effects == [ReadLog(7, 0, 1)]
    ask = Asked(99, Ask(fetch(), 9))
    assert driver.runtime.step(ask, driver.now) == [Refuse(99, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)]


def test_a_gap_at_the_end_of_the_log_ends_the_load() -> None:
    """R26, KAFKA-9065: compaction removed the last records, so no record is read up to the end offset."""
    driver = ShardDriver()
    for offset in range(3):
        driver.ask(commit({0: offset}))
    runtime = driver.runtime
    assert runtime.step(Elected(7, 0), driver.now) == [ReadLog(7, 0, 3)]
    assert runtime.step(LogRead(7, 0, driver.log.records()[:1], 1), driver.now) == [ReadLog(7, 1, 3)]
    assert runtime.step(LogRead(7, 1, (), 1), driver.now) == []
    assert runtime.role is Role.ACTIVE
    assert runtime.applied_end == 3


def test_news_of_older_epochs_are_none() -> None:
    """R26, KAFKA-10614: elections and resignations that arrive out of order."""
    driver = ShardDriver()
    runtime = driver.runtime
    runtime.step(Elected(7, 0), driver.now)
    roles = []
    for event in (Resigned(5), LogRead(6, 0, (), 0)):
        runtime.step(event, driver.now)
        roles.append(runtime.role)
    assert roles == [Role.LOADING, Role.LOADING]
    runtime.step(Resigned(8), driver.now)
    runtime.step(Elected(7, 0), driver.now)
    runtime.step(LogRead(7, 0, (), 0), driver.now)
    assert runtime.role is Role.ELSEWHERE


def test_a_log_that_cannot_be_read_is_told() -> None:
    """R26, KAFKA-16030: the partition goes offline while it is loaded; the next election tries again."""
    driver = ShardDriver()
    runtime = driver.runtime
    runtime.step(Elected(7, 0), driver.now)
    runtime.step(ReadFailed(7), driver.now)
    ask = Asked(99, Ask(fetch(), 9))
    assert runtime.step(ask, driver.now) == [Refuse(99, ErrorCode.COORDINATOR_NOT_AVAILABLE)]
    runtime.step(Elected(8, 0), driver.now)
    assert runtime.role is Role.LOADING


def test_a_leader_of_yesterday_answers_nothing() -> None:
    """Heartbeats and reads need no append that could fail: only the lease excludes another leader."""
    driver = ShardDriver()
    driver.ask(commit({0: 5}))
    driver.do(Leased(driver.now_ms + 100))
    waiting = driver.send(join(instance="x"))
    assert fetched(driver.ask(fetch())) == {("a", 0): 5}
    driver.now_ms += 100
    assert driver.ask(fetch()) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    driver.do(TimePassed())
    assert waiting not in driver.answers
    assert driver.runtime.wake_at is None
    driver.do(Leased(driver.now_ms + 100))
    driver.do(TimePassed())
    assert waiting in driver.answers


class Diary:
    """An observer that records its calls, and the shard's number of groups at each."""

    def __init__(self) -> None:
        self.rows: list[str] = []

    def begun(self, shard: GroupShard, now: Now) -> None:
        self.rows.append(f"begun with {len(shard.groups)}")

    def decided(self, shard: GroupShard, cause: Cause, decision: GroupDecision) -> None:
        self.rows.append(f"decided {_named(cause)}, {len(shard.groups)} groups")

    def applied(self, shard: GroupShard, cause: Cause, decision: GroupDecision, now: Now) -> None:
        self.rows.append(f"applied {_named(cause)}, {len(shard.groups)} groups")

    def ended(self) -> None:
        self.rows.append("ended")


def _named(cause: Cause) -> str:
    return cause.kind if isinstance(cause, Timer) else group_id_of(cause.request)


def test_an_observer_is_told_before_and_after() -> None:
    driver, diary = ShardDriver(), Diary()
    driver.runtime = ShardRuntime(
        lambda: GroupShard(QUICK, Counter(), lambda: driver.topics), driver.log, observer=diary
    )
    driver.elect()
    assert diary.rows == ["ended", "begun with 0"]
    diary.rows.clear()
    driver.do(AskedTogether(together(5, 6)))
    assert diary.rows == [
        "decided g0, 0 groups",
        "decided g1, 0 groups",
        "applied g0, 2 groups",
        "applied g1, 2 groups",
    ]
    diary.rows.clear()
    driver.log.refusal = AppendRefused("too few replicas")
    driver.ask(commit({0: 5}, group_id="g2"))
    assert diary.rows == ["decided g2, 2 groups"]
    diary.rows.clear()
    driver.log.refusal = AppendRefused("too large")
    driver.do(AskedTogether(together(7, 8)))
    assert diary.rows[2:] == ["applied g0, 2 groups", "applied g1, 2 groups"]
    diary.rows.clear()
    driver.log.refusal = AppendLost("another leads")
    driver.ask(commit({0: 5}, group_id="g2"))
    assert diary.rows == ["decided g2, 2 groups", "ended"]


def test_an_observer_is_told_of_timers() -> None:
    driver, diary = ShardDriver(), Diary()
    driver.runtime = ShardRuntime(
        lambda: GroupShard(QUICK, Counter(), lambda: driver.topics), driver.log, observer=diary
    )
    driver.elect()
    diary.rows.clear()
    driver.pass_time(QUICK.retention_check_ms)
    assert diary.rows == ["decided expiry, 0 groups", "applied expiry, 0 groups"]


def test_moves_are_those_of_the_table() -> None:
    assert len({role for move in MOVES for role in move}) == len(Role)
    runtime = ShardRuntime(lambda: pytest.fail("not made"), ShardDriver().log)
    with pytest.raises(AssertionError, match="no move"):
        runtime._move(Role.ACTIVE)
