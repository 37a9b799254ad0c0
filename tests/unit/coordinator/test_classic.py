"""Classic groups: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, timeouts; static members; limits."""

from typing import Any

import pytest

from penstock.coordinator.classic import MOVES, ClassicGroup, State, group_of
from penstock.coordinator.events import Leased
from penstock.coordinator.requests import Ask
from penstock.coordinator.settings import GROUP_BYTES_MAX, GROUPS_BYTES_MAX
from penstock.coordinator.subscriptions import assignment_bytes
from penstock.model.epochs import INT32_EPOCH_MAX
from penstock.model.errors import ErrorCode
from penstock.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tests.unit.coordinator.classic import alone, enter, settle
from tests.unit.coordinator.shard_driver import QUICK, ShardDriver, alive, beat, commit, join, subscription, sync

NONE = ErrorCode.NONE


def test_a_member_asks_for_an_id_joins_and_syncs() -> None:
    driver = ShardDriver()
    member_id, generation = alone(driver)
    assert generation == 1
    assert driver.ask(beat(member_id, 1)).error_code is NONE
    assert driver.ask(sync(member_id, 1)).assignment == f"for {member_id}".encode()


def test_old_clients_join_without_an_id() -> None:
    driver = ShardDriver()
    ticket = driver.send(join(), version=3)
    driver.pass_time(0)
    assert driver.answers[ticket].generation_id == 1
    assert driver.answers[ticket].leader == driver.answers[ticket].member_id


def test_the_leader_learns_of_all_members_and_the_others_of_none() -> None:
    driver = ShardDriver()
    first, _ = alone(driver)
    second = enter(driver)
    assert driver.ask(beat(first, 1)).error_code is ErrorCode.REBALANCE_IN_PROGRESS
    leading = driver.send(join(first))
    assert {each.member_id for each in driver.answers[leading].members} == {first, second}
    other = next(answer for answer in driver.answers.values() if getattr(answer, "member_id", "") == second)
    assert other.members == ()
    assert other.leader == first
    assert other.generation_id == 2


def test_what_everybody_knows_and_most_like_is_chosen() -> None:
    driver = ShardDriver()
    tickets = [
        driver.send(join(protocols=names), version=3)
        for names in (("range", "sticky"), ("sticky", "range"), ("sticky",))
    ]
    driver.pass_time(0)
    assert {driver.answers[ticket].protocol_name for ticket in tickets} == {"sticky"}


@pytest.mark.parametrize(
    ("told", "code"),
    [
        ({"protocols": ("other",)}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": ()}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"session_ms": 1}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
    ],
)
def test_who_does_not_fit_is_refused(told: dict[str, Any], code: ErrorCode) -> None:
    driver = ShardDriver()
    alone(driver)
    assert driver.ask(join(**told)).error_code is code


def test_an_empty_group_waits_a_little_for_more() -> None:
    driver = ShardDriver(QUICK.__class__(initial_delay_ms=3_000))
    enter(driver)
    driver.pass_time(2_000)
    enter(driver)
    driver.pass_time(1_500)
    assert driver.group().state is State.PREPARING, "somebody came, so it waits once more"
    driver.pass_time(1_400)
    assert driver.group().state is State.PREPARING
    driver.pass_time(200)
    assert driver.group().state is State.COMPLETING, "nobody came for three seconds"


def test_but_not_for_ever() -> None:
    driver = ShardDriver(QUICK.__class__(initial_delay_ms=3_000))
    for _ in range(9):
        enter(driver)
        driver.pass_time(2_000)
    assert driver.group().state is State.PREPARING
    enter(driver)
    driver.pass_time(2_100)
    assert driver.group().state is State.COMPLETING, "members wait twenty seconds for each other at most"


def test_who_does_not_join_in_time_is_out() -> None:
    driver = ShardDriver()
    first = enter(driver)
    second = enter(driver)
    settle(driver, first, second)
    driver.send(join(first, metadata=subscription("b")))
    for _ in range(4):
        driver.pass_time(5_000)
        if second in driver.group().members:
            assert driver.ask(beat(second, 1)).error_code is ErrorCode.REBALANCE_IN_PROGRESS
    assert list(driver.group().members) == [first]
    assert driver.group().generation == 2


def test_a_member_that_is_not_heard_of_is_out() -> None:
    driver = ShardDriver()
    alone(driver)
    driver.pass_time(9_900)
    assert driver.group().state is State.STABLE
    driver.pass_time(1_000)
    assert driver.group().state is State.EMPTY
    assert driver.group().generation == 2


def test_a_coordinator_that_stood_still_listens_before_it_judges() -> None:
    driver = ShardDriver()
    member_id, generation = alone(driver)
    driver.now_ms += 60_000
    driver.pass_time(100)
    assert driver.ask(beat(member_id, generation)).error_code is NONE
    driver.pass_time(9_000)
    assert driver.group().state is State.STABLE


def test_who_does_not_sync_in_time_is_out() -> None:
    driver = ShardDriver()
    first = enter(driver)
    second = enter(driver)
    driver.pass_time(0)
    driver.send(sync(first, 1, {}))
    for _ in range(5):
        driver.pass_time(4_000)
        driver.send(beat(first, 1))
        driver.send(beat(second, 1))
    assert second not in driver.group().members


def test_an_id_that_nobody_uses_holds_nobody_up_for_long() -> None:
    driver = ShardDriver()
    first, _ = alone(driver)
    assert driver.ask(join()).error_code is ErrorCode.MEMBER_ID_REQUIRED
    driver.send(join(first, metadata=subscription("b")))
    assert driver.group().state is State.PREPARING
    driver.pass_time(10_000)
    assert driver.group().state is State.COMPLETING


def test_many_who_ask_for_ids_do_not_get_past_the_limit() -> None:
    """R27, KAFKA-7610 and 7641."""
    driver = ShardDriver(QUICK.__class__(members_max=3, initial_delay_ms=0))
    codes = [driver.ask(join()).error_code for _ in range(5)]
    assert codes == [ErrorCode.MEMBER_ID_REQUIRED] * 3 + [ErrorCode.GROUP_MAX_SIZE_REACHED] * 2
    driver.pass_time(10_000)
    assert driver.group() is None


def test_a_new_member_that_is_kept_waiting_goes_and_the_others_go_on() -> None:
    """R27, KAFKA-9752: an old client that has abandoned its JoinGroup must not block the group for ever."""
    driver = ShardDriver()
    driver.send(join(rebalance_ms=2_000_000, instance="away"))
    driver.pass_time(0)
    away = next(iter(driver.group().members))
    driver.send(sync(away, 1, {}, instance="away"))
    driver.send(join(rebalance_ms=2_000_000), version=3)
    driver.send(beat(away, 1, instance="away"))
    driver.pass_time(301_000)
    assert driver.group().members == {}
    assert driver.group().state is State.EMPTY


# --- generations ------------------------------------------------------------------------------------------------------


def test_words_of_another_generation_are_refused() -> None:
    driver = ShardDriver()
    member_id, generation = alone(driver)
    for request in (beat(member_id, generation + 1), sync(member_id, generation - 1)):
        assert driver.ask(request).error_code is ErrorCode.ILLEGAL_GENERATION
    late = driver.ask(commit({0: 1}, member_id=member_id, epoch=generation + 1))
    assert late.topics[0].partitions[0].error_code is ErrorCode.ILLEGAL_GENERATION
    assert driver.ask(beat("nobody", generation)).error_code is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_lost_its_answer_gets_it_again() -> None:
    driver = ShardDriver()
    first = enter(driver)
    second = enter(driver)
    driver.pass_time(0)
    assert driver.ask(join(second)).generation_id == 1
    settle(driver, first, second)
    assert driver.ask(join(second)).generation_id == 1
    driver.send(join(first))
    assert driver.group().state is State.PREPARING, "a leader that joins again wants a rebalance"


def test_waiting_for_the_assignment_ends_when_somebody_joins() -> None:
    driver = ShardDriver()
    first = enter(driver)
    second = enter(driver)
    driver.pass_time(0)
    waiting = driver.send(sync(second, 1))
    enter(driver)
    assert driver.answers[waiting].error_code is ErrorCode.REBALANCE_IN_PROGRESS
    assert first in driver.group().members


# --- static members ---------------------------------------------------------------------------------------------------


def static(driver: ShardDriver) -> str:
    driver.send(join(instance="i"))
    driver.pass_time(0)
    member_id = str(next(iter(driver.group().members)))
    driver.send(sync(member_id, 1, {member_id: b"mine"}, instance="i"))
    return member_id


def test_a_static_member_that_comes_back_has_what_it_had_without_a_rebalance() -> None:
    driver = ShardDriver()
    old = static(driver)
    back = driver.ask(join(instance="i"))
    assert back.generation_id == 1
    assert back.member_id != old
    assert back.skip_assignment
    assert driver.ask(sync(back.member_id, 1, instance="i")).assignment == b"mine"
    assert driver.ask(beat(old, 1, instance="i")).error_code is ErrorCode.FENCED_INSTANCE_ID
    reloaded = driver.log.records()[-1]
    assert reloaded.value.members[0].member_id == back.member_id  # type: ignore[union-attr]


def test_before_version_9_it_does_not_learn_that_it_leads() -> None:
    driver = ShardDriver()
    old = static(driver)
    back = driver.ask(join(instance="i"), version=8)
    assert back.leader == old
    assert not back.members


def test_what_a_static_member_had_before_it_went_is_no_other_wish() -> None:
    """Java consumers send their owned partitions and generation with every join; after a restart they own none."""
    driver = ShardDriver()
    static(driver)
    had = subscription("b", "a", owned={"a": [0]}, generation=1)
    driver.send(join(instance="i", metadata=had))
    assert driver.group().generation == 2
    member_id = str(next(iter(driver.group().members)))
    given = assignment_bytes({"a": [0, 1, 2, 3], "b": [0, 1, 2, 3]}, 1)
    driver.send(sync(member_id, 2, {member_id: given}, instance="i"))
    back = driver.ask(join(instance="i", metadata=subscription("a", "b")))
    assert back.generation_id == 2
    assert back.member_id != member_id
    assert driver.group().state is State.STABLE


def test_who_was_giving_something_up_when_it_went_starts_a_rebalance() -> None:
    """A cooperative member rejoins after a revocation; otherwise no member would own the revoked partitions."""
    driver = ShardDriver()
    static(driver)
    driver.send(join(instance="i", metadata=subscription("b", "a", owned={"a": [0, 1]}, generation=1)))
    member_id = str(next(iter(driver.group().members)))
    driver.send(sync(member_id, 2, {member_id: assignment_bytes({"a": [0]}, 1)}, instance="i"))
    driver.send(join(instance="i", metadata=subscription("a", "b")))
    assert driver.group().generation == 3


def test_a_static_leader_that_missed_new_partitions_starts_a_rebalance() -> None:
    """The returning leader detects only later partition changes, and would miss the new partitions."""
    driver = ShardDriver()
    static(driver)
    driver.send(join(instance="i", metadata=subscription("b", "a", owned={"a": [0]}, generation=1)))
    member_id = str(next(iter(driver.group().members)))
    given = assignment_bytes({"a": [0, 1, 2], "b": [0, 1, 2, 3]}, 1)
    driver.send(sync(member_id, 2, {member_id: given}, instance="i"))
    driver.send(join(instance="i", metadata=subscription("a", "b")))
    assert driver.group().generation == 3


@pytest.mark.parametrize("metadata", [subscription("b"), b"", b"unreadable"])
def test_another_subscription_starts_a_rebalance(metadata: bytes) -> None:
    driver = ShardDriver()
    static(driver)
    driver.send(join(instance="i", metadata=metadata))
    assert driver.group().generation == 2


def test_a_static_member_that_is_away_keeps_its_place_until_its_session_ends() -> None:
    driver = ShardDriver()
    member_id = static(driver)
    other = enter(driver)
    for _ in range(2):
        driver.pass_time(4_000)
        driver.send(beat(member_id, 1, instance="i"))
    assert driver.group().state is State.PREPARING
    driver.pass_time(3_000)
    driver.send(beat(member_id, 1, instance="i"))
    driver.pass_time(9_500)
    assert list(driver.group().members) == [member_id, other]
    assert driver.group().leader == other, "who leads must be there"


# --- leaving ----------------------------------------------------------------------------------------------------------


def test_several_leave_at_once() -> None:
    driver = ShardDriver()
    first = enter(driver)
    second = enter(driver)
    settle(driver, first, second)
    who = [MemberIdentity(member_id=each) for each in (first, second, "nobody")]
    answer = driver.ask(LeaveGroupRequest(group_id="g", members=who), version=5)
    assert [each.error_code for each in answer.members] == [NONE, NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    assert driver.group().state is State.EMPTY


def test_an_operator_removes_a_static_member_by_its_name() -> None:
    driver = ShardDriver()
    static(driver)
    who = [MemberIdentity(member_id="", group_instance_id="i"), MemberIdentity(member_id="x", group_instance_id="i")]
    answer = driver.ask(LeaveGroupRequest(group_id="g", members=who), version=5)
    assert [each.error_code for each in answer.members] == [NONE, ErrorCode.UNKNOWN_MEMBER_ID]


def test_an_old_client_leaves() -> None:
    driver = ShardDriver()
    member_id, _ = alone(driver)
    assert driver.ask(LeaveGroupRequest(group_id="g", member_id=member_id), version=1).error_code is NONE
    assert (
        driver.ask(LeaveGroupRequest(group_id="h", member_id="x"), version=1).error_code is ErrorCode.UNKNOWN_MEMBER_ID
    )


# --- what survives a new coordinator ----------------------------------------------------------------------------------


def test_a_new_coordinator_knows_members_and_assignments() -> None:
    driver = ShardDriver()
    member_id, generation = alone(driver)
    driver.elect()
    assert driver.ask(beat(member_id, generation)).error_code is NONE
    assert driver.ask(sync(member_id, generation)).assignment == f"for {member_id}".encode()
    driver.pass_time(11_000)
    assert driver.group().state is State.EMPTY


def test_deciding_changes_nothing() -> None:
    driver = ShardDriver()
    member_id, generation = alone(driver)
    before = driver.group().copy()
    for request in (
        join(),
        join(member_id),
        sync(member_id, generation),
        beat(member_id, generation),
        join(instance="i"),
    ):
        driver.shard.decide(Ask(request, 9), 999, driver.now)
    assert driver.group() == before


def test_a_group_is_its_record_while_it_is_stable() -> None:
    driver = ShardDriver()
    alone(driver)
    group = driver.group()
    reloaded = group_of("g", group.value())
    assert isinstance(reloaded, ClassicGroup)
    assert reloaded.value() == group.value()


def test_moves_are_those_of_the_table() -> None:
    with pytest.raises(AssertionError, match="no move"):
        ClassicGroup("g").move(State.STABLE, 0)
    assert {state for move in MOVES for state in move} == set(State)


def test_an_id_that_is_given_back_disturbs_nobody() -> None:
    driver = ShardDriver()
    alone(driver)
    pending = driver.ask(join()).member_id
    gone = LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=pending)])
    assert driver.ask(gone, version=5).members[0].error_code is NONE
    assert driver.group().state is State.STABLE


def test_a_group_with_offsets_stays_when_an_id_is_given_back() -> None:
    driver = ShardDriver()
    driver.ask(commit({0: 5}))
    pending = driver.ask(join()).member_id
    driver.ask(LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=pending)]), version=5)
    assert driver.group().is_empty
    driver.ask(join())
    driver.pass_time(20_000)
    assert driver.group().is_empty


@pytest.mark.parametrize("is_new", [False, True])
def test_nobody_is_out_for_not_being_heard_while_nobody_could_be(*, is_new: bool) -> None:
    """Without a lease the coordinator answers no heartbeats; afterwards members get a full session before expiry."""
    driver = ShardDriver()
    member_id, epoch = "m", 1
    if is_new:
        driver.ask(alive("m", 0))
    else:
        member_id, epoch = alone(driver)
    driver.do(Leased(driver.now_ms + 1_000))
    driver.pass_time(300_000)
    driver.do(Leased(driver.now_ms + 1_000_000))
    driver.pass_time(9_000)
    answer = driver.ask(alive("m", epoch) if is_new else beat(member_id, epoch))
    assert answer.error_code is NONE
    driver.pass_time(100_000)
    assert driver.group().is_empty


def test_the_last_generation_is_followed_by_the_first() -> None:
    driver = ShardDriver()
    alone(driver)
    driver.group().generation = INT32_EPOCH_MAX
    member_id = driver.group().leader
    joined = driver.ask(join(member_id))
    assert (joined.error_code, joined.generation_id) == (NONE, 1)


# --- client metadata --------------------------------------------------------------------------------------------------


def test_members_of_a_group_hold_a_bounded_number_of_bytes() -> None:
    driver = ShardDriver()
    large = bytes(1024 * 1024)
    codes = []
    for _ in range(12):
        ticket = driver.send(join(metadata=large), version=3)
        codes.append(driver.answers[ticket].error_code if ticket in driver.answers else NONE)
    assert codes == [NONE] * 8 + [ErrorCode.GROUP_MAX_SIZE_REACHED] * 4
    assert driver.shard.held_bytes == driver.group().held_bytes == GROUP_BYTES_MAX


def test_groups_of_a_coordinator_hold_a_bounded_number_of_bytes_and_small_members_are_taken() -> None:
    driver = ShardDriver()
    large = bytes(1024 * 1024)
    for number in range(64):
        driver.send(join(metadata=large, group_id=f"g{number}"), version=3)
    assert driver.shard.held_bytes == GROUPS_BYTES_MAX
    refused = driver.ask(join(metadata=large, group_id="one-more"), version=3)
    assert refused.error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    driver.send(join(group_id="small"), version=3)
    assert driver.group("small").members


def test_what_members_hold_is_given_back_when_they_go_or_say_less() -> None:
    driver = ShardDriver()
    first = enter(driver, metadata=bytes(50_000))
    settle(driver, first)
    assert driver.shard.held_bytes == 50_000
    second = enter(driver, metadata=bytes(70_000))
    driver.send(join(first, metadata=bytes(10_000)))
    assert driver.group().held_bytes == sum(m.held_bytes for m in driver.group().members.values())
    assert driver.shard.held_bytes == 80_000
    driver.ask(LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=second)]))
    assert driver.shard.held_bytes == 10_000
    driver.ask(LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=first)]))
    assert driver.shard.held_bytes == 0
