"""Loads at full speed: batches are built once and sent repeatedly, and fetched batches are counted by their headers."""

import asyncio
import os
import time
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.cli.bench.topic import BenchTopic
from penstock.cli.errors import Failed
from penstock.client.client import Client
from penstock.client.connection.connection import BrokerConnection
from penstock.client.errors import check
from penstock.client.metadata import TopicPartition
from penstock.client.offsets import Moment, refusal
from penstock.model.errors import ErrorCode
from penstock.records.builder import BatchBuilder
from penstock.records.compression import Codec
from penstock.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

VALUES = 64
MB = 1e6


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes, compression, acks and concurrency of a load."""

    record_bytes: int
    batch_bytes: int
    codec: str = "none"
    acks: int = -1
    connections: int = 1
    in_flight: int = 5


@dataclass(frozen=True, slots=True)
class Bounds:
    """When a load ends: after a number of records or of seconds, whichever comes first."""

    records: int | None
    seconds: float | None


@dataclass(frozen=True, slots=True)
class Run:
    """The client and the topic of a load, and its progress callback."""

    client: Client
    topic: BenchTopic
    counted: Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Made:
    """A batch, and the number of its records."""

    data: bytes
    records: int


def make_batch(shape: Shape, records_max: int | None = None) -> Made:
    """Builds a batch of as many random values as fit, at least one."""
    values = [os.urandom(shape.record_bytes) for _ in range(min(VALUES, 1 + shape.batch_bytes // shape.record_bytes))]
    builder = BatchBuilder(codec=Codec[shape.codec.upper()], bytes_max=shape.batch_bytes)
    now_ms = int(time.time() * 1000)
    while builder.has_room_for(None, values[builder.count % len(values)]) and builder.count != records_max:
        builder.append(None, values[builder.count % len(values)], timestamp_ms=now_ms)
    return Made(bytes(builder.build()), builder.count)


def produce_request(topic: BenchTopic, partition: int, batch: bytes, acks: int) -> ProduceRequest:
    """A Produce request with one batch for one partition."""
    part = PartitionProduceData(index=partition, records=batch)
    data = TopicProduceData(name=topic.name, topic_id=topic.topic_id, partition_data=[part])
    return ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[data])


def check_answer(answer: ProduceResponse) -> int:
    """The base offset of the batch; raises Refused if it was rejected."""
    (topic,) = answer.responses
    (part,) = topic.partition_responses
    check(part.error_code, part.error_message, f"partition {part.index}")
    return part.base_offset


async def connect(run: Run, partition: int, connections: int) -> BrokerConnection:
    """A connection to the partition's leader; partitions share the given number of connections to each broker."""
    place = TopicPartition(run.topic.name, partition)
    leader = run.client.cluster.leader(place)
    if leader is None:
        raise refusal(ErrorCode.LEADER_NOT_AVAILABLE, str(place))
    return await run.client.cluster.connection(leader, f"bench-{partition % connections}")


async def ends(run: Run, moment: Moment = Moment.LATEST) -> dict[int, int]:
    """The end offsets by partition, or the log start offsets."""
    found = await run.client.admin.offsets(run.topic.name, moment, partitions=run.topic.partitions)
    return {partition: each.offset for partition, each in found.items()}


async def check_growth(run: Run, before: dict[int, int], acknowledged: int) -> None:
    """Fails if the log has not grown by the acknowledged records."""
    grown = sum((await ends(run)).values()) - sum(before.values())
    if grown < acknowledged or (run.topic.is_new and grown != acknowledged):
        raise Failed(f"{acknowledged} records were acknowledged and {grown} are in the log: these figures mean nothing")


class Budget:
    """The records that may still be sent."""

    def __init__(self, bounds: Bounds) -> None:
        self.left = bounds.records
        self._end_s = None if bounds.seconds is None else time.monotonic() + bounds.seconds

    def take(self, wanted: int) -> int:
        """As many of the wanted records as are left; 0 at the end."""
        if self._end_s is not None and time.monotonic() >= self._end_s:
            return 0
        if self.left is None:
            return wanted
        given = min(wanted, self.left)
        self.left -= given
        return given


async def write(run: Run, shape: Shape, bounds: Bounds) -> dict[str, Any]:
    """Sends to all partitions concurrently."""
    before = await ends(run)
    latencies_ns = array("q")
    whole = make_batch(shape)
    begun_s = time.monotonic()
    budget = Budget(bounds)
    sent = await asyncio.gather(
        *(_write(run, each, shape, whole, budget, latencies_ns) for each in run.topic.partitions)
    )
    seconds = time.monotonic() - begun_s
    await check_growth(run, before, sum(sent))
    found = rates(sum(sent), shape.record_bytes, seconds)
    return {**found, "requests": len(latencies_ns), **percentiles("ack", latencies_ns)}


async def _write(
    run: Run, partition: int, shape: Shape, whole: Made, budget: Budget, latencies_ns: "array[int]"
) -> int:
    connection = await connect(run, partition, shape.connections)
    request = produce_request(run.topic, partition, whole.data, shape.acks)
    waiting: deque[tuple[asyncio.Future[ProduceResponse], int, int]] = deque()
    acknowledged = 0
    is_over = False
    while waiting or not is_over:
        while not is_over and len(waiting) < shape.in_flight:
            records = budget.take(whole.records)
            if not records:
                is_over = True
                break
            if records < whole.records:  # the last batch
                request = produce_request(run.topic, partition, make_batch(shape, records).data, shape.acks)
            waiting.append((connection.begin(request, ProduceResponse), records, time.monotonic_ns()))
        if waiting:
            future, records, sent_ns = waiting.popleft()
            check_answer(await future)
            latencies_ns.append(time.monotonic_ns() - sent_ns)
            acknowledged += records
            run.counted(records)
    return acknowledged


async def read(run: Run, shape: Shape, bounds: Bounds) -> dict[str, Any]:
    """Fills a new topic, then reads from the start to the end, or to a bound; verifies checksums."""
    if run.topic.is_new:
        await write(Run(run.client, run.topic, _nobody), shape, Bounds(bounds.records, None))
    first, last = await ends(run, Moment.EARLIEST), await ends(run)
    there = sum(last.values()) - sum(first.values())
    if not there:
        raise Failed(f"topic {run.topic.name} is empty: there is nothing to read")
    consumer = run.client.consumer()
    starts: dict[TopicPartition, Any] = {TopicPartition(run.topic.name, each): "earliest" for each in last}
    await consumer.assign(starts, until_end=True)
    begun_s = time.monotonic()
    records = size_bytes = 0
    while not _is_reached(bounds, records, time.monotonic() - begun_s):
        fetched = await consumer.fetch_batches()
        if fetched is None:
            break
        for batch in fetched.batches:
            if not batch.is_intact:
                raise Failed(f"the checksum of the batch at {fetched.partition}@{batch.base_offset} is wrong")
            records += batch.count
            size_bytes += batch.size_bytes
            run.counted(batch.count)
    seconds = time.monotonic() - begun_s
    if run.topic.is_new and bounds.seconds is None and records != there:
        raise Failed(f"{there} records are in the log and {records} were read: these figures mean nothing")
    stored = size_bytes / max(1, records)
    return {**rates(records, shape.record_bytes if run.topic.is_new else stored, seconds), "stored_bytes": size_bytes}


def _is_reached(bounds: Bounds, records: int, seconds: float) -> bool:
    enough = bounds.records is not None and records >= bounds.records
    return enough or (bounds.seconds is not None and seconds >= bounds.seconds)


def _nobody(_count: int) -> None:
    """Progress callback while a topic is filled, which is not measured."""


def rates(records: int, record_bytes: float, seconds: float) -> dict[str, Any]:
    """The figures that every load reports."""
    return {
        "records": records,
        "seconds": round(seconds, 3),
        "records_per_s": round(records / seconds, 1),
        "mb_per_s": round(records * record_bytes / seconds / MB, 3),
    }


def percentiles(name: str, latencies_ns: Sequence[int]) -> dict[str, float | None]:
    """p50, p99, p99.9 and the maximum, in milliseconds; None where there are too few samples."""
    ordered = sorted(latencies_ns)
    found: dict[str, float | None] = {}
    for title, share in (("p50", 0.5), ("p99", 0.99), ("p999", 0.999)):
        enough = len(ordered) * (1 - share) >= 1
        found[f"{name}_{title}_ms"] = round(ordered[int(len(ordered) * share)] / 1e6, 3) if enough else None
    return {**found, f"{name}_max_ms": round(ordered[-1] / 1e6, 3) if ordered else None}
