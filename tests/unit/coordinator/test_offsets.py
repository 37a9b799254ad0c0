"""Committed offsets: permission to commit, storage, and expiry."""

from collections.abc import Sequence
from typing import Any

import pytest

from penstock.coordinator import offsets
from penstock.coordinator.events import Elected, LogRead, ReadLog
from penstock.coordinator.groups import GroupShard
from penstock.coordinator.ports import AppendRefused, Now
from penstock.coordinator.records import GroupRecord, encode_record
from penstock.coordinator.settings import TOMBSTONE_BYTES_MAX, GroupSettings
from penstock.model.errors import ErrorCode
from penstock.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from penstock.wire.messages.delete_groups import DeleteGroupsRequest
from penstock.wire.messages.describe_groups import DescribeGroupsRequest
from penstock.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from penstock.wire.messages.list_groups import ListGroupsRequest
from penstock.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from penstock.wire.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from penstock.wire.stored.consumer_offsets import OffsetCommitValue
from tests.unit.coordinator.classic import alone, enter
from tests.unit.coordinator.shard_driver import (
    QUICK,
    ShardDriver,
    alive,
    beat,
    commit,
    fetch,
    fetched,
    join,
    sync,
    topic,
    topics,
)

DAY_MS = 24 * 3_600_000
SHORT = GroupSettings(initial_delay_ms=0, retention_ms=100_000, retention_check_ms=10_000, load_grace_ms=0)


def code(answer: Any) -> ErrorCode:
    found = answer.topics[0].partitions[0].error_code
    assert isinstance(found, ErrorCode)
    return found


def leave(driver: ShardDriver, member_id: str) -> None:
    driver.ask(LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=member_id)]), version=5)


def test_offsets_are_kept_by_partition() -> None:
    driver = ShardDriver()
    driver.ask(commit({0: 5, 1: 6}))
    driver.ask(commit({1: 7}, note="n"))
    assert fetched(driver.ask(fetch())) == {("a", 0): 5, ("a", 1): 7}
    assert driver.shard.offsets.of("g")["a", 1] == OffsetCommitValue(
        offset=7, leader_epoch=-1, metadata="n", commit_timestamp=driver.wall_ms
    )
    assert fetched(driver.ask(fetch("other"))) == {}


def test_a_partition_of_which_nothing_is_known_is_minus_one() -> None:
    driver = ShardDriver()
    request = fetch()
    request.topics = (OffsetFetchRequestTopics(name="a", partition_indexes=[3]),)
    assert fetched(driver.ask(request)) == {("a", 3): -1}


def test_who_is_not_of_the_group_commits_nothing() -> None:
    driver = ShardDriver()
    member_id, generation = alone(driver)
    assert code(driver.ask(commit({0: 5}))) is ErrorCode.UNKNOWN_MEMBER_ID
    assert code(driver.ask(commit({0: 5}, member_id="x", epoch=generation))) is ErrorCode.UNKNOWN_MEMBER_ID
    assert code(driver.ask(commit({0: 5}, member_id=member_id, epoch=generation))) is ErrorCode.NONE
    assert code(driver.ask(commit({0: 5}, epoch=3, group_id="other"))) is ErrorCode.ILLEGAL_GENERATION


def test_members_commit_while_others_join_but_not_before_they_have_synced() -> None:
    driver = ShardDriver()
    member_id, generation = alone(driver)
    enter(driver)
    assert code(driver.ask(commit({0: 5}, member_id=member_id, epoch=generation))) is ErrorCode.NONE
    driver.send(join(member_id))
    late = driver.ask(commit({0: 9}, member_id=member_id, epoch=generation + 1))
    assert code(late) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_commit_of_the_last_generation_is_refused_while_others_join() -> None:
    """A request in flight when the member rejoined must not move offsets that other members own by now."""
    driver = ShardDriver()
    member_id, generation = alone(driver)
    enter(driver)
    late = commit({0: 5}, member_id=member_id, epoch=generation - 1)
    assert code(driver.ask(late)) is ErrorCode.ILLEGAL_GENERATION
    assert fetched(driver.ask(fetch())) == {}


def test_a_note_has_a_limit() -> None:
    driver = ShardDriver()
    assert code(driver.ask(commit({0: 5}, note="ü" * 2_048))) is ErrorCode.NONE
    assert code(driver.ask(commit({0: 6}, note="ü" * 2_049))) is ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert fetched(driver.ask(fetch())) == {("a", 0): 5}


def test_in_a_consumer_group_the_epoch_counts() -> None:
    driver = ShardDriver()
    epoch = driver.ask(alive("m", 0)).member_epoch
    assert code(driver.ask(commit({0: 5}, member_id="m", epoch=epoch))) is ErrorCode.NONE
    assert code(driver.ask(commit({0: 5}, member_id="m", epoch=epoch - 1))) is ErrorCode.STALE_MEMBER_EPOCH
    request = fetch()
    request.member_id, request.member_epoch = "m", epoch + 1
    assert driver.ask(request).error_code is ErrorCode.STALE_MEMBER_EPOCH


# --- expiry -----------------------------------------------------------------------------------------------------------


def test_offsets_of_a_live_group_never_expire() -> None:
    """R25, KIP-211."""
    driver = ShardDriver(SHORT)
    member_id, generation = alone(driver)
    driver.ask(commit({0: 5}, member_id=member_id, epoch=generation))
    for _ in range(30):
        driver.pass_time(9_000)
        driver.ask(beat(member_id, generation))
    assert fetched(driver.ask(fetch())) == {("a", 0): 5}


def test_they_are_kept_from_when_the_group_became_empty() -> None:
    driver = ShardDriver(SHORT)
    member_id, generation = alone(driver)
    driver.ask(commit({0: 5}, member_id=member_id, epoch=generation))
    driver.wall_ms += 10 * DAY_MS
    leave(driver, member_id)
    driver.elect()
    driver.pass_time(90_000)
    assert fetched(driver.ask(fetch())) == {("a", 0): 5}
    driver.pass_time(30_000)
    assert fetched(driver.ask(fetch())) == {}
    assert driver.group() is None
    driver.elect()
    assert driver.group() is None


def test_also_in_consumer_groups() -> None:
    driver = ShardDriver(SHORT)
    epoch = driver.ask(alive("m", 0)).member_epoch
    driver.ask(commit({0: 5}, member_id="m", epoch=epoch))
    driver.wall_ms += 10 * DAY_MS
    driver.ask(alive("m", -1))
    driver.pass_time(90_000)
    assert fetched(driver.ask(fetch())) == {("a", 0): 5}
    driver.pass_time(30_000)
    assert fetched(driver.ask(fetch())) == {}
    driver.elect()
    assert driver.shard.groups == {}


def test_a_simple_consumer_keeps_them_from_when_it_committed() -> None:
    driver = ShardDriver(SHORT)
    driver.ask(commit({0: 5}))
    driver.pass_time(60_000)
    driver.ask(commit({1: 6}))
    driver.pass_time(60_000)
    assert fetched(driver.ask(fetch())) == {("a", 1): 6}


def test_a_group_of_nothing_but_offsets_is_one_also_for_the_next_coordinator() -> None:
    driver = ShardDriver()
    driver.ask(commit({0: 5}))
    driver.elect()
    shown = driver.ask(DescribeGroupsRequest(groups=["g"]), version=6).groups[0]
    assert (shown.error_code, shown.group_state) == (ErrorCode.NONE, "Empty")
    assert [each.group_id for each in driver.ask(ListGroupsRequest()).groups] == ["g"]
    deleted = driver.ask(DeleteGroupsRequest(groups_names=["g"]), version=2)
    assert deleted.results[0].error_code is ErrorCode.NONE
    driver.elect()
    assert driver.ask(ListGroupsRequest()).groups == ()


def test_a_group_that_is_about_to_meet_loses_nothing() -> None:
    """R25: a group in a rebalance is not empty."""
    driver = ShardDriver(GroupSettings(initial_delay_ms=0, retention_ms=1, retention_check_ms=10, load_grace_ms=0))
    driver.ask(commit({0: 5}))
    driver.send(join(), version=3)
    driver.pass_time(1_000)
    assert fetched(driver.ask(fetch())) == {("a", 0): 5}


def test_offsets_of_topics_that_are_gone_are_forgotten() -> None:
    driver = ShardDriver()
    driver.ask(commit({0: 5}))
    driver.ask(commit({0: 6}, topic_name="b"))
    driver.shard.topics_deleted({"a"}, driver.now)
    assert fetched(driver.ask(fetch())) == {("b", 0): 6}
    driver.pass_time(0)
    driver.elect()
    assert fetched(driver.ask(fetch())) == {("b", 0): 6}


def test_a_topic_that_is_made_again_begins_without_offsets_and_keeps_its_own() -> None:
    driver = ShardDriver()
    driver.ask(commit({0: 5, 1: 6, 2: 7}))
    driver.shard.topics_deleted({"a"}, driver.now)
    driver.log.refusal = AppendRefused("too few in sync")
    driver.pass_time(0)
    assert fetched(driver.ask(fetch())) == {}
    driver.ask(commit({0: 1}))  # in the new topic
    assert fetched(driver.ask(fetch())) == {("a", 0): 1}
    driver.pass_time(1_000)
    assert not driver.shard.offsets.orphans
    driver.elect()
    assert fetched(driver.ask(fetch())) == {("a", 0): 1}


def test_the_next_coordinator_forgets_what_the_last_one_could_not() -> None:
    driver = ShardDriver()
    driver.ask(commit({0: 5}))
    driver.ask(commit({0: 6}, topic_name="b"))
    driver.topics = topics(topic("b", 4), version=1)
    driver.elect()
    assert fetched(driver.ask(fetch())) == {("b", 0): 6}
    driver.pass_time(0)
    driver.topics = topics(topic("a", 4), topic("b", 4), version=2)
    driver.elect()
    assert fetched(driver.ask(fetch())) == {("b", 0): 6}


def test_a_topic_may_be_deleted_and_made_again_while_its_offsets_are_read() -> None:
    driver = ShardDriver()
    driver.ask(commit({0: 5}))
    wanted = driver.runtime.step(Elected(9, 0), driver.now)[-1]
    assert isinstance(wanted, ReadLog)
    loading = driver.runtime.shard
    assert isinstance(loading, GroupShard)
    loading.topics_deleted({"a"}, driver.now)
    driver.do(LogRead(9, 0, driver.log.records(), wanted.end_offset))
    assert fetched(driver.ask(fetch())) == {}
    assert driver.group() is None


def test_what_is_taken_back_at_once_is_weighed_not_only_counted() -> None:
    driver = ShardDriver(SHORT)
    name = "ü" * 3_000
    driver.ask(commit(dict.fromkeys(range(40), 1), group_id=name))
    driver.ask(commit({0: 1}, group_id="a"))
    before = driver.log.appends
    driver.wall_ms += DAY_MS
    driver.pass_time(SHORT.retention_check_ms + 1_000)
    assert driver.shard.groups == {}
    assert driver.log.appends - before == 40 * 6_001 // TOMBSTONE_BYTES_MAX + 1
    driver.ask(commit(dict.fromkeys(range(40), 1), group_id=name))
    before = driver.log.appends
    driver.shard.topics_deleted({"a"}, driver.now)
    driver.pass_time(1_000)
    assert driver.log.appends - before == 40 * 6_001 // TOMBSTONE_BYTES_MAX + 1
    assert not driver.shard.offsets.orphans


def test_so_are_groups_that_go(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = ShardDriver(SHORT)
    for number in range(20):
        name = f"{number}" + "ü" * 3_000
        driver.ask(alive("m", 0, group_id=name))
        driver.ask(alive("m", -1, group_id=name))
    sizes: list[int] = []
    append = driver.log.append

    def weighed(epoch: int, records: Sequence[GroupRecord], now: Now) -> int:
        sizes.append(sum(len(encode_record(each)[0]) for each in records))
        return append(epoch, records, now)

    monkeypatch.setattr(driver.log, "append", weighed)
    driver.pass_time(SHORT.retention_check_ms + 1_000)
    assert driver.shard.groups == {}
    assert max(sizes) < 2 * TOMBSTONE_BYTES_MAX < sum(sizes)


def test_an_empty_group_without_offsets_goes_at_the_next_look() -> None:
    driver = ShardDriver(SHORT)
    member_id, _ = alone(driver)
    leave(driver, member_id)
    driver.ask(alive("m", 0, group_id="new"))
    driver.ask(alive("m", -1, group_id="new"))
    driver.ask(join(group_id="awaited"), version=4)
    assert set(driver.shard.groups) == {"g", "new", "awaited"}
    driver.pass_time(SHORT.retention_check_ms - 1_000)
    driver.ask(join(group_id="awaited"), version=4)
    driver.pass_time(1_000)
    assert set(driver.shard.groups) == {"awaited"}
    driver.elect()
    assert driver.shard.groups == {}


def test_one_offset_is_looked_up_without_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = ShardDriver()
    driver.ask(commit(dict.fromkeys(range(4), 1)))
    made: list[Any] = []
    real = offsets._value

    def counted(kept: Any) -> OffsetCommitValue:
        made.append(kept)
        return real(kept)

    monkeypatch.setattr(offsets, "_value", counted)
    asked = OffsetFetchRequestGroup(group_id="g", topics=[OffsetFetchRequestTopics(name="a", partition_indexes=[2])])
    assert fetched(driver.ask(asked)) == {("a", 2): 1}
    assert len(made) == 1


def test_operators_delete_offsets_of_topics_that_nobody_reads() -> None:
    driver = ShardDriver()
    member_id, generation = alone(driver)
    for name in ("a", "b"):
        driver.ask(commit({0: 5}, member_id=member_id, epoch=generation, topic_name=name))
    parts = [OffsetDeleteRequestPartition(partition_index=0)]
    listed = [OffsetDeleteRequestTopic(name=name, partitions=parts) for name in ("a", "b")]
    answer = driver.ask(OffsetDeleteRequest(group_id="g", topics=listed), version=0)
    codes = [each.partitions[0].error_code for each in answer.topics]
    assert codes == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE]
    assert fetched(driver.ask(fetch())) == {("a", 0): 5}
    missing = driver.ask(OffsetDeleteRequest(group_id="x", topics=listed), version=0)
    assert missing.error_code is ErrorCode.GROUP_ID_NOT_FOUND


# --- operators --------------------------------------------------------------------------------------------------------


def test_empty_groups_are_deleted_with_their_offsets() -> None:
    driver = ShardDriver()
    member_id, generation = alone(driver)
    driver.ask(commit({0: 5}, member_id=member_id, epoch=generation))
    ask = DeleteGroupsRequest(groups_names=["g", "x"])
    codes = [each.error_code for each in driver.ask(ask, version=2).results]
    assert codes == [ErrorCode.NON_EMPTY_GROUP, ErrorCode.GROUP_ID_NOT_FOUND]
    leave(driver, member_id)
    assert driver.ask(ask, version=2).results[0].error_code is ErrorCode.NONE
    driver.elect()
    assert driver.shard.groups == {}
    assert driver.shard.offsets.groups() == []


def test_as_many_are_deleted_at_once_as_fit_into_a_batch() -> None:
    driver = ShardDriver()
    name, count = "ü" * 3_000, 40
    driver.ask(commit(dict.fromkeys(range(count), 1), group_id=name))
    for each in ("a", "b"):
        driver.ask(commit({0: 1}, group_id=each))
    before, left, rounds = driver.log.appends, ["a", name, "x", "b"], 0
    while left:
        told = driver.ask(DeleteGroupsRequest(groups_names=left), version=2).results
        assert [each.group_id for each in told] == left[: len(told)]
        left = left[len(told) :]
        rounds += 1
    assert driver.log.appends - before == rounds == count * 6_001 // TOMBSTONE_BYTES_MAX + 1
    driver.elect()
    assert driver.shard.groups == {}
    assert driver.shard.offsets.groups() == []


def test_groups_are_listed_and_described() -> None:
    driver = ShardDriver()
    alone(driver)
    driver.ask(alive("m", 0, group_id="new"))
    driver.ask(commit({0: 5}, group_id="simple"))
    shown = {each.group_id: (each.group_type, each.group_state) for each in driver.ask(ListGroupsRequest()).groups}
    assert shown == {"g": ("classic", "Stable"), "new": ("consumer", "Stable"), "simple": ("classic", "Empty")}
    only = driver.ask(ListGroupsRequest(states_filter=["stable"], types_filter=["Consumer"])).groups
    assert [each.group_id for each in only] == ["new"]
    classic = driver.ask(DescribeGroupsRequest(groups=["g", "new"]), version=6).groups
    assert classic[0].group_state == "Stable"
    assert classic[0].members[0].client_host == "/host"
    assert classic[1].error_code is ErrorCode.GROUP_ID_NOT_FOUND
    assert driver.ask(DescribeGroupsRequest(groups=["x"]), version=5).groups[0].group_state == "Dead"
    asked = ConsumerGroupDescribeRequest(group_ids=["new", "g"], include_authorized_operations=False)
    new = driver.ask(asked, version=1).groups
    assert new[0].members[0].assignment.topic_partitions[0].topic_name == "a"
    assert new[1].error_code is ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize("settings", [QUICK])
def test_unknown_requests_are_our_mistake(settings: GroupSettings) -> None:
    driver = ShardDriver(settings)
    with pytest.raises(AssertionError, match="unreachable"):
        driver.ask(object())
    assert sync("m", 1).group_id == "g"
