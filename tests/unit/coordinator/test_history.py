"""Group events: joins, departures and their reasons, rebalance durations, and pauses of partitions without a reader."""

import pytest

from penstock.coordinator.groups import GroupShard
from penstock.coordinator.history import EVENTS_MAX, SAID_MAX, GroupHistory
from penstock.coordinator.runtime import ShardRuntime
from penstock.coordinator.subscriptions import assignment_bytes
from penstock.model.group_events import EventKind, GroupEvent, decode_event
from penstock.wire.messages.join_group import JoinGroupRequest
from penstock.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tests.unit.coordinator.shard_driver import (
    QUICK,
    WALL_MS,
    Counter,
    ShardDriver,
    alive,
    beat,
    commit,
    join,
    subscription,
    sync,
)

BROKER = 7


class ObservedShardDriver(ShardDriver):
    def __init__(self) -> None:
        super().__init__()
        entropy = Counter()
        self.history = GroupHistory(BROKER)
        self.runtime = ShardRuntime(
            lambda: GroupShard(QUICK, entropy, lambda: self.topics), self.log, observer=self.history
        )
        self._epoch = 0
        self.elect()

    def told(self) -> list[GroupEvent]:
        """Returns the events since the last call."""
        found, self.history.events = self.history.events, []
        return found

    def enter(self) -> str:
        """Lets a classic member request an id, and returns it."""
        return str(self.ask(join()).member_id)


def in_short(events: list[GroupEvent]) -> list[str]:
    return [f"{each.kind} {each.reason or ''}".strip() for each in events]


def settled(driver: ObservedShardDriver) -> tuple[str, str]:
    """Forms a classic group of two."""
    first = driver.enter()
    ticket = driver.send(join(first))
    driver.pass_time(10)
    second = driver.enter()
    driver.answers.pop(ticket)
    one, two = driver.send(join(second)), driver.send(join(first))
    generation = driver.answers[one].generation_id
    assert driver.answers[two].generation_id == generation
    driver.send(sync(first, generation, {first: b"1", second: b"2"}))
    driver.send(sync(second, generation))
    return first, second


def test_classic_members_come_and_go() -> None:
    driver = ObservedShardDriver()
    first, second = settled(driver)
    kinds = [each.kind for each in driver.told()]
    assert kinds.count(EventKind.JOINED) == 2
    assert (kinds[-1], kinds.count(EventKind.REBALANCE_BEGUN)) == (EventKind.REBALANCE_DONE, kinds.count(kinds[-1]))
    driver.ask(LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=second)]))
    left, begun = driver.told()
    assert (left.kind, left.member, left.client_id, left.host) == (EventKind.LEFT, second, "c", "/host")
    assert (begun.kind, begun.reason, begun.members) == (EventKind.REBALANCE_BEGUN, f"{second} left", 1)
    driver.pass_time(2_000)
    again = driver.ask(join(first))
    driver.send(sync(first, again.generation_id, {first: b"1"}))
    (done,) = driver.told()
    assert (done.kind, done.took_ms, done.pause_ms, done.epoch, done.members) == (
        EventKind.REBALANCE_DONE,
        2_000,
        2_000,
        again.generation_id,
        1,
    )
    assert done.at_ms == WALL_MS + 2_010


def test_who_falls_silent_is_told_as_such() -> None:
    driver = ObservedShardDriver()
    first, second = settled(driver)
    driver.told()
    generation = driver.group().generation
    for _ in range(11):
        driver.pass_time(1_000)
        driver.ask(beat(first, generation))
    late, begun = driver.told()
    assert (late.kind, late.member, late.reason) == (
        EventKind.TIMED_OUT,
        second,
        "not heard for 10.2 s (its session: 10 s)",
    )
    assert begun.reason == f"{second} timed out"


def test_who_does_not_join_again_in_time() -> None:
    driver = ObservedShardDriver()
    first, second = settled(driver)
    third = driver.enter()
    driver.told()
    tickets = [driver.send(join(third)), driver.send(join(first))]
    for _ in range(25):
        driver.pass_time(1_000)
        if second in driver.group().members:
            driver.ask(beat(second, driver.group().generation))
    assert all(ticket in driver.answers for ticket in tickets)
    assert [(each.kind, each.reason) for each in driver.told() if each.member == second] == [
        (EventKind.TIMED_OUT, "it did not join in time")
    ]


def test_consumer_groups() -> None:
    driver = ObservedShardDriver()
    epoch = driver.ask(alive("m1", 0)).member_epoch
    joined, begun, done = driver.told()
    assert (joined.kind, joined.protocol, begun.reason, done.pause_ms) == (
        EventKind.JOINED,
        "consumer",
        "m1 joined",
        0,
    )
    driver.pass_time(1_500)
    driver.ask(alive("m2", 0))
    assert in_short(driver.told()) == ["joined", "rebalance-begun m2 joined"]
    driver.pass_time(1_500)
    driver.ask(alive("m1", epoch, owned={"a": [0, 1, 2, 3]}))
    driver.ask(alive("m1", epoch, owned={"a": [0, 1]}))
    assert driver.told() == []
    driver.pass_time(500)
    driver.ask(alive("m2", driver.group().members["m2"].epoch, owned={}))
    (done,) = driver.told()
    assert (done.kind, done.took_ms, done.pause_ms) == (EventKind.REBALANCE_DONE, 2_000, 500)
    driver.ask(alive("m1", 1_000))
    (fenced,) = driver.told()
    assert (fenced.kind, fenced.reason) == (EventKind.FENCED, "it came with an epoch that is over")
    driver.ask(alive("m1", 1_000))
    assert driver.told() == [], "once a minute is enough"
    driver.ask(alive("m2", -1))
    assert in_short(driver.told())[:2] == ["left", "rebalance-begun m2 left"]
    driver.pass_time(60_000)
    assert "timed-out not heard for 45.2 s (its session: 45 s)" in in_short(driver.told())


def test_a_static_member_that_goes_for_a_moment_begins_nothing() -> None:
    driver = ObservedShardDriver()
    driver.ask(alive("m1", 0, instance="one"))
    driver.told()
    driver.ask(alive("m1", -2, instance="one"))
    assert in_short(driver.told()) == ["left its place is kept for a session"]
    driver.ask(alive("m9", 0, instance="one"))
    assert in_short(driver.told()) == ["joined it is back under its name"]


def test_commits_and_heartbeats_tell_nothing() -> None:
    driver = ObservedShardDriver()
    epoch = driver.ask(alive("m1", 0)).member_epoch
    driver.told()
    driver.ask(commit({0: 3}, member_id="m1", epoch=epoch))
    driver.ask(alive("m1", epoch))
    assert driver.told() == []


def test_a_new_coordinator_is_told() -> None:
    driver = ObservedShardDriver()
    driver.ask(alive("m1", 0))
    driver.elect()
    (event,) = driver.told()
    assert (event.kind, event.broker, event.members) == (EventKind.COORDINATOR_CHANGED, BROKER, 1)


def test_every_event_names_its_coordinator() -> None:
    driver = ObservedShardDriver()
    settled(driver)
    assert {each.broker for each in driver.told()} == {BROKER}


def test_what_nobody_takes_does_not_pile_up() -> None:
    driver = ObservedShardDriver()
    for number in range(EVENTS_MAX):
        driver.ask(alive(f"m{number}", 0, group_id=f"g{number}"))
    assert len(driver.told()) == EVENTS_MAX


# --- pauses -----------------------------------------------------------------------------------------------------------


def share(*numbers: int) -> bytes:
    return assignment_bytes({"a": list(numbers)}, 1)


def owning(member_id: str, *numbers: int) -> JoinGroupRequest:
    return join(member_id, metadata=subscription("a", owned={"a": list(numbers)} if numbers else None))


def alone(driver: ObservedShardDriver, protocol_type: str = "consumer") -> str:
    """Forms a classic group of one member that owns all partitions."""
    member_id = str(driver.ask(join(protocol_type=protocol_type)).member_id)
    ticket = driver.send(join(member_id, protocol_type=protocol_type))
    driver.pass_time(10)
    driver.ask(sync(member_id, driver.answers[ticket].generation_id, {member_id: share(0, 1, 2, 3)}))
    driver.told()
    return member_id


def the_end(driver: ObservedShardDriver) -> tuple[int | None, int | None]:
    """Returns the duration and the longest pause of the only completed rebalance."""
    (done,) = [each for each in driver.told() if each.kind is EventKind.REBALANCE_DONE]
    return done.took_ms, done.pause_ms


def test_an_eager_member_reads_until_it_joins_again() -> None:
    driver = ObservedShardDriver()
    first = alone(driver)
    second = driver.enter()
    driver.send(join(second))
    driver.pass_time(2_900)  # the member learns of the rebalance only with its next heartbeat
    ticket = driver.send(join(first))
    generation = driver.answers[ticket].generation_id
    driver.pass_time(100)
    driver.send(sync(first, generation, {first: share(0, 1), second: share(2, 3)}))
    driver.pass_time(30)
    driver.send(sync(second, generation))
    assert the_end(driver) == (3_030, 130)


def test_a_rebalance_is_done_when_the_last_has_its_share() -> None:
    driver = ObservedShardDriver()
    first = alone(driver)
    second = driver.enter()
    driver.send(join(second))
    generation = driver.answers[driver.send(join(first))].generation_id
    driver.send(sync(first, generation, {first: share(0, 1), second: share(2, 3)}))
    assert EventKind.REBALANCE_DONE not in [each.kind for each in driver.told()]
    driver.send(sync(second, generation))
    assert the_end(driver) == (0, 0)


def test_a_cooperative_member_goes_on_with_what_stays_its() -> None:
    driver = ObservedShardDriver()
    first = alone(driver)
    second = driver.enter()
    driver.send(owning(second))
    driver.pass_time(2_000)
    generation = driver.answers[driver.send(owning(first, 0, 1, 2, 3))].generation_id
    driver.pass_time(100)
    driver.send(sync(first, generation, {first: share(0, 1), second: share()}))
    driver.send(sync(second, generation))
    assert the_end(driver) == (2_100, 0)
    driver.send(owning(first, 0, 1))
    driver.pass_time(1_000)
    generation = driver.answers[driver.send(owning(second))].generation_id
    driver.pass_time(10)
    driver.send(sync(first, generation, {first: share(0, 1), second: share(2, 3)}))
    driver.pass_time(1)
    driver.send(sync(second, generation))
    assert the_end(driver) == (1_011, 1_011)


def test_what_a_lost_classic_member_had_is_unread_since_it_was_heard() -> None:
    driver = ObservedShardDriver()
    first, second = settled(driver)
    generation = driver.group().generation
    driver.told()
    for _ in range(11):
        driver.pass_time(1_000)
        driver.ask(beat(first, generation))
    again = driver.ask(join(first))
    driver.ask(sync(first, again.generation_id, {first: share(0, 1, 2, 3)}))
    assert second not in driver.group().members
    assert the_end(driver) == (750, 11_000)


def test_what_a_lost_consumer_had_is_unread_since_it_was_heard() -> None:
    driver = ObservedShardDriver()
    first = driver.ask(alive("m1", 0)).member_epoch
    driver.ask(alive("m2", 0))
    driver.ask(alive("m1", first, owned={"a": [0, 1, 2, 3]}))
    first = driver.ask(alive("m1", first, owned={"a": [0, 1]})).member_epoch
    driver.ask(alive("m2", driver.group().members["m2"].epoch, owned={}))
    driver.told()
    for _ in range(46):
        driver.pass_time(1_000)
        first = driver.ask(alive("m1", first)).member_epoch
    assert set(driver.group().members) == {"m1"}
    assert the_end(driver) == (750, 46_000)


def test_partitions_that_stay_have_no_pause() -> None:
    driver = ObservedShardDriver()
    epoch = driver.ask(alive("m1", 0)).member_epoch
    driver.told()
    driver.pass_time(10_000)
    driver.ask(alive("m1", epoch, names=["a", "b"], owned={"a": [0, 1, 2, 3]}))
    assert the_end(driver) == (0, 0)


def test_shares_that_cannot_be_read_count_as_a_whole() -> None:
    driver = ObservedShardDriver()
    first = alone(driver, "connect")
    generation = driver.ask(join(first, protocol_type="connect")).generation_id
    driver.pass_time(400)
    driver.ask(sync(first, generation, {first: b"tasks"}))
    assert the_end(driver) == (400, 400)


def test_nobody_in_it_is_no_pause() -> None:
    driver = ObservedShardDriver()
    driver.ask(alive("m1", 0))
    driver.ask(alive("m1", -1))
    driver.told()
    driver.pass_time(100_000)
    driver.ask(alive("m2", 0))
    assert the_end(driver) == (0, 0)


def test_a_classic_member_among_others_pauses_until_it_has_its_share() -> None:
    driver = ObservedShardDriver()
    first = alone(driver)
    driver.ask(alive("m1", 0))
    joined = driver.ask(join(first))
    driver.pass_time(300)
    driver.ask(sync(first, joined.generation_id))
    driver.ask(alive("m1", driver.group().members["m1"].epoch, owned={}))
    assert the_end(driver) == (300, 300)


# --- client reasons, and conversions ----------------------------------------------------------------------------------


def test_what_clients_say_is_told() -> None:
    driver = ObservedShardDriver()
    first = driver.enter()
    driver.send(join(first, reason="need to re-join"))
    assert in_short(driver.told())[:1] == ["joined it said: need to re-join"]
    leaving = MemberIdentity(member_id=first, reason="x" * 1_000)
    driver.ask(LeaveGroupRequest(group_id="g", members=[leaving]))
    (left,) = [each for each in driver.told() if each.kind is EventKind.LEFT]
    assert left.reason == "it said: " + "x" * SAID_MAX


def test_who_joins_again_may_say_why() -> None:
    driver = ObservedShardDriver()
    first = alone(driver)
    driver.ask(join(first, reason="metadata has changed"))
    (begun,) = driver.told()
    assert (begun.member, begun.client_id) == (first, "c")
    assert begun.reason == f"{first} joined again; it said: metadata has changed"


def test_of_many_that_go_some_are_named() -> None:
    driver = ObservedShardDriver()
    first = alone(driver)
    others = [driver.enter() for _ in range(5)]
    tickets = [driver.send(join(each)) for each in (*others, first)]
    generation = driver.answers[tickets[0]].generation_id
    for each in (first, *others):
        driver.send(sync(each, generation, {first: share(0)}))
    driver.told()
    leaving = [MemberIdentity(member_id=each) for each in others]
    driver.ask(LeaveGroupRequest(group_id="g", members=leaving))
    begun = driver.told()[-1]
    assert begun.reason == "; ".join(f"{each} left" for each in others[:3]) + "; and 2 more members"


def test_conversions_are_told() -> None:
    driver = ObservedShardDriver()
    alone(driver)
    driver.ask(alive("m1", 0))
    assert in_short(driver.told())[0] == "converted it became a consumer group, as m1 speaks the new protocol"
    driver.ask(alive("m1", -1))
    assert in_short(driver.told())[0] == (
        "converted it became a classic group again, as nobody is left who speaks the new protocol"
    )


def test_a_group_that_begins_is_not_converted() -> None:
    driver = ObservedShardDriver()
    driver.enter()
    driver.ask(alive("m1", 0))
    assert EventKind.CONVERTED not in [each.kind for each in driver.told()]


def test_an_empty_group_may_become_classic() -> None:
    driver = ObservedShardDriver()
    driver.ask(alive("m1", 0))
    driver.ask(alive("m1", -1))
    driver.told()
    driver.send(join(driver.enter()))
    assert in_short(driver.told())[0].startswith("converted it became a classic group, as a classic member joined")


# --- encoding ---------------------------------------------------------------------------------------------------------


def test_events_of_before_had_no_true_pause() -> None:
    value = b'{"version":1,"group":"g","kind":"rebalance-done","at_ms":5,"pause_ms":3000}'
    assert decode_event(value) == GroupEvent("g", EventKind.REBALANCE_DONE, 5, took_ms=3_000)


def test_events_come_back_from_bytes() -> None:
    driver = ObservedShardDriver()
    settled(driver)
    for event in driver.told():
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
