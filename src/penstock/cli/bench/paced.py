"""A load at a fixed rate: each record has a due time, and its latency counts from then.

The time that a broker stalls counts for all records that were due meanwhile. The lateness of the load itself is
reported as well.
"""

import asyncio
import time
from array import array
from functools import partial
from typing import Any

from penstock.cli.bench.loads import (
    Bounds,
    Run,
    Shape,
    check_answer,
    check_growth,
    connect,
    ends,
    make_batch,
    percentiles,
    produce_request,
    rates,
)
from penstock.cli.errors import Failed
from penstock.client.connection.connection import BrokerConnection
from penstock.client.consumer.fetcher import FetchSettings
from penstock.client.metadata import TopicPartition
from penstock.wire.messages.produce import ProduceRequest, ProduceResponse

SPIN_S = 0.002
"""Timers of the event loop can be a millisecond late: the last part of a wait is done without sleep."""
UNDER_WAY_MAX = 10_000
READ_S = 30.0


class Paced:
    """One run."""

    def __init__(self, run: Run, shape: Shape) -> None:
        self.run = run
        self.shape = shape
        self.acks_ns, self.reads_ns, self.lateness_ns = array("q"), array("q"), array("q")
        self.due_ns: dict[int, dict[int, int]] = {each: {} for each in run.topic.partitions}
        """Due times of acknowledged records that were not read yet, by partition and offset."""
        self.early_ns: dict[int, dict[int, int]] = {each: {} for each in run.topic.partitions}
        """Read times of records that were not acknowledged yet, by partition and offset."""
        self.under_way = 0
        self.acknowledged = 0
        self.trouble: Exception | None = None
        self.changed = asyncio.Event()

    async def send(
        self, targets: list[tuple[int, BrokerConnection, ProduceRequest]], rate: float, bounds: Bounds
    ) -> int:
        """Sends records when they are due, up to the bounds; returns their number."""
        begun_ns = time.monotonic_ns()
        count = bounds.records
        if bounds.seconds is not None:
            in_time = max(1, int(bounds.seconds * rate))
            count = in_time if count is None else min(count, in_time)
        assert count is not None
        for number in range(count):
            due_ns = begun_ns + int(number * 1e9 / rate)
            await self._wait_until(due_ns)
            if self.trouble is not None:
                raise self.trouble
            if self.under_way >= UNDER_WAY_MAX:
                raise Failed(f"{UNDER_WAY_MAX} requests wait for their acks: the cluster cannot keep this --rate")
            partition, connection, request = targets[number % len(targets)]
            self.lateness_ns.append(time.monotonic_ns() - due_ns)
            self.under_way += 1
            future = connection.begin(request, ProduceResponse)
            future.add_done_callback(partial(self._answered, partition, due_ns))
        while self.under_way:
            await self.changed.wait()
            self.changed.clear()
        if self.trouble is not None:
            raise self.trouble
        return count

    async def _wait_until(self, due_ns: int) -> None:
        left_s = (due_ns - time.monotonic_ns()) / 1e9
        if left_s > SPIN_S:
            await asyncio.sleep(left_s - SPIN_S)
        await asyncio.sleep(0)
        while time.monotonic_ns() < due_ns:
            await asyncio.sleep(0)

    def _answered(self, partition: int, due_ns: int, done: "asyncio.Future[ProduceResponse]") -> None:
        now_ns = time.monotonic_ns()
        self.under_way -= 1
        self.changed.set()
        if done.cancelled():
            return
        try:
            offset = check_answer(done.result())
        except Exception as error:  # raised by `send`
            self.trouble = error
            return
        self.acks_ns.append(now_ns - due_ns)
        self.acknowledged += 1
        self.run.counted(1)
        read_ns = self.early_ns[partition].pop(offset, None)
        if read_ns is None:
            self.due_ns[partition][offset] = due_ns
        else:
            self.reads_ns.append(read_ns - due_ns)

    async def follow(self, starts: dict[int, int]) -> None:
        """Reads until it is cancelled; records may arrive before their acks."""
        name = self.run.topic.name
        consumer = self.run.client.consumer(FetchSettings(wait_ms_max=500))
        await consumer.assign({TopicPartition(name, partition): offset for partition, offset in starts.items()})
        while True:
            fetched = await consumer.fetch_batches()
            assert fetched is not None
            now_ns = time.monotonic_ns()
            partition = fetched.partition.partition
            for batch in fetched.batches:
                for offset in range(max(batch.base_offset, fetched.offset), batch.last_offset + 1):
                    due_ns = self.due_ns[partition].pop(offset, None)
                    if due_ns is None:
                        self.early_ns[partition][offset] = now_ns
                    else:
                        self.reads_ns.append(now_ns - due_ns)
            self.changed.set()

    async def all_read(self, count: int, follower: "asyncio.Task[None]") -> None:
        """Waits until all records were read."""
        async with asyncio.timeout(READ_S):
            while len(self.reads_ns) < count:
                if follower.done():
                    await follower
                await self.changed.wait()
                self.changed.clear()


async def pace(run: Run, shape: Shape, bounds: Bounds, rate: float, *, follows: bool) -> dict[str, Any]:
    """Runs the load; with `follows`, reads the records, too."""
    before = await ends(run)
    batch = make_batch(shape)
    targets = [
        (each, await connect(run, each, shape.connections), produce_request(run.topic, each, batch.data, shape.acks))
        for each in run.topic.partitions
    ]
    paced = Paced(run, shape)
    follower = asyncio.create_task(paced.follow(before)) if follows else None
    try:
        begun_s = time.monotonic()
        count = await paced.send(targets, rate, bounds)
        seconds = time.monotonic() - begun_s
        if follower is not None:
            try:
                await paced.all_read(count, follower)
            except TimeoutError:
                raise Failed(f"only {len(paced.reads_ns)} of {count} records were read in time") from None
    finally:
        if follower is not None:
            follower.cancel()
            await asyncio.gather(follower, return_exceptions=True)
    await check_growth(run, before, count)
    told = {**rates(count, shape.record_bytes, seconds), "rate": rate, **percentiles("ack", paced.acks_ns)}
    if follows:
        told |= percentiles("end_to_end", paced.reads_ns)
    return {**told, **percentiles("load_lateness", paced.lateness_ns)}
