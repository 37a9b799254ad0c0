"""The clients of `penstock verify`: interfaces of senders, readers and offset listers, and Penstock's own.

A client retries by itself while brokers are down, for as long as it was given.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple, Protocol, TypeAlias

from penstock.cli.connection.connecting import open_client
from penstock.client.bootstrap import FoundCluster
from penstock.client.client import Client
from penstock.client.consumer.fetcher import FetchSettings
from penstock.client.errors import ClientError, DeliveryTimedOut, Refused
from penstock.client.metadata import TopicPartition
from penstock.client.offsets import Moment, list_offsets
from penstock.client.producer.sender import Delivery
from penstock.model.errors import ErrorCode

READ_MAX: Final = 500
"""The maximum number of records of one poll."""
CONNECT_MS: Final = 2_000
REQUEST_MS: Final = 5_000
CALL_MS: Final = 10_000
FETCH_WAIT_MS: Final = 200


@dataclass(frozen=True, slots=True)
class Fate:
    """The outcome of a sent record: it has an offset, or the outcome is unknown, or it was never sent."""

    offset: int | None = None
    error: str | None = None
    is_unsent: bool = False


class Row(NamedTuple):
    """A record that was read."""

    partition: int
    offset: int
    body: bytes


Told: TypeAlias = Callable[[Fate], None]
Ranges: TypeAlias = Mapping[int, tuple[int, int | None]]
"""By partition: the first offset, and the end offset or None for no end."""


class Unreadable(Exception):
    """A reader cannot continue at its position."""

    def __init__(self, reason: str, *, is_gone: bool) -> None:
        super().__init__(reason)
        self.is_gone = is_gone
        """Whether the log does not have the requested offset."""


class Sender(Protocol):
    """Sends records to partitions of one topic."""

    async def send(self, partition: int, body: bytes, told: Told) -> None:
        """Accepts a record; `told` is called once with its outcome, now or later."""

    async def close(self) -> None:
        """Abandons records in flight, and reports their outcomes."""


class Reader(Protocol):
    """Reads partitions of one topic."""

    def assign(self, ranges: Ranges) -> None:
        """Reads these ranges from now on."""

    async def read(self, limit_s: float) -> list[Row]:
        """The next records, none if none arrived in time; or raises Unreadable."""

    def position(self, partition: int) -> int:
        """Everything before this offset was read."""

    async def close(self) -> None:
        """Closes the client."""


class Lister(Protocol):
    """Lists the log start and end offsets of partitions of one topic."""

    async def offsets(self, partitions: Sequence[int], moment: Moment, timeout_ms: int) -> dict[int, int]:
        """The offsets by partition; or raises ClientError."""

    async def close(self) -> None:
        """Closes the client."""


class Clients(Protocol):
    """Creates senders and readers."""

    name: str
    """The name and version of the client."""

    def sender(self, name: str) -> Sender:
        """A producer of its own."""

    def reader(self, name: str) -> Reader:
        """A consumer of its own, without a group."""


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """The settings that all clients of a run share."""

    cluster: FoundCluster
    topic: str
    acks: int
    """-1 for all; then producers are idempotent."""
    patience_s: float
    """How long a client retries before it gives up."""


def connect(cluster: FoundCluster, name: str) -> Client:
    """A client with short timeouts: it soon tries another broker if one does not answer."""
    return open_client(
        cluster,
        client_id=f"penstock-verify-{name}",
        timeout_ms=CALL_MS,
        connect_timeout_ms=CONNECT_MS,
        request_timeout_ms=REQUEST_MS,
    )


class PenstockClients:
    """`penstock.Client`."""

    def __init__(self, settings: ClientSettings) -> None:
        from penstock.version import __version__

        self.name = f"penstock {__version__}"
        self._settings = settings

    def sender(self, name: str) -> Sender:
        """A producer of its own."""
        return PenstockSender(self._settings, name)

    def reader(self, name: str) -> Reader:
        """A consumer of its own."""
        return PenstockReader(self._settings, name)


class PenstockSender:
    """See the module."""

    def __init__(self, settings: ClientSettings, name: str) -> None:
        self._topic = settings.topic
        self._client = connect(settings.cluster, name)
        self._producer = self._client.producer(
            acks="all" if settings.acks < 0 else settings.acks,
            linger_ms=2,
            delivery_timeout_ms=int(settings.patience_s * 1000),
            block_ms_max=REQUEST_MS,
            creates_topics=False,
        )

    async def send(self, partition: int, body: bytes, told: Told) -> None:
        """Accepts a record."""
        try:
            delivery = await self._producer.send(self._topic, body, partition=partition)
        except ClientError as error:
            told(Fate(error=str(error), is_unsent=True))
            return
        delivery.add_done_callback(partial(_tell, told))

    async def close(self) -> None:
        """Abandons records in flight."""
        with contextlib.suppress(ClientError):
            await self._producer.close(timeout_ms=0)
        await self._client.close()


def _tell(told: Told, delivery: "asyncio.Future[Delivery]") -> None:
    if delivery.cancelled():
        told(Fate(error="cancelled"))
        return
    error = delivery.exception()
    if error is None:
        offset = delivery.result().offset
        told(Fate(offset if offset >= 0 else None))
    else:
        told(Fate(error=str(error), is_unsent=isinstance(error, DeliveryTimedOut) and error.is_unsent))


class PenstockReader:
    """See the module."""

    def __init__(self, settings: ClientSettings, name: str) -> None:
        self._topic = settings.topic
        self._client = connect(settings.cluster, name)
        fetch_settings = FetchSettings(wait_ms_max=FETCH_WAIT_MS, patience_ms=int(settings.patience_s * 1000))
        self._consumer = self._client.consumer(fetch_settings)

    def assign(self, ranges: Ranges) -> None:
        """Reads these ranges from now on."""
        self._consumer.assign_ranges({TopicPartition(self._topic, each): range_ for each, range_ in ranges.items()})

    async def read(self, limit_s: float) -> list[Row]:
        """The next records of one partition."""
        try:
            found = await self._consumer.fetch_records(READ_MAX, int(limit_s * 1000))
        except ClientError as error:
            is_gone = isinstance(error, Refused) and error.code is ErrorCode.OFFSET_OUT_OF_RANGE
            raise Unreadable(str(error), is_gone=is_gone) from error
        if found is None:
            return []
        partition = found.partition.partition
        return [Row(partition, record.offset, bytes(record.value or b"")) for record in found.records]

    def position(self, partition: int) -> int:
        """Everything before this offset was read."""
        return self._consumer.position(TopicPartition(self._topic, partition))

    async def close(self) -> None:
        """Closes the client."""
        await self._client.close()


class PenstockLister:
    """See the module. It lists offsets whichever client drives the load."""

    def __init__(self, cluster: FoundCluster, topic: str) -> None:
        self._topic = topic
        self._client = connect(cluster, "lister")

    async def offsets(self, partitions: Sequence[int], moment: Moment, timeout_ms: int) -> dict[int, int]:
        """The offsets by partition."""
        moments = {TopicPartition(self._topic, each): moment for each in partitions}
        found = await list_offsets(self._client.cluster, moments, timeout_ms=timeout_ms)
        return {each.partition: at.offset for each, at in found.items()}

    async def close(self) -> None:
        """Closes the client."""
        await self._client.close()
