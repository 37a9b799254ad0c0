"""The client for programs without an event loop: the same methods, blocking; the loop runs in its own thread.

It runs only on a host: a simulation has no threads. It is thread-safe.
"""

import asyncio
import threading  # determinism: a blocking client never runs in a simulation
from collections.abc import Coroutine, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future  # determinism: see above
from contextlib import ExitStack, closing
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from penstock.client.admin.admin import BROKER_DECIDES, Admin, CreatedTopic
from penstock.client.async_client import AsyncClient, Headers, Published, Text
from penstock.client.blocking_producer import SyncProducer
from penstock.client.configuration.config import ConfigSource
from penstock.client.configuration.options import Bootstrap, ClientOptions, ProducerOptions
from penstock.client.consumer.consumer import Consumer, Message, OutOfRangeName, PartitionRecords, Start
from penstock.client.consumer.reading import IsolationName, Reading
from penstock.client.errors import Closed
from penstock.client.groups.group_consumer import GroupConsumer
from penstock.client.metadata import Topic, TopicPartition
from penstock.client.producer.producer import Producer

T = TypeVar("T")


class SyncClient:
    """See the module. Accepts the arguments of Client; use it as a context manager."""

    def __init__(
        self,
        bootstrap: Bootstrap | None = None,
        *,
        config: ConfigSource | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(  # determinism: see above
            target=self._loop.run_forever, name="penstock-client", daemon=True
        )
        self._thread.start()
        self._is_closed = False
        self._producers: dict[SyncProducer, None] = {}
        try:
            self._client = self.run(_made(bootstrap, config, options))
        except BaseException:
            self._stop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def admin(self) -> Admin:
        """The admin client: `client.run(client.admin.list_groups())`."""
        return self._client.admin

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine of the asyncio client and returns its result. An interrupt cancels it."""
        future = self.start(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Starts a coroutine without waiting; the future holds its result."""
        if self._is_closed:
            work.close()
            raise Closed("this client was closed")
        return asyncio.run_coroutine_threadsafe(work, self._loop)  # determinism: see above

    def close(self) -> None:
        """Delivers pending records, closes everything, and ends the thread."""
        if self._is_closed:
            return
        with ExitStack() as stack:
            stack.callback(self._stop)
            stack.callback(lambda: self.run(self._client.close()))
            for each in list(self._producers):
                stack.callback(each.close)

    def _stop(self) -> None:
        self._is_closed = True
        self._loop.call_soon_threadsafe(self._loop.stop)  # determinism: see above
        self._thread.join()
        self._loop.close()

    def create_topic(
        self,
        name: str,
        partitions: int = BROKER_DECIDES,
        replication_factor: int = BROKER_DECIDES,
        configs: Mapping[str, str] | None = None,
        *,
        exist_ok: bool = False,
    ) -> CreatedTopic:
        """As Client.create_topic."""
        return self.run(self._client.create_topic(name, partitions, replication_factor, configs, exist_ok=exist_ok))

    def delete_topic(self, name: str) -> None:
        """As Client.delete_topic."""
        self.run(self._client.delete_topic(name))

    def topics(self) -> list[Topic]:
        """As Client.topics."""
        return self.run(self._client.topics())

    def producer(self, **options: Unpack[ProducerOptions]) -> SyncProducer:
        """Opens a producer whose `publish` does not wait; it is closed with the client at the latest."""
        made = self.run(_opened(self._client, options))
        block_ms_max = options.get("block_ms_max")
        producer = SyncProducer(self, made, self._client.cluster.timeout_ms if block_ms_max is None else block_ms_max)
        self._producers[producer] = None
        return producer

    def release_producer(self, producer: SyncProducer, inner: Producer) -> None:
        """Closes the producer behind a blocking one."""
        self._producers.pop(producer, None)
        self.run(self._client.release(inner))

    def publish(
        self,
        topic: str,
        value: Text | None,
        key: Text | None = None,
        *,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Published:
        """As Client.publish."""
        return self.run(
            self._client.publish(topic, value, key, headers=headers, partition=partition, timestamp_ms=timestamp_ms)
        )

    def consume(
        self,
        topic: str | Sequence[str],
        start: Start = "earliest",
        *,
        partitions: Iterable[int] | None = None,
        until_end: bool = False,
        isolation: IsolationName = "read_uncommitted",
        max_batch: int = 500,
        idle_ms_max: int | None = None,
        group: str | None = None,
        instance_id: str | None = None,
        out_of_range: OutOfRangeName = "error",
    ) -> Iterator[Message]:
        """As Client.consume."""
        return self._messages_of(
            Reading(
                topic,
                start,
                partitions,
                until_end,
                isolation,
                max_batch,
                idle_ms_max,
                group,
                instance_id,
                out_of_range,
            )
        )

    def _messages_of(self, reading: Reading) -> Iterator[Message]:
        reader = self.run(self._client.reader(reading))
        with closing(self._pieces_of(reader, reading)) as pieces:
            for piece in pieces:
                yield from self._held(reader, piece) if isinstance(reader, GroupConsumer) else piece.messages()

    def _held(self, member: GroupConsumer, piece: PartitionRecords) -> Iterator[Message]:
        """Yields records while the member owns their partition; on an early exit, all but the last count as read."""
        claim = member.claim(piece.partition)
        next_offset = piece.records[0].offset
        try:
            for message in piece.messages():
                if not member.holds(piece.partition, claim):
                    break
                yield message
                next_offset = message.offset + 1
        except BaseException:
            if not self._is_closed:
                self.run(_done(member, piece.partition, next_offset))
            raise

    def _pieces_of(self, reader: Consumer | GroupConsumer, reading: Reading) -> Generator[PartitionRecords, None, None]:
        try:
            while (piece := self.run(reader.fetch_records(reading.max_batch, reading.idle_ms_max))) is not None:
                yield piece
        finally:
            if not self._is_closed:
                self.run(self._client.release(reader))

    def commit_offset(self, topic: str, group: str, partition: int, offset: int) -> None:
        """As Client.commit_offset."""
        self.run(self._client.commit_offset(topic, group, partition, offset))

    def committed(self, topic: str, group: str) -> dict[int, int]:
        """As Client.committed."""
        return self.run(self._client.committed(topic, group))

    def consume_batches(
        self,
        topic: str | Sequence[str],
        start: Start = "earliest",
        *,
        partitions: Iterable[int] | None = None,
        until_end: bool = False,
        isolation: IsolationName = "read_uncommitted",
        max_batch: int = 500,
        idle_ms_max: int | None = None,
        group: str | None = None,
        instance_id: str | None = None,
        out_of_range: OutOfRangeName = "error",
    ) -> Iterator[PartitionRecords]:
        """As Client.consume_batches."""
        return self._batches_of(
            Reading(
                topic,
                start,
                partitions,
                until_end,
                isolation,
                max_batch,
                idle_ms_max,
                group,
                instance_id,
                out_of_range,
            )
        )

    def _batches_of(self, reading: Reading) -> Iterator[PartitionRecords]:
        yield from self._pieces_of(self.run(self._client.reader(reading)), reading)


async def _made(bootstrap: Bootstrap | None, config: ConfigSource | None, options: ClientOptions) -> AsyncClient:
    return AsyncClient(bootstrap, config=config, **options)


async def _opened(client: AsyncClient, options: ProducerOptions) -> Producer:
    return client.producer(**options)


async def _done(member: GroupConsumer, partition: TopicPartition, offset: int) -> None:
    member.done(partition, offset)
