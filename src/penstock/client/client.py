"""`penstock.Client`: a cluster in a few words.

    async with Client("localhost:9092") as client:
        await client.create_topic("orders", partitions=3)
        partition, offset = await client.publish("orders", "key", b"value")
        async for record in client.consume("orders", start="earliest", until_end=True): ...

Text is sent as UTF-8. `admin`, `producer` and `consumer` give the whole set of tools.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import aclosing
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

from penstock.client.admin import BROKER_DECIDES, Admin, CreatedTopic
from penstock.client.cluster import Cluster
from penstock.client.commits import commit_offsets, committed_offsets
from penstock.client.connection import SOFTWARE, Login
from penstock.client.consumer import At, Consumer, Message, PartitionRecords, Start
from penstock.client.coordinator_link import CoordinatorLink
from penstock.client.fetcher import FetchSettings
from penstock.client.group_consumer import GroupConsumer
from penstock.client.login import SaslLogin
from penstock.client.metadata import Topic, TopicPartition
from penstock.client.offsets import Isolation
from penstock.client.ports import ClientPorts, host_ports
from penstock.client.producer import Producer
from penstock.client.sasl import Mechanism

if TYPE_CHECKING:
    from ssl import SSLContext

    from penstock.client.blocking import SyncClient

__all__ = ["At", "Client", "Published"]

Text = bytes | str
Headers = Mapping[str, Text | None] | Sequence[tuple[str, Text | None]]
IsolationName = Literal["read_uncommitted", "read_committed"]


class Published(NamedTuple):
    """Where a record is."""

    partition: int
    offset: int


class Credentials(NamedTuple):
    """For a login by SASL."""

    mechanism: Mechanism
    username: str
    password: str


class Client:
    """See the module. `bootstrap` defaults to PENSTOCK_BOOTSTRAP, `.penstock/endpoint` or localhost:9092.

    `tls` encrypts, and says whom to trust; `producer` holds keyword arguments for the Producer behind `publish`. Use it
    as a context manager, inside a loop.
    """

    def __init__(
        self,
        bootstrap: str | Sequence[str] | None = None,
        *,
        client_id: str | None = SOFTWARE,
        sasl: Credentials | tuple[Mechanism, str, str] | None = None,
        tls: "SSLContext | None" = None,
        ports: ClientPorts | None = None,
        timeout_ms: int = 60_000,
        connect_timeout_ms: int = 10_000,
        request_timeout_ms: int = 30_000,
        producer: Mapping[str, Any] | None = None,
    ) -> None:
        self._owns_ports = ports is None
        if tls is not None and ports is not None:
            raise ValueError("ports bring their own network: encrypt there, or leave them out")
        self._ports = host_ports(tls) if ports is None else ports
        login: Login | None = None if sasl is None else SaslLogin(*sasl, self._ports.entropy)
        self.cluster = Cluster(
            bootstrap,
            ports=self._ports,
            client_id=client_id,
            login=login,
            timeout_ms=timeout_ms,
            connect_timeout_ms=connect_timeout_ms,
            request_timeout_ms=request_timeout_ms,
        )
        self.admin = Admin(self.cluster)
        self._producer_options = dict(producer or {})
        self._producer: Producer | None = None
        self._opened: dict[Producer | Consumer | GroupConsumer, None] = {}

    @staticmethod
    def blocking(bootstrap: str | Sequence[str] | None = None, **options: Any) -> "SyncClient":
        """The same for programs without a loop."""
        from penstock.client.blocking import SyncClient

        return SyncClient(bootstrap, **options)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Delivers what was sent, and closes everything that was opened through this client."""
        try:
            for each in list(self._opened):
                await each.close()
        finally:
            self._opened.clear()
            await self.cluster.close()
            if self._owns_ports:
                self._ports.close()

    # --- topics

    async def create_topic(
        self,
        name: str,
        partitions: int = BROKER_DECIDES,
        replication_factor: int = BROKER_DECIDES,
        configs: Mapping[str, str] | None = None,
    ) -> CreatedTopic:
        """Makes a topic that can be used at once."""
        return await self.admin.create_topic(name, partitions, replication_factor, configs)

    async def delete_topic(self, name: str) -> None:
        """Removes a topic and all that is in it."""
        await self.admin.delete_topic(name)

    async def topics(self) -> list[Topic]:
        """All topics but internal ones."""
        return await self.admin.list_topics()

    # --- records

    def producer(self, **options: Any) -> Producer:
        """A producer of its own; closed with the client at the latest."""
        made = Producer(self.cluster, **options)
        self._opened[made] = None
        return made

    def consumer(self, settings: FetchSettings | None = None, **options: Any) -> Consumer:
        """A consumer of its own; closed with the client at the latest."""
        made = Consumer(self.cluster, settings, **options)
        self._opened[made] = None
        return made

    def group_consumer(self, group: str, *topics: str, **options: Any) -> GroupConsumer:
        """A member of a group, with `fetch_records` and `commit`; closed with the client at the latest."""
        made = GroupConsumer(self.cluster, group, topics, **options)
        self._opened[made] = None
        return made

    async def publish(
        self,
        topic: str,
        key: Text | None,
        value: Text | None,
        *,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Published:
        """Sends a record and waits until all in-sync replicas have it."""
        if self._producer is None:
            self._producer = self.producer(**self._producer_options)
        pairs = headers.items() if isinstance(headers, Mapping) else headers
        delivery = await self._producer.publish(
            topic,
            _encoded(value),
            key=_encoded(key),
            headers=[(name, _encoded(data)) for name, data in pairs],
            partition=partition,
            timestamp_ms=timestamp_ms,
        )
        return Published(delivery.partition, delivery.offset)

    async def consume(
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
    ) -> AsyncIterator[Message]:
        """Records one by one: for ever, or `until_end` of what is there now, or until none came for `idle_ms_max`.

        In a `group`, partitions are shared with its other members, and each goes on where the group is; `start` is for
        those of which nothing is committed. A record is read when the next is asked for, and committed soon after;
        `instance_id` keeps the place of a process that is restarted.
        """
        if group is not None:
            check_group_options(partitions, until_end=until_end)
            member = self.member(topic, group, start, instance_id, isolation)
            async with aclosing(self._batches_of(member, max_batch, idle_ms_max)) as found:
                async for piece in found:
                    for message in member.messages(piece):
                        yield message
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
        async for piece in pieces:
            for message in piece.messages():
                yield message

    async def consume_batches(
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
    ) -> AsyncIterator[PartitionRecords]:
        """As `consume`, but up to `max_batch` records of one partition at a time."""
        if group is not None:
            check_group_options(partitions, until_end=until_end)
            member = self.member(topic, group, start, instance_id, isolation)
            async with aclosing(self._batches_of(member, max_batch, idle_ms_max)) as found:
                async for each in found:
                    yield each
            return
        consumer = self.consumer(FetchSettings(isolation=Isolation[isolation.upper()]))
        try:
            if partitions is None:
                await consumer.assign_topic(topic, start, until_end=until_end)
            else:
                starts = {TopicPartition(topic, each): start for each in partitions}
                await consumer.assign(starts, until_end=until_end)
            while (piece := await consumer.fetch_records(max_batch, idle_ms_max)) is not None:
                yield piece
        finally:
            self._opened.pop(consumer, None)
            await consumer.close()

    def member(
        self, topic: str, group: str, start: Start, instance_id: str | None, isolation: IsolationName
    ) -> GroupConsumer:
        """A member as `consume` makes it."""
        fetching = FetchSettings(isolation=Isolation[isolation.upper()])
        return self.group_consumer(group, topic, start=start, instance_id=instance_id, fetching=fetching)

    async def _batches_of(
        self, member: GroupConsumer, max_batch: int, idle_ms_max: int | None
    ) -> AsyncGenerator[PartitionRecords, None]:
        try:
            while (piece := await member.fetch_records(max_batch, idle_ms_max)) is not None:
                yield piece
        finally:
            await self.release(member)

    async def release(self, member: GroupConsumer) -> None:
        """Closes a member: what it has read is committed, and it leaves."""
        self._opened.pop(member, None)
        await member.close()

    # --- groups

    async def commit_offset(self, topic: str, group: str, partition: int, offset: int) -> None:
        """Lets a group that nobody is in go on at an offset."""
        await commit_offsets(CoordinatorLink(self.cluster, group), {TopicPartition(topic, partition): offset})

    async def committed(self, topic: str, group: str) -> dict[int, int]:
        """Where a group goes on, by partition; those of which nothing is committed are not in it."""
        known = await self.cluster.topic(topic)
        wanted = [TopicPartition(topic, each.index) for each in known.partitions]
        found = await committed_offsets(CoordinatorLink(self.cluster, group), wanted)
        return {each.partition: offset for each, offset in found.items()}


def check_group_options(partitions: Iterable[int] | None, *, until_end: bool) -> None:
    """What makes no sense in a group."""
    if partitions is not None:
        raise ValueError("a group shares out partitions by itself: leave out either group or partitions")
    if until_end:
        raise ValueError("a member of a group has no end of its own: use idle_ms_max, or leave the loop")


def _encoded(text: Text | None) -> bytes | None:
    return text.encode() if isinstance(text, str) else text
