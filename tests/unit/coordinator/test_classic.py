"""Classic groups: joining, syncing, staying, leaving, timing out; static members; limits."""

from typing import Any

import pytest

from penstock.coordinator.classic import MOVES, ClassicGroup, State, group_of
from penstock.coordinator.events import Leased
from penstock.coordinator.settings import GROUP_BYTES_MAX, GROUPS_BYTES_MAX
from penstock.coordinator.subscriptions import assignment_bytes
from penstock.coordinator.work import Ask
from penstock.model.epochs import INT32_EPOCH_MAX
from penstock.model.errors import ErrorCode
from penstock.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tests.unit.coordinator.stage import QUICK, Stage, alive, beat, commit, join, subscription, sync

NONE = ErrorCode.NONE


def enter(stage: Stage, **told: Any) -> str:
    """A dynamic member asks for its id, and joins with it; its id."""
    answer = stage.ask(join(**told))
    assert answer.error_code is ErrorCode.MEMBER_ID_REQUIRED
    stage.send(join(answer.member_id, **told))
    return str(answer.member_id)


def settle(stage: Stage, *members: str) -> int:
    """All members join and sync; the generation."""
    stage.pass_time(0)
    for member_id in members:
        if stage.group().members[member_id].joining is None and stage.group().state is State.PREPARING:
            stage.send(join(member_id))
    stage.pass_time(0)
    group = stage.group()
    assert group.state is State.COMPLETING
    assignments = {member_id: f"for {member_id}".encode() for member_id in group.members}
    for member_id in (*[each for each in members if each != group.leader], group.leader):
        stage.send(sync(member_id, group.generation, assignments if member_id == group.leader else None))
    assert stage.group().state is State.STABLE
    return int(group.generation)


def alone(stage: Stage) -> tuple[str, int]:
    member_id = enter(stage)
    return member_id, settle(stage, member_id)


def test_a_member_asks_for_an_id_joins_and_syncs() -> None:
    stage = Stage()
    member_id, generation = alone(stage)
    assert generation == 1
    assert stage.ask(beat(member_id, 1)).error_code is NONE
    assert stage.ask(sync(member_id, 1)).assignment == f"for {member_id}".encode()


def test_old_clients_join_without_an_id() -> None:
    stage = Stage()
    ticket = stage.send(join(), version=3)
    stage.pass_time(0)
    assert stage.answers[ticket].generation_id == 1
    assert stage.answers[ticket].leader == stage.answers[ticket].member_id


def test_the_leader_learns_of_all_members_and_the_others_of_none() -> None:
    stage = Stage()
    first, _ = alone(stage)
    second = enter(stage)
    assert stage.ask(beat(first, 1)).error_code is ErrorCode.REBALANCE_IN_PROGRESS
    leading = stage.send(join(first))
    assert {each.member_id for each in stage.answers[leading].members} == {first, second}
    other = next(answer for answer in stage.answers.values() if getattr(answer, "member_id", "") == second)
    assert other.members == ()
    assert other.leader == first
    assert other.generation_id == 2


def test_what_everybody_knows_and_most_like_is_chosen() -> None:
    stage = Stage()
    tickets = [
        stage.send(join(protocols=names), version=3)
        for names in (("range", "sticky"), ("sticky", "range"), ("sticky",))
    ]
    stage.pass_time(0)
    assert {stage.answers[ticket].protocol_name for ticket in tickets} == {"sticky"}


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
    stage = Stage()
    alone(stage)
    assert stage.ask(join(**told)).error_code is code


def test_an_empty_group_waits_a_little_for_more() -> None:
    stage = Stage(QUICK.__class__(initial_delay_ms=3_000))
    enter(stage)
    stage.pass_time(2_000)
    enter(stage)
    stage.pass_time(1_500)
    assert stage.group().state is State.PREPARING, "somebody came, so it waits once more"
    stage.pass_time(1_400)
    assert stage.group().state is State.PREPARING
    stage.pass_time(200)
    assert stage.group().state is State.COMPLETING, "nobody came for three seconds"


def test_but_not_for_ever() -> None:
    stage = Stage(QUICK.__class__(initial_delay_ms=3_000))
    for _ in range(9):
        enter(stage)
        stage.pass_time(2_000)
    assert stage.group().state is State.PREPARING
    enter(stage)
    stage.pass_time(2_100)
    assert stage.group().state is State.COMPLETING, "members wait twenty seconds for each other at most"


def test_who_does_not_join_in_time_is_out() -> None:
    stage = Stage()
    first = enter(stage)
    second = enter(stage)
    settle(stage, first, second)
    stage.send(join(first, metadata=subscription("b")))
    for _ in range(4):
        stage.pass_time(5_000)
        if second in stage.group().members:
            assert stage.ask(beat(second, 1)).error_code is ErrorCode.REBALANCE_IN_PROGRESS
    assert list(stage.group().members) == [first]
    assert stage.group().generation == 2


def test_a_member_that_is_not_heard_of_is_out() -> None:
    stage = Stage()
    alone(stage)
    stage.pass_time(9_900)
    assert stage.group().state is State.STABLE
    stage.pass_time(1_000)
    assert stage.group().state is State.EMPTY
    assert stage.group().generation == 2


def test_a_coordinator_that_stood_still_listens_before_it_judges() -> None:
    stage = Stage()
    member_id, generation = alone(stage)
    stage.now_ms += 60_000
    stage.pass_time(100)
    assert stage.ask(beat(member_id, generation)).error_code is NONE
    stage.pass_time(9_000)
    assert stage.group().state is State.STABLE


def test_who_does_not_sync_in_time_is_out() -> None:
    stage = Stage()
    first = enter(stage)
    second = enter(stage)
    stage.pass_time(0)
    stage.send(sync(first, 1, {}))
    for _ in range(5):
        stage.pass_time(4_000)
        stage.send(beat(first, 1))
        stage.send(beat(second, 1))
    assert second not in stage.group().members


def test_an_id_that_nobody_uses_holds_nobody_up_for_long() -> None:
    stage = Stage()
    first, _ = alone(stage)
    assert stage.ask(join()).error_code is ErrorCode.MEMBER_ID_REQUIRED
    stage.send(join(first, metadata=subscription("b")))
    assert stage.group().state is State.PREPARING
    stage.pass_time(10_000)
    assert stage.group().state is State.COMPLETING


def test_many_who_ask_for_ids_do_not_get_past_the_limit() -> None:
    """R27, KAFKA-7610 and 7641."""
    stage = Stage(QUICK.__class__(members_max=3, initial_delay_ms=0))
    codes = [stage.ask(join()).error_code for _ in range(5)]
    assert codes == [ErrorCode.MEMBER_ID_REQUIRED] * 3 + [ErrorCode.GROUP_MAX_SIZE_REACHED] * 2
    stage.pass_time(10_000)
    assert stage.group() is None


def test_a_new_member_that_is_kept_waiting_goes_and_the_others_go_on() -> None:
    """R27, KAFKA-9752: an old client that has given up on its JoinGroup must not hold the group for ever."""
    stage = Stage()
    stage.send(join(rebalance_ms=2_000_000, instance="away"))
    stage.pass_time(0)
    away = next(iter(stage.group().members))
    stage.send(sync(away, 1, {}, instance="away"))
    stage.send(join(rebalance_ms=2_000_000), version=3)
    stage.send(beat(away, 1, instance="away"))
    stage.pass_time(301_000)
    assert stage.group().members == {}
    assert stage.group().state is State.EMPTY


# --- generations ------------------------------------------------------------------------------------------------------


def test_words_of_another_generation_are_refused() -> None:
    stage = Stage()
    member_id, generation = alone(stage)
    for request in (beat(member_id, generation + 1), sync(member_id, generation - 1)):
        assert stage.ask(request).error_code is ErrorCode.ILLEGAL_GENERATION
    late = stage.ask(commit({0: 1}, member_id=member_id, epoch=generation + 1))
    assert late.topics[0].partitions[0].error_code is ErrorCode.ILLEGAL_GENERATION
    assert stage.ask(beat("nobody", generation)).error_code is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_lost_its_answer_gets_it_again() -> None:
    stage = Stage()
    first = enter(stage)
    second = enter(stage)
    stage.pass_time(0)
    assert stage.ask(join(second)).generation_id == 1
    settle(stage, first, second)
    assert stage.ask(join(second)).generation_id == 1
    stage.send(join(first))
    assert stage.group().state is State.PREPARING, "a leader that joins again wants a rebalance"


def test_waiting_for_the_assignment_ends_when_somebody_joins() -> None:
    stage = Stage()
    first = enter(stage)
    second = enter(stage)
    stage.pass_time(0)
    waiting = stage.send(sync(second, 1))
    enter(stage)
    assert stage.answers[waiting].error_code is ErrorCode.REBALANCE_IN_PROGRESS
    assert first in stage.group().members


# --- static members ---------------------------------------------------------------------------------------------------


def static(stage: Stage) -> str:
    stage.send(join(instance="i"))
    stage.pass_time(0)
    member_id = str(next(iter(stage.group().members)))
    stage.send(sync(member_id, 1, {member_id: b"mine"}, instance="i"))
    return member_id


def test_a_static_member_that_comes_back_has_what_it_had_without_a_rebalance() -> None:
    stage = Stage()
    old = static(stage)
    back = stage.ask(join(instance="i"))
    assert back.generation_id == 1
    assert back.member_id != old
    assert back.skip_assignment
    assert stage.ask(sync(back.member_id, 1, instance="i")).assignment == b"mine"
    assert stage.ask(beat(old, 1, instance="i")).error_code is ErrorCode.FENCED_INSTANCE_ID
    reloaded = stage.log.records()[-1]
    assert reloaded.value.members[0].member_id == back.member_id  # type: ignore[union-attr]


def test_before_version_9_it_does_not_learn_that_it_leads() -> None:
    stage = Stage()
    old = static(stage)
    back = stage.ask(join(instance="i"), version=8)
    assert back.leader == old
    assert not back.members


def test_what_a_static_member_had_before_it_went_is_no_other_wish() -> None:
    """Java's consumers tell with every join what they own and since when; after a restart they own nothing."""
    stage = Stage()
    static(stage)
    had = subscription("b", "a", owned={"a": [0]}, generation=1)
    stage.send(join(instance="i", metadata=had))
    assert stage.group().generation == 2
    member_id = str(next(iter(stage.group().members)))
    given = assignment_bytes({"a": [0, 1, 2, 3], "b": [0, 1, 2, 3]}, 1)
    stage.send(sync(member_id, 2, {member_id: given}, instance="i"))
    back = stage.ask(join(instance="i", metadata=subscription("a", "b")))
    assert back.generation_id == 2
    assert back.member_id != member_id
    assert stage.group().state is State.STABLE


def test_who_was_giving_something_up_when_it_went_starts_a_rebalance() -> None:
    """A cooperative member joins again when it has given up; else what it had would be nobody's."""
    stage = Stage()
    static(stage)
    stage.send(join(instance="i", metadata=subscription("b", "a", owned={"a": [0, 1]}, generation=1)))
    member_id = str(next(iter(stage.group().members)))
    stage.send(sync(member_id, 2, {member_id: assignment_bytes({"a": [0]}, 1)}, instance="i"))
    stage.send(join(instance="i", metadata=subscription("a", "b")))
    assert stage.group().generation == 3


def test_a_static_leader_that_missed_new_partitions_starts_a_rebalance() -> None:
    """It would take them for given out: it looks at partitions from now on."""
    stage = Stage()
    static(stage)
    stage.send(join(instance="i", metadata=subscription("b", "a", owned={"a": [0]}, generation=1)))
    member_id = str(next(iter(stage.group().members)))
    given = assignment_bytes({"a": [0, 1, 2], "b": [0, 1, 2, 3]}, 1)
    stage.send(sync(member_id, 2, {member_id: given}, instance="i"))
    stage.send(join(instance="i", metadata=subscription("a", "b")))
    assert stage.group().generation == 3


@pytest.mark.parametrize("metadata", [subscription("b"), b"", b"unreadable"])
def test_another_subscription_starts_a_rebalance(metadata: bytes) -> None:
    stage = Stage()
    static(stage)
    stage.send(join(instance="i", metadata=metadata))
    assert stage.group().generation == 2


def test_a_static_member_that_is_away_keeps_its_place_until_its_session_ends() -> None:
    stage = Stage()
    member_id = static(stage)
    other = enter(stage)
    for _ in range(2):
        stage.pass_time(4_000)
        stage.send(beat(member_id, 1, instance="i"))
    assert stage.group().state is State.PREPARING
    stage.pass_time(3_000)
    stage.send(beat(member_id, 1, instance="i"))
    stage.pass_time(9_500)
    assert list(stage.group().members) == [member_id, other]
    assert stage.group().leader == other, "who leads must be there"


# --- leaving ----------------------------------------------------------------------------------------------------------


def test_several_leave_at_once() -> None:
    stage = Stage()
    first = enter(stage)
    second = enter(stage)
    settle(stage, first, second)
    who = [MemberIdentity(member_id=each) for each in (first, second, "nobody")]
    answer = stage.ask(LeaveGroupRequest(group_id="g", members=who), version=5)
    assert [each.error_code for each in answer.members] == [NONE, NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    assert stage.group().state is State.EMPTY


def test_an_operator_removes_a_static_member_by_its_name() -> None:
    stage = Stage()
    static(stage)
    who = [MemberIdentity(member_id="", group_instance_id="i"), MemberIdentity(member_id="x", group_instance_id="i")]
    answer = stage.ask(LeaveGroupRequest(group_id="g", members=who), version=5)
    assert [each.error_code for each in answer.members] == [NONE, ErrorCode.UNKNOWN_MEMBER_ID]


def test_an_old_client_leaves() -> None:
    stage = Stage()
    member_id, _ = alone(stage)
    assert stage.ask(LeaveGroupRequest(group_id="g", member_id=member_id), version=1).error_code is NONE
    assert (
        stage.ask(LeaveGroupRequest(group_id="h", member_id="x"), version=1).error_code is ErrorCode.UNKNOWN_MEMBER_ID
    )


# --- what lasts -------------------------------------------------------------------------------------------------------


def test_a_new_coordinator_knows_members_and_assignments() -> None:
    stage = Stage()
    member_id, generation = alone(stage)
    stage.elect()
    assert stage.ask(beat(member_id, generation)).error_code is NONE
    assert stage.ask(sync(member_id, generation)).assignment == f"for {member_id}".encode()
    stage.pass_time(11_000)
    assert stage.group().state is State.EMPTY


def test_deciding_changes_nothing() -> None:
    stage = Stage()
    member_id, generation = alone(stage)
    before = stage.group().copy()
    for request in (
        join(),
        join(member_id),
        sync(member_id, generation),
        beat(member_id, generation),
        join(instance="i"),
    ):
        stage.shard.decide(Ask(request, 9), 999, stage.now)
    assert stage.group() == before


def test_a_group_is_its_record_while_it_is_stable() -> None:
    stage = Stage()
    alone(stage)
    group = stage.group()
    reloaded = group_of("g", group.value())
    assert isinstance(reloaded, ClassicGroup)
    assert reloaded.value() == group.value()


def test_moves_are_those_of_the_table() -> None:
    with pytest.raises(AssertionError, match="no move"):
        ClassicGroup("g").move(State.STABLE, 0)
    assert {state for move in MOVES for state in move} == set(State)


def test_an_id_that_is_given_back_disturbs_nobody() -> None:
    stage = Stage()
    alone(stage)
    pending = stage.ask(join()).member_id
    gone = LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=pending)])
    assert stage.ask(gone, version=5).members[0].error_code is NONE
    assert stage.group().state is State.STABLE


def test_a_group_with_offsets_stays_when_an_id_is_given_back() -> None:
    stage = Stage()
    stage.ask(commit({0: 5}))
    pending = stage.ask(join()).member_id
    stage.ask(LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=pending)]), version=5)
    assert stage.group().is_empty
    stage.ask(join())
    stage.pass_time(20_000)
    assert stage.group().is_empty


@pytest.mark.parametrize("is_new", [False, True])
def test_nobody_is_out_for_not_being_heard_while_nobody_could_be(*, is_new: bool) -> None:
    """Another may lead, for all the coordinator knows: it answers nobody, and then has to listen first."""
    stage = Stage()
    member_id, epoch = "m", 1
    if is_new:
        stage.ask(alive("m", 0))
    else:
        member_id, epoch = alone(stage)
    stage.do(Leased(stage.now_ms + 1_000))
    stage.pass_time(300_000)
    stage.do(Leased(stage.now_ms + 1_000_000))
    stage.pass_time(9_000)
    answer = stage.ask(alive("m", epoch) if is_new else beat(member_id, epoch))
    assert answer.error_code is NONE
    stage.pass_time(100_000)
    assert stage.group().is_empty


def test_the_last_generation_is_followed_by_the_first() -> None:
    stage = Stage()
    alone(stage)
    stage.group().generation = INT32_EPOCH_MAX
    member_id = stage.group().leader
    joined = stage.ask(join(member_id))
    assert (joined.error_code, joined.generation_id) == (NONE, 1)


# --- what members say of themselves -----------------------------------------------------------------------------------


def test_members_of_a_group_hold_a_bounded_number_of_bytes() -> None:
    stage = Stage()
    large = bytes(1024 * 1024)
    codes = []
    for _ in range(12):
        ticket = stage.send(join(metadata=large), version=3)
        codes.append(stage.answers[ticket].error_code if ticket in stage.answers else NONE)
    assert codes == [NONE] * 8 + [ErrorCode.GROUP_MAX_SIZE_REACHED] * 4
    assert stage.shard.held_bytes == stage.group().held_bytes == GROUP_BYTES_MAX


def test_groups_of_a_coordinator_hold_a_bounded_number_of_bytes_and_small_members_are_taken() -> None:
    stage = Stage()
    large = bytes(1024 * 1024)
    for number in range(64):
        stage.send(join(metadata=large, group_id=f"g{number}"), version=3)
    assert stage.shard.held_bytes == GROUPS_BYTES_MAX
    refused = stage.ask(join(metadata=large, group_id="one-more"), version=3)
    assert refused.error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    stage.send(join(group_id="small"), version=3)
    assert stage.group("small").members


def test_what_members_hold_is_given_back_when_they_go_or_say_less() -> None:
    stage = Stage()
    first = enter(stage, metadata=bytes(50_000))
    settle(stage, first)
    assert stage.shard.held_bytes == 50_000
    second = enter(stage, metadata=bytes(70_000))
    stage.send(join(first, metadata=bytes(10_000)))
    assert stage.group().held_bytes == sum(m.held_bytes for m in stage.group().members.values())
    assert stage.shard.held_bytes == 80_000
    stage.ask(LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=second)]))
    assert stage.shard.held_bytes == 10_000
    stage.ask(LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=first)]))
    assert stage.shard.held_bytes == 0
