"""A consumer among failing brokers: start and end offsets, isolation, and each record once and in order."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Literal

import pytest

from penstock.client.cluster import Cluster
from penstock.client.consumer.consumer import At, Consumer, Start
from penstock.client.consumer.fetched import visible
from penstock.client.consumer.fetcher import FetchSettings, Trouble
from penstock.client.errors import Closed, ConnectionLost, OutOfRange, Refused
from penstock.client.metadata import TopicPartition
from penstock.client.offsets import Isolation
from penstock.client.ports import ClientPorts
from penstock.model.errors import ErrorCode
from penstock.records.builder import BatchBuilder
from penstock.records.control import ControlType, EndTransactionMarker, marker_batch
from penstock.records.header import BatchView, patch
from penstock.simulator.options import FaultOptions
from penstock.wire.api import Api
from penstock.wire.messages.fetch import FetchRequest
from tests.unit.client.brokers import Brokers, Fault, PartitionLog, play

T0 = TopicPartition("t", 0)
Story = Callable[[Consumer, Cluster], Awaitable[Any]]


def consume(
    brokers: Brokers,
    story: Story,
    settings: FetchSettings | None = None,
    *,
    out_of_range: Literal["error", "earliest", "latest"] = "error",
    seed: int = 1,
    world: FaultOptions | None = None,
    request_timeout_ms: int = 2000,
) -> Any:
    async def main(ports: ClientPorts) -> Any:
        cluster = Cluster(brokers.names, ports=ports, request_timeout_ms=request_timeout_ms)
        consumer = Consumer(cluster, settings, out_of_range=out_of_range)
        try:
            return await story(consumer, cluster)
        finally:
            await consumer.close()
            await cluster.close()

    return play(brokers, main, seed=seed, options=world)


def a_batch(*numbers: int, timestamp_ms: int = 0, producer: int | None = None, is_plain: bool = False) -> bytes:
    options: dict[str, Any] = {}
    if producer is not None:
        options = {"producer_id": producer, "producer_epoch": 0, "base_sequence": 0, "is_transactional": True}
    if is_plain:
        options["is_transactional"] = False
    builder = BatchBuilder(**options)
    for number in numbers:
        builder.append(None, b"%d" % number, (), timestamp_ms + number)
    return bytes(builder.build())


def a_marker(producer: int, kind: ControlType) -> bytes:
    marker = EndTransactionMarker(kind, 0)
    return bytes(marker_batch(marker, producer_id=producer, producer_epoch=0, timestamp_ms=0))


def fill(log: PartitionLog, count: int, size: int = 3) -> None:
    for first in range(0, count, size):
        log.append(a_batch(*range(first, min(count, first + size))))


def put(log: PartitionLog, data: bytes) -> int:
    """Appends without checking sequences."""
    kept = bytearray(data)
    patch(kept, log.end, 0)
    log.batches.append(bytes(kept))
    offset, log.end = log.end, log.end + BatchView(data).last_offset_delta + 1
    return offset


async def numbers(consumer: Consumer) -> list[int]:
    return [int(message.value or b"-1") async for message in consumer]


# --- starts and ends


@pytest.mark.parametrize(
    ("start", "first"),
    [("earliest", 0), ("latest", 20), (0, 0), (7, 7), (20, 20), (At(5), 5), (At(0), 0), (At(19), 19), (At(20), 20)],
)
def test_reading_begins_where_it_is_told_to(start: Start, first: int) -> None:
    brokers = Brokers()
    (log,) = brokers.add_topic("t")
    fill(log, 20)

    async def story(consumer: Consumer, _: Cluster) -> list[int]:
        await consumer.assign({T0: start}, until_end=True)
        assert consumer.position(T0) == first
        found = await numbers(consumer)
        assert consumer.position(T0) == 20
        return found

    assert consume(brokers, story) == list(range(first, 20))


def test_the_end_is_what_was_there_when_asked() -> None:
    brokers = Brokers()
    (log,) = brokers.add_topic("t")
    fill(log, 10, size=4)

    async def story(consumer: Consumer, _: Cluster) -> list[int]:
        await consumer.assign_topic("t", "earliest", until_end=True)
        log.append(a_batch(10, 11))
        found = await numbers(consumer)
        assert consumer.is_at_end
        return found

    assert consume(brokers, story) == list(range(10))


def test_the_end_may_lie_inside_a_batch() -> None:
    brokers = Brokers()
    (log,) = brokers.add_topic("t")
    fill(log, 10, size=10)
    log.end = 5  # the end that the broker reports
    assert consume(brokers, lambda consumer, _: read_all(consumer)) == list(range(5))


async def read_all(consumer: Consumer) -> list[int]:
    await consumer.assign_topic("t", "earliest", until_end=True)
    return await numbers(consumer)


def test_a_range_is_read_from_its_first_offset_to_its_end() -> None:
    brokers = Brokers()
    for log in brokers.add_topic("t", 2):
        fill(log, 20)

    async def story(consumer: Consumer, _: Cluster) -> list[tuple[int, int]]:
        consumer.assign_ranges({T0: (4, 11), TopicPartition("t", 1): (19, 20)})
        return sorted([(message.partition, message.offset) async for message in consumer])

    assert consume(brokers, story) == [(0, offset) for offset in range(4, 11)] + [(1, 19)]


def test_without_an_end_new_records_are_waited_for() -> None:
    brokers = Brokers()
    (log,) = brokers.add_topic("t")

    async def story(consumer: Consumer, _: Cluster) -> None:
        await consumer.assign_topic("t", "latest")
        assert await consumer.fetch_records(timeout_ms=1000) is None
        waiting = asyncio.ensure_future(consumer.fetch_records())
        await asyncio.sleep(3)
        assert not waiting.done()
        log.append(a_batch(0, 1))
        found = await waiting
        assert found is not None
        assert [record.offset for record in found.records] == [0, 1]
        assert consumer.high_watermark(T0) == 2

    consume(brokers, story)


def test_an_empty_topic_ends_at_once() -> None:
    brokers = Brokers()
    brokers.add_topic("t", 3)
    assert consume(brokers, lambda consumer, _: read_all(consumer)) == []


def test_no_more_records_at_once_than_asked_for() -> None:
    brokers = Brokers()
    (log,) = brokers.add_topic("t")
    fill(log, 10, size=7)

    async def story(consumer: Consumer, _: Cluster) -> list[list[int]]:
        await consumer.assign_topic("t", "earliest", until_end=True)
        found = []
        while (piece := await consumer.fetch_records(3)) is not None:
            found.append([record.offset for record in piece.records])
            assert consumer.position(T0) in (found[-1][-1] + 1, 10)
        return found

    assert consume(brokers, story) == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]]


def test_raw_batches_come_with_all_that_is_in_them() -> None:
    brokers = Brokers()
    (log,) = brokers.add_topic("t")
    fill(log, 6)
    put(log, a_marker(1, ControlType.COMMIT))

    async def story(consumer: Consumer, _: Cluster) -> None:
        await consumer.assign({T0: 4}, until_end=True)
        fetched = await consumer.fetch_batches()
        assert fetched is not None
        assert [(batch.base_offset, batch.is_control) for batch in fetched.batches] == [(3, False), (6, True)]
        assert [record.offset for record in fetched.records()] == [4, 5]
        assert fetched.next_offset == 7
        assert await consumer.fetch_batches() is None

    consume(brokers, story)


# --- isolation


def log_with_transactions() -> Brokers:
    """Producers 1 and 2 interleave; 1 commits, then aborts; 2 aborts, then commits; 3 is not in a transaction."""
    brokers = Brokers()
    (log,) = brokers.add_topic("t")
    put(log, a_batch(0, producer=1))
    second = put(log, a_batch(1, 2, producer=2))
    put(log, a_batch(3))
    put(log, a_batch(4, producer=1))
    put(log, a_marker(1, ControlType.COMMIT))
    first = put(log, a_batch(6, producer=1))
    put(log, a_marker(2, ControlType.ABORT))
    put(log, a_batch(8, producer=2))
    put(log, a_batch(9, producer=1))
    put(log, a_marker(1, ControlType.ABORT))
    put(log, a_marker(2, ControlType.COMMIT))
    put(log, a_batch(12, producer=1))
    put(log, a_marker(1, ControlType.COMMIT))
    log.aborted = [(2, second), (1, first)]
    return brokers


def test_who_reads_committed_records_sees_no_others() -> None:
    settings = FetchSettings(isolation=Isolation.READ_COMMITTED)
    found = consume(log_with_transactions(), lambda consumer, _: read_all(consumer), settings)
    assert found == [0, 3, 4, 8, 12]


def test_who_reads_everything_sees_everything_but_markers() -> None:
    found = consume(log_with_transactions(), lambda consumer, _: read_all(consumer))
    assert found == [0, 1, 2, 3, 4, 6, 8, 9, 12]


def test_what_a_producer_wrote_outside_of_its_transaction_is_seen() -> None:
    data = [a_batch(0, producer=1), a_batch(1, producer=1, is_plain=True), a_marker(1, ControlType.ABORT)]
    views = []
    for offset, each in enumerate(data):
        batch = bytearray(each)
        patch(batch, offset, 0)
        views.append(BatchView(batch))
    assert [batch.base_offset for batch in visible(views, [(1, 0)])] == [1]
    assert [batch.base_offset for batch in visible(views, None)] == [0, 1]


# --- errors


@pytest.mark.parametrize("out_of_range", ["error", "earliest", "latest"])
def test_an_offset_that_is_gone_is_told_or_mended(out_of_range: Literal["error", "earliest", "latest"]) -> None:
    brokers = Brokers()
    (log,) = brokers.add_topic("t")
    fill(log, 9)
    log.start, log.batches = 6, log.batches[2:]

    async def story(consumer: Consumer, _: Cluster) -> int:
        await consumer.assign({T0: 2})
        found = await consumer.fetch_records(timeout_ms=2000)
        return found.records[0].offset if found else -1

    if out_of_range == "error":
        match = r"t\[0\] at offset 2: OFFSET_OUT_OF_RANGE: .* the log reaches from 6 to 9"
        with pytest.raises(OutOfRange, match=match) as told:
            consume(brokers, story)
        assert (told.value.partition, told.value.offset, told.value.log_start, told.value.log_end) == (T0, 2, 6, 9)
    else:
        first = consume(brokers, story, out_of_range=out_of_range)
        assert first == (6 if out_of_range == "earliest" else -1)


def test_a_damaged_batch_is_not_passed_on() -> None:
    brokers = Brokers()
    (log,) = brokers.add_topic("t")
    fill(log, 6)
    log.batches[1] = log.batches[1][:-1] + bytes([log.batches[1][-1] ^ 1])

    async def story(consumer: Consumer, _: Cluster) -> None:
        await consumer.assign({T0: 0})
        found = await consumer.fetch_records()
        assert found is not None
        assert [record.offset for record in found.records] == [0, 1, 2]
        with pytest.raises(Refused, match="the checksum of the batch at offset 3 is wrong"):
            await consumer.fetch_records()
        with pytest.raises(Refused, match="checksum"):
            await consumer.fetch_records()
        assert consumer.position(T0) == 3

    consume(brokers, story)


def test_trouble_that_passes_is_not_told() -> None:
    brokers = Brokers(2)
    (log, _) = brokers.add_topic("t", 2)
    fill(log, 30)
    codes = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.OFFSET_NOT_AVAILABLE)
    brokers.fail(Api.FETCH, Fault.CLOSE, *codes, None, Fault.CLOSE_AFTER, Fault.SILENCE)
    settings = FetchSettings(partition_bytes_max=200)
    assert consume(brokers, lambda consumer, _: read_all(consumer), settings) == list(range(30))


def test_a_partition_that_moves_is_followed() -> None:
    brokers = Brokers(3)
    (log,) = brokers.add_topic("t")
    fill(log, 30)

    async def story(consumer: Consumer, _: Cluster) -> list[int]:
        await consumer.assign_topic("t", "earliest", until_end=True)
        found: list[int] = []
        while (piece := await consumer.fetch_records()) is not None:
            found += [record.offset for record in piece.records]
            brokers.move("t", 0, (log.leader + 1) % 3)
        return found

    assert consume(brokers, story, FetchSettings(partition_bytes_max=100)) == list(range(30))


def test_a_topic_that_goes_is_told_after_a_while() -> None:
    brokers = Brokers()
    brokers.add_topic("t")

    async def story(consumer: Consumer, _: Cluster) -> float:
        await consumer.assign_topic("t", "earliest")
        await consumer.fetch_records(timeout_ms=100)
        del brokers.topics["t"]
        before = asyncio.get_running_loop().time()
        with pytest.raises(Refused, match="UNKNOWN_TOPIC"):
            await consumer.fetch_records()
        return asyncio.get_running_loop().time() - before

    assert consume(brokers, story, FetchSettings(patience_ms=5000)) == pytest.approx(5.5, abs=1.5)


def test_troubles_name_the_partitions_that_cannot_be_read() -> None:
    brokers = Brokers(2)
    for log in brokers.add_topic("t", 2):
        fill(log, 3)

    async def story(consumer: Consumer, _: Cluster) -> list[list[Trouble]]:
        await consumer.assign_topic("t", "earliest")
        await consumer.fetch_records()
        assert consumer.troubles() == []
        brokers.fail(Api.FETCH, *[Fault.CLOSE] * 1000)
        await asyncio.sleep(3)
        closed = consumer.troubles()
        brokers.faults.clear()
        await asyncio.sleep(10)
        assert consumer.troubles() == []
        brokers.fail(Api.FETCH, *[Fault.SILENCE] * 2)
        await asyncio.sleep(1)
        assert consumer.troubles() == [], "a broker may wait for records"
        await asyncio.sleep(3.4)
        return [closed, consumer.troubles()]

    settings = FetchSettings(wait_ms_max=500)
    closed, silent = consume(brokers, story, settings, request_timeout_ms=20_000)
    for found in (closed, silent):
        assert {each.partition for each in found} == {T0, TopicPartition("t", 1)}
    assert all(isinstance(each.error, ConnectionLost) for each in closed)
    assert "broker 0 at broker-0:9092 does not answer" in [str(each.error) for each in silent]


def test_a_partition_that_is_not_there_is_told_at_once() -> None:
    brokers = Brokers()
    brokers.add_topic("t", 2)

    async def story(consumer: Consumer, _: Cluster) -> None:
        with pytest.raises(Refused, match=r"t\[2\]: UNKNOWN_TOPIC_OR_PARTITION: the topic has 2 partitions"):
            await consumer.assign({TopicPartition("t", 2): "earliest"})

    consume(brokers, story)


@pytest.mark.parametrize("seed", range(10))
def test_a_bad_network_changes_nothing(seed: int) -> None:
    brokers = Brokers(3)
    for log in brokers.add_topic("t", 5):
        fill(log, 100)

    async def story(consumer: Consumer, cluster: Cluster) -> dict[int, list[int]]:
        await consumer.assign_topic("t", "earliest", until_end=True)
        found: dict[int, list[int]] = {}
        chance = cluster.ports.entropy
        while (piece := await consumer.fetch_records(20)) is not None:
            found.setdefault(piece.partition.partition, []).extend(record.offset for record in piece.records)
            match chance.below(6):
                case 0:
                    brokers.world.network.reset("client", brokers.names[chance.below(3)])
                case 1:
                    brokers.move("t", chance.below(5), chance.below(3))
        return found

    settings = FetchSettings(partition_bytes_max=300, ahead_bytes_max=600)
    world = FaultOptions(loss=0.02, fragment=0.2, delay_s_mean=0.003)
    found = consume(brokers, story, settings, seed=seed, world=world)
    assert sorted(found.items()) == [(partition, list(range(100))) for partition in range(5)]


def test_a_batch_that_does_not_fit_is_told() -> None:
    """Kafka always sends the first batch whole; older brokers and other implementations may not."""
    brokers = Brokers()
    (log,) = brokers.add_topic("t")
    fill(log, 3)
    log.batches = [log.batches[0][:-1]]

    async def story(consumer: Consumer, _: Cluster) -> None:
        await consumer.assign({T0: 0})
        with pytest.raises(Refused, match="does not fit into a fetch: raise partition_bytes_max"):
            await consumer.fetch_records()

    consume(brokers, story)


# --- bounds and moves


def test_nothing_is_fetched_far_ahead_of_the_reader() -> None:
    brokers = Brokers()
    (log,) = brokers.add_topic("t")
    fill(log, 300)
    size = len(log.batches[0])

    async def story(consumer: Consumer, _: Cluster) -> None:
        await consumer.assign_topic("t", "earliest", until_end=True)
        await consumer.fetch_records()
        await asyncio.sleep(5)
        (cursor,) = consumer._fetcher.cursors.values()
        assert 4 * size <= cursor.ahead_bytes < 8 * size

    consume(brokers, story, FetchSettings(partition_bytes_max=4 * size, ahead_bytes_max=4 * size))


def test_many_partitions_together_are_not_fetched_far_ahead_either() -> None:
    brokers = Brokers()
    logs = brokers.add_topic("t", 20)
    for log in logs:
        fill(log, 9)
    size = len(logs[0].batches[0])

    async def story(consumer: Consumer, _: Cluster) -> int:
        await consumer.assign_topic("t", "earliest", until_end=True)
        count = 0
        while (piece := await consumer.fetch_records()) is not None:
            count += len(piece.records)
            await asyncio.sleep(1)
            held = sum(cursor.ahead_bytes for cursor in consumer._fetcher.cursors.values())
            assert held < 4 * size + 6 * size
        return count

    settings = FetchSettings(bytes_max=6 * size, partition_bytes_max=2 * size, ahead_bytes_total_max=4 * size)
    assert consume(brokers, story, settings) == 20 * 9


def test_no_partition_starves() -> None:
    brokers = Brokers()
    for log in brokers.add_topic("t", 4):
        fill(log, 60)

    async def story(consumer: Consumer, _: Cluster) -> list[int]:
        await consumer.assign_topic("t", "earliest", until_end=True)
        order = []
        while (piece := await consumer.fetch_records()) is not None:
            order.append(piece.partition.partition)
        return order

    order = consume(brokers, story, FetchSettings(bytes_max=300))
    assert [order[:8].count(partition) for partition in range(4)] == [2, 2, 2, 2]


def test_seek_forgets_what_was_fetched() -> None:
    brokers = Brokers()
    (log,) = brokers.add_topic("t")
    fill(log, 30)

    async def story(consumer: Consumer, _: Cluster) -> None:
        await consumer.assign_topic("t", "earliest", until_end=True)
        first = await consumer.fetch_records(2)
        assert first is not None
        await asyncio.sleep(1)
        await consumer.seek(T0, 20)
        assert consumer.position(T0) == 20
        assert await numbers(consumer) == list(range(20, 30))
        await consumer.seek(T0, "earliest")
        assert await numbers(consumer) == list(range(30))
        with pytest.raises(ValueError, match="not assigned"):
            await consumer.seek(TopicPartition("t", 9), 0)

    consume(brokers, story, FetchSettings(partition_bytes_max=200))


def test_a_paused_partition_rests() -> None:
    brokers = Brokers()
    logs = brokers.add_topic("t", 2)
    for log in logs:
        fill(log, 3)

    async def story(consumer: Consumer, _: Cluster) -> None:
        await consumer.assign_topic("t", "latest")
        consumer.pause(T0)
        await asyncio.sleep(1)
        for log in logs:
            log.append(a_batch(3))
        found = await consumer.fetch_records(timeout_ms=1000)
        assert found is not None
        assert found.partition.partition == 1
        assert await consumer.fetch_records(timeout_ms=1000) is None
        consumer.pause(T0, is_paused=False)
        found = await consumer.fetch_records(timeout_ms=1000)
        assert found is not None
        assert found.partition == T0

    consume(brokers, story)


def test_a_closed_consumer_says_so() -> None:
    brokers = Brokers()
    brokers.add_topic("t")

    async def story(consumer: Consumer, _: Cluster) -> None:
        await consumer.assign_topic("t", "latest")
        await consumer.close()
        with pytest.raises(Closed):
            await consumer.fetch_records()

    consume(brokers, story)


@pytest.mark.parametrize("newest", [4, 6, 11, 12, 13, 18])
def test_old_brokers_are_understood(newest: int) -> None:
    brokers = Brokers()
    brokers.newest = {Api.FETCH: newest, Api.LIST_OFFSETS: min(newest, 11), Api.METADATA: min(newest - 4, 13)}
    (log,) = brokers.add_topic("t")
    fill(log, 10)
    assert consume(brokers, lambda consumer, _: read_all(consumer)) == list(range(10))
    asked = next(request for _, request in brokers.requests if isinstance(request, FetchRequest))
    topic_known = Api.METADATA in brokers.newest and brokers.newest[Api.METADATA] >= 10
    assert bool(asked.topics[0].topic) is not (newest >= 13 and topic_known)
