"""ListOffsets, OffsetForLeaderEpoch, DeleteRecords: start, end and truncation of a log."""

import asyncio
from typing import Any
from unittest.mock import PropertyMock

import pytest

from penstock.log.log import Log
from penstock.model.errors import ErrorCode
from penstock.server.handlers.records.list_offsets import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    FIRST_VERSION,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
)
from penstock.server.partitions.partition import Partition
from penstock.server.partitions.partitions import Leader
from penstock.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from penstock.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from penstock.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.unit.server.handlers.bare_node import (
    FSYNC,
    NONE,
    SMALL_SEGMENTS,
    BareNode,
    part,
    parts_of,
    running,
    to_fetch,
    transactional,
)

START_MS = 1_800_000_000_000


async def ask(
    node: BareNode, timestamp: int, version: int = 11, index: int = 0, topic: str = "t", **options: Any
) -> Any:
    epoch = options.pop("current_leader_epoch", -1)
    asked = ListOffsetsPartition(partition_index=index, timestamp=timestamp, current_leader_epoch=epoch)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[asked])], **options)
    response = await node.ask(node.offsets.list_offsets, request, version)
    (answered,) = response.topics
    assert answered.name == topic
    (found,) = answered.partitions
    return found


async def look(node: BareNode, timestamp: int, version: int = 11, **options: Any) -> tuple[int, int, int]:
    found = await ask(node, timestamp, version, **options)
    assert found.error_code == NONE
    return found.timestamp, found.offset, found.leader_epoch


@pytest.mark.parametrize("version", range(1, 12))
def test_every_version_finds_first_last_and_by_time(version: int) -> None:
    async def story(node: BareNode) -> None:
        partition = await node.add(settings=SMALL_SEGMENTS)
        for n in range(12):
            node.append(partition, timestamp_ms=START_MS + 10 * (n if n != 7 else 50))
        await node.upkeep.turn()
        await node.upkeep.delete_before(partition.log, 2)
        epoch = 3 if version >= 4 else -1
        assert await look(node, EARLIEST, version) == (-1, 2, epoch)
        assert await look(node, LATEST, version) == (-1, 12, epoch)
        assert await look(node, START_MS + 55, version) == (START_MS + 60, 6, epoch)
        assert await look(node, 0, version) == (START_MS + 20, 2, epoch)
        assert await look(node, START_MS + 501, version) == (-1, -1, -1)
        expected = {
            MAX_TIMESTAMP: (START_MS + 500, 7, 3),
            EARLIEST_LOCAL: (-1, 2, 3),
            LATEST_TIERED: (-1, -1, -1),
            EARLIEST_PENDING_UPLOAD: (-1, -1, -1),
        }
        for timestamp, answer in expected.items():
            found = await ask(node, timestamp, version)
            if version < FIRST_VERSION[timestamp]:
                assert found.error_code == ErrorCode.UNSUPPORTED_VERSION
            else:
                assert (found.error_code, found.timestamp, found.offset, found.leader_epoch) == (NONE, *answer)
        assert (await ask(node, -7, version)).error_code == ErrorCode.UNSUPPORTED_VERSION

    running(story)


def test_an_empty_log_has_a_first_and_a_last_offset_but_no_time() -> None:
    async def story(node: BareNode) -> None:
        await node.add()
        assert await look(node, EARLIEST) == (-1, 0, 3)
        assert await look(node, LATEST) == (-1, 0, 3)
        assert await look(node, 0) == (-1, -1, -1)
        assert await look(node, MAX_TIMESTAMP) == (-1, -1, -1)

    running(story)


@pytest.mark.parametrize("version", range(2, 12))
def test_the_isolation_level_bounds_the_last_offset_and_what_is_found_by_time(version: int) -> None:
    """R29, KAFKA-5522."""

    async def story(node: BareNode) -> None:
        partition = await node.add()
        node.append(partition, timestamp_ms=START_MS)
        node.append(partition, timestamp_ms=START_MS + 5, **transactional(5))
        assert (await look(node, LATEST, version))[1] == 2
        assert (await look(node, LATEST, version, isolation_level=1))[1] == 1
        assert (await look(node, START_MS + 1, version))[1] == 1
        assert (await look(node, START_MS + 1, version, isolation_level=1))[1] == -1
        if version >= 7:
            assert (await look(node, MAX_TIMESTAMP, version, isolation_level=1))[:2] == (START_MS, 0)

    running(story)


def test_what_is_not_durable_yet_is_not_told() -> None:
    async def story(node: BareNode) -> None:
        partition = await node.add(settings=FSYNC)
        node.append(partition, timestamp_ms=START_MS)
        assert (await look(node, LATEST))[1] == 0
        assert (await look(node, START_MS))[1] == -1

    running(story, sync_s=1.0)


@pytest.mark.parametrize("version", range(1, 12))
def test_offsets_are_not_told_while_they_could_go_back(version: int) -> None:
    """R29, KIP-207: an earlier leader may have exposed a higher high watermark."""

    async def story(node: BareNode) -> None:
        partition = await node.add(settings=FSYNC)
        node.append(partition, timestamp_ms=START_MS)
        await node.directory.begin_epoch(partition.log, 4)
        assert partition.log.high_watermark < partition.log.written_end
        code = ErrorCode.OFFSET_NOT_AVAILABLE if version >= 5 else ErrorCode.LEADER_NOT_AVAILABLE
        assert (await ask(node, LATEST, version)).error_code == code
        assert (await ask(node, START_MS, version)).error_code == code
        assert (await look(node, EARLIEST, version))[1] == 0

    running(story, sync_s=60.0)


@pytest.mark.parametrize("version", range(1, 12))
def test_who_may_have_been_replaced_does_not_tell_where_a_log_ends(version: int) -> None:
    async def story(node: BareNode) -> None:
        partition = await node.add()
        node.append(partition, timestamp_ms=START_MS)
        node.is_in_touch = False
        code = ErrorCode.OFFSET_NOT_AVAILABLE if version >= 5 else ErrorCode.LEADER_NOT_AVAILABLE
        assert (await ask(node, LATEST, version)).error_code == code
        assert (await ask(node, START_MS + 1, version)).error_code == code, "there may be one by now"
        assert (await look(node, EARLIEST, version))[1] == 0
        assert (await look(node, START_MS, version))[1] == 0

    running(story)


def test_whether_the_broker_is_in_touch_is_asked_once_for_all_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    in_touch = PropertyMock(return_value=True)

    async def story(node: BareNode) -> None:
        for index in range(5):
            await node.add(index=index)
        monkeypatch.setattr(BareNode, "is_in_touch", in_touch, raising=False)
        asked = [ListOffsetsPartition(partition_index=index, timestamp=LATEST) for index in range(5)]
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=asked)])
        (answered,) = (await node.ask(node.offsets.list_offsets, request, 11)).topics
        assert [(part.error_code, part.offset) for part in answered.partitions] == [(NONE, 0)] * 5
        assert in_touch.call_count == 1

    running(story)


def test_list_offsets_tells_errors() -> None:
    async def story(node: BareNode) -> None:
        for index in range(2):
            partition = await node.add(index=index)
        partition.log.take_offline("for a test")
        node.leaders_elsewhere[5] = Leader(2, 8)
        assert (await ask(node, LATEST, index=1)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert (await ask(node, LATEST, index=5)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (await ask(node, LATEST, index=6)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert (await ask(node, LATEST, topic="nobody")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert (await ask(node, LATEST, current_leader_epoch=2)).error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert (await ask(node, LATEST, current_leader_epoch=4)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
        assert (await ask(node, LATEST, current_leader_epoch=3)).error_code == NONE
        node.append(next(iter(node.partitions)))
        node.disk.fail_next("read")
        assert (await ask(node, 0)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        twice = [ListOffsetsPartition(partition_index=0, timestamp=LATEST)] * 2
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=twice)])
        response = await node.ask(node.offsets.list_offsets, request, 11)
        assert [each.error_code for each in response.topics[0].partitions] == [ErrorCode.INVALID_REQUEST]

    running(story)


@pytest.mark.parametrize("version", range(2, 5))
def test_every_version_tells_where_an_epoch_ended(version: int) -> None:
    async def story(node: BareNode) -> None:
        partition = await node.add(epoch=3)
        node.append(partition, 4)
        await node.directory.begin_epoch(partition.log, 6)
        partition.leader_epoch = 6
        node.append(partition, 2)
        partition.log.advance_high_watermark(6)

        async def ask_epoch(epoch: int, index: int = 0, current: int = -1) -> tuple[int, int, int]:
            asked = OffsetForLeaderPartition(partition=index, leader_epoch=epoch, current_leader_epoch=current)
            topic = OffsetForLeaderTopic(topic="t", partitions=[asked])
            request = OffsetForLeaderEpochRequest(topics=[topic], replica_id=-1 if version >= 3 else -2)
            response = await node.ask(node.epochs.offset_for_leader_epoch, request, version)
            ((found,),) = [answered.partitions for answered in response.topics]
            assert found.partition == index
            return found.error_code, found.leader_epoch, found.end_offset

        assert await ask_epoch(6) == (NONE, 6, 6)
        assert await ask_epoch(3) == (NONE, 3, 4)
        assert await ask_epoch(5) == (NONE, 3, 4)
        assert await ask_epoch(7) == (NONE, -1, -1)
        assert await ask_epoch(6, current=5) == (ErrorCode.FENCED_LEADER_EPOCH, -1, -1)
        assert await ask_epoch(6, current=7) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)
        assert await ask_epoch(6, index=1) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
        partition.log.take_offline("for a test")
        assert await ask_epoch(6) == (ErrorCode.KAFKA_STORAGE_ERROR, -1, -1)

    running(story)


async def delete(
    node: BareNode, offset: int, version: int = 2, index: int = 0, topic: str = "t"
) -> tuple[ErrorCode, int]:
    asked = DeleteRecordsPartition(partition_index=index, offset=offset)
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[asked])], timeout_ms=1000)
    response = await node.ask(node.deletions.delete_records, request, version)
    ((found,),) = [answered.partitions for answered in response.topics]
    assert found.partition_index == index
    return found.error_code, found.low_watermark


@pytest.mark.parametrize("version", range(3))
def test_every_version_deletes_records(version: int) -> None:
    async def story(node: BareNode) -> None:
        partition = await node.add(settings=SMALL_SEGMENTS)
        for _ in range(10):
            node.append(partition)
        assert await delete(node, 4, version) == (NONE, 4)
        assert await delete(node, 3, version) == (NONE, 4), "what is gone stays gone, and that is no error"
        assert len(partition.log.segments) == 3
        assert parts_of(await node.fetch(to_fetch(part(0, 3))))[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert await delete(node, 11, version) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
        assert await delete(node, -2, version) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
        assert await delete(node, -1, version) == (NONE, 10)
        assert node.append(partition) == 10

    running(story)


def test_delete_records_tells_errors() -> None:
    async def story(node: BareNode) -> None:
        partition = await node.add()
        node.append(partition)
        await node.add("__consumer_offsets")
        assert await delete(node, 0, index=1) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
        assert await delete(node, 0, topic="__consumer_offsets") == (ErrorCode.INVALID_TOPIC_EXCEPTION, -1)
        partition.can_delete = False
        assert await delete(node, 1) == (ErrorCode.POLICY_VIOLATION, -1)
        partition.can_delete = True
        node.disk.fail_next("sync_dir")
        assert await delete(node, 1) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
        assert await delete(node, 1) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)

    running(story)


def test_no_more_is_deleted_than_is_durable() -> None:
    async def story(node: BareNode) -> None:
        partition = await node.add(settings=FSYNC)
        node.append(partition)
        assert await delete(node, 1) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
        assert await delete(node, -1) == (NONE, 0)

    running(story, sync_s=5.0)


class Reporting:
    """A keeper of partitions whose low watermark the test sets."""

    def __init__(self) -> None:
        self.awaited: list[int] = []

    def appended(self, partition: Partition, base_offset: int) -> None:
        """Does nothing: there are no followers."""

    def failed(self, log: Log) -> None:
        """Does nothing."""

    def await_start(self, partition: Partition) -> None:
        self.awaited.append(partition.index)


async def two_with_followers(node: BareNode) -> tuple[list[Partition], Reporting]:
    partitions = [await node.add(index=index) for index in range(2)]
    keeper = Reporting()
    for partition in partitions:
        for _ in range(10):
            node.append(partition)
        partition.keeper = keeper
    return partitions, keeper


async def delete_from(node: BareNode, *asked: tuple[int, int], timeout_ms: int = 1000) -> dict[int, tuple[int, int]]:
    parts = [DeleteRecordsPartition(partition_index=index, offset=offset) for index, offset in asked]
    topics = [DeleteRecordsTopic(name="t", partitions=[each]) for each in parts]
    response = await node.ask(
        node.deletions.delete_records, DeleteRecordsRequest(topics=topics, timeout_ms=timeout_ms), 2
    )
    (topic,) = response.topics
    found = {each.partition_index: (each.error_code, each.low_watermark) for each in topic.partitions}
    assert len(found) == len(topic.partitions), "each is answered once"
    return found


def test_a_deletion_is_acknowledged_with_the_low_watermark_of_all_replicas() -> None:
    async def story(node: BareNode) -> None:
        partitions, keeper = await two_with_followers(node)
        loop = asyncio.get_running_loop()
        task = loop.create_task(delete_from(node, (0, 1), (0, 5), (1, 7)))
        await asyncio.sleep(0.1)
        assert [each.log.start_offset for each in partitions] == [5, 7], "the last offset of a partition counts"
        assert keeper.awaited == [0, 1], "both are waited for side by side"
        partitions[0].on_low_watermark(4)
        partitions[1].on_low_watermark(8)
        await asyncio.sleep(0.1)
        assert not task.done()
        partitions[0].on_low_watermark(5)
        assert await task == {0: (NONE, 5), 1: (NONE, 8)}

    running(story)


def test_all_partitions_of_a_deletion_share_one_time_out() -> None:
    async def story(node: BareNode) -> None:
        partitions, _ = await two_with_followers(node)
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        assert await delete_from(node, (0, 5), (1, 5)) == dict.fromkeys((0, 1), (ErrorCode.REQUEST_TIMED_OUT, -1))
        assert loop.time() - began_s == pytest.approx(1.0, abs=0.01)
        assert [each.log.start_offset for each in partitions] == [5, 5]
        assert not any(len(each.starts) for each in partitions), "nobody waits any more"

    running(story)


def test_a_deletion_ends_when_leadership_does() -> None:
    async def story(node: BareNode) -> None:
        partitions, _ = await two_with_followers(node)
        task = asyncio.get_running_loop().create_task(delete_from(node, (0, 5), (1, 5)))
        await asyncio.sleep(0.1)
        node.partitions.remove(partitions[0])
        partitions[1].log.take_offline("for a test")
        partitions[1].advance()
        found = await task
        assert found == {0: (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1), 1: (ErrorCode.KAFKA_STORAGE_ERROR, -1)}

    running(story)


def test_work_on_a_log_is_not_stopped_when_the_client_goes() -> None:
    async def story(node: BareNode) -> None:
        partition = await node.add(settings=FSYNC)
        node.append(partition)
        await asyncio.sleep(1)
        task = asyncio.get_running_loop().create_task(delete(node, 1))
        await asyncio.sleep(0.1)
        assert node.upkeep.lock.locked()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await asyncio.sleep(2)
        assert partition.log.start_offset == 1

    running(story, sync_s=0.2)


def test_a_request_with_very_many_partitions_lets_others_have_a_turn() -> None:
    async def story(node: BareNode) -> None:
        turns = 0
        is_over = False

        async def others() -> None:
            nonlocal turns
            while not is_over:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.get_running_loop().create_task(others())
        found = await delete_from(node, *((index, 0) for index in range(2_000)))
        is_over = True
        await task
        assert set(found.values()) == {(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)}
        assert turns > 20

    running(story)
