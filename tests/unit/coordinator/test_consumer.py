"""Consumer groups (KIP-848): epochs, reconciliation, fencing, static members, patterns; between the protocols."""

import sys
from typing import Any

import pytest

from penstock.coordinator.classic import ClassicGroup, State
from penstock.coordinator.consumer import ConsumerGroup, Member, epoch_record
from penstock.coordinator.groups import GroupShard
from penstock.coordinator.heartbeats import Draft
from penstock.coordinator.ports import AppendRefused, Now
from penstock.coordinator.requests import Ask, GroupRequest
from penstock.coordinator.settings import (
    CONSUMER_GROUP_BYTES_MAX,
    GROUPS_BYTES_MAX,
    JOINABLE_EPOCH_MAX,
    NAME_BYTES,
    GroupSettings,
)
from penstock.coordinator.subscriptions import assignment, assignment_bytes
from penstock.coordinator.timers import SESSION, SetTimer, Timer
from penstock.metadata.settings.layers import BrokerSettings
from penstock.model.epochs import INT32_EPOCH_MAX, EpochsExhausted
from penstock.model.errors import ErrorCode
from tests.unit.coordinator.classic import enter
from tests.unit.coordinator.shard_driver import (
    Counter,
    ShardDriver,
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

NONE = ErrorCode.NONE


class Reader:
    """A well-behaved member: adopts its assignment, revokes the rest, and reports the partitions it owns."""

    def __init__(self, driver: ShardDriver, member_id: str, **told: Any) -> None:
        self.driver = driver
        self.member_id = member_id
        self.has: dict[str, list[int]] = {}
        self.instance = told.get("instance")
        answer = driver.ask(alive(member_id, 0, **told), version=1)
        assert answer.error_code is NONE, answer
        self._take(answer)

    def _take(self, answer: Any) -> None:
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.has = given(answer)

    def beat(self) -> dict[str, list[int]]:
        answer = self.driver.ask(alive(self.member_id, self.epoch, owned=self.has, instance=self.instance), version=1)
        assert answer.error_code is NONE, answer
        self._take(answer)
        return self.has


def count(has: dict[str, list[int]]) -> int:
    return sum(len(numbers) for numbers in has.values())


def test_the_first_member_has_everything_at_once() -> None:
    driver = ShardDriver()
    assert Reader(driver, "m").has == {"a": [0, 1, 2, 3]}
    assert driver.group().state == "Stable"


def test_a_second_member_gets_what_the_first_has_given_up() -> None:
    driver = ShardDriver()
    first, second = Reader(driver, "m"), Reader(driver, "n")
    assert second.has == {}
    assert second.epoch == 2
    assert first.beat() == {"a": [0, 1]}
    assert first.epoch == 1, "it has not said yet that it has given anything up"
    assert second.beat() == {}
    first.beat()
    assert first.epoch == 2
    assert second.beat() == {"a": [2, 3]}
    assert driver.group().state == "Stable"


def test_what_a_member_does_not_have_yet_it_has_not_given_up() -> None:
    """The member has just received its assignment and not adopted it yet, so it reports that it owns nothing."""
    driver = ShardDriver()
    first, second = Reader(driver, "m"), Reader(driver, "n")
    assert given(driver.ask(alive("m", 1, owned={}))) == {"a": [0, 1]}
    driver.ask(alive("m", 1, owned={}))
    driver.ask(alive("m", 1))
    assert second.beat() == {}
    driver.ask(alive("m", 1, owned=first.has))
    assert second.beat() == {}
    driver.ask(alive("m", 1, owned={"a": [0, 1]}))
    assert second.beat() == {"a": [2, 3]}


def test_of_a_report_only_partitions_that_are_the_members_are_kept() -> None:
    """A report of 80 KB names 20,000 partitions; keeping them would take megabytes for every member."""
    driver = ShardDriver()
    first, second = Reader(driver, "m"), Reader(driver, "n")
    first_had = driver.group().members["m"].owned
    made_up = {"a": [0, 1, 2, 3, *range(1_000, 2_000)], "of nobody": list(range(1_000))}
    driver.ask(alive("m", 1, owned=made_up))
    kept = driver.shard._reports["g", "m"]
    assert kept.owned == kept.proven == first_had
    assert second.beat() == {}, "it still has what it has to give up"
    assert first.beat() == {"a": [0, 1]}


def test_but_it_need_not_ever_have_had_it() -> None:
    """The response with the assignment may have been lost."""
    driver = ShardDriver()
    _, second = Reader(driver, "m"), Reader(driver, "n")
    driver.ask(alive("m", 1, owned={}))
    driver.pass_time(4_000)
    driver.ask(alive("m", 1))
    assert second.beat() == {}
    driver.pass_time(1_000)
    driver.ask(alive("m", 1))
    assert second.beat() == {"a": [2, 3]}


def test_who_has_little_time_to_give_up_is_believed_sooner() -> None:
    driver = ShardDriver()
    driver.ask(alive("m", 0, rebalance_ms=3_000))
    second = Reader(driver, "n")
    driver.ask(alive("m", 1, owned={}))
    driver.pass_time(1_500)
    driver.ask(alive("m", 1))
    assert second.beat() == {"a": [2, 3]}


def test_the_next_coordinator_tells_again_what_is_to_be_given_up() -> None:
    driver = ShardDriver()
    first, second = Reader(driver, "m"), Reader(driver, "n")
    driver.ask(alive("m", 1, owned=first.has))
    driver.elect()
    assert given(driver.ask(alive("m", 1, owned={}))) == {"a": [0, 1]}
    assert second.beat() == {}
    driver.ask(alive("m", 1, owned=first.has))
    driver.ask(alive("m", 1, owned={"a": [0, 1]}))
    assert second.beat() == {"a": [2, 3]}


def test_who_waits_comes_again_soon() -> None:
    driver = ShardDriver(GroupSettings(initial_delay_ms=0, assignment_interval_ms=10_000))
    first, second = Reader(driver, "m"), Reader(driver, "n")
    assert driver.ask(alive("n", second.epoch)).heartbeat_interval_ms == 1_000, "there is no assignment yet"
    driver.pass_time(10_100)
    second.beat()
    assert driver.ask(alive("n", second.epoch)).heartbeat_interval_ms == 1_000, "nothing was given up yet"
    first.beat()
    first.beat()
    second.beat()
    assert second.has == {"a": [2, 3]}
    for reader in (first, second):
        assert driver.ask(alive(reader.member_id, reader.epoch)).heartbeat_interval_ms == 5_000


def test_who_does_not_give_up_in_time_is_out() -> None:
    driver = ShardDriver()
    first, second = Reader(driver, "m"), Reader(driver, "n")
    first.beat()
    for _ in range(5):
        driver.pass_time(4_500)
        second.beat()
        driver.ask(alive("m", first.epoch))
    assert list(driver.group().members) == ["n"]
    assert count(second.beat()) == 4


def test_a_member_that_is_not_heard_of_is_out() -> None:
    driver = ShardDriver()
    Reader(driver, "m")
    driver.pass_time(44_900)
    assert not driver.group().is_empty
    driver.pass_time(1_000)
    assert driver.group().is_empty
    assert driver.ask(alive("m", 1)).error_code is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.ask(alive("m", 1, group_id="x")).error_code is ErrorCode.UNKNOWN_MEMBER_ID


def test_epochs_that_are_not_the_members_are_fenced() -> None:
    driver = ShardDriver()
    first = Reader(driver, "m")
    Reader(driver, "n")
    first.beat()
    first.beat()
    assert driver.ask(alive("m", first.epoch + 1)).error_code is ErrorCode.FENCED_MEMBER_EPOCH
    lost = driver.ask(alive("m", first.epoch - 1, owned=first.has))
    assert (lost.error_code, lost.member_epoch) == (NONE, first.epoch)
    assert driver.ask(alive("m", first.epoch - 1)).error_code is ErrorCode.FENCED_MEMBER_EPOCH
    more = alive("m", first.epoch - 1, owned={"a": [0, 1, 2, 3]})
    assert driver.ask(more).error_code is ErrorCode.FENCED_MEMBER_EPOCH


def test_who_joins_again_is_in_a_new_epoch_for_sure() -> None:
    driver = ShardDriver()
    first = Reader(driver, "m")
    again = Reader(driver, "m")
    assert again.epoch > first.epoch
    assert again.has == {"a": [0, 1, 2, 3]}
    assert driver.ask(alive("m", first.epoch, owned=first.has)).error_code is ErrorCode.FENCED_MEMBER_EPOCH


def test_who_leaves_leaves_all_to_the_others() -> None:
    driver = ShardDriver()
    first, second = Reader(driver, "m"), Reader(driver, "n")
    for reader in (first, first, second):
        reader.beat()
    assert driver.ask(alive("m", -1)).member_epoch == -1
    assert count(second.beat()) == 4
    assert driver.ask(alive("m", -1)).error_code is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_heartbeat_without_news_writes_nothing_and_says_nothing() -> None:
    driver = ShardDriver()
    reader = Reader(driver, "m")
    before = driver.log.end_offset
    answer = driver.ask(alive("m", reader.epoch))
    assert answer.assignment is None
    assert driver.log.end_offset == before


def test_new_partitions_and_topics_are_found() -> None:
    driver = ShardDriver()
    reader = Reader(driver, "m", names=("a", "c"))
    driver.topics = topics(topic("a", 6), topic("c", 1), version=1)
    assert reader.beat() == {"a": [0, 1, 2, 3, 4, 5], "c": [0]}
    driver.topics = topics(topic("c", 1), version=2)
    assert reader.beat() == {"c": [0]}


def test_assignments_are_not_computed_all_the_time() -> None:
    driver = ShardDriver(GroupSettings(assignment_interval_ms=1_000))
    first, second = Reader(driver, "m"), Reader(driver, "n")
    first.beat()
    assert count(first.has) == 4
    assert driver.group().state == "Assigning"
    driver.pass_time(1_000)
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
    driver = ShardDriver()
    asked: dict[str, Any] = {"member_id": "m", "epoch": 0} | told
    assert driver.ask(alive(**asked), version=1).error_code is code
    assert driver.log.end_offset == 0


def test_a_group_has_a_limit() -> None:
    driver = ShardDriver(GroupSettings(consumer_members_max=1))
    Reader(driver, "m")
    assert driver.ask(alive("n", 0)).error_code is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_deciding_changes_nothing() -> None:
    driver = ShardDriver()
    first = Reader(driver, "m")
    Reader(driver, "n", pattern="b")
    before, timers = driver.group().draft(), dict(driver.shard.timers._due)
    requests: list[GroupRequest] = [
        alive("o", 0),
        alive("m", 0),
        alive("m", first.epoch, owned={"a": [0]}),
        alive("m", -1),
        alive("x", 3),
        join(metadata=subscription("a")),
        commit({0: 1}, member_id="m", epoch=first.epoch),
    ]
    for request in requests:
        driver.shard.decide(Ask(request, 9), 999, driver.now)
    for name in ConsumerGroup.__slots__:
        assert getattr(driver.group(), name) == getattr(before, name), name
    assert driver.shard.timers._due == timers


def test_a_group_may_have_settings_of_its_own() -> None:
    own = GroupSettings().under({"consumer.session.timeout.ms": "50000", "consumer.heartbeat.interval.ms": "x"})
    assert (own.consumer_session_ms, own.consumer_heartbeat_ms) == (50_000, 5_000)
    shard = GroupShard(GroupSettings(), Counter(), lambda: topics(topic("a", 1)), lambda _: own)
    decision = shard.decide(Ask(alive("m", 0), 1), 1, Now(0, 0))
    assert SetTimer(Timer(SESSION, "g", "m"), 50_000) in decision.changes


def test_settings_are_the_brokers() -> None:
    static = {"group.consumer.assignors": "range", "offsets.retention.minutes": "2", "group.max.size": "7"}
    settings = GroupSettings.of(BrokerSettings(static))
    assert (settings.assignors, settings.retention_ms, settings.members_max) == (("range",), 120_000, 7)
    assert GroupSettings.of(BrokerSettings()) == GroupSettings()


# --- static members ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("told", ["i", None])
def test_a_static_member_that_is_away_keeps_what_it_has(told: str | None) -> None:
    """With or without its instance id in the leave request: franz-go leaves it out."""
    driver = ShardDriver()
    first, second = Reader(driver, "m", instance="i"), Reader(driver, "n")
    for reader in (first, first, second):
        reader.beat()
    assert driver.ask(alive("x", 0, instance="i")).error_code is ErrorCode.UNRELEASED_INSTANCE_ID
    assert driver.ask(alive("n", -2, instance=told)).error_code is not ErrorCode.NONE, "that one is not static"
    assert driver.ask(alive("m", -2, instance=told)).member_epoch == -2
    assert count(second.beat()) == 2
    back = Reader(driver, "o", instance="i")
    assert back.has == first.has
    assert second.epoch == back.epoch, "nothing was computed anew"
    assert driver.ask(alive("m", first.epoch, instance="i")).error_code is ErrorCode.FENCED_INSTANCE_ID


def test_if_it_does_not_come_back_others_have_it() -> None:
    driver = ShardDriver()
    first, second = Reader(driver, "m", instance="i"), Reader(driver, "n")
    for reader in (first, first, second):
        reader.beat()
    driver.ask(alive("m", -2, instance="i"))
    driver.pass_time(40_000)
    second.beat()
    driver.pass_time(10_000)
    assert count(second.beat()) == 4


# --- patterns ---------------------------------------------------------------------------------------------------------


def test_topics_are_found_by_pattern_and_found_again() -> None:
    driver = ShardDriver(known=topics(topic("orders-1", 1), topic("bills", 1)))
    reader = Reader(driver, "m", pattern="orders-.*")
    assert reader.has == {"orders-1": [0]}
    driver.topics = topics(topic("orders-1", 1), topic("orders-2", 1), version=1)
    assert reader.beat() == {"orders-1": [0]}, "not so soon"
    driver.pass_time(10_000)
    assert reader.beat() == {"orders-1": [0], "orders-2": [0]}
    driver.elect()
    assert driver.group().patterns["orders-.*"].topics == ("orders-1", "orders-2")
    driver.ask(alive("m", -1))
    assert not driver.group().patterns


# --- what survives a new coordinator ----------------------------------------------------------------------------------


def test_a_new_coordinator_knows_everything() -> None:
    driver = ShardDriver()
    first, second = Reader(driver, "m"), Reader(driver, "n")
    first.beat()
    before = driver.group()
    driver.elect()
    after = driver.group()
    for name in ("epoch", "target_epoch", "members", "targets", "owners", "metadata_hash", "static"):
        assert getattr(after, name) == getattr(before, name), name
    first.beat()
    assert second.beat() == {}
    driver.pass_time(5_000)
    first.beat()
    assert second.beat() == {"a": [2, 3]}


def test_a_commit_that_comes_after_another_member_got_the_partition_is_refused() -> None:
    driver = ShardDriver()
    first, second = Reader(driver, "m"), Reader(driver, "n")
    first.beat()
    first.beat()
    assert second.beat() == {"a": [2, 3]}
    epoch = driver.group().members["m"].epoch
    late = driver.ask(commit({0: 7, 3: 5}, member_id="m", epoch=epoch)).topics[0].partitions
    assert [each.error_code for each in late] == [NONE, ErrorCode.STALE_MEMBER_EPOCH]


# --- conversion between the protocols ---------------------------------------------------------------------------------


def classic(driver: ShardDriver) -> tuple[str, int]:
    """Forms a classic group of one member that owns all partitions; returns its id and generation."""
    member_id = enter(driver)
    driver.pass_time(0)
    driver.send(sync(member_id, 1, {member_id: assignment_bytes({"a": [0, 1, 2, 3]}, 1)}))
    assert driver.group().state is State.STABLE
    return member_id, 1


def assigned(answer: Any) -> list[int]:
    found = assignment(answer.assignment)
    assert found is not None
    return [number for each in found.assigned_partitions for number in each.partitions]


def test_a_classic_group_becomes_a_consumer_group_and_nobody_loses_anything() -> None:
    driver = ShardDriver()
    old, generation = classic(driver)
    new = Reader(driver, "n")
    group = driver.group()
    assert isinstance(group, ConsumerGroup)
    assert new.has == {}
    assert new.epoch == 2
    assert driver.ask(beat(old, generation)).error_code is ErrorCode.REBALANCE_IN_PROGRESS
    owned = {"a": [0, 1, 2, 3]}
    again = driver.ask(join(old, metadata=subscription("a", owned=owned)))
    assert (again.error_code, again.generation_id, again.leader) == (NONE, 1, "")
    kept = assigned(driver.ask(sync(old, 1)))
    assert kept == [0, 1]
    again = driver.ask(join(old, metadata=subscription("a", owned={"a": kept})))
    assert again.generation_id == 2
    assert assigned(driver.ask(sync(old, 2))) == [0, 1]
    assert driver.ask(beat(old, 2)).error_code is NONE
    assert new.beat() == {"a": [2, 3]}
    done = driver.ask(commit({0: 7}, member_id=old, epoch=2))
    assert done.topics[0].partitions[0].error_code is NONE
    driver.elect()
    assert driver.group().members[old].classic is not None


def test_what_a_cooperative_member_has_not_heard_of_yet_is_not_free() -> None:
    """The response that revokes two partitions is in flight when the group is converted."""
    driver = ShardDriver()
    old, _ = classic(driver)
    owned = {"a": [0, 1, 2, 3]}
    driver.send(join(old, metadata=subscription("a", owned=owned)))
    driver.send(sync(old, 2, {old: assignment_bytes({"a": [0, 1]}, 1)}))
    new = Reader(driver, "n")
    assert new.beat() == {}
    driver.ask(join(old, metadata=subscription("a", owned=owned)))
    assert assigned(driver.ask(sync(old, 2))) == [0, 1]
    assert new.beat() == {}
    driver.ask(join(old, metadata=subscription("a", owned={"a": [0, 1]})))
    assert new.beat() == {"a": [2, 3]}


def test_what_a_member_had_a_generation_ago_says_nothing_about_what_it_has_given_up() -> None:
    """A delayed JoinGroup arrives after a newer one of the same member."""
    driver = ShardDriver()
    old, _ = classic(driver)
    new = Reader(driver, "n")
    owned = {"a": [0, 1, 2, 3]}
    driver.ask(join(old, metadata=subscription("a", owned=owned, generation=1)))
    late = driver.ask(join(old, metadata=subscription("a", owned={"a": [0]}, generation=0)))
    assert late.generation_id == 1
    assert new.beat() == {}
    driver.ask(join(old, metadata=subscription("a", owned={"a": [0, 1]}, generation=1)))
    assert new.beat() == {"a": [2, 3]}


def test_who_does_not_come_for_what_a_join_gave_it_is_asked_to_join_again() -> None:
    """A delayed JoinGroup arrives, and the member no longer waits for its response."""
    driver = ShardDriver()
    old, _ = classic(driver)
    Reader(driver, "n")
    driver.ask(join(old, metadata=subscription("a", owned={"a": [0, 1, 2, 3]})))
    driver.ask(sync(old, 1))
    given_up = join(old, metadata=subscription("a", owned={"a": [0, 1]}))
    driver.ask(given_up)
    driver.ask(sync(old, 2))
    assert driver.ask(beat(old, 2)).error_code is NONE
    driver.ask(given_up)
    assert driver.ask(beat(old, 2)).error_code is ErrorCode.REBALANCE_IN_PROGRESS
    driver.ask(given_up)
    driver.ask(sync(old, 2))
    assert driver.ask(beat(old, 2)).error_code is NONE


def test_what_a_member_was_giving_up_is_not_free_when_the_group_is_classic_again() -> None:
    driver = ShardDriver()
    old, _ = classic(driver)
    Reader(driver, "n")
    driver.ask(join(old, metadata=subscription("a", owned={"a": [0, 1, 2, 3]})))
    assert driver.group().members[old].revoking
    driver.ask(alive("n", -1))
    new = Reader(driver, "o")
    assert new.has == {}
    assert new.beat() == {}


def test_and_back_when_the_last_new_member_leaves() -> None:
    driver = ShardDriver()
    old, _ = classic(driver)
    new = Reader(driver, "n")
    driver.ask(alive("n", -1))
    group = driver.group()
    assert isinstance(group, ClassicGroup)
    assert group.state is State.PREPARING
    assert group.generation > new.epoch - 1
    ticket = driver.send(join(old))
    assert driver.answers[ticket].leader == old
    driver.elect()
    assert isinstance(driver.group(), ClassicGroup)
    assert list(driver.group().members) == [old]


def test_or_when_a_static_member_comes_back_with_the_classic_protocol() -> None:
    driver = ShardDriver()
    Reader(driver, "m", instance="i")
    other = driver.ask(join()).member_id
    driver.ask(join(other))
    driver.ask(alive("m", -2, instance="i", names=None), version=1)
    driver.send(join(instance="i"))
    group = driver.group()
    assert isinstance(group, ClassicGroup)
    assert group.state is State.PREPARING
    assert other in group.members
    assert len(group.members) == 2


def test_a_static_member_comes_back_with_the_new_protocol_at_once() -> None:
    """The member may have been killed; the others must not wait for its session timeout."""
    driver = ShardDriver()
    ticket = driver.send(join(instance="i"))
    driver.pass_time(0)
    first = driver.answers[ticket]
    driver.send(sync(first.member_id, 1, {first.member_id: assignment_bytes({"a": [0, 1, 2, 3]}, 1)}))
    new = driver.ask(alive("n", 0, instance="i"), version=1)
    assert new.error_code is NONE
    assert list(driver.group().members) == ["n"]
    assert driver.ask(beat(first.member_id, 1)).error_code is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_refused_append_leaves_no_memory_of_topics_that_were_looked_at() -> None:
    driver = ShardDriver(known=topics(topic("orders-1", 2), version=0))
    one, two = Reader(driver, "m", pattern="orders-.*"), Reader(driver, "n", pattern="orders-.*")
    for reader in (one, two, one, two):
        reader.beat()
    driver.topics = topics(topic("orders-1", 2), topic("orders-2", 2), version=1)
    driver.pass_time(15_000)
    driver.log.refusal = AppendRefused("too few in sync")
    driver.ask(alive("m", one.epoch, owned=one.has))
    driver.ask(alive("n", -1))
    for _ in range(10):
        driver.pass_time(5_000)
        one.beat()
    assert one.has == {"orders-1": [0, 1], "orders-2": [0, 1]}


def test_the_next_coordinator_sees_topics_that_were_made_meanwhile() -> None:
    """Topic versions are local to a node: the next coordinator may have the same number for other topics."""
    driver = ShardDriver(known=topics(topic("orders-1", 1), version=0))
    reader = Reader(driver, "m", pattern="orders-.*")
    driver.topics = topics(topic("orders-1", 1), topic("orders-2", 1), version=0)
    driver.elect()
    for _ in range(10):
        driver.pass_time(5_000)
        reader.beat()
    assert reader.has == {"orders-1": [0], "orders-2": [0]}


def test_also_when_it_times_out() -> None:
    driver = ShardDriver()
    old, _ = classic(driver)
    Reader(driver, "n")
    for _ in range(10):
        driver.pass_time(5_000)
        if isinstance(driver.group(), ConsumerGroup):
            epoch = driver.group().members[old].epoch
            if driver.ask(beat(old, epoch)).error_code is ErrorCode.REBALANCE_IN_PROGRESS:
                driver.ask(join(old, metadata=subscription("a")))
    assert isinstance(driver.group(), ClassicGroup)


def test_a_classic_member_that_does_not_join_again_is_out() -> None:
    driver = ShardDriver()
    old, generation = classic(driver)
    new = Reader(driver, "n")
    for _ in range(6):
        driver.ask(beat(old, generation))
        new.beat()
        driver.pass_time(4_000)
    assert list(driver.group().members) == ["n"]


def test_a_classic_member_joins_a_consumer_group() -> None:
    driver = ShardDriver()
    new = Reader(driver, "n")
    asked = driver.ask(join(metadata=subscription("a")))
    assert asked.error_code is ErrorCode.MEMBER_ID_REQUIRED
    assert driver.ask(join("stranger")).error_code is ErrorCode.UNKNOWN_MEMBER_ID
    joined = driver.ask(join(asked.member_id, metadata=subscription("a")))
    assert joined.generation_id == 2
    new.beat()
    new.beat()
    assert driver.ask(beat(asked.member_id, 2)).error_code is ErrorCode.REBALANCE_IN_PROGRESS
    driver.ask(join(asked.member_id, metadata=subscription("a")))
    assert assigned(driver.ask(sync(asked.member_id, 2))) == [2, 3]
    assert driver.ask(join(protocol_type="connect")).error_code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_where_it_is_not_allowed_groups_stay_what_they_are() -> None:
    driver = ShardDriver(GroupSettings(initial_delay_ms=0, migration="disabled"))
    classic(driver)
    assert driver.ask(alive("n", 0)).error_code is ErrorCode.GROUP_ID_NOT_FOUND
    assert isinstance(driver.group(), ClassicGroup)


def test_groups_that_cannot_be_read_stay_classic() -> None:
    driver = ShardDriver()
    driver.send(join(protocol_type="connect", metadata=b"x"), version=3)
    assert driver.ask(alive("n", 0)).error_code is ErrorCode.GROUP_ID_NOT_FOUND


def test_empty_groups_change_without_further_ado_and_epochs_go_on() -> None:
    driver = ShardDriver()
    old, _ = classic(driver)
    driver.pass_time(11_000)
    assert driver.group().state is State.EMPTY
    new = Reader(driver, "n")
    assert new.epoch == 3
    driver.ask(alive("n", -1))
    ticket = driver.send(join(), version=3)
    driver.pass_time(0)
    assert driver.answers[ticket].generation_id == 5
    driver.ask(sync(driver.answers[ticket].member_id, 5, {}))
    driver.elect()
    assert isinstance(driver.group(), ClassicGroup)
    assert old not in driver.group().members


def test_who_waits_to_join_is_told_when_the_group_is_converted() -> None:
    driver = ShardDriver()
    old, _ = classic(driver)
    ticket = driver.send(join(), version=3)
    assert ticket not in driver.answers
    Reader(driver, "n")
    assert driver.answers[ticket].error_code is ErrorCode.REBALANCE_IN_PROGRESS
    assert old in driver.group().members


# --- the last epochs --------------------------------------------------------------------------------------------------


def at_epoch(epoch: int) -> tuple[ShardDriver, "Reader"]:
    """Forms a group of one member at this group epoch."""
    driver = ShardDriver()
    reader = Reader(driver, "one")
    driver.log.append(driver._epoch, [epoch_record("g", epoch, driver.group().metadata_hash)], driver.now)
    driver.elect()
    assert driver.group().epoch == epoch
    return driver, reader


def test_a_group_near_its_last_epoch_takes_no_members_but_lets_them_leave() -> None:
    driver, reader = at_epoch(JOINABLE_EPOCH_MAX)
    before = driver.log.end_offset
    refused = driver.ask(alive("two", 0), version=1)
    assert refused.error_code is ErrorCode.INVALID_REQUEST
    assert "delete it" in refused.error_message
    assert driver.log.end_offset == before
    resubscribing = driver.ask(alive("one", reader.epoch, names=("b",), owned=reader.has), version=1)
    assert resubscribing.error_code is ErrorCode.INVALID_REQUEST
    assert driver.ask(alive("one", -1), version=1).error_code is NONE
    assert driver.group().epoch == JOINABLE_EPOCH_MAX + 1
    assert not driver.group().members


def test_the_last_epoch_of_a_group_is_not_followed_by_another() -> None:
    driver, _ = at_epoch(INT32_EPOCH_MAX)
    draft = Draft(driver.group(), driver.shard._work(driver.now, "g"))
    with pytest.raises(EpochsExhausted, match="group g"):
        draft.bump()


def test_subscriptions_of_a_group_take_a_bounded_number_of_bytes() -> None:
    """Bytes count per group and per coordinator, and are released when members leave or subscribe to less."""
    driver = ShardDriver()
    each_bytes = NAME_BYTES + 249
    names = [f"{n:0249d}" for n in range(CONSUMER_GROUP_BYTES_MAX // 4 // each_bytes)]
    size_bytes = each_bytes * len(names)
    for number in range(4):
        assert driver.ask(alive(f"m{number}", 0, names=names)).error_code is NONE
    assert driver.shard.held_bytes == driver.group().held_bytes == 4 * size_bytes
    refused = driver.ask(alive("one-more", 0, names=names))
    assert refused.error_code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert "bytes" in (refused.error_message or "")
    assert driver.ask(alive("m0", -1)).error_code is NONE
    assert driver.shard.held_bytes == driver.group().held_bytes == 3 * size_bytes
    assert driver.ask(alive("small", 0)).error_code is NONE
    assert driver.group().held_bytes == sum(member.held_bytes for member in driver.group().members.values())


def test_short_names_count_as_the_memory_that_they_take() -> None:
    """A request of 1 MiB can name 350,000 topics of two letters, which take 59 bytes each in memory."""
    names = tuple(chr(33 + n // 90 % 90) + chr(33 + n % 90) for n in range(8_000))
    member = Member("m", topics=names)
    taken = sys.getsizeof(names) + sum(map(sys.getsizeof, names))
    assert taken <= member.held_bytes


def test_subscriptions_of_all_groups_take_a_bounded_number_of_bytes() -> None:
    driver = ShardDriver()
    driver.shard._held_by_all = lambda: GROUPS_BYTES_MAX
    names = [f"{n:0249d}" for n in range(1_000)]
    assert driver.ask(alive("large", 0, names=names)).error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert driver.ask(alive("small", 0)).error_code is NONE
