"""What is told of groups: who came, who went and why, and how long the others waited."""

import pytest

from penstock.coordinator.chronicle import EVENTS_MAX, ChronicledShard
from penstock.coordinator.runtime import ShardRuntime
from penstock.model.group_events import EventKind, GroupEvent, decode_event
from penstock.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tests.unit.coordinator.stage import QUICK, WALL_MS, Counter, Stage, alive, beat, commit, join, sync

BROKER = 7


class ToldStage(Stage):
    def __init__(self) -> None:
        super().__init__()
        entropy = Counter()
        self.runtime = ShardRuntime(
            lambda: ChronicledShard(QUICK, entropy, lambda: self.topics, broker=BROKER), self.log
        )
        self._epoch = 0
        self.elect()

    def told(self) -> list[GroupEvent]:
        """What was told since the last look."""
        assert isinstance(self.shard, ChronicledShard)
        found, self.shard.events = self.shard.events, []
        return found

    def enter(self) -> str:
        """A classic member asks to join; its id."""
        return str(self.ask(join()).member_id)


def in_short(events: list[GroupEvent]) -> list[str]:
    return [f"{each.kind} {each.reason or ''}".strip() for each in events]


def settled(stage: ToldStage) -> tuple[str, str]:
    """A classic group of two."""
    first = stage.enter()
    ticket = stage.send(join(first))
    stage.pass_time(10)
    second = stage.enter()
    stage.answers.pop(ticket)
    one, two = stage.send(join(second)), stage.send(join(first))
    generation = stage.answers[one].generation_id
    assert stage.answers[two].generation_id == generation
    stage.send(sync(first, generation, {first: b"1", second: b"2"}))
    stage.send(sync(second, generation))
    return first, second


def test_classic_members_come_and_go() -> None:
    stage = ToldStage()
    first, second = settled(stage)
    kinds = [each.kind for each in stage.told()]
    assert kinds.count(EventKind.JOINED) == 2
    assert (kinds[-1], kinds.count(EventKind.REBALANCE_BEGUN)) == (EventKind.REBALANCE_DONE, kinds.count(kinds[-1]))
    stage.ask(LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=second)]))
    left, begun = stage.told()
    assert (left.kind, left.member, left.client_id, left.host) == (EventKind.LEFT, second, "c", "/host")
    assert (begun.kind, begun.reason, begun.members) == (EventKind.REBALANCE_BEGUN, f"{second} left", 1)
    stage.pass_time(2_000)
    again = stage.ask(join(first))
    stage.send(sync(first, again.generation_id, {first: b"1"}))
    (done,) = stage.told()
    assert (done.kind, done.pause_ms, done.epoch, done.members) == (
        EventKind.REBALANCE_DONE,
        2_000,
        again.generation_id,
        1,
    )
    assert done.at_ms == WALL_MS + 2_010


def test_who_falls_silent_is_told_as_such() -> None:
    stage = ToldStage()
    first, second = settled(stage)
    stage.told()
    generation = stage.group().generation
    for _ in range(11):
        stage.pass_time(1_000)
        stage.ask(beat(first, generation))
    late, begun = stage.told()
    assert (late.kind, late.member, late.reason) == (EventKind.TIMED_OUT, second, "it was not heard for a session")
    assert begun.reason == f"{second} timed out"


def test_who_does_not_join_again_in_time() -> None:
    stage = ToldStage()
    first, second = settled(stage)
    third = stage.enter()
    stage.told()
    tickets = [stage.send(join(third)), stage.send(join(first))]
    for _ in range(25):
        stage.pass_time(1_000)
        if second in stage.group().members:
            stage.ask(beat(second, stage.group().generation))
    assert all(ticket in stage.answers for ticket in tickets)
    assert [(each.kind, each.reason) for each in stage.told() if each.member == second] == [
        (EventKind.TIMED_OUT, "it did not join in time")
    ]


def test_consumer_groups() -> None:
    stage = ToldStage()
    epoch = stage.ask(alive("m1", 0)).member_epoch
    joined, begun, done = stage.told()
    assert (joined.kind, joined.protocol, begun.reason, done.pause_ms) == (
        EventKind.JOINED,
        "consumer",
        "m1 joined",
        0,
    )
    stage.pass_time(1_500)
    stage.ask(alive("m2", 0))
    assert in_short(stage.told()) == ["joined", "rebalance-begun m2 joined"]
    stage.pass_time(1_500)
    stage.ask(alive("m1", epoch, owned={"a": [0, 1, 2, 3]}))
    stage.ask(alive("m1", epoch, owned={"a": [0, 1]}))
    assert stage.told() == []
    stage.pass_time(500)
    stage.ask(alive("m2", stage.group().members["m2"].epoch, owned={}))
    (done,) = stage.told()
    assert (done.kind, done.pause_ms) == (EventKind.REBALANCE_DONE, 2_000)
    stage.ask(alive("m1", 1_000))
    (fenced,) = stage.told()
    assert (fenced.kind, fenced.reason) == (EventKind.FENCED, "it came with an epoch that is over")
    stage.ask(alive("m1", 1_000))
    assert stage.told() == [], "once a minute is enough"
    stage.ask(alive("m2", -1))
    assert in_short(stage.told())[:2] == ["left", "rebalance-begun m2 left"]
    stage.pass_time(60_000)
    assert "timed-out it was not heard for a session" in in_short(stage.told())


def test_a_static_member_that_goes_for_a_moment_begins_nothing() -> None:
    stage = ToldStage()
    stage.ask(alive("m1", 0, instance="one"))
    stage.told()
    stage.ask(alive("m1", -2, instance="one"))
    assert in_short(stage.told()) == ["left its place is kept for a session"]
    stage.ask(alive("m9", 0, instance="one"))
    assert in_short(stage.told()) == ["joined it is back under its name"]


def test_commits_and_heartbeats_tell_nothing() -> None:
    stage = ToldStage()
    epoch = stage.ask(alive("m1", 0)).member_epoch
    stage.told()
    stage.ask(commit({0: 3}, member_id="m1", epoch=epoch))
    stage.ask(alive("m1", epoch))
    assert stage.told() == []


def test_a_new_coordinator_is_told() -> None:
    stage = ToldStage()
    stage.ask(alive("m1", 0))
    stage.elect()
    (event,) = stage.told()
    assert (event.kind, event.broker, event.members) == (EventKind.COORDINATOR_CHANGED, BROKER, 1)


def test_what_nobody_takes_does_not_pile_up() -> None:
    stage = ToldStage()
    for number in range(EVENTS_MAX):
        stage.ask(alive(f"m{number}", 0, group_id=f"g{number}"))
    assert len(stage.told()) == EVENTS_MAX


def test_events_come_back_from_bytes() -> None:
    stage = ToldStage()
    settled(stage)
    for event in stage.told():
        assert decode_event(event.encode()) == event


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"[]",
        b'{"group":"g"}',
        b'{"version":1,"group":"g","kind":"danced","at_ms":1}',
        b'{"version":1,"group":3}',
    ],
)
def test_what_is_no_event_is_passed_over(value: bytes | None) -> None:
    assert decode_event(value) is None


def test_what_is_new_in_an_event_is_passed_over() -> None:
    value = b'{"version":9,"group":"g","kind":"left","at_ms":5,"mood":"good"}'
    assert decode_event(value) == GroupEvent("g", EventKind.LEFT, 5)
