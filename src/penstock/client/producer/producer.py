"""Sends records: chooses their partition, buffers them within bounds, and reports each record's delivery."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Literal

from penstock.client.arguments import check_value, typed
from penstock.client.cluster import Cluster
from penstock.client.errors import BufferFull, Closed, Refused, TimedOut
from penstock.client.metadata import TopicPartition
from penstock.client.producer.budget import ByteBudget
from penstock.client.producer.outbox import OutboxSettings
from penstock.client.producer.partitioner import RoundRobin, Spread, Sticky, partition_for_key
from penstock.client.producer.sender import ACKS_NONE, REQUESTS_MAX, Delivery, Sender
from penstock.model.errors import ErrorCode
from penstock.records.builder import RECORD_OVERHEAD_BYTES_MAX
from penstock.records.compression import Codec

ACKS_ALL = -1
ACKS_LEADER = 1

Headers = Mapping[str, bytes | None] | Sequence[tuple[str, bytes | None]]
Entries = tuple[tuple[str, bytes | None], ...]


_TYPES = {
    "topic": str,
    "value": bytes | bytearray | memoryview | None,
    "key": bytes | bytearray | memoryview | None,
    "headers": Headers,
    "partition": int | None,
    "timestamp_ms": int | None,
}


class Producer:
    """See the module.

    With acks="all" the producer is idempotent by default: whatever happens to connections and leaders, each record is
    in the log once and in order. Otherwise one batch per partition is in flight at a time, which keeps the order, but a
    record whose response was lost may be in the log twice.
    """

    @typed
    def __init__(
        self,
        cluster: Cluster,
        *,
        acks: int | Literal["all"] = "all",
        is_idempotent: bool | None = None,
        codec: Codec = Codec.NONE,
        level: int | None = None,
        linger_ms: int = 0,
        batch_bytes: int = 256 * 1024,
        request_bytes_max: int = 1024 * 1024,
        buffer_bytes_max: int = 32 * 1024 * 1024,
        block_ms_max: int | None = None,
        delivery_timeout_ms: int = 120_000,
        creates_topics: bool = True,
        spread: Spread | Literal["sticky", "round-robin"] = "sticky",
    ) -> None:
        number = ACKS_ALL if acks == "all" else acks
        if number not in (ACKS_ALL, ACKS_NONE, ACKS_LEADER):
            raise ValueError(f'acks is 0, 1 or "all", not {acks}')
        if is_idempotent and number != ACKS_ALL:
            raise ValueError('an idempotent producer needs acks="all"')
        idempotent = number == ACKS_ALL if is_idempotent is None else is_idempotent
        settings = OutboxSettings(
            batch_bytes=batch_bytes,
            linger_ms=linger_ms,
            codec=codec,
            level=level,
            delivery_timeout_ms=delivery_timeout_ms,
            is_idempotent=idempotent,
            in_flight_max=REQUESTS_MAX if idempotent else 1,
        )
        self._cluster = cluster
        self._block_ms_max = cluster.timeout_ms if block_ms_max is None else block_ms_max
        self._creates_topics = creates_topics
        self._budget = ByteBudget(buffer_bytes_max)
        self._spread: Spread
        match spread:
            case "sticky":
                self._spread = Sticky(cluster.ports.entropy, batch_bytes)
            case "round-robin":
                self._spread = RoundRobin()
            case _:
                self._spread = spread
        self._sender = Sender(
            cluster,
            settings,
            acks=number,
            request_bytes_max=request_bytes_max,
            released=self._budget.give_back,
        )
        self._is_closed = False

    @property
    def held_bytes(self) -> int:
        """Bytes of records that are neither delivered nor given up."""
        return self._budget.held_bytes

    async def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        *,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> "asyncio.Future[Delivery]":
        """Buffers a record, waiting while the buffer is full; returns the future of its delivery."""
        self._check_open()
        if not (type(value) is bytes and (key is None or type(key) is bytes) and type(topic) is str):
            _check_types({"topic": topic, "value": value, "key": key})
        if headers or partition is not None or timestamp_ms is not None:
            _check_types({"headers": headers, "partition": partition, "timestamp_ms": timestamp_ms})
        entries = tuple(headers.items() if isinstance(headers, Mapping) else headers)
        size_bytes = _size_bytes(key, value, entries)
        try:
            await self._budget.take(size_bytes, self._block_ms_max)
        except TimeoutError:
            held = self._budget.held_bytes
            text = f"{held} bytes wait to be delivered, and too few were within {self._block_ms_max} ms"
            raise BufferFull(text) from None
        try:
            chosen = await self._place(topic, key, partition, size_bytes)
            self._check_open()
            stamp_ms = self._cluster.ports.clock.wall_ms() if timestamp_ms is None else timestamp_ms
            delivery, is_full = self._sender.add(chosen, key, value, entries, stamp_ms, size_bytes)
        except BaseException:
            self._budget.give_back(size_bytes)
            raise
        if is_full:
            await asyncio.sleep(0)  # lets the sender run even if the caller never pauses
        return delivery

    async def publish(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        *,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Delivery:
        """Sends a record and waits until it is delivered."""
        delivery = await self.send(
            topic, value, key=key, headers=headers, partition=partition, timestamp_ms=timestamp_ms
        )
        return await delivery

    @typed
    async def flush(self, timeout_ms: int | None = None) -> None:
        """Waits until all buffered records are delivered or given up; raises TimedOut if that takes too long."""
        batches = list(self._sender.unresolved)
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                await self._sender.flush(batches)
        except TimeoutError:
            count = sum(batch.builder.count for batch in batches if batch in self._sender.unresolved)
            raise TimedOut(f"{count} records are not delivered after {timeout_ms} ms") from None

    async def close(self, timeout_ms: int | None = None) -> None:
        """Flushes and closes. Records that are not delivered in time are given up, and their futures fail."""
        if self._is_closed:
            return
        self._is_closed = True
        self._budget.refuse_all(Closed("this producer was closed"))
        try:
            await self.flush(timeout_ms)
        finally:
            await self._sender.stop()

    def _check_open(self) -> None:
        if self._is_closed:
            raise Closed("this producer was closed")

    async def _place(self, topic: str, key: bytes | None, partition: int | None, size_bytes: int) -> TopicPartition:
        known = self._cluster.view.topics.get(topic)  # stale metadata will do: leaders are checked when sending
        if known is not None and partition is not None and partition >= len(known.partitions):
            self._cluster.distrust(topic)  # it may have grown
            known = None
        if known is None:
            known = await self._cluster.topic(topic, creates_topics=self._creates_topics, timeout_ms=self._block_ms_max)
        count = len(known.partitions)
        if partition is not None:
            if not 0 <= partition < count:
                text = f"the topic has {count} partitions, counted from 0"
                raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text, f"{topic}[{partition}]")
        elif key is not None:
            partition = partition_for_key(key, count)
        else:
            available = [each.index for each in known.partitions if each.leader >= 0]
            partition = self._spread.pick(topic, count, available, size_bytes)
        return TopicPartition(topic, partition)


def _check_types(given: Mapping[str, object]) -> None:
    for name, value in given.items():
        check_value("send", name, value, _TYPES[name])


def _size_bytes(key: bytes | None, value: bytes | None, headers: Entries) -> int:
    size_bytes = RECORD_OVERHEAD_BYTES_MAX + len(key or b"") + len(value or b"")
    return size_bytes + sum(len(name) + len(data or b"") for name, data in headers)
