"""Batches whose records are opened: large ones outside the event loop, and a bounded number of them."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from crc32c import crc32c

from penstock.host.lossy import LossyFile
from penstock.log.settings import Durability, LogSettings
from penstock.model.errors import ErrorCode
from penstock.model.limits import DEFAULT_LIMITS
from penstock.records.builder import BatchBuilder
from penstock.records.check import DEFAULT_RULES, Rules, Validation
from penstock.records.compression import Codec
from penstock.server.connections.serving import Answer, Unfinished
from penstock.server.handlers.records.list_offsets import MAX_TIMESTAMP
from penstock.wire.codec import encode
from penstock.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from penstock.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.unit.server.handlers.bare_node import (
    NONE,
    BareNode,
    finish,
    produced,
    read_answer,
    running,
    to_produce,
    topic_id,
)

T = TypeVar("T")

START_MS = 1_800_000_000_000
LARGE = LogSettings(durability=Durability.REPLICATED, retention_ms=None, segment_bytes=1 << 20)
COMPACTED = Rules(is_compacted=True)


class CountingWorkers:
    """Workers that count their calls."""

    def __init__(self) -> None:
        self.done = 0

    def breathe(self) -> None:
        pass

    async def run(self, work: Callable[[], T], *, makes_many: bool = False) -> T:
        await asyncio.sleep(0.001)
        self.done += 1
        return work()


def watched(node: BareNode) -> CountingWorkers:
    workers = CountingWorkers()
    node.opener._workers = workers
    return workers


def a_batch(count: int, codec: Codec = Codec.NONE, value: bytes = b"v", *, key: bytes | None = b"k") -> bytearray:
    builder = BatchBuilder(codec=codec)
    for number in range(count):
        builder.append(key, value, timestamp_ms=START_MS + number)
    return builder.build()


def first_stage(node: BareNode, request: ProduceRequest) -> Answer | Unfinished:
    """Runs a produce request as far as it goes without waiting."""
    return node.producing.produce(node.call(0, 12), memoryview(bytearray(b"head") + encode(request, 12)), 4)


# --- producing --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rules", [COMPACTED, Rules(validation=Validation.FULL), Rules(timestamp_before_ms_max=10**15)])
def test_large_batches_are_opened_by_workers_and_small_ones_at_once(rules: Rules) -> None:
    async def story(node: BareNode) -> None:
        partition = await node.add(rules=rules)
        workers = watched(node)
        assert (await produced(await node.begin(to_produce(("t", 0, a_batch(3))), 12))).error_code is NONE
        assert workers.done == 0
        begun = first_stage(node, to_produce(("t", 0, a_batch(5_000, Codec.ZSTD))))
        assert isinstance(begun, Unfinished)
        assert partition.log.written_end == 3, "nothing is appended before the records were opened"
        answered = await produced(await begun.rest)
        assert (answered.error_code, answered.base_offset) == (NONE, 3)
        assert workers.done == 1

    running(story)


def test_what_is_wrong_with_a_large_batch_is_told_and_others_of_the_request_go_on() -> None:
    async def story(node: BareNode) -> None:
        await node.add(rules=COMPACTED)
        await node.add("u", rules=COMPACTED)
        request = ProduceRequest(
            acks=1,
            timeout_ms=1_000,
            topic_data=[
                TopicProduceData(
                    name=topic,
                    topic_id=topic_id(topic),
                    partition_data=[PartitionProduceData(index=0, records=a_batch(5_000, key=key))],
                )
                for topic, key in (("t", None), ("u", b"k"))
            ],
        )
        begun = first_stage(node, request)
        assert isinstance(begun, Unfinished)
        response: Any = read_answer(await finish(await begun.rest), 0, 12)
        codes = [topic.partition_responses[0].error_code for topic in response.responses]
        assert codes == [ErrorCode.INVALID_RECORD, NONE]
        assert "without a key" in response.responses[0].partition_responses[0].error_message

    running(story)


def test_many_partitions_are_opened_by_workers_however_small_their_batches_are() -> None:
    async def story(node: BareNode) -> None:
        for number in range(20):
            await node.add("t", number, rules=COMPACTED)
        workers = watched(node)
        begun = first_stage(node, to_produce(*[("t", number, a_batch(1)) for number in range(20)]))
        assert isinstance(begun, Unfinished)
        response: Any = read_answer(await finish(await begun.rest), 0, 12)
        assert {p.error_code for t in response.responses for p in t.partition_responses} == {NONE}
        assert workers.done == 0  # small batches need no worker, but other tasks run between them

    running(story)


def test_a_batch_of_too_many_records_is_refused_where_records_are_opened() -> None:
    """It would occupy a worker for seconds; a partition that opens no records accepts it."""

    async def story(node: BareNode) -> None:
        await node.add(rules=COMPACTED)
        await node.add("u")
        batch = a_batch(DEFAULT_LIMITS.batch_opened_records_max + 1, Codec.ZSTD)
        begun = first_stage(node, to_produce(("t", 0, bytearray(batch))))
        assert isinstance(begun, Unfinished)
        refused = await produced(await begun.rest)
        assert refused.error_code is ErrorCode.INVALID_RECORD
        assert "send smaller batches" in (refused.error_message or "")
        assert (await produced(await node.begin(to_produce(("u", 0, batch)), 12))).error_code is NONE

    running(story)


# --- look-ups by time -------------------------------------------------------------------------------------------------


async def look(node: BareNode, timestamp: int) -> tuple[int, int]:
    asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[asked])])
    (topic,) = (await node.ask(node.offsets.list_offsets, request, 11)).topics
    (found,) = topic.partitions
    assert found.error_code is NONE
    return found.timestamp, found.offset


def test_a_batch_that_unpacks_above_10_mib_does_not_spoil_look_ups_by_time() -> None:
    async def story(node: BareNode) -> None:
        partition = await node.add(settings=LARGE)
        workers = watched(node)
        partition.append(a_batch(14, Codec.ZSTD, b"a" * 900_000), now_ms=START_MS, rules=DEFAULT_RULES)
        for number in range(5):
            node.append(partition, timestamp_ms=START_MS + 1_000 + number)
        assert await look(node, START_MS) == (START_MS, 0)
        assert await look(node, START_MS + 5) == (START_MS + 5, 5)
        assert await look(node, START_MS + 1_002) == (START_MS + 1_002, 16)
        assert await look(node, MAX_TIMESTAMP) == (START_MS + 1_004, 18)
        assert workers.done == 2, "only the large batch is opened by a worker"

    running(story)


def test_the_newest_record_is_found_without_reading_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(node: BareNode) -> None:
        partition = await node.add(settings=LARGE)
        for number in range(3_000):
            node.append(partition, 5, value=b"v" * 200, timestamp_ms=START_MS + number)
        assert len(partition.log.segments) > 3
        reads: list[int] = []
        original = LossyFile.read

        def counted(self: LossyFile, position: int, size_bytes: int) -> bytes:
            reads.append(size_bytes)
            return original(self, position, size_bytes)

        monkeypatch.setattr(LossyFile, "read", counted)
        assert await look(node, MAX_TIMESTAMP) == (START_MS + 2_999, 14_995)
        log_bytes = sum(segment.size_bytes for segment in partition.log.segments)
        assert sum(reads) < log_bytes / 20

    running(story)


def test_a_header_that_lies_about_its_time_costs_a_bounded_number_of_batches() -> None:
    """With `header` validation no one has checked that a record is as new as the header states."""

    async def story(node: BareNode) -> None:
        partition = await node.add(settings=LARGE)
        opened = 0

        async def counting(_batch: object, work: Callable[[], T]) -> T:
            nonlocal opened
            opened += 1
            return work()

        for _ in range(50):
            batch = a_batch(3)
            batch[35:43] = (START_MS + 10_000).to_bytes(8, "big")  # the highest timestamp
            batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")
            partition.append(batch, now_ms=START_MS, rules=DEFAULT_RULES)
        node.opener.open = counting  # type: ignore[method-assign,assignment]
        assert await look(node, START_MS + 5_000) == (START_MS + 10_000, 24)
        assert opened == 8

    running(story)


def test_nothing_waits_where_records_are_not_opened() -> None:
    async def story(node: BareNode) -> None:
        await node.add()
        assert not isinstance(first_stage(node, to_produce(("t", 0, a_batch(5_000)))), Unfinished)

    running(story)
