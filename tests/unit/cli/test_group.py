"""`penstock group`: what is shown of groups, before it is asked for on real clusters."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from penstock.cli import group_lag, group_reset, group_why
from penstock.client.group_history import History
from penstock.client.groups import GroupDescription, GroupMember
from penstock.model.group_events import EventKind, GroupEvent
from tests.unit.cli.conftest import Penstock


def test_seconds_are_exact_where_that_matters() -> None:
    assert [group_lag.behind(each) for each in (None, 0.0, 3.44, 59.9, 75.2, 7_265.0)] == [
        "?",
        "0.0 s",
        "3.4 s",
        "59.9 s",
        "1 min 15 s",
        "2 h 1 min",
    ]


def test_a_group_in_words() -> None:
    assert group_lag.summary({"lag": 0, "lag_s": 0.0, "partitions": [1]}) == "at the end"
    assert group_lag.summary({"lag": 0, "lag_s": None, "partitions": []}) == "nothing committed"
    assert group_lag.summary({"lag": 1_200, "lag_s": 3.0, "partitions": [1]}) == "1,200 records and 3.0 s behind"


@pytest.mark.parametrize("options", [(), ("--to-earliest", "--to-latest"), ("--to-offset", "3", "--shift-by", "1")])
def test_reset_wants_one_place(penstock: Penstock, options: tuple[str, ...]) -> None:
    result = penstock("group", "reset", "g", *options)
    assert result.code == 2
    assert "say once where to go on" in result.err


def test_times_that_are_none(penstock: Penstock) -> None:
    assert "is no time" in penstock("group", "reset", "g", "--to-datetime", "42").err
    assert "is no time" in penstock("group", "why", "g", "--since", "earliest").err


def test_members_at_work_are_named() -> None:
    members = tuple(GroupMember(f"m{n}", None, f"app-{n}", "/10.0.0.1", ()) for n in range(5))
    text = group_reset.at_work(GroupDescription("g", "classic", "Stable", "range", -1, members), "No")
    assert text.startswith("g has 5 members at work (app-0, app-1, app-2 and 2 more). No: stop them and try again;")


def an_event(kind: EventKind, at_ms: int, **told: Any) -> GroupEvent:
    return GroupEvent("g", kind, at_ms, **told)


N1, N2 = "n1-00000000-0000-0000-0000-0000000000a1", "n2-00000000-0000-0000-0000-0000000000b2"
EVENTS = [
    an_event(EventKind.JOINED, 1_000, member=N2, client_id="n2", host="/10.0.0.2", epoch=3, members=3, broker=1),
    an_event(EventKind.TIMED_OUT, 46_000, member=N1, client_id="n1", epoch=4, members=2, reason="late", broker=1),
    an_event(EventKind.REBALANCE_BEGUN, 46_000, epoch=4, members=2, reason=f"{N1} timed out", broker=1),
    an_event(EventKind.REBALANCE_DONE, 49_000, epoch=5, members=2, took_ms=3_000, pause_ms=48_000, broker=1),
    an_event(EventKind.REBALANCE_DONE, 50_500, epoch=16, members=2, took_ms=500, pause_ms=0, broker=1),
]


@pytest.fixture
def shown(penstock: Penstock, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., str]]:
    """What `why` says of events, in a time zone without surprises."""

    def call(events: list[GroupEvent], *options: str, is_told: bool = True) -> str:
        monkeypatch.setattr(group_why, "run_with_client", lambda *_: History(events, is_told))
        return penstock("group", "why", "g", "--since", "1970-01-01T00:00Z", *options).out

    with pytest.MonkeyPatch.context() as zone:
        zone.setenv("TZ", "UTC")
        time.tzset()
        yield call
    time.tzset()


def test_why_tells_a_story(shown: Callable[..., str]) -> None:
    assert (
        shown(EVENTS)
        == """\
g: 2 rebalances since 1970-01-01 00:00:00 +0000, 1 member timed out.
TOOK: from what began it until every member had its share; 3.0 s at most, 3.5 s together.
PAUSE: the longest that a partition had no reader; 48.0 s at most.
Shown: all 5 events, from 1970-01-01 00:00:01 +0000 to 1970-01-01 00:00:50 +0000.

TIME          EPOCH  MEMBERS   TOOK   PAUSE  WHAT
00:00:01.000      3        3                 n2 joined from 10.0.0.2
00:00:46.000      4        2                 n1 timed out: late
00:00:46.000      4        2                 rebalance begun: n1 timed out
00:00:49.000      5        2  3.0 s  48.0 s  rebalance done
00:00:50.500     16        2  0.5 s   0.0 s  rebalance done
"""
    )


def test_why_says_that_a_rebalance_is_not_done(shown: Callable[..., str]) -> None:
    changed = an_event(EventKind.COORDINATOR_CHANGED, 60_000, broker=1)
    assert "g: 0 rebalances since 1970-01-01 00:00:00 +0000, one is going on, 1 member" in shown(EVENTS[:3])
    assert "going on" not in shown([*EVENTS[:3], changed]) + shown(EVENTS) + shown(EVENTS[:3], is_told=False)


def test_why_says_what_it_leaves_out(shown: Callable[..., str]) -> None:
    text = shown(EVENTS, "-n", "2")
    assert "g: 2 rebalances" in text
    assert "Shown: the last 2 of 5 events, from 1970-01-01 00:00:49 +0000" in text
    assert "joined" not in text
    told = json.loads(shown(EVENTS, "-n", "2", "-o", "json"))
    assert (told["events_found"], len(told["events"])) == (5, 2)


def test_why_fits_a_terminal(shown: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_why, "_width", lambda: 80)
    said = replace(EVENTS[1], reason="it said: " + "word " * 40)
    lines = shown([EVENTS[0], said, *EVENTS[2:]]).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[lines.index(next(each for each in lines if "timed out: it" in each)) + 1].startswith(" " * 45)


def test_days_are_told_where_there_are_several(shown: Callable[..., str]) -> None:
    events = [EVENTS[0], replace(EVENTS[-1], at_ms=EVENTS[-1].at_ms + 86_400_000)]
    assert "\n01-02 00:00:50.500 " in shown(events)


def test_members_of_one_client_id_differ_by_their_ends(shown: Callable[..., str]) -> None:
    twin = "n1-00000000-0000-0000-0000-0000000000c3"
    events = [
        *EVENTS[:3],
        replace(EVENTS[0], member=twin, client_id="n1", host=None),
        replace(EVENTS[0], member="m1", client_id="app", host=None),
        replace(EVENTS[0], member="uuid-of-no-importance", instance="static-1", host=None),
    ]
    text = shown(events)
    assert "rebalance begun: n1…0000a1 timed out" in text
    for name in ("n1…0000c3", "m1", "static-1", "n2"):
        assert f"  {name} joined" in text
    assert twin in shown(events, "-o", "json")


def test_words_of_clients_cannot_draw_on_the_terminal(shown: Callable[..., str]) -> None:
    text = shown([replace(EVENTS[1], reason="it said: \x1b[2J\nbye", client_id="\x07n1")])
    assert r"\x07n1 timed out: it said: \x1b[2J\nbye" in text


def test_coordinators_and_conversions(shown: Callable[..., str]) -> None:
    changed = an_event(EventKind.COORDINATOR_CHANGED, 60_000, epoch=5, members=2, broker=1)
    elsewhere = replace(changed, broker=2)
    converted = an_event(
        EventKind.CONVERTED, 61_000, reason=f"it became a consumer group, as {N2} speaks the new", broker=2
    )
    text = shown([changed, *EVENTS, changed, elsewhere, converted])
    assert "broker 1 coordinates it now\n" in text
    assert "broker 1 coordinates it again, after a restart or an election\n" in text
    assert "broker 2 coordinates it now, broker 1 does no longer\n" in text
    assert "  it became a consumer group, as n2 speaks the new\n" in text


def test_what_other_brokers_do_not_tell(shown: Callable[..., str]) -> None:
    events = [replace(each, took_ms=None, pause_ms=None) for each in EVENTS]
    assert "missing" not in shown(EVENTS)
    text = shown(events, is_told=False)
    assert "Reasons and pauses are missing" in text
    assert "TOOK: " not in text
    assert shown([]) == "Nothing has happened to g since 1970-01-01 00:00:00 +0000.\n"
