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
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from penstock.client.admin import BROKER_DECIDES, Admin, CreatedTopic
from penstock.client.cluster import Cluster
from penstock.client.commits import commit_offsets, committed_offsets
from penstock.client.connection import SOFTWARE, Login
from penstock.client.consumer import At, Consumer, Message, OutOfRangeName, PartitionRecords, Start
from penstock.client.coordinator_link import CoordinatorLink
from penstock.client.fetcher import FetchSettings
from penstock.client.group_consumer import GroupConsumer
from penstock.client.login import SaslLogin
from penstock.client.metadata import Topic, TopicPartition
from penstock.client.ports import ClientPorts, host_ports
from penstock.client.producer import Producer
from penstock.client.reading import IsolationName, Reading, check_group_name
from penstock.client.sasl import Mechanism

if TYPE_CHECKING:
    from ssl import SSLContext

    from penstock.client.blocking import SyncClient

__all__ = ["At", "Client", "Published"]

Text = bytes | str
Headers = Mapping[str, Text | None] | Sequence[tuple[str, Text | None]]


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
    ) -> AsyncIterator[Message]:
        """Records one by one: for ever, or `until_end` of what is there now, or until none came for `idle_ms_max`.

        In a `group`, partitions are shared with its other members, and each goes on where the group is; `start` is for
        those of which nothing is committed. A record is read when the next is asked for, and committed soon after;
        `instance_id` keeps the place of a process that is restarted. The wait for the first partitions is not idle; it
        ends with an error when it takes longer than a call may. `out_of_range` says what to do about an offset that is
        not in the log any more.
        """
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
    ) -> AsyncIterator[PartitionRecords]:
        """As `consume`, but up to `max_batch` records of one partition at a time."""
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

    async def _messages_of(self, reading: Reading) -> AsyncGenerator[Message, None]:
        reader = await self.reader(reading)
        async with aclosing(self._pieces_of(reader, reading)) as pieces:
            async for piece in pieces:
                for message in reader.messages(piece) if isinstance(reader, GroupConsumer) else piece.messages():
                    yield message

    async def _batches_of(self, reading: Reading) -> AsyncGenerator[PartitionRecords, None]:
        async with aclosing(self._pieces_of(await self.reader(reading), reading)) as pieces:
            async for piece in pieces:
                yield piece

    async def _pieces_of(
        self, reader: Consumer | GroupConsumer, reading: Reading
    ) -> AsyncGenerator[PartitionRecords, None]:
        try:
            while (piece := await reader.fetch_records(reading.max_batch, reading.idle_ms_max)) is not None:
                yield piece
        finally:
            await self.release(reader)

    async def reader(self, reading: Reading) -> Consumer | GroupConsumer:
        """Whoever reads for `consume`: it knows where to begin, or is about to be told by its group."""
        reader = self._reader(reading)
        try:
            if isinstance(reader, Consumer):
                await reader.assign(await self._starts(reading), until_end=reading.until_end)
            elif reading.idle_ms_max is not None:
                await reader.join()
        except BaseException:
            await self.release(reader)
            raise
        return reader

    def _reader(self, reading: Reading) -> Consumer | GroupConsumer:
        if reading.group is None:
            return self.consumer(reading.fetching, out_of_range=reading.out_of_range)
        return self.group_consumer(
            reading.group,
            *reading.topics,
            start=reading.start,
            instance_id=reading.instance_id,
            out_of_range=reading.out_of_range,
            fetching=reading.fetching,
        )

    async def _starts(self, reading: Reading) -> dict[TopicPartition, Start]:
        found: dict[TopicPartition, Start] = {}
        for topic in reading.topics:
            numbers = reading.partitions
            if numbers is None:
                numbers = [each.index for each in (await self.cluster.topic(topic)).partitions]
            found |= {TopicPartition(topic, number): reading.start for number in numbers}
        return found

    async def release(self, reader: Consumer | GroupConsumer) -> None:
        """Closes a reader; what a member of a group has read is committed, and it leaves."""
        self._opened.pop(reader, None)
        await reader.close()

    # --- groups

    async def commit_offset(self, topic: str, group: str, partition: int, offset: int) -> None:
        """Lets a group that nobody is in go on at an offset."""
        check_group_name(group)
        if offset < 0:
            raise ValueError(f"offsets count from 0: a group cannot go on at {offset}")
        if self.cluster.view.partition(topic, partition) is None:  # the topic may have grown
            self.cluster.distrust(topic)
        known = await self.cluster.topic(topic)
        if self.cluster.view.partition(topic, partition) is None:
            raise ValueError(f"{topic} has partitions 0 to {len(known.partitions) - 1}: there is no {partition}")
        await commit_offsets(CoordinatorLink(self.cluster, group), {TopicPartition(topic, partition): offset})

    async def committed(self, topic: str, group: str) -> dict[int, int]:
        """Where a group goes on, by partition; those of which nothing is committed are not in it."""
        check_group_name(group)
        known = await self.cluster.topic(topic)
        wanted = [TopicPartition(topic, each.index) for each in known.partitions]
        found = await committed_offsets(CoordinatorLink(self.cluster, group), wanted)
        return {each.partition: offset for each, offset in found.items()}


def _encoded(text: Text | None) -> bytes | None:
    return text.encode() if isinstance(text, str) else text
