"""What is told of groups: who came, who went and why, how long it took, and how long partitions had no reader."""

import pytest

from penstock.coordinator.chronicle import EVENTS_MAX, SAID_MAX, ChronicledShard
from penstock.coordinator.runtime import ShardRuntime
from penstock.coordinator.subscriptions import assignment_bytes
from penstock.model.group_events import EventKind, GroupEvent, decode_event
from penstock.wire.messages.join_group import JoinGroupRequest
from penstock.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tests.unit.coordinator.stage import (
    QUICK,
    WALL_MS,
    Counter,
    Stage,
    alive,
    beat,
    commit,
    join,
    subscription,
    sync,
)

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
    assert (done.kind, done.took_ms, done.pause_ms, done.epoch, done.members) == (
        EventKind.REBALANCE_DONE,
        2_000,
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
    assert (late.kind, late.member, late.reason) == (
        EventKind.TIMED_OUT,
        second,
        "not heard for 10.2 s (its session: 10 s)",
    )
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
    assert (done.kind, done.took_ms, done.pause_ms) == (EventKind.REBALANCE_DONE, 2_000, 500)
    stage.ask(alive("m1", 1_000))
    (fenced,) = stage.told()
    assert (fenced.kind, fenced.reason) == (EventKind.FENCED, "it came with an epoch that is over")
    stage.ask(alive("m1", 1_000))
    assert stage.told() == [], "once a minute is enough"
    stage.ask(alive("m2", -1))
    assert in_short(stage.told())[:2] == ["left", "rebalance-begun m2 left"]
    stage.pass_time(60_000)
    assert "timed-out not heard for 45.2 s (its session: 45 s)" in in_short(stage.told())


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


def test_every_event_names_its_coordinator() -> None:
    stage = ToldStage()
    settled(stage)
    assert {each.broker for each in stage.told()} == {BROKER}


def test_what_nobody_takes_does_not_pile_up() -> None:
    stage = ToldStage()
    for number in range(EVENTS_MAX):
        stage.ask(alive(f"m{number}", 0, group_id=f"g{number}"))
    assert len(stage.told()) == EVENTS_MAX


# --- pauses -----------------------------------------------------------------------------------------------------------


def share(*numbers: int) -> bytes:
    return assignment_bytes({"a": list(numbers)}, 1)


def owning(member_id: str, *numbers: int) -> JoinGroupRequest:
    return join(member_id, metadata=subscription("a", owned={"a": list(numbers)} if numbers else None))


def alone(stage: ToldStage, protocol_type: str = "consumer") -> str:
    """A classic group of one that reads everything."""
    member_id = str(stage.ask(join(protocol_type=protocol_type)).member_id)
    ticket = stage.send(join(member_id, protocol_type=protocol_type))
    stage.pass_time(10)
    stage.ask(sync(member_id, stage.answers[ticket].generation_id, {member_id: share(0, 1, 2, 3)}))
    stage.told()
    return member_id


def the_end(stage: ToldStage) -> tuple[int | None, int | None]:
    """What the one rebalance that is done took, and how long its longest pause was."""
    (done,) = [each for each in stage.told() if each.kind is EventKind.REBALANCE_DONE]
    return done.took_ms, done.pause_ms


def test_an_eager_member_reads_until_it_joins_again() -> None:
    stage = ToldStage()
    first = alone(stage)
    second = stage.enter()
    stage.send(join(second))
    stage.pass_time(2_900)  # until its next heartbeat it knows of nothing
    ticket = stage.send(join(first))
    generation = stage.answers[ticket].generation_id
    stage.pass_time(100)
    stage.send(sync(first, generation, {first: share(0, 1), second: share(2, 3)}))
    stage.pass_time(30)
    stage.send(sync(second, generation))
    assert the_end(stage) == (3_030, 130)


def test_a_rebalance_is_done_when_the_last_has_its_share() -> None:
    stage = ToldStage()
    first = alone(stage)
    second = stage.enter()
    stage.send(join(second))
    generation = stage.answers[stage.send(join(first))].generation_id
    stage.send(sync(first, generation, {first: share(0, 1), second: share(2, 3)}))
    assert EventKind.REBALANCE_DONE not in [each.kind for each in stage.told()]
    stage.send(sync(second, generation))
    assert the_end(stage) == (0, 0)


def test_a_cooperative_member_goes_on_with_what_stays_its() -> None:
    stage = ToldStage()
    first = alone(stage)
    second = stage.enter()
    stage.send(owning(second))
    stage.pass_time(2_000)
    generation = stage.answers[stage.send(owning(first, 0, 1, 2, 3))].generation_id
    stage.pass_time(100)
    stage.send(sync(first, generation, {first: share(0, 1), second: share()}))
    stage.send(sync(second, generation))
    assert the_end(stage) == (2_100, 0)
    stage.send(owning(first, 0, 1))
    stage.pass_time(1_000)
    generation = stage.answers[stage.send(owning(second))].generation_id
    stage.pass_time(10)
    stage.send(sync(first, generation, {first: share(0, 1), second: share(2, 3)}))
    stage.pass_time(1)
    stage.send(sync(second, generation))
    assert the_end(stage) == (1_011, 1_011)


def test_what_a_lost_classic_member_had_is_unread_since_it_was_heard() -> None:
    stage = ToldStage()
    first, second = settled(stage)
    generation = stage.group().generation
    stage.told()
    for _ in range(11):
        stage.pass_time(1_000)
        stage.ask(beat(first, generation))
    again = stage.ask(join(first))
    stage.ask(sync(first, again.generation_id, {first: share(0, 1, 2, 3)}))
    assert second not in stage.group().members
    assert the_end(stage) == (750, 11_000)


def test_what_a_lost_consumer_had_is_unread_since_it_was_heard() -> None:
    stage = ToldStage()
    first = stage.ask(alive("m1", 0)).member_epoch
    stage.ask(alive("m2", 0))
    stage.ask(alive("m1", first, owned={"a": [0, 1, 2, 3]}))
    first = stage.ask(alive("m1", first, owned={"a": [0, 1]})).member_epoch
    stage.ask(alive("m2", stage.group().members["m2"].epoch, owned={}))
    stage.told()
    for _ in range(46):
        stage.pass_time(1_000)
        first = stage.ask(alive("m1", first)).member_epoch
    assert set(stage.group().members) == {"m1"}
    assert the_end(stage) == (750, 46_000)


def test_partitions_that_stay_have_no_pause() -> None:
    stage = ToldStage()
    epoch = stage.ask(alive("m1", 0)).member_epoch
    stage.told()
    stage.pass_time(10_000)
    stage.ask(alive("m1", epoch, names=["a", "b"], owned={"a": [0, 1, 2, 3]}))
    assert the_end(stage) == (0, 0)


def test_shares_that_cannot_be_read_count_as_a_whole() -> None:
    stage = ToldStage()
    first = alone(stage, "connect")
    generation = stage.ask(join(first, protocol_type="connect")).generation_id
    stage.pass_time(400)
    stage.ask(sync(first, generation, {first: b"tasks"}))
    assert the_end(stage) == (400, 400)


def test_nobody_in_it_is_no_pause() -> None:
    stage = ToldStage()
    stage.ask(alive("m1", 0))
    stage.ask(alive("m1", -1))
    stage.told()
    stage.pass_time(100_000)
    stage.ask(alive("m2", 0))
    assert the_end(stage) == (0, 0)


def test_a_classic_member_among_others_pauses_until_it_has_its_share() -> None:
    stage = ToldStage()
    first = alone(stage)
    stage.ask(alive("m1", 0))
    joined = stage.ask(join(first))
    stage.pass_time(300)
    stage.ask(sync(first, joined.generation_id))
    stage.ask(alive("m1", stage.group().members["m1"].epoch, owned={}))
    assert the_end(stage) == (300, 300)


# --- what clients say, and conversions --------------------------------------------------------------------------------


def test_what_clients_say_is_told() -> None:
    stage = ToldStage()
    first = stage.enter()
    stage.send(join(first, reason="need to re-join"))
    assert in_short(stage.told())[:1] == ["joined it said: need to re-join"]
    leaving = MemberIdentity(member_id=first, reason="x" * 1_000)
    stage.ask(LeaveGroupRequest(group_id="g", members=[leaving]))
    (left,) = [each for each in stage.told() if each.kind is EventKind.LEFT]
    assert left.reason == "it said: " + "x" * SAID_MAX


def test_who_joins_again_may_say_why() -> None:
    stage = ToldStage()
    first = alone(stage)
    stage.ask(join(first, reason="metadata has changed"))
    (begun,) = stage.told()
    assert (begun.member, begun.client_id) == (first, "c")
    assert begun.reason == f"{first} joined again; it said: metadata has changed"


def test_of_many_that_go_some_are_named() -> None:
    stage = ToldStage()
    first = alone(stage)
    others = [stage.enter() for _ in range(5)]
    tickets = [stage.send(join(each)) for each in (*others, first)]
    generation = stage.answers[tickets[0]].generation_id
    for each in (first, *others):
        stage.send(sync(each, generation, {first: share(0)}))
    stage.told()
    leaving = [MemberIdentity(member_id=each) for each in others]
    stage.ask(LeaveGroupRequest(group_id="g", members=leaving))
    begun = stage.told()[-1]
    assert begun.reason == "; ".join(f"{each} left" for each in others[:3]) + "; and 2 more members"


def test_conversions_are_told() -> None:
    stage = ToldStage()
    alone(stage)
    stage.ask(alive("m1", 0))
    assert in_short(stage.told())[0] == "converted it became a consumer group, as m1 speaks the new protocol"
    stage.ask(alive("m1", -1))
    assert in_short(stage.told())[0] == (
        "converted it became a classic group again, as nobody is left who speaks the new protocol"
    )


def test_a_group_that_begins_is_not_converted() -> None:
    stage = ToldStage()
    stage.enter()
    stage.ask(alive("m1", 0))
    assert EventKind.CONVERTED not in [each.kind for each in stage.told()]


def test_an_empty_group_may_become_classic() -> None:
    stage = ToldStage()
    stage.ask(alive("m1", 0))
    stage.ask(alive("m1", -1))
    stage.told()
    stage.send(join(stage.enter()))
    assert in_short(stage.told())[0].startswith("converted it became a classic group, as a classic member joined")


# --- as bytes ---------------------------------------------------------------------------------------------------------


def test_events_of_before_had_no_true_pause() -> None:
    value = b'{"version":1,"group":"g","kind":"rebalance-done","at_ms":5,"pause_ms":3000}'
    assert decode_event(value) == GroupEvent("g", EventKind.REBALANCE_DONE, 5, took_ms=3_000)


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
