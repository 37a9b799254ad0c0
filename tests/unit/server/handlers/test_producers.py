"""InitProducerId, DescribeProducers, DescribeLogDirs, FindCoordinator."""

import asyncio
from typing import Any

import pytest

from penstock.model.errors import ErrorCode, StorageError
from penstock.records.control import ControlType
from penstock.server.handlers.groups.find_coordinator import FindCoordinatorHandler
from penstock.server.handlers.records import describe_producers as describing
from penstock.server.loop.pieces import TOO_LARGE
from penstock.wire.codec import encode
from penstock.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from penstock.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.init_producer_id import InitProducerIdRequest
from tests.unit.server.handlers.bare_node import (
    FSYNC,
    NONE,
    BareNode,
    a_batch,
    only,
    running,
    to_produce,
    transactional,
)


@pytest.mark.parametrize("version", range(6))
def test_every_version_gives_a_new_producer_id(version: int) -> None:
    async def story(node: BareNode) -> None:
        async def ask(**options: Any) -> tuple[ErrorCode, int, int]:
            request = InitProducerIdRequest(**{"transactional_id": None, "transaction_timeout_ms": 1000} | options)
            response = await node.ask(node.ids.init_producer_id, request, version)
            return response.error_code, response.producer_id, response.producer_epoch

        assert await ask() == (NONE, 100, 0)
        assert await ask() == (NONE, 101, 0)
        assert await ask(transactional_id="x") == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1, -1)
        assert await ask(transactional_id="") == (ErrorCode.INVALID_REQUEST, -1, -1)
        if version >= 3:
            assert await ask(producer_id=100, producer_epoch=0) == (NONE, 102, 0)
            assert await ask(producer_id=100) == (ErrorCode.INVALID_REQUEST, -1, -1)
            assert await ask(producer_epoch=0) == (ErrorCode.INVALID_REQUEST, -1, -1)
        node.producer_ids.failure = StorageError("for a test")
        assert await ask() == (ErrorCode.KAFKA_STORAGE_ERROR, -1, -1)

    running(story)


def test_a_producer_with_its_id_can_produce_and_is_described() -> None:
    async def story(node: BareNode) -> None:
        partition = await node.add()
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
        given = await node.ask(node.ids.init_producer_id, request, 5)
        batch = a_batch(3, producer_id=given.producer_id, producer_epoch=given.producer_epoch, base_sequence=0)
        assert only(await node.produce(to_produce(("t", 0, batch)))).error_code == NONE
        node.append(partition, **transactional(7))
        node.append(partition, **transactional(8))
        node.end_transaction(partition, ControlType.COMMIT, 8)
        asked = DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0, 1])])
        response = await node.ask(node.producers.describe_producers, asked, 0)
        found, missing = response.topics[0].partitions
        assert [
            (
                p.producer_id,
                p.producer_epoch,
                p.last_sequence,
                p.last_timestamp,
                p.coordinator_epoch,
                p.current_txn_start_offset,
            )
            for p in found.active_producers
        ] == [
            (100, 0, 2, 1_800_000_000_000, -1, -1),
            (7, 0, 0, 1_800_000_000_000, -1, 3),
            (8, 0, 0, 1_800_000_000_000, 0, -1),
        ]
        assert (missing.error_code, missing.active_producers) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ())
        assert missing.error_message == "there is no partition t-1"

    running(story)


def test_a_producer_that_only_ended_a_transaction_is_described() -> None:
    async def story(node: BareNode) -> None:
        partition = await node.add()
        node.end_transaction(partition, ControlType.COMMIT, 8)
        asked = DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0])])
        (found,) = (
            (await node.ask(node.producers.describe_producers, asked, 0)).topics[0].partitions[0].active_producers
        )
        assert (found.last_sequence, found.last_timestamp) == (-1, -1)

    running(story)


@pytest.mark.parametrize("version", range(1, 6))
def test_every_version_describes_the_data_directory(version: int) -> None:
    async def story(node: BareNode) -> None:
        for topic, index in (("a", 0), ("a", 1), ("b", 0)):
            node.append(await node.add(topic, index, FSYNC), index + 1)

        async def ask(**wanted: list[int]) -> Any:
            topics = [DescribableLogDirTopic(topic=topic, partitions=indexes) for topic, indexes in wanted.items()]
            request = DescribeLogDirsRequest(topics=topics if wanted else None)
            response = await node.ask(node.log_dirs.describe_log_dirs, request, version)
            assert response.error_code == NONE
            (result,) = response.results
            assert result.log_dir == node.data_path
            return result

        found = await ask()
        assert (found.error_code, found.total_bytes, found.is_cordoned) == (NONE, -1, False)
        assert found.usable_bytes == (node.disk.free_bytes() if version >= 4 else -1)
        described = {
            (topic.name, each.partition_index): (each.partition_size, each.offset_lag, each.is_future_key)
            for topic in found.topics
            for each in topic.partitions
        }
        assert described == {
            ("a", 0): (len(a_batch()), 0, False),
            ("a", 1): (len(a_batch(2)), 0, False),
            ("b", 0): (len(a_batch()), 0, False),
        }
        found = await ask(a=[1, 9], nobody=[0])
        assert [(topic.name, [p.partition_index for p in topic.partitions]) for topic in found.topics] == [("a", [1])]
        node.directory.offline_reason = "for a test"
        found = await ask()
        assert (found.error_code, found.topics) == (ErrorCode.KAFKA_STORAGE_ERROR, ())
        node.directory.offline_reason = None

    running(story)


@pytest.mark.parametrize("version", range(7))
def test_every_version_is_told_that_transactions_have_no_coordinator_yet(version: int) -> None:
    async def story(node: BareNode) -> None:
        for_groups: Any = None
        handler = FindCoordinatorHandler(for_groups, for_groups, for_groups, for_groups, for_groups, for_groups)
        for key_type in (1, 2, 3) if version >= 1 else ():
            exists = key_type < 2 or (key_type == 2 and version >= 6)
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE if exists else ErrorCode.INVALID_REQUEST
            if version < 4:
                one = FindCoordinatorRequest(key="g", key_type=key_type)
                response = await node.ask(handler.find_coordinator, one, version)
                assert (response.error_code, response.node_id, response.host, response.port) == (code, -1, "", -1)
                continue
            request = FindCoordinatorRequest(coordinator_keys=["g", "h"], key_type=key_type)
            response = await node.ask(handler.find_coordinator, request, version)
            assert [(c.key, c.error_code, c.node_id, c.port) for c in response.coordinators] == [
                ("g", code, -1, -1),
                ("h", code, -1, -1),
            ]
            assert all(c.error_message for c in response.coordinators)

    running(story)


def test_a_partition_that_is_named_many_times_is_described_once_and_an_answer_has_a_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(node: BareNode) -> None:
        for index in range(3):
            partition = await node.add(index=index)
            for producer_id in range(40):
                node.append(partition, producer_id=producer_id, producer_epoch=0, base_sequence=0)
        monkeypatch.setattr(describing, "PRODUCERS_TOLD_MAX", 100)
        request = DescribeProducersRequest(
            topics=[TopicRequest(name="t", partition_indexes=[0] * 1_000)] * 2
            + [TopicRequest(name="t", partition_indexes=[1, 2])]
        )
        (topic,) = (await node.ask(node.producers.describe_producers, request, 0)).topics
        found = [(each.partition_index, each.error_code, len(each.active_producers)) for each in topic.partitions]
        assert found == [(0, NONE, 40), (1, NONE, 40), (2, ErrorCode.POLICY_VIOLATION, 0)]
        assert topic.partitions[2].error_message == TOO_LARGE

    running(story)


def test_thousands_of_producers_are_described_once_and_in_pieces() -> None:
    """A partition that is named 1,000 times is answered once."""

    async def story(node: BareNode) -> None:
        partition = await node.add()
        for producer_id in range(5_000):
            node.append(partition, producer_id=producer_id, producer_epoch=0, base_sequence=0)
        request = DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0] * 1_000)])
        turns = 0
        task = asyncio.get_running_loop().create_task(node.ask(node.producers.describe_producers, request, 0))
        while not task.done():
            turns += 1
            await asyncio.sleep(0)
        (topic,) = (await task).topics
        (found,) = topic.partitions
        assert [each.producer_id for each in found.active_producers] == list(range(5_000))
        assert len(encode(task.result(), 0)) < 5_000 * 50
        assert turns >= 5

    running(story)
