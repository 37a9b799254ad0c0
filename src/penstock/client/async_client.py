"""The asynchronous client: `penstock.Client` without its blocking counterpart."""

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import aclosing
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self, TypeVar, Unpack

from penstock.client.admin.admin import BROKER_DECIDES, Admin, CreatedTopic
from penstock.client.arguments import check_options, check_value, typed
from penstock.client.bootstrap import find_cluster
from penstock.client.cluster import CALL_TIMEOUT_MS, CONNECT_TIMEOUT_MS, Cluster
from penstock.client.configuration.config import ConfigSource, options_from, read_config
from penstock.client.configuration.options import (
    Bootstrap,
    ConsumerOptions,
    GroupConsumerOptions,
    ProducerOptions,
    Sasl,
)
from penstock.client.connection.connection import SOFTWARE, TIMEOUT_MS, Login
from penstock.client.connection.login import SaslLogin
from penstock.client.consumer.consumer import Consumer, Message, OutOfRangeName, PartitionRecords, Start
from penstock.client.consumer.fetcher import FetchSettings
from penstock.client.consumer.reading import IsolationName, Reading, check_group_name
from penstock.client.contexts import BOOTSTRAP
from penstock.client.groups.commits import commit_offsets, committed_offsets
from penstock.client.groups.coordinator_link import CoordinatorLink
from penstock.client.groups.group_consumer import GroupConsumer
from penstock.client.metadata import Topic, TopicPartition
from penstock.client.ports import ClientPorts, host_ports
from penstock.client.producer.producer import Producer

if TYPE_CHECKING:
    from ssl import SSLContext

T = TypeVar("T")

Text = bytes | str
Headers = Mapping[str, Text | None] | Sequence[tuple[str, Text | None]]


class Published(NamedTuple):
    """Partition and offset of a published record."""

    partition: int
    offset: int


class AsyncClient:
    """See the module. Use the client as a context manager, inside an event loop.

    `bootstrap` defaults to `bootstrap.servers` of the `config`, then to the cluster that `penstock` commands find, with
    the settings of its context (`client.bootstrap`). `config` is a file or a mapping with settings under the names of
    Kafka's Java clients; arguments win over it. The other arguments are those of `ClientOptions`.
    """

    @typed
    def __init__(
        self,
        bootstrap: Bootstrap | None = None,
        *,
        config: ConfigSource | None = None,
        client_id: str | None = None,
        sasl: Sasl | None = None,
        tls: "SSLContext | None" = None,
        ports: ClientPorts | None = None,
        timeout_ms: int | None = None,
        connect_timeout_ms: int | None = None,
        first_contact_ms: int | None = None,
        request_timeout_ms: int | None = None,
        producer: ProducerOptions | None = None,
    ) -> None:
        settings = {} if config is None else read_config(config)
        if bootstrap is None and (bootstrap := settings.get(BOOTSTRAP)) is None:
            found = find_cluster()
            bootstrap, settings = found.bootstrap, {**found.properties, **settings}
        _, options = options_from(settings)
        if tls is None:
            tls = options.get("tls")
        else:
            _check_tls(tls)
        if sasl is None:
            sasl = options.get("sasl")
        if tls is not None and ports is not None:
            raise ValueError("ports bring their own network: encrypt there, or leave them out")
        self._producer_options: ProducerOptions = {**(options.get("producer") or {}), **(producer or {})}
        check_options("Client", "producer", self._producer_options, ProducerOptions)
        connect_ms = _first_of(connect_timeout_ms, options.get("connect_timeout_ms"), CONNECT_TIMEOUT_MS)
        self._owns_ports = ports is None
        self._ports = host_ports(tls) if ports is None else ports
        login: Login | None = None if sasl is None else SaslLogin(*sasl, self._ports.entropy)
        self.cluster = Cluster(
            bootstrap,
            ports=self._ports,
            client_id=_first_of(client_id, options.get("client_id"), SOFTWARE),
            login=login,
            timeout_ms=_first_of(timeout_ms, options.get("timeout_ms"), CALL_TIMEOUT_MS),
            connect_timeout_ms=connect_ms,
            request_timeout_ms=_first_of(request_timeout_ms, options.get("request_timeout_ms"), TIMEOUT_MS),
            first_contact_ms=connect_ms if first_contact_ms is None else first_contact_ms,
        )
        self.admin = Admin(self.cluster)
        self._producer: Producer | None = None
        self._opened: dict[Producer | Consumer | GroupConsumer, None] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Delivers pending records, and closes everything opened through this client."""
        try:
            for each in list(self._opened):
                await each.close()
        finally:
            self._opened.clear()
            await self.cluster.close()
            if self._owns_ports:
                self._ports.close()

    # --- topics

    @typed
    async def create_topic(
        self,
        name: str,
        partitions: int = BROKER_DECIDES,
        replication_factor: int = BROKER_DECIDES,
        configs: Mapping[str, str] | None = None,
        *,
        exist_ok: bool = False,
    ) -> CreatedTopic:
        """Creates a topic and waits until all its partitions have a leader.

        With `exist_ok`, a topic that exists is returned as it is: its replication factor and settings are not compared
        or changed. If `partitions` are given and it has another number of them, that is an error nevertheless.
        """
        return await self.admin.create_topic(name, partitions, replication_factor, configs, exist_ok=exist_ok)

    @typed
    async def delete_topic(self, name: str) -> None:
        """Deletes a topic and its records."""
        await self.admin.delete_topic(name)

    async def topics(self) -> list[Topic]:
        """Lists all topics except internal ones."""
        return await self.admin.list_topics()

    # --- records

    def producer(self, **options: Unpack[ProducerOptions]) -> Producer:
        """Opens a separate producer; it is closed with the client at the latest."""
        made = Producer(self.cluster, **options)
        self._opened[made] = None
        return made

    def consumer(self, settings: FetchSettings | None = None, **options: Unpack[ConsumerOptions]) -> Consumer:
        """Opens a separate consumer; it is closed with the client at the latest."""
        made = Consumer(self.cluster, settings, **options)
        self._opened[made] = None
        return made

    @typed
    def group_consumer(self, group: str, *topics: str, **options: Unpack[GroupConsumerOptions]) -> GroupConsumer:
        """Opens a group member with `fetch_records` and `commit`; it is closed with the client at the latest."""
        made = GroupConsumer(self.cluster, group, topics, **options)
        self._opened[made] = None
        return made

    @typed
    async def publish(
        self,
        topic: str,
        value: Text | None,
        key: Text | None = None,
        *,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Published:
        """Sends a record and waits until all in-sync replicas have it."""
        if self._producer is None:
            self._producer = self.producer(**self._producer_options)
        delivery = await self._producer.publish(
            topic,
            encoded(value),
            encoded(key),
            headers=encoded_headers(headers),
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
        """Yields records without end, or `until_end` of the current logs, or until none arrives for `idle_ms_max`.

        In a `group`, partitions are shared with its other members, and reading resumes at the committed offsets;
        `start` applies to partitions without one. A record counts as read when the next is requested, and is committed
        soon after; `instance_id` makes a static member, which keeps its partitions across a restart. The wait for the
        first partitions is not idle time; it ends with an error if the member is not in the group within the client's
        `timeout_ms`. `out_of_range` selects what to do about an offset that is no longer in the log.
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
        """Like `consume`, but yields up to `max_batch` records of one partition at a time."""
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
        """The consumer behind `consume`, with assigned partitions; a group member joins here or at its first fetch."""
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

    async def release(self, opened: Producer | Consumer | GroupConsumer) -> None:
        """Closes a producer or a consumer; a group member commits the records that were read, and leaves."""
        self._opened.pop(opened, None)
        await opened.close()

    # --- groups

    @typed
    async def commit_offset(self, topic: str, group: str, partition: int, offset: int) -> None:
        """Commits an offset for a group without members."""
        check_group_name(group)
        if offset < 0:
            raise ValueError(f"offsets count from 0: a group cannot go on at {offset}")
        if self.cluster.view.partition(topic, partition) is None:  # the topic may have grown
            self.cluster.distrust(topic)
        known = await self.cluster.topic(topic)
        if self.cluster.view.partition(topic, partition) is None:
            raise ValueError(f"{topic} has partitions 0 to {len(known.partitions) - 1}: there is no {partition}")
        await commit_offsets(CoordinatorLink(self.cluster, group), {TopicPartition(topic, partition): offset})

    @typed
    async def committed(self, topic: str, group: str) -> dict[int, int]:
        """Committed offsets of a group by partition; partitions without one are left out."""
        check_group_name(group)
        known = await self.cluster.topic(topic)
        wanted = [TopicPartition(topic, each.index) for each in known.partitions]
        found = await committed_offsets(CoordinatorLink(self.cluster, group), wanted)
        return {each.partition: offset for each, offset in found.items()}


def encoded(text: Text | None) -> bytes | None:
    """Text as UTF-8; bytes as they are."""
    return text.encode() if isinstance(text, str) else text


def encoded_headers(headers: Headers) -> list[tuple[str, bytes | None]]:
    """Headers as pairs, with values in bytes."""
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return [(name, encoded(data)) for name, data in pairs]


def _first_of(given: T | None, configured: T | None, default: T) -> T:
    if given is not None:
        return given
    return default if configured is None else configured


def _check_tls(tls: object) -> None:
    from ssl import SSLContext

    check_value("Client", "tls", tls, SSLContext)
