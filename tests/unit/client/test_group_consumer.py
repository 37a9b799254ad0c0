"""Group members among failing brokers: assignments, commits, and records that must not be delivered."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from penstock.client.cluster import Cluster
from penstock.client.consumer.consumer import PartitionRecords
from penstock.client.consumer.fetcher import Trouble
from penstock.client.errors import CommitFailed, ConnectionLost, Refused
from penstock.client.groups.commits import commit_offsets, committed_offsets
from penstock.client.groups.coordinator_link import CoordinatorLink
from penstock.client.groups.group_consumer import GroupConsumer
from penstock.client.groups.membership import GroupSettings
from penstock.client.metadata import TopicPartition
from penstock.client.ports import ClientPorts
from penstock.model.errors import ErrorCode
from penstock.wire.api import Api
from tests.unit.client.brokers import Fault, play
from tests.unit.client.group_brokers import GroupBrokers
from tests.unit.client.group_topic import BOTH, append, everything, filled

GROUP = "g"
SHORT = GroupSettings(session_timeout_ms=10_000, heartbeat_ms=500, rebalance_timeout_ms=20_000)


class MemberFactory:
    """Creates members, and closes them at the end."""

    def __init__(self, brokers: GroupBrokers, ports: ClientPorts) -> None:
        self.brokers = brokers
        self._ports = ports
        self._opened: list[GroupConsumer] = []
        self._clusters: list[Cluster] = []

    def cluster(self) -> Cluster:
        made = Cluster(self.brokers.names, ports=self._ports, request_timeout_ms=2_000, timeout_ms=60_000)
        self._clusters.append(made)
        return made

    def member(self, settings: GroupSettings = SHORT, **options: Any) -> GroupConsumer:
        made = GroupConsumer(self.cluster(), GROUP, ["t"], settings=settings, **options)
        self._opened.append(made)
        return made

    async def close(self) -> None:
        for member in self._opened:
            await member.close()
        for cluster in self._clusters:
            await cluster.close()


def act(brokers: GroupBrokers, story: Callable[[MemberFactory], Awaitable[Any]], seed: int = 1) -> Any:
    async def main(ports: ClientPorts) -> Any:
        factory = MemberFactory(brokers, ports)
        try:
            return await story(factory)
        finally:
            await factory.close()

    return play(brokers, main, seed=seed)


async def read(member: GroupConsumer, most: int, idle_ms: int = 5_000, max_batch: int = 500) -> list[str]:
    """Reads up to `most` records and returns their values as text."""
    found: list[str] = []
    while len(found) < most and (piece := await member.fetch_records(min(max_batch, most - len(found)), idle_ms)):
        found += texts(piece)
    return found


def texts(piece: PartitionRecords) -> list[str]:
    return [(record.value or b"").decode() for record in piece.records]


async def until(is_so: Callable[[], bool], limit_s: float = 60.0) -> None:
    for _ in range(int(limit_s * 20)):
        if is_so():
            return
        await asyncio.sleep(0.05)
    raise AssertionError("it did not come to that")


@BOTH
def test_one_member_reads_everything_and_the_next_goes_on_there(is_new: bool) -> None:
    brokers = filled(is_new=is_new)

    async def story(factory: MemberFactory) -> tuple[list[str], dict[Any, int], list[str]]:
        first = factory.member()
        found = await read(first, 40)
        assert await first.fetch_records(500, 500) is None
        await first.close()
        committed = brokers.committed(GROUP)
        append(brokers.topics["t"][1][2], "new")
        return found, committed, await read(factory.member(), 1)

    found, committed, later = act(brokers, story)
    assert sorted(found) == everything()
    assert committed == {("t", number): 10 for number in range(4)}
    assert later == ["new"]
    apis = {api for _, api, _ in brokers.seen}
    assert (Api.CONSUMER_GROUP_HEARTBEAT in apis, Api.JOIN_GROUP in apis) == (is_new, not is_new)


@BOTH
def test_leaving_is_at_once(is_new: bool) -> None:
    brokers = filled(is_new=is_new)

    async def story(factory: MemberFactory) -> bool:
        member = factory.member()
        await read(member, 1)
        await member.close()
        return bool(brokers.shard.groups[GROUP].is_empty)

    assert act(brokers, story)


@BOTH
@pytest.mark.parametrize("seed", range(3))
def test_members_share_and_nothing_is_read_by_two_nor_lost(is_new: bool, seed: int) -> None:
    brokers = filled(6, 200, is_new=is_new)

    async def story(factory: MemberFactory) -> list[str]:
        found: list[str] = []

        async def reads(member: GroupConsumer, batches: int) -> None:
            for _ in range(batches):
                piece = await member.fetch_records(5, 15_000)
                if piece is None:
                    break
                await asyncio.sleep(0.05)
                found.extend(texts(piece))
            await member.close()

        loop = asyncio.get_running_loop()
        tasks = []
        for batches in (1_000, 20, 1_000, 10, 1_000):
            tasks.append(loop.create_task(reads(factory.member(), batches)))
            await asyncio.sleep(0.7)
        await asyncio.gather(*tasks)
        return found

    found = act(brokers, story, seed)
    assert sorted(set(found)) == everything(6, 200)
    # A leaving member's current batch counts as unread and is read again; nothing else is.
    assert len(found) - 1_200 <= 2 * 5


@BOTH
def test_a_partition_changes_hands_only_when_the_batch_in_hand_is_read(is_new: bool) -> None:
    def play_with(number: int) -> bool:
        """Returns whether the partition of the current batch was the one that moved."""
        brokers = filled(2, 100, is_new=is_new)
        held = TopicPartition("t", number)

        async def story(factory: MemberFactory) -> bool:
            first, second = factory.member(), factory.member()
            while (piece := await first.fetch_records(5)) is not None and piece.partition != held:
                pass
            assert piece is not None
            other = asyncio.get_running_loop().create_task(read(second, 1, 60_000))
            await asyncio.sleep(5)
            assert first.claim(held) >= 0
            assert held not in second.assignment
            await first.fetch_records(5, 1_000)
            await until(lambda: len(first.assignment) == len(second.assignment) == 1)
            await other
            if held in first.assignment:
                return False
            assert brokers.committed(GROUP)[(held.topic, held.partition)] == piece.records[-1].offset + 1
            return True

        return bool(act(brokers, story))

    assert [play_with(0), play_with(1)].count(True) == 1


@BOTH
def test_offsets_of_a_deleted_topic_do_not_end_the_membership(is_new: bool) -> None:
    """The coordinator does not know the topic any more when a partition is taken back: nothing can be committed."""
    brokers = filled(2, 5, is_new=is_new)
    settings = GroupSettings(session_timeout_ms=10_000, heartbeat_ms=500, rebalance_timeout_ms=300_000)

    async def story(factory: MemberFactory) -> list[str]:
        first, second = factory.member(settings), factory.member(settings)
        await read(first, 10)
        brokers.fail(Api.OFFSET_COMMIT, *[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 10_000)
        first.hand_back()
        await second.join()
        await until(lambda: len(first.assignment) == len(second.assignment) == 1, limit_s=200)
        for number, log in enumerate(brokers.topics["t"][1]):
            append(log, f"{number}/more")
        return [*await read(first, 1, 30_000), *await read(second, 6, 30_000)]

    assert sorted(each for each in act(brokers, story) if each.endswith("more")) == ["0/more", "1/more"]


@BOTH
def test_nothing_is_given_of_what_was_taken_by_force(is_new: bool) -> None:
    """A reader that exceeds the session and rebalance timeouts: another member reads the rest of its batch."""
    brokers = filled(1, 10, is_new=is_new)
    slow = GroupSettings(session_timeout_ms=10_000, heartbeat_ms=500, rebalance_timeout_ms=8_000)

    async def story(factory: MemberFactory) -> tuple[list[str], list[str]]:
        first = factory.member(slow)
        piece = await first.fetch_records(10)
        assert piece is not None
        one_by_one = first.messages(piece)
        seen = [(next(one_by_one).value or b"").decode() for _ in range(3)]
        second = factory.member()
        await asyncio.sleep(9)  # the member leaves the group because its reader is too slow
        others = await read(second, 10, 30_000)
        seen += [(message.value or b"").decode() for message in one_by_one]
        return seen, others

    seen, others = act(brokers, story)
    assert seen == ["0/0", "0/1", "0/2"]
    assert others == [f"0/{offset}" for offset in range(2, 10)]


@BOTH
def test_nothing_is_given_after_a_session_without_an_answer(is_new: bool) -> None:
    brokers = filled(1, 10, is_new=is_new)

    async def story(factory: MemberFactory) -> None:
        member = factory.member()
        assert await member.fetch_records(1) is not None
        brokers.fail(Api.CONSUMER_GROUP_HEARTBEAT if is_new else Api.HEARTBEAT, *[Fault.SILENCE] * 20)
        brokers.fail(Api.JOIN_GROUP, Fault.SILENCE)
        await asyncio.sleep(11)
        assert await member.fetch_records(1, 1) is None
        piece = await member.fetch_records(1, 60_000)  # the member continues once heartbeats are answered again
        assert piece is not None

    act(brokers, story)


@BOTH
def test_troubles_name_the_coordinator(is_new: bool) -> None:
    brokers = filled(1, 10, is_new=is_new)

    async def story(factory: MemberFactory) -> Trouble:
        member = factory.member()
        assert member.troubles() == []
        assert await member.fetch_records(1) is not None
        brokers.fail(Api.CONSUMER_GROUP_HEARTBEAT if is_new else Api.HEARTBEAT, *[Fault.CLOSE] * 5)
        await until(lambda: bool(member.troubles()))
        (trouble,) = member.troubles()
        await until(lambda: not member.troubles())
        return trouble

    trouble = act(brokers, story)
    assert trouble.partition is None
    assert isinstance(trouble.error, ConnectionLost)


@BOTH
def test_a_new_coordinator_changes_nothing_for_a_reader(is_new: bool) -> None:
    brokers = filled(3, 30, is_new=is_new, count=2)

    async def story(factory: MemberFactory) -> list[str]:
        member = factory.member()
        found = await read(member, 40, max_batch=7)
        brokers.elect(1)
        return found + await read(member, 50, 30_000, max_batch=7)

    found = act(brokers, story)
    assert sorted(set(found)) == everything(3, 30)
    assert len(found) <= 90 + 7


@BOTH
def test_a_static_member_is_back_without_a_rebalance(is_new: bool) -> None:
    brokers = filled(2, 10, is_new=is_new)

    async def story(factory: MemberFactory) -> tuple[int, int]:
        first = factory.member(instance_id="a")
        second = factory.member(instance_id="b")
        await asyncio.gather(read(first, 1, 20_000), read(second, 1, 20_000))
        await until(lambda: len(first.assignment) == len(second.assignment) == 1)
        had, before = first.assignment, epoch_of(brokers)
        await first.close()
        again = factory.member(instance_id="a")
        await read(again, 5, 20_000)
        assert again.assignment == had
        return before, epoch_of(brokers)

    before, after = act(brokers, story)
    assert before == after


def epoch_of(brokers: GroupBrokers) -> int:
    group = brokers.shard.groups[GROUP]
    return int(getattr(group, "generation", None) or group.epoch)


def test_two_processes_with_one_instance_id_are_told() -> None:
    brokers = filled(1, is_new=False)

    async def story(factory: MemberFactory) -> str:
        first = factory.member(instance_id="a")
        await read(first, 1)
        await read(factory.member(instance_id="a"), 1, 20_000)
        with pytest.raises(Refused) as told:
            await read(first, 100, 20_000, 1)
        return str(told.value)

    assert "give every process its own" in act(brokers, story)


def test_a_group_that_stays_classic_is_joined_as_such() -> None:
    brokers = filled(1)
    brokers.fail(Api.CONSUMER_GROUP_HEARTBEAT, ErrorCode.GROUP_ID_NOT_FOUND)
    assert len(act(brokers, lambda factory: read(factory.member(), 10))) == 10
    assert Api.JOIN_GROUP in {api for _, api, _ in brokers.seen}


@BOTH
def test_more_partitions_are_read_once_they_are_there(is_new: bool) -> None:
    brokers = filled(1, 2, is_new=is_new)

    async def story(factory: MemberFactory) -> list[str]:
        member = factory.member()
        found = await read(member, 2)
        brokers.topics["t"][1].append(type(brokers.topics["t"][1][0])(0))
        append(brokers.topics["t"][1][1], "grown")
        return found + await read(member, 1, 90_000)

    assert act(brokers, story)[-1] == "grown"


def test_commits_by_hand() -> None:
    brokers = filled(1)

    async def story(factory: MemberFactory) -> list[Any]:
        member = factory.member(commits=False)
        await read(member, 4, max_batch=4)
        assert await member.fetch_records(3) is not None
        await member.commit()
        at_first = brokers.committed(GROUP)
        await member.close()
        return [at_first, brokers.committed(GROUP)]

    assert act(brokers, story) == [{("t", 0): 4}, {("t", 0): 4}]


def test_a_commit_that_failed_says_what_to_do() -> None:
    brokers = filled(1, is_new=False)

    async def story(factory: MemberFactory) -> str:
        member = factory.member(commits=False)
        await read(member, 4, max_batch=4)
        await member.fetch_records(1)
        brokers.fail(Api.OFFSET_COMMIT, ErrorCode.ILLEGAL_GENERATION)
        with pytest.raises(CommitFailed) as told:
            await member.commit()
        return str(told.value)

    text = act(brokers, story)
    assert "read again" in text
    assert "max_batch" in text


@BOTH
def test_nobody_commits_for_a_group_at_work(is_new: bool) -> None:
    brokers = filled(1, is_new=is_new)
    place = TopicPartition("t", 0)

    async def story(factory: MemberFactory) -> tuple[str, dict[Any, int]]:
        link = CoordinatorLink(factory.cluster(), GROUP)
        await commit_offsets(link, {place: 7})
        assert await committed_offsets(link, [place, TopicPartition("t", 9)]) == {place: 7}
        member = factory.member()
        assert await read(member, 1) == ["0/7"]
        with pytest.raises(CommitFailed) as told:
            await commit_offsets(link, {place: 3})
        return str(told.value), brokers.committed(GROUP)

    text, committed = act(brokers, story)
    assert "stop them first" in text
    assert committed[("t", 0)] == 7


def test_where_a_member_starts_the_next_goes_on() -> None:
    """A group that starts at the end and reads nothing must not skip records appended before the next member joins."""
    brokers = filled(1)

    async def story(factory: MemberFactory) -> list[str]:
        first = factory.member(start="latest")
        assert await first.fetch_records(10, 3_000) is None
        await first.close()
        append(brokers.topics["t"][1][0], "between")
        return await read(factory.member(start="latest"), 1, 10_000)

    assert act(brokers, story) == ["between"]


@BOTH
@pytest.mark.parametrize("seed", range(4))
def test_faults_on_the_way_lose_nothing(is_new: bool, seed: int) -> None:
    brokers = filled(4, 100, is_new=is_new, count=2)
    for api in (*((Api.CONSUMER_GROUP_HEARTBEAT,) if is_new else (Api.JOIN_GROUP, Api.SYNC_GROUP, Api.HEARTBEAT)),):
        brokers.fail(api, None, Fault.CLOSE, None, Fault.CLOSE_AFTER, None, None, Fault.SILENCE)
    brokers.fail(Api.OFFSET_COMMIT, Fault.CLOSE_AFTER, None, Fault.CLOSE, ErrorCode.NOT_COORDINATOR)
    brokers.fail(Api.OFFSET_FETCH, Fault.CLOSE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    async def story(factory: MemberFactory) -> list[str]:
        found: list[str] = []

        async def reads() -> None:
            member = factory.member()
            while piece := await member.fetch_records(5, 30_000):
                await asyncio.sleep(0.02)
                found.extend(texts(piece))

        await asyncio.gather(reads(), reads())
        return found

    assert sorted(set(act(brokers, story, seed))) == everything(4, 100)
