"""`penstock group`: output of the commands, on groups in memory."""

import json
import re
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from penstock.cli.errors import sentence
from penstock.cli.group import command as group
from penstock.cli.group import lag as group_lag
from penstock.cli.group import reset as group_reset
from penstock.cli.group import why as group_why
from penstock.client.admin.group_history import History
from penstock.client.admin.groups import GroupDescription, GroupListing, GroupMember
from penstock.client.cluster import Cluster
from penstock.client.errors import Refused
from penstock.client.metadata import TopicPartition
from penstock.client.ports import ClientPorts
from penstock.model.errors import ErrorCode
from penstock.model.group_events import EventKind, GroupEvent
from penstock.records.builder import BatchBuilder
from tests.unit.cli.conftest import Penstock
from tests.unit.client.brokers import Brokers, play


def test_seconds_are_exact_where_that_matters() -> None:
    assert [group_lag.behind(each) for each in (None, 0.0, 3.44, 59.9, 75.2, 7_265.0)] == [
        "?",
        "0.0 s",
        "3.4 s",
        "59.9 s",
        "1 min 15 s",
        "2 h 1 min",
    ]


def a_look(name: str = "g", lag: int | None = 0, lag_s: float | None = 0.0, **rows: Any) -> dict[str, Any]:
    """Describes a group with one partition per lag; a lag of None is unknown."""
    partitions = [
        {
            "topic": "orders",
            "partition": number,
            "committed": 3,
            "end": each,
            "lag": each,
            "lag_s": each,
            "member": None,
            "note": None if each is not None else "no leader",
        }
        for number, each in enumerate(rows.get("lags", [lag]))
    ]
    is_complete = bool(partitions) and all(each["lag"] is not None for each in partitions)
    told = {"group": name, "state": "Empty", "members": 0, "lag": lag, "lag_s": lag_s, "is_complete": is_complete}
    return {**told, "partitions": partitions, "uncommitted": []}


def test_a_group_in_words() -> None:
    assert group_lag.summary(a_look()) == "at the end"
    assert group_lag.summary(a_look(lag=None, lag_s=None, lags=[])) == "nothing committed"
    assert group_lag.summary(a_look(lag=1_200, lag_s=3.0)) == "1,200 records and 3.0 s behind"
    assert group_lag.summary(a_look(lag=None, lag_s=None)) == "how far behind cannot be told"
    assert group_lag.summary(a_look(lag=12, lag_s=3.0, lags=[12, None])) == (
        "at least 12 records and 3.0 s behind, without 1 partition that cannot be looked at"
    )


def test_what_is_not_known_is_not_zero() -> None:
    shown = group_lag.overview(
        [
            a_look("some", 12, 3.0, lags=[12, None]),
            a_look("all", 7, 75.0),
            a_look("none", None, None),
            a_look("new", None, None, lags=[]),
        ]
    )
    assert shown.splitlines() == [
        "GROUP  STATE  MEMBERS  LAG      BEHIND  NOTE",
        "some   Empty        0  12+       3.0 s  without orders[1]: no leader",
        "all    Empty        0    7  1 min 15 s",
        "none   Empty        0    -           -  without orders[0]: no leader",
        "new    Empty        0    -           -  nothing committed",
    ]
    assert group_lag.of_group(a_look("some", 12, 3.0, lags=[None, 12])).splitlines()[1:] == [
        "TOPIC   PARTITION  COMMITTED  END  LAG  BEHIND  READER  NOTE",
        "orders          0          3    ?    ?       ?  -       no leader",
        "orders          1          3   12   12  12.0 s  -",
    ]


def test_columns_without_a_number_stand_to_the_right_too() -> None:
    assert (
        group_lag.overview([a_look("g", None, None, lags=[])]).splitlines()[1].startswith("g      Empty        0    -")
    )
    assert (
        group_lag.of_group(a_look("g", None, None)).splitlines()[2].startswith("orders          0          3    ?    ?")
    )


def test_the_worst_come_first() -> None:
    looks = [a_look("a", 0), a_look("b", None, None), a_look("c", 5, 1.0), a_look("d", 5, 9.0), a_look("e", 70, None)]
    assert [each["group"] for each in group_lag.worst_first(looks)] == ["e", "d", "c", "a", "b"]


class Admin:
    """Groups with their committed offsets; a group that is None is deleted between listing and description."""

    def __init__(self, groups: dict[str, dict[TopicPartition, int] | None]) -> None:
        self.groups = groups

    async def list_groups(self) -> list[GroupListing]:
        return [GroupListing(name, "consumer", "Empty", "consumer", 0) for name in self.groups]

    async def describe_group(self, name: str) -> GroupDescription:
        if self.groups.get(name) is None:
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {name} not found.", f"group {name}")
        return GroupDescription(name, "consumer", "Empty", "uniform", 3, ())

    async def group_offsets(self, name: str) -> dict[TopicPartition, int]:
        return self.groups[name] or {}


def looked_at(brokers: Brokers, admin: Admin, look: Callable[[Any], Awaitable[Any]]) -> Any:
    async def story(ports: ClientPorts) -> Any:
        cluster = Cluster(brokers.names, ports=ports)
        try:
            return await look(SimpleNamespace(cluster=cluster, admin=admin))
        finally:
            await cluster.close()

    return play(brokers, story)


def test_one_bad_group_does_not_hide_the_others() -> None:
    brokers = Brokers()
    logs = brokers.add_topic("orders", 2)
    logs[0].end = logs[0].start = 5
    logs[1].leader = -1
    place = [TopicPartition("orders", number) for number in range(100)]
    admin = Admin(
        {
            "well": {place[0]: 5},
            "half": {place[0]: 5, place[1]: 2},
            "odd": {place[99]: 1},
            "deleted": None,
            "beyond": {place[0]: 9},
            "dropped": {TopicPartition("gone", 0): 1},
            "new": {},
        }
    )
    found = looked_at(brokers, admin, lambda client: group_lag.look_at_all(client, []))
    told = {each["group"]: (each["lag"], each["lag_s"], each["is_complete"]) for each in found}
    assert told == {
        "well": (0, 0.0, True),
        "half": (0, 0.0, False),
        "odd": (None, None, False),
        "beyond": (None, None, False),
        "dropped": (None, None, False),
        "new": (None, None, False),
    }
    notes = {each["group"]: [row["note"] for row in each["partitions"]] for each in found}
    assert (notes["half"], notes["odd"], notes["dropped"]) == (
        [None, "no leader"],
        ["no such partition"],
        ["no such topic"],
    )


def test_a_named_group_that_is_not_there_is_told() -> None:
    with pytest.raises(Refused) as refused:
        looked_at(Brokers(), Admin({}), lambda client: group_lag.look(client, ["nope"], []))
    assert sentence(refused.value) == "there is no group nope: `penstock group list` shows what there is"


def played(monkeypatch: pytest.MonkeyPatch, module: ModuleType, admin: Any, brokers: Brokers | None = None) -> None:
    """Makes the commands of a module use groups in memory."""

    def run_with_client(_bootstrap: Any, _timeout: Any, work: Any) -> Any:
        return looked_at(brokers or Brokers(), admin, work)

    monkeypatch.setattr(module, "run_with_client", run_with_client)


def test_a_topic_that_is_not_there_is_told(penstock: Penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    played(monkeypatch, group_lag, Admin({"g": {}}))
    result = penstock("group", "lag", "g", "-t", "nope")
    assert (result.code, result.out) == (1, "")
    assert "there is no topic nope: `penstock topic list`" in result.err


def test_no_groups_are_told_alike(penstock: Penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (group, group_lag):
        played(monkeypatch, module, Admin({}))
    listed, lag = penstock("group", "list"), penstock("group", "lag")
    assert listed == lag
    assert (lag.out, lag.err) == ("", "There are no groups: a consumer with group.id makes one.\n")
    assert penstock("group", "lag", "-o", "json").out == "[]\n"


def test_who_watches_sees_when_it_was(penstock: Penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    async def once(*_: Any) -> Any:
        yield [a_look()]

    played(monkeypatch, group_lag, Admin({}))
    monkeypatch.setattr(group_lag, "_looks", once)
    assert re.match(
        r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d, every 2 s\. Ctrl-C ends it\.\n\nGROUP ", penstock("group", "lag", "-w").out
    )
    assert "Ctrl-C" not in penstock("group", "lag").out


def test_names_of_strangers_do_not_steer_the_terminal(penstock: Penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    async def coordinator(*_: object) -> int:
        return 0

    name = "a\n\x1b[31mred"
    monkeypatch.setattr(Cluster, "coordinator", coordinator)
    for module in (group, group_lag):
        played(monkeypatch, module, Admin({name: {}}))
    for words in (("list",), ("lag",), ("lag", name), ("describe", name)):
        out = penstock("group", *words).out
        assert "a\\n\\x1b[31mred" in out
        assert "\x1b" not in out
    assert "\x1b" not in penstock("group", "describe", name + "\x1b").err
    assert json.loads(penstock("group", "list", "-o", "json").out)[0]["group"] == name


def test_what_was_not_deleted_has_a_line_each(penstock: Penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    class Deleting(Admin):
        async def delete_group(self, name: str) -> None:
            await self.describe_group(name)

    played(monkeypatch, group, Deleting({"b": {}}))
    result = penstock("group", "delete", "a", "b", "c", "--yes")
    assert (result.code, result.out) == (1, "b deleted.\n")
    assert result.err == (
        "Cluster localhost:9092, the default, because nothing names another.\n"
        "penstock: 2 of 3 groups were not deleted:\n"
        "  there is no group a: `penstock group list` shows what there is\n"
        "  there is no group c: `penstock group list` shows what there is.\n"
    )
    assert penstock("group", "delete", "a", "--yes").err.count("\n") == 2


def test_reset_wants_a_place(penstock: Penstock) -> None:
    result = penstock("group", "reset", "g")
    assert result.code == 2
    assert "say where to go on: --to-earliest, --to-latest, --to-offset, --to-datetime or --shift-by" in result.err


@pytest.mark.parametrize("options", [("--to-earliest", "--to-latest"), ("--to-offset=3", "--shift-by=1")])
def test_reset_wants_one_place(penstock: Penstock, options: tuple[str, ...]) -> None:
    result = penstock("group", "reset", "g", *options)
    assert result.code == 2
    first, second = (each.partition("=")[0] for each in options)
    assert f"{first} and {second} are 2 places" in result.err


def notes_of(brokers: Brokers, now: int, **where: Any) -> list[tuple[int, str | None]]:
    places = [TopicPartition("t", number) for number in range(len(brokers.topics["t"][1]))]
    committed = dict.fromkeys(places, now)
    plan = looked_at(brokers, Admin({}), lambda client: group_reset.plan_of(client, places, committed, **where))
    return [(each["to"], each["note"]) for each in plan]


def test_a_plan_says_why_it_goes_elsewhere() -> None:
    brokers = Brokers()
    empty, full = brokers.add_topic("t", 2)
    builder = BatchBuilder()
    for _ in range(10):
        builder.append(None, b"x", (), 1_000)
    full.append(bytes(builder.build()))
    empty.start = empty.end = 10
    assert notes_of(brokers, 5, at_ms=2_000) == [
        (10, "there are no records: the end"),
        (10, "every record is older: the end"),
    ]
    assert notes_of(brokers, 5, by=-100)[1] == (0, "95 before the first record: stops there")
    assert notes_of(brokers, 5, offset=12)[1] == (10, "2 beyond the end: stops there")
    assert notes_of(brokers, 5, by=2)[1] == (7, None)


@pytest.mark.parametrize("time", ["42", "yesterday", "start", "-10"])
def test_times_that_are_none(penstock: Penstock, time: str) -> None:
    told = penstock("group", "reset", "g", f"--to-datetime={time}").err
    assert f"--to-datetime '{time}' is no time: 2026-01-31T12:00, 15m (ago)" in told
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
    """Returns the output of `group why` for some events, in time zone UTC."""

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
