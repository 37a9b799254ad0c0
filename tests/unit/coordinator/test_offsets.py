"""Committed offsets: who may commit, what is remembered, when it is forgotten."""

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
from tests.unit.coordinator.stage import (
    QUICK,
    Stage,
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
from tests.unit.coordinator.test_classic import alone, enter

DAY_MS = 24 * 3_600_000
SHORT = GroupSettings(initial_delay_ms=0, retention_ms=100_000, retention_check_ms=10_000, load_grace_ms=0)


def code(answer: Any) -> ErrorCode:
    found = answer.topics[0].partitions[0].error_code
    assert isinstance(found, ErrorCode)
    return found


def leave(stage: Stage, member_id: str) -> None:
    stage.ask(LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=member_id)]), version=5)


def test_offsets_are_kept_by_partition() -> None:
    stage = Stage()
    stage.ask(commit({0: 5, 1: 6}))
    stage.ask(commit({1: 7}, note="n"))
    assert fetched(stage.ask(fetch())) == {("a", 0): 5, ("a", 1): 7}
    assert stage.shard.offsets.of("g")["a", 1] == OffsetCommitValue(
        offset=7, leader_epoch=-1, metadata="n", commit_timestamp=stage.wall_ms
    )
    assert fetched(stage.ask(fetch("other"))) == {}


def test_a_partition_of_which_nothing_is_known_is_minus_one() -> None:
    stage = Stage()
    request = fetch()
    request.topics = (OffsetFetchRequestTopics(name="a", partition_indexes=[3]),)
    assert fetched(stage.ask(request)) == {("a", 3): -1}


def test_who_is_not_of_the_group_commits_nothing() -> None:
    stage = Stage()
    member_id, generation = alone(stage)
    assert code(stage.ask(commit({0: 5}))) is ErrorCode.UNKNOWN_MEMBER_ID
    assert code(stage.ask(commit({0: 5}, member_id="x", epoch=generation))) is ErrorCode.UNKNOWN_MEMBER_ID
    assert code(stage.ask(commit({0: 5}, member_id=member_id, epoch=generation))) is ErrorCode.NONE
    assert code(stage.ask(commit({0: 5}, epoch=3, group_id="other"))) is ErrorCode.ILLEGAL_GENERATION


def test_members_commit_while_others_join_but_not_before_they_have_synced() -> None:
    stage = Stage()
    member_id, generation = alone(stage)
    enter(stage)
    assert code(stage.ask(commit({0: 5}, member_id=member_id, epoch=generation))) is ErrorCode.NONE
    stage.send(join(member_id))
    late = stage.ask(commit({0: 9}, member_id=member_id, epoch=generation + 1))
    assert code(late) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_commit_of_the_last_generation_is_refused_while_others_join() -> None:
    """A request that was on its way when the member joined anew must not move offsets that others own by now."""
    stage = Stage()
    member_id, generation = alone(stage)
    enter(stage)
    late = commit({0: 5}, member_id=member_id, epoch=generation - 1)
    assert code(stage.ask(late)) is ErrorCode.ILLEGAL_GENERATION
    assert fetched(stage.ask(fetch())) == {}


def test_a_note_has_a_limit() -> None:
    stage = Stage()
    assert code(stage.ask(commit({0: 5}, note="ü" * 2_048))) is ErrorCode.NONE
    assert code(stage.ask(commit({0: 6}, note="ü" * 2_049))) is ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert fetched(stage.ask(fetch())) == {("a", 0): 5}


def test_in_a_consumer_group_the_epoch_counts() -> None:
    stage = Stage()
    epoch = stage.ask(alive("m", 0)).member_epoch
    assert code(stage.ask(commit({0: 5}, member_id="m", epoch=epoch))) is ErrorCode.NONE
    assert code(stage.ask(commit({0: 5}, member_id="m", epoch=epoch - 1))) is ErrorCode.STALE_MEMBER_EPOCH
    request = fetch()
    request.member_id, request.member_epoch = "m", epoch + 1
    assert stage.ask(request).error_code is ErrorCode.STALE_MEMBER_EPOCH


# --- forgetting -------------------------------------------------------------------------------------------------------


def test_offsets_of_a_live_group_never_expire() -> None:
    """R25, KIP-211."""
    stage = Stage(SHORT)
    member_id, generation = alone(stage)
    stage.ask(commit({0: 5}, member_id=member_id, epoch=generation))
    for _ in range(30):
        stage.pass_time(9_000)
        stage.ask(beat(member_id, generation))
    assert fetched(stage.ask(fetch())) == {("a", 0): 5}


def test_they_are_kept_from_when_the_group_became_empty() -> None:
    stage = Stage(SHORT)
    member_id, generation = alone(stage)
    stage.ask(commit({0: 5}, member_id=member_id, epoch=generation))
    stage.wall_ms += 10 * DAY_MS
    leave(stage, member_id)
    stage.elect()
    stage.pass_time(90_000)
    assert fetched(stage.ask(fetch())) == {("a", 0): 5}
    stage.pass_time(30_000)
    assert fetched(stage.ask(fetch())) == {}
    assert stage.group() is None
    stage.elect()
    assert stage.group() is None


def test_also_in_consumer_groups() -> None:
    stage = Stage(SHORT)
    epoch = stage.ask(alive("m", 0)).member_epoch
    stage.ask(commit({0: 5}, member_id="m", epoch=epoch))
    stage.wall_ms += 10 * DAY_MS
    stage.ask(alive("m", -1))
    stage.pass_time(90_000)
    assert fetched(stage.ask(fetch())) == {("a", 0): 5}
    stage.pass_time(30_000)
    assert fetched(stage.ask(fetch())) == {}
    stage.elect()
    assert stage.shard.groups == {}


def test_a_simple_consumer_keeps_them_from_when_it_committed() -> None:
    stage = Stage(SHORT)
    stage.ask(commit({0: 5}))
    stage.pass_time(60_000)
    stage.ask(commit({1: 6}))
    stage.pass_time(60_000)
    assert fetched(stage.ask(fetch())) == {("a", 1): 6}


def test_a_group_of_nothing_but_offsets_is_one_also_for_the_next_coordinator() -> None:
    stage = Stage()
    stage.ask(commit({0: 5}))
    stage.elect()
    shown = stage.ask(DescribeGroupsRequest(groups=["g"]), version=6).groups[0]
    assert (shown.error_code, shown.group_state) == (ErrorCode.NONE, "Empty")
    assert [each.group_id for each in stage.ask(ListGroupsRequest()).groups] == ["g"]
    deleted = stage.ask(DeleteGroupsRequest(groups_names=["g"]), version=2)
    assert deleted.results[0].error_code is ErrorCode.NONE
    stage.elect()
    assert stage.ask(ListGroupsRequest()).groups == ()


def test_a_group_that_is_about_to_meet_loses_nothing() -> None:
    """R25: a rebalance is not emptiness."""
    stage = Stage(GroupSettings(initial_delay_ms=0, retention_ms=1, retention_check_ms=10, load_grace_ms=0))
    stage.ask(commit({0: 5}))
    stage.send(join(), version=3)
    stage.pass_time(1_000)
    assert fetched(stage.ask(fetch())) == {("a", 0): 5}


def test_offsets_of_topics_that_are_gone_are_forgotten() -> None:
    stage = Stage()
    stage.ask(commit({0: 5}))
    stage.ask(commit({0: 6}, topic_name="b"))
    stage.shard.topics_deleted({"a"}, stage.now)
    assert fetched(stage.ask(fetch())) == {("b", 0): 6}
    stage.pass_time(0)
    stage.elect()
    assert fetched(stage.ask(fetch())) == {("b", 0): 6}


def test_a_topic_that_is_made_again_begins_without_offsets_and_keeps_its_own() -> None:
    stage = Stage()
    stage.ask(commit({0: 5, 1: 6, 2: 7}))
    stage.shard.topics_deleted({"a"}, stage.now)
    stage.log.refusal = AppendRefused("too few in sync")
    stage.pass_time(0)
    assert fetched(stage.ask(fetch())) == {}
    stage.ask(commit({0: 1}))  # of the new one
    assert fetched(stage.ask(fetch())) == {("a", 0): 1}
    stage.pass_time(1_000)
    assert not stage.shard.offsets.orphans
    stage.elect()
    assert fetched(stage.ask(fetch())) == {("a", 0): 1}


def test_the_next_coordinator_forgets_what_the_last_one_could_not() -> None:
    stage = Stage()
    stage.ask(commit({0: 5}))
    stage.ask(commit({0: 6}, topic_name="b"))
    stage.topics = topics(topic("b", 4), version=1)
    stage.elect()
    assert fetched(stage.ask(fetch())) == {("b", 0): 6}
    stage.pass_time(0)
    stage.topics = topics(topic("a", 4), topic("b", 4), version=2)
    stage.elect()
    assert fetched(stage.ask(fetch())) == {("b", 0): 6}


def test_a_topic_may_be_deleted_and_made_again_while_its_offsets_are_read() -> None:
    stage = Stage()
    stage.ask(commit({0: 5}))
    wanted = stage.runtime.step(Elected(9, 0), stage.now)[-1]
    assert isinstance(wanted, ReadLog)
    loading = stage.runtime.shard
    assert isinstance(loading, GroupShard)
    loading.topics_deleted({"a"}, stage.now)
    stage.do(LogRead(9, 0, stage.log.records(), wanted.end_offset))
    assert fetched(stage.ask(fetch())) == {}
    assert stage.group() is None


def test_what_is_taken_back_at_once_is_weighed_not_only_counted() -> None:
    stage = Stage(SHORT)
    name = "ü" * 3_000
    stage.ask(commit(dict.fromkeys(range(40), 1), group_id=name))
    stage.ask(commit({0: 1}, group_id="a"))
    before = stage.log.appends
    stage.wall_ms += DAY_MS
    stage.pass_time(SHORT.retention_check_ms + 1_000)
    assert stage.shard.groups == {}
    assert stage.log.appends - before == 40 * 6_001 // TOMBSTONE_BYTES_MAX + 1
    stage.ask(commit(dict.fromkeys(range(40), 1), group_id=name))
    before = stage.log.appends
    stage.shard.topics_deleted({"a"}, stage.now)
    stage.pass_time(1_000)
    assert stage.log.appends - before == 40 * 6_001 // TOMBSTONE_BYTES_MAX + 1
    assert not stage.shard.offsets.orphans


def test_so_are_groups_that_go(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(SHORT)
    for number in range(20):
        name = f"{number}" + "ü" * 3_000
        stage.ask(alive("m", 0, group_id=name))
        stage.ask(alive("m", -1, group_id=name))
    sizes: list[int] = []
    append = stage.log.append

    def weighed(epoch: int, records: Sequence[GroupRecord], now: Now) -> int:
        sizes.append(sum(len(encode_record(each)[0]) for each in records))
        return append(epoch, records, now)

    monkeypatch.setattr(stage.log, "append", weighed)
    stage.pass_time(SHORT.retention_check_ms + 1_000)
    assert stage.shard.groups == {}
    assert max(sizes) < 2 * TOMBSTONE_BYTES_MAX < sum(sizes)


def test_an_empty_group_without_offsets_goes_at_the_next_look() -> None:
    stage = Stage(SHORT)
    member_id, _ = alone(stage)
    leave(stage, member_id)
    stage.ask(alive("m", 0, group_id="new"))
    stage.ask(alive("m", -1, group_id="new"))
    stage.ask(join(group_id="awaited"), version=4)
    assert set(stage.shard.groups) == {"g", "new", "awaited"}
    stage.pass_time(SHORT.retention_check_ms - 1_000)
    stage.ask(join(group_id="awaited"), version=4)
    stage.pass_time(1_000)
    assert set(stage.shard.groups) == {"awaited"}
    stage.elect()
    assert stage.shard.groups == {}


def test_one_offset_is_looked_up_without_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage()
    stage.ask(commit(dict.fromkeys(range(4), 1)))
    made: list[Any] = []
    real = offsets._value

    def counted(kept: Any) -> OffsetCommitValue:
        made.append(kept)
        return real(kept)

    monkeypatch.setattr(offsets, "_value", counted)
    asked = OffsetFetchRequestGroup(group_id="g", topics=[OffsetFetchRequestTopics(name="a", partition_indexes=[2])])
    assert fetched(stage.ask(asked)) == {("a", 2): 1}
    assert len(made) == 1


def test_operators_delete_offsets_of_topics_that_nobody_reads() -> None:
    stage = Stage()
    member_id, generation = alone(stage)
    for name in ("a", "b"):
        stage.ask(commit({0: 5}, member_id=member_id, epoch=generation, topic_name=name))
    parts = [OffsetDeleteRequestPartition(partition_index=0)]
    listed = [OffsetDeleteRequestTopic(name=name, partitions=parts) for name in ("a", "b")]
    answer = stage.ask(OffsetDeleteRequest(group_id="g", topics=listed), version=0)
    codes = [each.partitions[0].error_code for each in answer.topics]
    assert codes == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE]
    assert fetched(stage.ask(fetch())) == {("a", 0): 5}
    missing = stage.ask(OffsetDeleteRequest(group_id="x", topics=listed), version=0)
    assert missing.error_code is ErrorCode.GROUP_ID_NOT_FOUND


# --- operators --------------------------------------------------------------------------------------------------------


def test_empty_groups_are_deleted_with_their_offsets() -> None:
    stage = Stage()
    member_id, generation = alone(stage)
    stage.ask(commit({0: 5}, member_id=member_id, epoch=generation))
    ask = DeleteGroupsRequest(groups_names=["g", "x"])
    codes = [each.error_code for each in stage.ask(ask, version=2).results]
    assert codes == [ErrorCode.NON_EMPTY_GROUP, ErrorCode.GROUP_ID_NOT_FOUND]
    leave(stage, member_id)
    assert stage.ask(ask, version=2).results[0].error_code is ErrorCode.NONE
    stage.elect()
    assert stage.shard.groups == {}
    assert stage.shard.offsets.groups() == []


def test_as_many_are_deleted_at_once_as_fit_into_a_batch() -> None:
    stage = Stage()
    name, count = "ü" * 3_000, 40
    stage.ask(commit(dict.fromkeys(range(count), 1), group_id=name))
    for each in ("a", "b"):
        stage.ask(commit({0: 1}, group_id=each))
    before, left, rounds = stage.log.appends, ["a", name, "x", "b"], 0
    while left:
        told = stage.ask(DeleteGroupsRequest(groups_names=left), version=2).results
        assert [each.group_id for each in told] == left[: len(told)]
        left = left[len(told) :]
        rounds += 1
    assert stage.log.appends - before == rounds == count * 6_001 // TOMBSTONE_BYTES_MAX + 1
    stage.elect()
    assert stage.shard.groups == {}
    assert stage.shard.offsets.groups() == []


def test_groups_are_listed_and_described() -> None:
    stage = Stage()
    alone(stage)
    stage.ask(alive("m", 0, group_id="new"))
    stage.ask(commit({0: 5}, group_id="simple"))
    shown = {each.group_id: (each.group_type, each.group_state) for each in stage.ask(ListGroupsRequest()).groups}
    assert shown == {"g": ("classic", "Stable"), "new": ("consumer", "Stable"), "simple": ("classic", "Empty")}
    only = stage.ask(ListGroupsRequest(states_filter=["stable"], types_filter=["Consumer"])).groups
    assert [each.group_id for each in only] == ["new"]
    classic = stage.ask(DescribeGroupsRequest(groups=["g", "new"]), version=6).groups
    assert classic[0].group_state == "Stable"
    assert classic[0].members[0].client_host == "/host"
    assert classic[1].error_code is ErrorCode.GROUP_ID_NOT_FOUND
    assert stage.ask(DescribeGroupsRequest(groups=["x"]), version=5).groups[0].group_state == "Dead"
    asked = ConsumerGroupDescribeRequest(group_ids=["new", "g"], include_authorized_operations=False)
    new = stage.ask(asked, version=1).groups
    assert new[0].members[0].assignment.topic_partitions[0].topic_name == "a"
    assert new[1].error_code is ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize("settings", [QUICK])
def test_unknown_requests_are_our_mistake(settings: GroupSettings) -> None:
    stage = Stage(settings)
    with pytest.raises(TypeError, match="nothing that groups can be asked"):
        stage.ask(object())
    assert sync("m", 1).group_id == "g"
