"""`penstock group`: what is shown of groups, before it is asked for on real clusters."""

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


def test_pauses_are_summed_up(penstock: Penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    events = [
        an_event(EventKind.TIMED_OUT, 1_000, member="m1", client_id="app", host="/h", reason="late"),
        an_event(EventKind.REBALANCE_BEGUN, 1_000, epoch=4, members=2, reason="m1 timed out"),
        an_event(EventKind.REBALANCE_DONE, 4_000, epoch=5, members=2, pause_ms=3_000),
        an_event(EventKind.REBALANCE_DONE, 9_000, epoch=6, members=2, pause_ms=500),
    ]
    monkeypatch.setattr(group_why, "run_with_client", lambda *_: History(events, True))
    out = penstock("group", "why", "g").out
    assert out.startswith("g: 2 rebalances, the longest of 3.0 s, all together 3.5 s; 1 member timed out.\n")
    assert "m1 (app at h)" in out
    assert "missing" not in out
    monkeypatch.setattr(group_why, "run_with_client", lambda *_: History(events, False))
    assert "Reasons and pauses are missing" in penstock("group", "why", "g").out
