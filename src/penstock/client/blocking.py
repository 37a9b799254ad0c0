"""The client for programs without a loop: the same methods, waiting; the loop runs in a thread of its own.

Only on a host: there are no threads in a simulation. Safe to use from several threads.
"""

import asyncio
import threading  # determinism: a blocking client never runs in a simulation
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future  # determinism: see above
from types import TracebackType
from typing import Any, Self, TypeVar

from penstock.client.admin import BROKER_DECIDES, Admin, CreatedTopic
from penstock.client.client import Client, Headers, IsolationName, Published, Text, check_group_options
from penstock.client.consumer import Message, PartitionRecords, Start
from penstock.client.errors import Closed
from penstock.client.group_consumer import GroupConsumer
from penstock.client.metadata import Topic, TopicPartition

T = TypeVar("T")


class SyncClient:
    """See the module. Takes what Client takes; use it as a context manager."""

    def __init__(self, bootstrap: str | Sequence[str] | None = None, **options: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(  # determinism: see above
            target=self._loop.run_forever, name="penstock-client", daemon=True
        )
        self._thread.start()
        self._is_closed = False
        try:
            self._client = self.run(_made(bootstrap, options))
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
        """The operator's tools: `client.run(client.admin.list_groups())`."""
        return self._client.admin

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Waits for anything that the asyncio client can do. An interrupt cancels it."""
        future = self.start(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """The same without waiting: the future knows what came of it."""
        if self._is_closed:
            work.close()
            raise Closed("this client was closed")
        return asyncio.run_coroutine_threadsafe(work, self._loop)  # determinism: see above

    def close(self) -> None:
        """Delivers what was sent, closes everything, and ends the thread."""
        if not self._is_closed:
            try:
                self.run(self._client.close())
            finally:
                self._stop()

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
    ) -> CreatedTopic:
        """As Client.create_topic."""
        return self.run(self._client.create_topic(name, partitions, replication_factor, configs))

    def delete_topic(self, name: str) -> None:
        """As Client.delete_topic."""
        self.run(self._client.delete_topic(name))

    def topics(self) -> list[Topic]:
        """As Client.topics."""
        return self.run(self._client.topics())

    def publish(
        self,
        topic: str,
        key: Text | None,
        value: Text | None,
        *,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Published:
        """As Client.publish."""
        return self.run(
            self._client.publish(topic, key, value, headers=headers, partition=partition, timestamp_ms=timestamp_ms)
        )

    def consume(
        self,
        topic: str,
        start: Start = "earliest",
        *,
        partitions: Iterable[int] | None = None,
        until_end: bool = False,
        isolation: IsolationName = "read_uncommitted",
        max_batch: int = 500,
        idle_ms_max: int | None = None,
        group: str | None = None,
        instance_id: str | None = None,
    ) -> Iterator[Message]:
        """As Client.consume."""
        if group is not None:
            check_group_options(partitions, until_end=until_end)
            member = self.run(_member(self._client, topic, group, start, instance_id, isolation))
            yield from self._messages_of(member, max_batch, idle_ms_max)
            return
        pieces = self.consume_batches(
            topic,
            start,
            partitions=partitions,
            until_end=until_end,
            isolation=isolation,
            max_batch=max_batch,
            idle_ms_max=idle_ms_max,
        )
        for piece in pieces:
            yield from piece.messages()

    def _messages_of(self, member: GroupConsumer, max_batch: int, idle_ms_max: int | None) -> Iterator[Message]:
        try:
            while (piece := self.run(member.fetch_records(max_batch, idle_ms_max))) is not None:
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
        finally:
            if not self._is_closed:
                self.run(self._client.release(member))

    def commit_offset(self, topic: str, group: str, partition: int, offset: int) -> None:
        """As Client.commit_offset."""
        self.run(self._client.commit_offset(topic, group, partition, offset))

    def committed(self, topic: str, group: str) -> dict[int, int]:
        """As Client.committed."""
        return self.run(self._client.committed(topic, group))

    def consume_batches(
        self,
        topic: str,
        start: Start = "earliest",
        *,
        partitions: Iterable[int] | None = None,
        until_end: bool = False,
        isolation: IsolationName = "read_uncommitted",
        max_batch: int = 500,
        idle_ms_max: int | None = None,
        group: str | None = None,
        instance_id: str | None = None,
    ) -> Iterator[PartitionRecords]:
        """As Client.consume_batches."""
        pieces = self._client.consume_batches(
            topic,
            start,
            partitions=partitions,
            until_end=until_end,
            isolation=isolation,
            max_batch=max_batch,
            idle_ms_max=idle_ms_max,
            group=group,
            instance_id=instance_id,
        )
        try:
            while (piece := self.run(_next(pieces))) is not None:
                yield piece
        finally:
            if not self._is_closed:
                self.run(_closed(pieces))


async def _made(bootstrap: str | Sequence[str] | None, options: dict[str, Any]) -> Client:
    return Client(bootstrap, **options)


async def _member(client: Client, *how: Any) -> GroupConsumer:
    return client.member(*how)


async def _done(member: GroupConsumer, partition: TopicPartition, offset: int) -> None:
    member.done(partition, offset)


async def _next(pieces: AsyncIterator[PartitionRecords]) -> PartitionRecords | None:
    return await anext(pieces, None)


async def _closed(pieces: Any) -> None:
    await pieces.aclose()
