"""Produce: appends, the time of the response, and error responses."""

import asyncio
from typing import Any

import pytest

from penstock.log.log import Log
from penstock.model.errors import ErrorCode, MalformedMessage
from penstock.records.check import Rules, Validation
from penstock.records.header import BatchView, TimestampType
from penstock.server.connections.serving import Buffers, Later
from penstock.server.handlers.records.produce import SENT_BEFORE, UnansweredProduceFailed
from penstock.server.handlers.records.produce_answer import ProduceResult, _response, write_one
from penstock.server.loop.deadlines import GRAINS_PER_S
from penstock.server.partitions.partition import SETTLING_MS, Partition
from penstock.server.partitions.partitions import Leader
from penstock.server.partitions.sequence_gaps import REMEMBERED_MAX, REMEMBERED_MS, SequenceGaps
from penstock.wire.headers import response_frame
from penstock.wire.hot.produce import ProducedPartition
from penstock.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.unit.server.handlers.bare_node import (
    ENDPOINTS,
    FSYNC,
    NONE,
    BareNode,
    a_batch,
    now_s,
    only,
    produced,
    running,
    to_produce,
    topic_id,
)

VERSIONS = range(3, 14)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("acks", [1, -1])
def test_every_version_appends_and_answers(version: int, acks: int) -> None:
    async def story(node: BareNode) -> None:
        partition = await node.add()
        for base_offset in (0, 3):
            response = await node.produce(to_produce(("t", 0, a_batch(3)), acks=acks), version)
            (topic,) = response.responses
            assert topic.name == ("t" if version < 13 else "")
            assert topic.topic_id == (topic_id("t") if version >= 13 else bytes(16))
            found = only(response)
            assert (found.index, found.error_code, found.base_offset) == (0, NONE, base_offset)
            assert found.log_append_time_ms == -1
            assert found.log_start_offset == (0 if version >= 5 else -1)
            assert found.error_message is None
        assert partition.log.written_end == 6
        stored = BatchView(partition.log._pool.file(partition.log.path_of(partition.log.active, "log")).read(0, 61))
        assert stored.leader_epoch == 3

    running(story)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_short_way_of_answering_writes_what_the_codec_writes(version: int) -> None:
    for name in ("t", "x" * 126, "x" * 127, "ü" * 120):
        topic = topic_id("t") if version >= 13 else name
        result = ProduceResult(topic, 5, NONE, None, 1 << 40, 1_800_000_000_000, 77)
        assert write_one(version, 9, result) == response_frame(_response(version, "", [result]), version, 9)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_tells_errors(version: int) -> None:
    async def story(node: BareNode) -> None:
        await node.add("t")
        await node.add("small", rules=Rules(batch_bytes_max=100))
        node.leaders_elsewhere[5] = Leader(2, 8, ENDPOINTS, "r")
        request = to_produce(
            ("t", 0, a_batch()),
            ("t", 1, a_batch()),
            ("nobody", 0, a_batch()),
            ("small", 0, a_batch(5)),
            ("t", 5, a_batch()),
        )
        response = await node.produce(request, version)
        parts = [part for topic in response.responses for part in topic.partition_responses]
        unknown = ErrorCode.UNKNOWN_TOPIC_ID if version >= 13 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert [part.error_code for part in parts] == [
            NONE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            unknown,
            ErrorCode.MESSAGE_TOO_LARGE,
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ]
        assert [part.base_offset for part in parts] == [0, -1, -1, -1, -1]
        assert parts[3].error_message == (
            None if version < 8 else f"batch of {len(a_batch(5))} bytes, at most 100 are allowed"
        )
        if version >= 10:
            assert (parts[4].current_leader.leader_id, parts[4].current_leader.leader_epoch) == (2, 8)
            assert [(n.node_id, n.host, n.port, n.rack) for n in response.node_endpoints] == [(2, "b", 9092, "r")]
        else:
            assert response.node_endpoints == ()

    running(story)


@pytest.mark.parametrize("acks", [2, -2, 3])
def test_acks_that_mean_nothing_are_refused_and_append_nothing(acks: int) -> None:
    async def story(node: BareNode) -> None:
        partition = await node.add()
        found = only(await node.produce(to_produce(("t", 0, a_batch()), acks=acks)))
        assert found.error_code == ErrorCode.INVALID_REQUIRED_ACKS
        assert partition.log.written_end == 0

    running(story)


def broken(data: bytearray, position: int) -> bytearray:
    data[position] ^= 1
    return data


TRANSACTIONAL: dict[str, Any] = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0, "is_transactional": True}
REFUSED: dict[str, tuple[bytearray | None, Rules, ErrorCode]] = {
    "null": (None, Rules(), ErrorCode.INVALID_RECORD),
    "empty": (bytearray(), Rules(), ErrorCode.INVALID_RECORD),
    "short": (bytearray(30), Rules(), ErrorCode.INVALID_RECORD),
    "torn": (a_batch()[:-1], Rules(), ErrorCode.CORRUPT_MESSAGE),
    "two batches": (a_batch() + a_batch(), Rules(), ErrorCode.INVALID_RECORD),
    "checksum": (broken(a_batch(), 70), Rules(), ErrorCode.CORRUPT_MESSAGE),
    "old format": (broken(a_batch(), 16), Rules(), ErrorCode.INVALID_RECORD),
    "future": (a_batch(timestamp_ms=1_900_000_000_000), Rules(), ErrorCode.INVALID_TIMESTAMP),
    "past": (a_batch(timestamp_ms=1), Rules(timestamp_before_ms_max=1000), ErrorCode.INVALID_TIMESTAMP),
    "transactional": (a_batch(**TRANSACTIONAL), Rules(), ErrorCode.INVALID_TXN_STATE),
    "sequence": (a_batch(producer_id=1, producer_epoch=0, base_sequence=-1), Rules(), ErrorCode.INVALID_RECORD),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_batch_that_breaks_a_rule_is_refused_with_a_sentence(name: str) -> None:
    data, rules, code = REFUSED[name]

    async def story(node: BareNode) -> None:
        partition = await node.add(rules=rules)
        found = only(await node.produce(to_produce(("t", 0, data))))
        assert (found.error_code, found.base_offset, found.log_start_offset) == (code, -1, -1)
        assert found.error_message
        assert partition.log.written_end == 0

    running(story)


def test_a_compacted_topic_wants_keys() -> None:
    async def story(node: BareNode) -> None:
        from penstock.records.builder import BatchBuilder

        await node.add(rules=Rules(is_compacted=True, validation=Validation.FULL))
        builder = BatchBuilder()
        builder.append(None, b"v", timestamp_ms=1_800_000_000_000)
        found = only(await node.produce(to_produce(("t", 0, builder.build()))))
        assert found.error_code == ErrorCode.INVALID_RECORD
        assert "key" in (found.error_message or "")

    running(story)


def test_log_append_time_is_told() -> None:
    async def story(node: BareNode) -> None:
        await node.add(rules=Rules(timestamp_type=TimestampType.LOG_APPEND_TIME))
        found = only(await node.produce(to_produce(("t", 0, a_batch(timestamp_ms=5)))))
        assert found.log_append_time_ms == node.clock.wall_ms()

    running(story)


@pytest.mark.parametrize("acks", [1, -1])
def test_an_answer_waits_for_the_disk(acks: int) -> None:
    async def story(node: BareNode) -> None:
        partition = await node.add(settings=FSYNC)
        began_s = now_s()
        answer = await node.begin(to_produce(("t", 0, a_batch()), acks=acks), 12)
        assert now_s() == began_s
        assert partition.log.written_end == 1
        assert partition.log.high_watermark == 0
        found = await produced(answer)
        assert found.error_code == NONE
        assert partition.log.high_watermark == 1
        assert now_s() > began_s

    running(story, sync_s=0.01)


@pytest.mark.parametrize("acks", [1, -1])
def test_an_answer_that_takes_too_long_says_so_and_where_the_records_are(acks: int) -> None:
    async def story(node: BareNode) -> None:
        partition = await node.add(settings=FSYNC)
        began_s = now_s()
        found = only(await node.produce(to_produce(("t", 0, a_batch()), acks=acks, timeout_ms=200)))
        assert (found.error_code, found.base_offset) == (ErrorCode.REQUEST_TIMED_OUT, 0)
        assert 0.2 <= now_s() - began_s <= 0.2 + 1 / GRAINS_PER_S
        await asyncio.sleep(10)
        assert partition.log.high_watermark == 1
        assert len(partition.committed) == len(partition.durable) == 0

    running(story, sync_s=1.0)


def test_the_time_runs_from_the_arrival_of_the_request() -> None:
    async def story(node: BareNode) -> None:
        await node.add(settings=FSYNC)
        answer = await node.begin(to_produce(("t", 0, a_batch()), timeout_ms=200), 12)
        await asyncio.sleep(0.5)
        began_s = now_s()
        found = await produced(answer)
        assert found.error_code == ErrorCode.REQUEST_TIMED_OUT
        assert now_s() == began_s

    running(story, sync_s=1.0)


def test_an_answer_that_nobody_waited_for_is_ready_when_somebody_does() -> None:
    async def story(node: BareNode) -> None:
        await node.add(settings=FSYNC)
        answer = await node.begin(to_produce(("t", 0, a_batch()), timeout_ms=100), 12)
        await asyncio.sleep(5)
        assert (await produced(answer)).error_code == NONE

    running(story, sync_s=0.01)


@pytest.mark.parametrize("acks", [1, -1])
def test_a_failed_sync_is_told_to_whoever_waits_and_to_all_who_come_later(acks: int) -> None:
    async def story(node: BareNode) -> None:
        partition = await node.add(settings=FSYNC)
        await asyncio.sleep(5)
        path = partition.log.path_of(partition.log.active, "log")
        node.disk.fail_next("sync", path)
        found = only(await node.produce(to_produce(("t", 0, a_batch()), acks=acks)))
        assert (found.error_code, found.base_offset) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
        assert "offline" in (found.error_message or "")
        found = only(await node.produce(to_produce(("t", 0, a_batch()), acks=acks)))
        assert found.error_code == ErrorCode.KAFKA_STORAGE_ERROR

    running(story, sync_s=0.01)


def test_a_log_that_went_offline_before_anybody_waited_is_told_at_once() -> None:
    async def story(node: BareNode) -> None:
        partition = await node.add(settings=FSYNC)
        answer = await node.begin(to_produce(("t", 0, a_batch())), 12)
        partition.log.take_offline("for a test")
        began_s = now_s()
        found = await produced(answer)
        assert found.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert now_s() == began_s

    running(story, sync_s=0.01)


def test_a_full_disk_and_a_failing_one_are_storage_errors() -> None:
    async def story(node: BareNode) -> None:
        import errno

        partition = await node.add()
        node.disk.fail_next("write", code=errno.ENOSPC)
        found = only(await node.produce(to_produce(("t", 0, a_batch()))))
        assert found.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert "full" in (found.error_message or "")
        assert only(await node.produce(to_produce(("t", 0, a_batch())))).base_offset == 0
        node.disk.fail_next("write")
        assert only(await node.produce(to_produce(("t", 0, a_batch())))).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert partition.log.offline_reason is not None

    running(story)


@pytest.mark.parametrize("acks", [1, -1])
def test_whoever_waits_learns_that_the_leader_has_changed(acks: int) -> None:
    async def story(node: BareNode) -> None:
        partition = await node.add(settings=FSYNC)
        answer = await node.begin(to_produce(("t", 0, a_batch()), acks=acks), 12)
        task = asyncio.get_running_loop().create_task(produced(answer))
        await asyncio.sleep(0.001)
        late = await node.begin(to_produce(("t", 0, a_batch()), acks=acks), 12)
        node.partitions.remove(partition)
        for found in (await task, await produced(late)):
            assert found.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    running(story, sync_s=0.01)


def test_too_few_replicas_in_sync_refuse_before_and_warn_after() -> None:
    async def story(node: BareNode) -> None:
        partition = await node.add(settings=FSYNC)
        partition.in_sync_min = 2
        found = only(await node.produce(to_produce(("t", 0, a_batch()))))
        assert found.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert partition.log.written_end == 0
        assert only(await node.produce(to_produce(("t", 0, a_batch()), acks=1))).error_code == NONE
        partition.in_sync_count = 2
        answer = await node.begin(to_produce(("t", 0, a_batch())), 12)
        partition.in_sync_count = 1
        found = await produced(answer)
        assert (found.error_code, found.base_offset) == (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, 1)

    running(story, sync_s=0.01)


def from_producer(sequence: int, count: int = 1) -> bytearray:
    return a_batch(count, producer_id=5, producer_epoch=0, base_sequence=sequence)


def test_a_duplicate_waits_like_its_original_and_is_answered_alike() -> None:
    async def story(node: BareNode) -> None:
        partition = await node.add(settings=FSYNC)
        first = await node.begin(to_produce(("t", 0, from_producer(0, 3))), 12)
        second = await node.begin(to_produce(("t", 0, from_producer(0, 3))), 12)
        assert isinstance(first, Later)
        assert isinstance(second, Later), "a duplicate must not be acknowledged before its original is durable"
        assert partition.log.written_end == 3
        answers = [await produced(answer) for answer in (first, second)]
        assert [(found.error_code, found.base_offset) for found in answers] == [(NONE, 0), (NONE, 0)]
        again = only(await node.produce(to_produce(("t", 0, from_producer(0, 3)))))
        assert (again.error_code, again.base_offset) == (NONE, 0)
        skipped = only(await node.produce(to_produce(("t", 0, from_producer(9)))))
        assert skipped.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    running(story, sync_s=0.01)


@pytest.mark.parametrize("is_known", [True, False])
def test_what_follows_a_refused_batch_waits_for_it(is_known: bool) -> None:
    async def story(node: BareNode) -> None:
        async def code_of(sequence: int) -> ErrorCode:
            return only(await node.produce(to_produce(("t", 0, from_producer(sequence, 3))))).error_code

        partition = await node.add()
        first = 0
        if is_known:
            assert await code_of(0) == NONE
            first = 3
        partition.in_sync_min = 2
        assert await code_of(first) == ErrorCode.NOT_ENOUGH_REPLICAS
        partition.in_sync_count = 2
        for following in (first + 3, first + 6):
            assert await code_of(following) == ErrorCode.NOT_ENOUGH_REPLICAS, (
                "out of order, but not the producer's fault"
            )
        assert partition.log.written_end == first
        assert [await code_of(sequence) for sequence in (first, first + 3)] == [NONE, NONE]
        assert await code_of(first + 9) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "nothing was refused before it"

    running(story)


def test_a_first_batch_that_came_before_its_leader_is_awaited() -> None:
    async def story(node: BareNode) -> None:
        async def code_of(sequence: int) -> ErrorCode:
            return only(await node.produce(to_produce(("t", 0, from_producer(sequence))))).error_code

        assert await code_of(0) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await node.add()
        assert await code_of(1) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert [await code_of(sequence) for sequence in (0, 1)] == [NONE, NONE]
        assert not node.sequence_gaps

    running(story)


@pytest.mark.parametrize("is_known", [True, False])
def test_a_new_leader_waits_for_what_may_be_on_its_way_to_the_last_one(is_known: bool) -> None:
    async def story(node: BareNode) -> None:
        async def answer_to(sequence: int, epoch: int = 0) -> tuple[ErrorCode, str | None]:
            batch = a_batch(producer_id=5, producer_epoch=epoch, base_sequence=sequence)
            found = only(await node.produce(to_produce(("t", 0, batch), acks=1)))
            return found.error_code, found.error_message

        partition = await node.add()
        if is_known:
            assert (await answer_to(0))[0] == NONE
        partition.keeper = Nobody()
        partition.led_since_ms = node.clock.wall_ms()
        code, sentence = await answer_to(3)
        assert code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert is_known or sentence == SENT_BEFORE
        if is_known:
            assert (await answer_to(3, epoch=1))[0] == ErrorCode.NOT_ENOUGH_REPLICAS
        node.sequence_gaps = SequenceGaps()
        partition.led_since_ms -= SETTLING_MS
        code, _ = await answer_to(3)
        assert code == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER if is_known else NONE), "it may have been forgotten"

    running(story)


def test_a_stranger_hears_what_is_wrong_with_its_batch_before_it_has_to_wait_for_another() -> None:
    async def story(node: BareNode) -> None:
        async def code_of(batch: bytes | bytearray) -> ErrorCode:
            return only(await node.produce(to_produce(("t", 0, batch), acks=1))).error_code

        partition = await node.add(rules=Rules(batch_bytes_max=1_000))
        partition.keeper = Nobody()
        partition.led_since_ms = node.clock.wall_ms()
        fine = a_batch(producer_id=5, producer_epoch=0, base_sequence=3)
        broken = bytearray(fine)
        broken[-1] ^= 1
        assert await code_of(broken) == ErrorCode.CORRUPT_MESSAGE
        node.sequence_gaps = SequenceGaps()
        assert await code_of(a_batch(200, producer_id=5, producer_epoch=0, base_sequence=3)) == (
            ErrorCode.MESSAGE_TOO_LARGE
        )
        assert await code_of(fine) == ErrorCode.NOT_ENOUGH_REPLICAS
        assert partition.log.written_end == 0

    running(story)


class Nobody:
    """A keeper without replicas."""

    def appended(self, partition: Partition, base_offset: int) -> None: ...

    def failed(self, log: Log) -> None: ...

    def await_start(self, partition: Partition) -> None: ...


def test_refusals_are_forgotten_after_some_time_and_when_there_are_too_many() -> None:
    async def story(node: BareNode) -> None:
        partition = await node.add()
        refused, code = SequenceGaps(), ErrorCode.NOT_ENOUGH_REPLICAS

        def part(index: int, records: bytes | bytearray) -> ProducedPartition:
            return "t", index, memoryview(records)

        def code_for(index: int, sequence: int, now_ms: int) -> ErrorCode | None:
            return refused.code_for_unknown_producer(part(index, from_producer(sequence)), partition, now_ms)

        refused.was_refused(part(0, from_producer(0)), code, 0)
        refused.was_refused(part(0, from_producer(9)), ErrorCode.NOT_LEADER_OR_FOLLOWER, 0)
        refused.was_refused(part(1, from_producer(9)), ErrorCode.MESSAGE_TOO_LARGE, 0)
        refused.was_refused(part(2, a_batch()), code, 0)
        refused.was_refused(part(3, b"short"), code, 0)
        assert len(refused) == 1, "only what comes again, and only of idempotent producers"
        assert code_for(0, 5, REMEMBERED_MS) is code
        assert code_for(0, 0, REMEMBERED_MS) is None
        assert code_for(1, 5, REMEMBERED_MS) is None
        assert code_for(0, 5, REMEMBERED_MS + 1) is None
        for index in range(REMEMBERED_MAX + 1):
            refused.was_refused(part(index, from_producer(0)), code, 0)
        assert len(refused) == REMEMBERED_MAX
        refused.was_refused(part(0, from_producer(0)), code, REMEMBERED_MS + 1)
        assert len(refused) == 1
        refused.was_refused(part(0, from_producer(9)), code, 2 * REMEMBERED_MS + 2)
        assert code_for(0, 12, 2 * REMEMBERED_MS + 2) is code, "what was forgotten makes room for what comes now"

    running(story)


def test_pipelined_requests_are_appended_in_the_order_of_their_first_stages() -> None:
    async def story(node: BareNode) -> None:
        await node.add(settings=FSYNC)
        answers: list[Any] = [await node.begin(to_produce(("t", 0, from_producer(n))), 12) for n in range(5)]
        tasks = [asyncio.get_running_loop().create_task(produced(answer)) for answer in reversed(answers)]
        found = [await task for task in reversed(tasks)]
        assert [(each.error_code, each.base_offset) for each in found] == [(NONE, n) for n in range(5)]

    running(story, sync_s=0.01)


def test_of_many_partitions_each_has_its_own_end() -> None:
    async def story(node: BareNode) -> None:
        partitions = [await node.add(index=index, settings=FSYNC) for index in range(4)]
        await asyncio.sleep(5)
        node.disk.fail_next("sync", partitions[2].log.path_of(partitions[2].log.active, "log"))
        request = to_produce(*(("t", index, a_batch()) for index in range(5)), timeout_ms=5_000)
        response = await node.produce(request)
        codes = [part.error_code for topic in response.responses for part in topic.partition_responses]
        assert codes == [NONE, NONE, ErrorCode.KAFKA_STORAGE_ERROR, NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert len(response.responses) == 1

    running(story, sync_s=0.01)


def test_a_client_that_goes_leaves_no_trace() -> None:
    async def story(node: BareNode) -> None:
        partitions = [await node.add(index=index, settings=FSYNC) for index in range(2)]
        answer = await node.begin(to_produce(("t", 0, a_batch()), ("t", 1, a_batch())), 12)
        task = asyncio.get_running_loop().create_task(produced(answer))
        await asyncio.sleep(0.001)
        assert len(partitions[0].committed) == 1
        task.cancel()
        await asyncio.sleep(0)
        assert task.cancelled()
        assert [len(partition.committed) for partition in partitions] == [0, 0]
        await asyncio.sleep(1)
        assert [partition.committed.heap for partition in partitions] == [[], []]

    running(story, sync_s=0.01)


def test_a_client_that_goes_while_one_of_its_logs_fails_is_told_nothing() -> None:
    async def story(node: BareNode) -> None:
        partitions = [await node.add(index=index, settings=FSYNC) for index in range(2)]
        answer = await node.begin(to_produce(("t", 0, a_batch()), ("t", 1, a_batch())), 12)
        assert isinstance(answer, Later)
        told: list[Buffers | Exception] = []
        answer.begin(told.append, told.append)
        partitions[1].log.take_offline("for a test")
        partitions[1].advance()
        answer.cancel()
        await asyncio.sleep(60)
        assert partitions[0].log.high_watermark == 1
        assert told == []

    running(story, sync_s=0.01)


def test_acks_0_gets_no_answer_and_does_not_wait() -> None:
    async def story(node: BareNode) -> None:
        partition = await node.add(settings=FSYNC)
        assert await node.begin(to_produce(("t", 0, a_batch()), acks=0), 12) is None
        assert partition.log.written_end == 1

    running(story, sync_s=0.01)


def test_acks_0_with_an_error_closes_the_connection_but_keeps_what_could_be_appended() -> None:
    async def story(node: BareNode) -> None:
        partition = await node.add()
        with pytest.raises(UnansweredProduceFailed, match="UNKNOWN_TOPIC_OR_PARTITION"):
            await node.begin(to_produce(("nobody", 0, a_batch()), ("t", 0, a_batch()), acks=0), 12)
        assert partition.log.written_end == 1

    running(story)


def test_a_malformed_request_appends_nothing() -> None:
    async def story(node: BareNode) -> None:
        partition = await node.add()
        with pytest.raises(MalformedMessage):
            node.producing.produce(node.call(0, 12), memoryview(b"\x00\x00"), 0)
        assert partition.log.written_end == 0

    running(story)


def test_no_partitions_is_an_empty_answer() -> None:
    async def story(node: BareNode) -> None:
        assert (await node.produce(to_produce())).responses == ()

    running(story)


# --- many partitions --------------------------------------------------------------------------------------------------


def many(count: int, *, acks: int = -1, records: bytes | None = None) -> ProduceRequest:
    parts = [PartitionProduceData(index=n, records=a_batch() if records is None else records) for n in range(count)]
    topic = TopicProduceData(name="t", topic_id=topic_id("t"), partition_data=parts)
    return ProduceRequest(acks=acks, timeout_ms=1_000, topic_data=[topic])


@pytest.mark.parametrize("acks", [1, -1])
def test_a_request_of_many_partitions_has_turns_for_others(acks: int) -> None:
    """All partitions used to be appended without a pause, however many they were."""

    async def story(node: BareNode) -> None:
        for index in range(3):
            await node.add(index=index)
        turns = 0

        async def other() -> None:
            nonlocal turns
            while turns < 1_000:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(other())
        response = await node.produce(many(3_000, acks=acks))
        counting.cancel()
        assert turns >= 6
        (topic,) = response.responses
        assert [part.index for part in topic.partition_responses] == list(range(3_000))
        codes = [part.error_code for part in topic.partition_responses]
        assert codes[:3] == [NONE] * 3
        assert set(codes[3:]) == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}

    running(story)


def test_requests_of_many_partitions_are_appended_in_order() -> None:
    async def story(node: BareNode) -> None:
        partition = await node.add()
        for number in range(3):
            response = await node.produce(many(600, acks=1))
            assert response.responses[0].partition_responses[0].base_offset == number
        assert partition.log.written_end == 3

    running(story)


@pytest.mark.parametrize("count", [1, 2, 600])
def test_a_partition_that_is_named_several_times_is_refused_once(count: int) -> None:
    """Kafka keeps one of the batches; the fate of the others would be undefined."""

    async def story(node: BareNode) -> None:
        twice = await node.add()
        others = [await node.add(index=index) for index in range(1, 3)]
        again = [("t", 0, a_batch())] * count
        request = to_produce(("t", 0, a_batch()), ("t", 1, a_batch()), *again, ("t", 2, a_batch()), acks=1)
        response = await node.produce(request)
        found = [part for topic in response.responses for part in topic.partition_responses]
        assert [(part.index, part.error_code) for part in found] == [
            (0, ErrorCode.INVALID_REQUEST),
            (1, NONE),
            (2, NONE),
        ]
        assert found[0].error_message is not None
        assert "named several times" in found[0].error_message
        assert twice.log.written_end == 0
        assert [other.log.written_end for other in others] == [1, 1]

    running(story)


def test_a_repeated_partition_ends_the_connection_of_a_producer_that_wants_no_answer() -> None:
    async def story(node: BareNode) -> None:
        await node.add()
        with pytest.raises(UnansweredProduceFailed, match="named several times"):
            await node.begin(to_produce(("t", 0, a_batch()), ("t", 0, a_batch()), acks=0), 12)

    running(story)


def test_many_partitions_are_confirmed_or_time_out_together() -> None:
    async def story(node: BareNode) -> None:
        await node.add(settings=FSYNC)
        began_s = now_s()
        response = await node.produce(many(600, acks=1))
        assert response.responses[0].partition_responses[0].error_code == NONE
        assert now_s() - began_s >= 0.2, "the disk takes that long"
        request = many(600, acks=1)
        response = await node.produce(ProduceRequest(acks=1, timeout_ms=10, topic_data=request.topic_data))
        assert response.responses[0].partition_responses[0].error_code == ErrorCode.REQUEST_TIMED_OUT

    running(story, sync_s=0.2)


def test_unknown_acks_are_answered_for_many_partitions_too() -> None:
    async def story(node: BareNode) -> None:
        response = await node.produce(many(2_000, acks=7, records=b""))
        codes = {part.error_code for part in response.responses[0].partition_responses}
        assert codes == {ErrorCode.INVALID_REQUIRED_ACKS}

    running(story)
