"""Consumer groups (KIP-848): epochs, reconciliation, fencing, static members, patterns; between the protocols."""

from typing import Any

import pytest

from penstock.coordinator.classic import ClassicGroup, State
from penstock.coordinator.consumer import ConsumerGroup, epoch_record
from penstock.coordinator.groups import GroupShard
from penstock.coordinator.heartbeats import Draft
from penstock.coordinator.ports import AppendRefused, Now
from penstock.coordinator.settings import GROUP_BYTES_MAX, GROUPS_BYTES_MAX, JOINABLE_EPOCH_MAX, GroupSettings
from penstock.coordinator.subscriptions import assignment, assignment_bytes
from penstock.coordinator.timers import SESSION, SetTimer, Timer
from penstock.coordinator.work import Ask
from penstock.metadata.settings.layers import BrokerSettings
from penstock.model.epochs import INT32_EPOCH_MAX, EpochsExhausted
from penstock.model.errors import ErrorCode
from tests.unit.coordinator.stage import (
    Counter,
    Stage,
    alive,
    beat,
    commit,
    given,
    join,
    subscription,
    sync,
    topic,
    topics,
)
from tests.unit.coordinator.test_classic import enter

NONE = ErrorCode.NONE


class Reader:
    """A well-behaved member: takes what it is given, gives up what it is not, says what it has."""

    def __init__(self, stage: Stage, member_id: str, **told: Any) -> None:
        self.stage = stage
        self.member_id = member_id
        self.has: dict[str, list[int]] = {}
        self.instance = told.get("instance")
        answer = stage.ask(alive(member_id, 0, **told), version=1)
        assert answer.error_code is NONE, answer
        self._take(answer)

    def _take(self, answer: Any) -> None:
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.has = given(answer)

    def beat(self) -> dict[str, list[int]]:
        answer = self.stage.ask(alive(self.member_id, self.epoch, owned=self.has, instance=self.instance), version=1)
        assert answer.error_code is NONE, answer
        self._take(answer)
        return self.has


def count(has: dict[str, list[int]]) -> int:
    return sum(len(numbers) for numbers in has.values())


def test_the_first_member_has_everything_at_once() -> None:
    stage = Stage()
    assert Reader(stage, "m").has == {"a": [0, 1, 2, 3]}
    assert stage.group().state == "Stable"


def test_a_second_member_gets_what_the_first_has_given_up() -> None:
    stage = Stage()
    first, second = Reader(stage, "m"), Reader(stage, "n")
    assert second.has == {}
    assert second.epoch == 2
    assert first.beat() == {"a": [0, 1]}
    assert first.epoch == 1, "it has not said yet that it has given anything up"
    assert second.beat() == {}
    first.beat()
    assert first.epoch == 2
    assert second.beat() == {"a": [2, 3]}
    assert stage.group().state == "Stable"


def test_what_a_member_does_not_have_yet_it_has_not_given_up() -> None:
    """It was given everything a moment ago, and its program is about to take it: so it says that it has nothing."""
    stage = Stage()
    first, second = Reader(stage, "m"), Reader(stage, "n")
    assert given(stage.ask(alive("m", 1, owned={}))) == {"a": [0, 1]}
    stage.ask(alive("m", 1, owned={}))
    stage.ask(alive("m", 1))
    assert second.beat() == {}
    stage.ask(alive("m", 1, owned=first.has))
    assert second.beat() == {}
    stage.ask(alive("m", 1, owned={"a": [0, 1]}))
    assert second.beat() == {"a": [2, 3]}


def test_but_it_need_not_ever_have_had_it() -> None:
    """The answer that gave it may have been lost."""
    stage = Stage()
    _, second = Reader(stage, "m"), Reader(stage, "n")
    stage.ask(alive("m", 1, owned={}))
    stage.pass_time(4_000)
    stage.ask(alive("m", 1))
    assert second.beat() == {}
    stage.pass_time(1_000)
    stage.ask(alive("m", 1))
    assert second.beat() == {"a": [2, 3]}


def test_who_has_little_time_to_give_up_is_believed_sooner() -> None:
    stage = Stage()
    stage.ask(alive("m", 0, rebalance_ms=3_000))
    second = Reader(stage, "n")
    stage.ask(alive("m", 1, owned={}))
    stage.pass_time(1_500)
    stage.ask(alive("m", 1))
    assert second.beat() == {"a": [2, 3]}


def test_the_next_coordinator_tells_again_what_is_to_be_given_up() -> None:
    stage = Stage()
    first, second = Reader(stage, "m"), Reader(stage, "n")
    stage.ask(alive("m", 1, owned=first.has))
    stage.elect()
    assert given(stage.ask(alive("m", 1, owned={}))) == {"a": [0, 1]}
    assert second.beat() == {}
    stage.ask(alive("m", 1, owned=first.has))
    stage.ask(alive("m", 1, owned={"a": [0, 1]}))
    assert second.beat() == {"a": [2, 3]}


def test_who_waits_comes_again_soon() -> None:
    stage = Stage(GroupSettings(initial_delay_ms=0, assignment_interval_ms=10_000))
    first, second = Reader(stage, "m"), Reader(stage, "n")
    assert stage.ask(alive("n", second.epoch)).heartbeat_interval_ms == 1_000, "there is no assignment yet"
    stage.pass_time(10_100)
    second.beat()
    assert stage.ask(alive("n", second.epoch)).heartbeat_interval_ms == 1_000, "nothing was given up yet"
    first.beat()
    first.beat()
    second.beat()
    assert second.has == {"a": [2, 3]}
    for reader in (first, second):
        assert stage.ask(alive(reader.member_id, reader.epoch)).heartbeat_interval_ms == 5_000


def test_who_does_not_give_up_in_time_is_out() -> None:
    stage = Stage()
    first, second = Reader(stage, "m"), Reader(stage, "n")
    first.beat()
    for _ in range(5):
        stage.pass_time(4_500)
        second.beat()
        stage.ask(alive("m", first.epoch))
    assert list(stage.group().members) == ["n"]
    assert count(second.beat()) == 4


def test_a_member_that_is_not_heard_of_is_out() -> None:
    stage = Stage()
    Reader(stage, "m")
    stage.pass_time(44_900)
    assert not stage.group().is_empty
    stage.pass_time(1_000)
    assert stage.group().is_empty
    assert stage.ask(alive("m", 1)).error_code is ErrorCode.UNKNOWN_MEMBER_ID
    assert stage.ask(alive("m", 1, group_id="x")).error_code is ErrorCode.UNKNOWN_MEMBER_ID


def test_epochs_that_are_not_the_members_are_fenced() -> None:
    stage = Stage()
    first = Reader(stage, "m")
    Reader(stage, "n")
    first.beat()
    first.beat()
    assert stage.ask(alive("m", first.epoch + 1)).error_code is ErrorCode.FENCED_MEMBER_EPOCH
    lost = stage.ask(alive("m", first.epoch - 1, owned=first.has))
    assert (lost.error_code, lost.member_epoch) == (NONE, first.epoch)
    assert stage.ask(alive("m", first.epoch - 1)).error_code is ErrorCode.FENCED_MEMBER_EPOCH
    more = alive("m", first.epoch - 1, owned={"a": [0, 1, 2, 3]})
    assert stage.ask(more).error_code is ErrorCode.FENCED_MEMBER_EPOCH


def test_who_joins_again_is_in_a_new_epoch_for_sure() -> None:
    stage = Stage()
    first = Reader(stage, "m")
    again = Reader(stage, "m")
    assert again.epoch > first.epoch
    assert again.has == {"a": [0, 1, 2, 3]}
    assert stage.ask(alive("m", first.epoch, owned=first.has)).error_code is ErrorCode.FENCED_MEMBER_EPOCH


def test_who_leaves_leaves_all_to_the_others() -> None:
    stage = Stage()
    first, second = Reader(stage, "m"), Reader(stage, "n")
    for reader in (first, first, second):
        reader.beat()
    assert stage.ask(alive("m", -1)).member_epoch == -1
    assert count(second.beat()) == 4
    assert stage.ask(alive("m", -1)).error_code is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_heartbeat_without_news_writes_nothing_and_says_nothing() -> None:
    stage = Stage()
    reader = Reader(stage, "m")
    before = stage.log.end_offset
    answer = stage.ask(alive("m", reader.epoch))
    assert answer.assignment is None
    assert stage.log.end_offset == before


def test_new_partitions_and_topics_are_found() -> None:
    stage = Stage()
    reader = Reader(stage, "m", names=("a", "c"))
    stage.topics = topics(topic("a", 6), topic("c", 1), version=1)
    assert reader.beat() == {"a": [0, 1, 2, 3, 4, 5], "c": [0]}
    stage.topics = topics(topic("c", 1), version=2)
    assert reader.beat() == {"c": [0]}


def test_assignments_are_not_computed_all_the_time() -> None:
    stage = Stage(GroupSettings(assignment_interval_ms=1_000))
    first, second = Reader(stage, "m"), Reader(stage, "n")
    first.beat()
    assert count(first.has) == 4
    assert stage.group().state == "Assigning"
    stage.pass_time(1_000)
    assert count(first.beat()) == 2
    assert second.epoch == 1


@pytest.mark.parametrize(
    ("told", "code"),
    [
        ({"assignor": "mine"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        ({"pattern": "("}, ErrorCode.INVALID_REGULAR_EXPRESSION),
        ({"group_id": " "}, ErrorCode.INVALID_REQUEST),
        ({"member_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"instance": ""}, ErrorCode.INVALID_REQUEST),
        ({"epoch": -3}, ErrorCode.INVALID_REQUEST),
        ({"epoch": -2}, ErrorCode.INVALID_REQUEST),
        ({"rebalance_ms": -1}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_makes_no_sense_is_refused(told: dict[str, Any], code: ErrorCode) -> None:
    stage = Stage()
    asked: dict[str, Any] = {"member_id": "m", "epoch": 0} | told
    assert stage.ask(alive(**asked), version=1).error_code is code
    assert stage.log.end_offset == 0


def test_a_group_has_a_limit() -> None:
    stage = Stage(GroupSettings(consumer_members_max=1))
    Reader(stage, "m")
    assert stage.ask(alive("n", 0)).error_code is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_deciding_changes_nothing() -> None:
    stage = Stage()
    first = Reader(stage, "m")
    Reader(stage, "n", pattern="b")
    before, timers = stage.group().draft(), dict(stage.shard.timers._due)
    requests = [
        alive("o", 0),
        alive("m", 0),
        alive("m", first.epoch, owned={"a": [0]}),
        alive("m", -1),
        alive("x", 3),
        join(metadata=subscription("a")),
        commit({0: 1}, member_id="m", epoch=first.epoch),
    ]
    for request in requests:
        stage.shard.decide(Ask(request, 9), 999, stage.now)
    for name in ConsumerGroup.__slots__:
        assert getattr(stage.group(), name) == getattr(before, name), name
    assert stage.shard.timers._due == timers


def test_a_group_may_have_settings_of_its_own() -> None:
    own = GroupSettings().under({"consumer.session.timeout.ms": "50000", "consumer.heartbeat.interval.ms": "x"})
    assert (own.consumer_session_ms, own.consumer_heartbeat_ms) == (50_000, 5_000)
    shard = GroupShard(GroupSettings(), Counter(), lambda: topics(topic("a", 1)), lambda _: own)
    outcome = shard.decide(Ask(alive("m", 0), 1), 1, Now(0, 0))
    assert SetTimer(Timer(SESSION, "g", "m"), 50_000) in outcome.notes


def test_settings_are_the_brokers() -> None:
    static = {"group.consumer.assignors": "range", "offsets.retention.minutes": "2", "group.max.size": "7"}
    settings = GroupSettings.of(BrokerSettings(static))
    assert (settings.assignors, settings.retention_ms, settings.members_max) == (("range",), 120_000, 7)
    assert GroupSettings.of(BrokerSettings()) == GroupSettings()


# --- static members ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("told", ["i", None])
def test_a_static_member_that_is_away_keeps_what_it_has(told: str | None) -> None:
    """Whether it says its instance id when it goes or not: franz-go does not."""
    stage = Stage()
    first, second = Reader(stage, "m", instance="i"), Reader(stage, "n")
    for reader in (first, first, second):
        reader.beat()
    assert stage.ask(alive("x", 0, instance="i")).error_code is ErrorCode.UNRELEASED_INSTANCE_ID
    assert stage.ask(alive("n", -2, instance=told)).error_code is not ErrorCode.NONE, "that one is not static"
    assert stage.ask(alive("m", -2, instance=told)).member_epoch == -2
    assert count(second.beat()) == 2
    back = Reader(stage, "o", instance="i")
    assert back.has == first.has
    assert second.epoch == back.epoch, "nothing was computed anew"
    assert stage.ask(alive("m", first.epoch, instance="i")).error_code is ErrorCode.FENCED_INSTANCE_ID


def test_if_it_does_not_come_back_others_have_it() -> None:
    stage = Stage()
    first, second = Reader(stage, "m", instance="i"), Reader(stage, "n")
    for reader in (first, first, second):
        reader.beat()
    stage.ask(alive("m", -2, instance="i"))
    stage.pass_time(40_000)
    second.beat()
    stage.pass_time(10_000)
    assert count(second.beat()) == 4


# --- patterns ---------------------------------------------------------------------------------------------------------


def test_topics_are_found_by_pattern_and_found_again() -> None:
    stage = Stage(known=topics(topic("orders-1", 1), topic("bills", 1)))
    reader = Reader(stage, "m", pattern="orders-.*")
    assert reader.has == {"orders-1": [0]}
    stage.topics = topics(topic("orders-1", 1), topic("orders-2", 1), version=1)
    assert reader.beat() == {"orders-1": [0]}, "not so soon"
    stage.pass_time(10_000)
    assert reader.beat() == {"orders-1": [0], "orders-2": [0]}
    stage.elect()
    assert stage.group().patterns["orders-.*"].topics == ("orders-1", "orders-2")
    stage.ask(alive("m", -1))
    assert not stage.group().patterns


# --- what lasts -------------------------------------------------------------------------------------------------------


def test_a_new_coordinator_knows_everything() -> None:
    stage = Stage()
    first, second = Reader(stage, "m"), Reader(stage, "n")
    first.beat()
    before = stage.group()
    stage.elect()
    after = stage.group()
    for name in ("epoch", "target_epoch", "members", "targets", "owners", "metadata_hash", "static"):
        assert getattr(after, name) == getattr(before, name), name
    first.beat()
    assert second.beat() == {}
    stage.pass_time(5_000)
    first.beat()
    assert second.beat() == {"a": [2, 3]}


def test_a_commit_that_comes_after_another_member_got_the_partition_is_refused() -> None:
    stage = Stage()
    first, second = Reader(stage, "m"), Reader(stage, "n")
    first.beat()
    first.beat()
    assert second.beat() == {"a": [2, 3]}
    epoch = stage.group().members["m"].epoch
    late = stage.ask(commit({0: 7, 3: 5}, member_id="m", epoch=epoch)).topics[0].partitions
    assert [each.error_code for each in late] == [NONE, ErrorCode.STALE_MEMBER_EPOCH]


# --- between the protocols --------------------------------------------------------------------------------------------


def classic(stage: Stage) -> tuple[str, int]:
    """A classic consumer with everything; its id and generation."""
    member_id = enter(stage)
    stage.pass_time(0)
    stage.send(sync(member_id, 1, {member_id: assignment_bytes({"a": [0, 1, 2, 3]}, 1)}))
    assert stage.group().state is State.STABLE
    return member_id, 1


def assigned(answer: Any) -> list[int]:
    found = assignment(answer.assignment)
    assert found is not None
    return [number for each in found.assigned_partitions for number in each.partitions]


def test_a_classic_group_becomes_a_consumer_group_and_nobody_loses_anything() -> None:
    stage = Stage()
    old, generation = classic(stage)
    new = Reader(stage, "n")
    group = stage.group()
    assert isinstance(group, ConsumerGroup)
    assert new.has == {}
    assert new.epoch == 2
    assert stage.ask(beat(old, generation)).error_code is ErrorCode.REBALANCE_IN_PROGRESS
    owned = {"a": [0, 1, 2, 3]}
    again = stage.ask(join(old, metadata=subscription("a", owned=owned)))
    assert (again.error_code, again.generation_id, again.leader) == (NONE, 1, "")
    kept = assigned(stage.ask(sync(old, 1)))
    assert kept == [0, 1]
    again = stage.ask(join(old, metadata=subscription("a", owned={"a": kept})))
    assert again.generation_id == 2
    assert assigned(stage.ask(sync(old, 2))) == [0, 1]
    assert stage.ask(beat(old, 2)).error_code is NONE
    assert new.beat() == {"a": [2, 3]}
    done = stage.ask(commit({0: 7}, member_id=old, epoch=2))
    assert done.topics[0].partitions[0].error_code is NONE
    stage.elect()
    assert stage.group().members[old].classic is not None


def test_what_a_cooperative_member_has_not_heard_of_yet_is_not_free() -> None:
    """It is to give up two partitions, and the answer that says so is on its way when the group is converted."""
    stage = Stage()
    old, _ = classic(stage)
    owned = {"a": [0, 1, 2, 3]}
    stage.send(join(old, metadata=subscription("a", owned=owned)))
    stage.send(sync(old, 2, {old: assignment_bytes({"a": [0, 1]}, 1)}))
    new = Reader(stage, "n")
    assert new.beat() == {}
    stage.ask(join(old, metadata=subscription("a", owned=owned)))
    assert assigned(stage.ask(sync(old, 2))) == [0, 1]
    assert new.beat() == {}
    stage.ask(join(old, metadata=subscription("a", owned={"a": [0, 1]})))
    assert new.beat() == {"a": [2, 3]}


def test_what_a_member_had_a_generation_ago_says_nothing_about_what_it_has_given_up() -> None:
    """A JoinGroup that a connection held up arrives after the one that the member has sent since."""
    stage = Stage()
    old, _ = classic(stage)
    new = Reader(stage, "n")
    owned = {"a": [0, 1, 2, 3]}
    stage.ask(join(old, metadata=subscription("a", owned=owned, generation=1)))
    late = stage.ask(join(old, metadata=subscription("a", owned={"a": [0]}, generation=0)))
    assert late.generation_id == 1
    assert new.beat() == {}
    stage.ask(join(old, metadata=subscription("a", owned={"a": [0, 1]}, generation=1)))
    assert new.beat() == {"a": [2, 3]}


def test_who_does_not_come_for_what_a_join_gave_it_is_asked_to_join_again() -> None:
    """The JoinGroup was held up on the way, and nobody waits for its answer any more."""
    stage = Stage()
    old, _ = classic(stage)
    Reader(stage, "n")
    stage.ask(join(old, metadata=subscription("a", owned={"a": [0, 1, 2, 3]})))
    stage.ask(sync(old, 1))
    given_up = join(old, metadata=subscription("a", owned={"a": [0, 1]}))
    stage.ask(given_up)
    stage.ask(sync(old, 2))
    assert stage.ask(beat(old, 2)).error_code is NONE
    stage.ask(given_up)
    assert stage.ask(beat(old, 2)).error_code is ErrorCode.REBALANCE_IN_PROGRESS
    stage.ask(given_up)
    stage.ask(sync(old, 2))
    assert stage.ask(beat(old, 2)).error_code is NONE


def test_what_a_member_was_giving_up_is_not_free_when_the_group_is_classic_again() -> None:
    stage = Stage()
    old, _ = classic(stage)
    Reader(stage, "n")
    stage.ask(join(old, metadata=subscription("a", owned={"a": [0, 1, 2, 3]})))
    assert stage.group().members[old].revoking
    stage.ask(alive("n", -1))
    new = Reader(stage, "o")
    assert new.has == {}
    assert new.beat() == {}


def test_and_back_when_the_last_new_member_leaves() -> None:
    stage = Stage()
    old, _ = classic(stage)
    new = Reader(stage, "n")
    stage.ask(alive("n", -1))
    group = stage.group()
    assert isinstance(group, ClassicGroup)
    assert group.state is State.PREPARING
    assert group.generation > new.epoch - 1
    ticket = stage.send(join(old))
    assert stage.answers[ticket].leader == old
    stage.elect()
    assert isinstance(stage.group(), ClassicGroup)
    assert list(stage.group().members) == [old]


def test_or_when_a_static_member_comes_back_with_the_classic_protocol() -> None:
    stage = Stage()
    Reader(stage, "m", instance="i")
    other = stage.ask(join()).member_id
    stage.ask(join(other))
    stage.ask(alive("m", -2, instance="i", names=None), version=1)
    stage.send(join(instance="i"))
    group = stage.group()
    assert isinstance(group, ClassicGroup)
    assert group.state is State.PREPARING
    assert other in group.members
    assert len(group.members) == 2


def test_a_static_member_comes_back_with_the_new_protocol_at_once() -> None:
    """It may have been killed, and the others may not wait for its session to end."""
    stage = Stage()
    ticket = stage.send(join(instance="i"))
    stage.pass_time(0)
    first = stage.answers[ticket]
    stage.send(sync(first.member_id, 1, {first.member_id: assignment_bytes({"a": [0, 1, 2, 3]}, 1)}))
    new = stage.ask(alive("n", 0, instance="i"), version=1)
    assert new.error_code is NONE
    assert list(stage.group().members) == ["n"]
    assert stage.ask(beat(first.member_id, 1)).error_code is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_refused_append_leaves_no_memory_of_topics_that_were_looked_at() -> None:
    stage = Stage(known=topics(topic("orders-1", 2), version=0))
    one, two = Reader(stage, "m", pattern="orders-.*"), Reader(stage, "n", pattern="orders-.*")
    for reader in (one, two, one, two):
        reader.beat()
    stage.topics = topics(topic("orders-1", 2), topic("orders-2", 2), version=1)
    stage.pass_time(15_000)
    stage.log.refusal = AppendRefused("too few in sync")
    stage.ask(alive("m", one.epoch, owned=one.has))
    stage.ask(alive("n", -1))
    for _ in range(10):
        stage.pass_time(5_000)
        one.beat()
    assert one.has == {"orders-1": [0, 1], "orders-2": [0, 1]}


def test_the_next_coordinator_sees_topics_that_were_made_meanwhile() -> None:
    """Versions of topics are those of one node: its own may be the same."""
    stage = Stage(known=topics(topic("orders-1", 1), version=0))
    reader = Reader(stage, "m", pattern="orders-.*")
    stage.topics = topics(topic("orders-1", 1), topic("orders-2", 1), version=0)
    stage.elect()
    for _ in range(10):
        stage.pass_time(5_000)
        reader.beat()
    assert reader.has == {"orders-1": [0], "orders-2": [0]}


def test_also_when_it_times_out() -> None:
    stage = Stage()
    old, _ = classic(stage)
    Reader(stage, "n")
    for _ in range(10):
        stage.pass_time(5_000)
        if isinstance(stage.group(), ConsumerGroup):
            epoch = stage.group().members[old].epoch
            if stage.ask(beat(old, epoch)).error_code is ErrorCode.REBALANCE_IN_PROGRESS:
                stage.ask(join(old, metadata=subscription("a")))
    assert isinstance(stage.group(), ClassicGroup)


def test_a_classic_member_that_does_not_join_again_is_out() -> None:
    stage = Stage()
    old, generation = classic(stage)
    new = Reader(stage, "n")
    for _ in range(6):
        stage.ask(beat(old, generation))
        new.beat()
        stage.pass_time(4_000)
    assert list(stage.group().members) == ["n"]


def test_a_classic_member_joins_a_consumer_group() -> None:
    stage = Stage()
    new = Reader(stage, "n")
    asked = stage.ask(join(metadata=subscription("a")))
    assert asked.error_code is ErrorCode.MEMBER_ID_REQUIRED
    assert stage.ask(join("stranger")).error_code is ErrorCode.UNKNOWN_MEMBER_ID
    joined = stage.ask(join(asked.member_id, metadata=subscription("a")))
    assert joined.generation_id == 2
    new.beat()
    new.beat()
    assert stage.ask(beat(asked.member_id, 2)).error_code is ErrorCode.REBALANCE_IN_PROGRESS
    stage.ask(join(asked.member_id, metadata=subscription("a")))
    assert assigned(stage.ask(sync(asked.member_id, 2))) == [2, 3]
    assert stage.ask(join(protocol_type="connect")).error_code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_where_it_is_not_allowed_groups_stay_what_they_are() -> None:
    stage = Stage(GroupSettings(initial_delay_ms=0, migration="disabled"))
    classic(stage)
    assert stage.ask(alive("n", 0)).error_code is ErrorCode.GROUP_ID_NOT_FOUND
    assert isinstance(stage.group(), ClassicGroup)


def test_groups_that_cannot_be_read_stay_classic() -> None:
    stage = Stage()
    stage.send(join(protocol_type="connect", metadata=b"x"), version=3)
    assert stage.ask(alive("n", 0)).error_code is ErrorCode.GROUP_ID_NOT_FOUND


def test_empty_groups_change_without_further_ado_and_epochs_go_on() -> None:
    stage = Stage()
    old, _ = classic(stage)
    stage.pass_time(11_000)
    assert stage.group().state is State.EMPTY
    new = Reader(stage, "n")
    assert new.epoch == 3
    stage.ask(alive("n", -1))
    ticket = stage.send(join(), version=3)
    stage.pass_time(0)
    assert stage.answers[ticket].generation_id == 5
    stage.ask(sync(stage.answers[ticket].member_id, 5, {}))
    stage.elect()
    assert isinstance(stage.group(), ClassicGroup)
    assert old not in stage.group().members


def test_who_waits_to_join_is_told_when_the_group_is_converted() -> None:
    stage = Stage()
    old, _ = classic(stage)
    ticket = stage.send(join(), version=3)
    assert ticket not in stage.answers
    Reader(stage, "n")
    assert stage.answers[ticket].error_code is ErrorCode.REBALANCE_IN_PROGRESS
    assert old in stage.group().members


# --- the last epochs --------------------------------------------------------------------------------------------------


def at_epoch(epoch: int) -> tuple[Stage, "Reader"]:
    """A group of one member that has come to this epoch."""
    stage = Stage()
    reader = Reader(stage, "one")
    stage.log.append(stage._epoch, [epoch_record("g", epoch, stage.group().metadata_hash)], stage.now)
    stage.elect()
    assert stage.group().epoch == epoch
    return stage, reader


def test_a_group_near_its_last_epoch_takes_no_members_but_lets_them_leave() -> None:
    stage, reader = at_epoch(JOINABLE_EPOCH_MAX)
    before = stage.log.end_offset
    refused = stage.ask(alive("two", 0), version=1)
    assert refused.error_code is ErrorCode.INVALID_REQUEST
    assert "delete it" in refused.error_message
    assert stage.log.end_offset == before
    resubscribing = stage.ask(alive("one", reader.epoch, names=("b",), owned=reader.has), version=1)
    assert resubscribing.error_code is ErrorCode.INVALID_REQUEST
    assert stage.ask(alive("one", -1), version=1).error_code is NONE
    assert stage.group().epoch == JOINABLE_EPOCH_MAX + 1
    assert not stage.group().members


def test_the_last_epoch_of_a_group_is_not_followed_by_another() -> None:
    stage, _ = at_epoch(INT32_EPOCH_MAX)
    draft = Draft(stage.group(), stage.shard._work(stage.now, "g"))
    with pytest.raises(EpochsExhausted, match="group g"):
        draft.bump()


def test_subscriptions_of_a_group_take_a_bounded_number_of_bytes() -> None:
    """They count in the group and at its coordinator, and are given back when members go or ask for less."""
    stage = Stage()
    names = [f"{n:0249d}" for n in range(GROUP_BYTES_MAX // 4 // 249)]
    size_bytes = 249 * len(names)
    for number in range(4):
        assert stage.ask(alive(f"m{number}", 0, names=names)).error_code is NONE
    assert stage.shard.held_bytes == stage.group().held_bytes == 4 * size_bytes
    refused = stage.ask(alive("one-more", 0, names=names))
    assert refused.error_code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert "bytes" in (refused.error_message or "")
    assert stage.ask(alive("m0", -1)).error_code is NONE
    assert stage.shard.held_bytes == stage.group().held_bytes == 3 * size_bytes
    assert stage.ask(alive("small", 0)).error_code is NONE
    assert stage.group().held_bytes == sum(member.held_bytes for member in stage.group().members.values())


def test_subscriptions_of_all_groups_take_a_bounded_number_of_bytes() -> None:
    stage = Stage()
    stage.shard._held_by_all = lambda: GROUPS_BYTES_MAX
    names = [f"{n:0249d}" for n in range(1_000)]
    assert stage.ask(alive("large", 0, names=names)).error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert stage.ask(alive("small", 0)).error_code is NONE
