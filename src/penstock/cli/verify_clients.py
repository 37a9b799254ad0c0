"""What `penstock verify` needs of a client, and Penstock's own: one that sends, one that reads, one that lists offsets.

What a client cannot do now because brokers are down it tries again by itself, for as long as it was given.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple, Protocol, TypeAlias

from penstock.client.client import Client
from penstock.client.errors import ClientError, DeliveryTimedOut, Refused
from penstock.client.fetcher import FetchSettings
from penstock.client.metadata import TopicPartition
from penstock.client.offsets import Moment, list_offsets
from penstock.client.sender import Delivery
from penstock.model.errors import ErrorCode

READ_MAX: Final = 500
"""Records of one poll."""
CONNECT_MS: Final = 2_000
REQUEST_MS: Final = 5_000
CALL_MS: Final = 10_000
FETCH_WAIT_MS: Final = 200


@dataclass(frozen=True, slots=True)
class Fate:
    """What became of a record: it has an offset, or nobody knows, or it never left."""

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
"""By partition: from which offset, up to which one or for ever."""


class Unreadable(Exception):
    """A reader cannot go on where it is."""

    def __init__(self, reason: str, *, is_gone: bool) -> None:
        super().__init__(reason)
        self.is_gone = is_gone
        """Whether the log does not have the offset that was asked for."""


class Sender(Protocol):
    """Sends records to partitions of one topic."""

    async def send(self, partition: int, body: bytes, told: Told) -> None:
        """Takes a record in; `told` hears of its fate once, now or later."""

    async def close(self) -> None:
        """Gives up what is under way; those who wait are told."""


class Reader(Protocol):
    """Reads partitions of one topic."""

    def assign(self, ranges: Ranges) -> None:
        """Reads these from now on."""

    async def read(self, limit_s: float) -> list[Row]:
        """The next records, none if none came in time; or Unreadable."""

    def position(self, partition: int) -> int:
        """Everything before this offset was read."""

    async def close(self) -> None:
        """Ends."""


class Lister(Protocol):
    """Knows where partitions of one topic begin and end."""

    async def offsets(self, partitions: Sequence[int], moment: Moment, timeout_ms: int) -> dict[int, int]:
        """By partition; or ClientError."""

    async def close(self) -> None:
        """Ends."""


class Clients(Protocol):
    """Makes them."""

    name: str
    """Of the client, with its version."""

    def sender(self, name: str) -> Sender:
        """A producer of its own."""

    def reader(self, name: str) -> Reader:
        """A consumer of its own, without a group."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What all clients of a run have in common."""

    bootstrap: str
    topic: str
    acks: int
    """-1 for all; then producers are idempotent."""
    patience_s: float
    """How long a client tries before it gives up."""


def connect(bootstrap: str | None, name: str) -> Client:
    """A client that soon asks somebody else when a broker does not answer."""
    return Client(
        bootstrap,
        client_id=f"penstock-verify-{name}",
        timeout_ms=CALL_MS,
        connect_timeout_ms=CONNECT_MS,
        request_timeout_ms=REQUEST_MS,
    )


class PenstockClients:
    """`penstock.Client`."""

    def __init__(self, wanted: Wanted) -> None:
        from penstock import __version__

        self.name = f"penstock {__version__}"
        self._wanted = wanted

    def sender(self, name: str) -> Sender:
        """A producer of its own."""
        return PenstockSender(self._wanted, name)

    def reader(self, name: str) -> Reader:
        """A consumer of its own."""
        return PenstockReader(self._wanted, name)


class PenstockSender:
    """See the module."""

    def __init__(self, wanted: Wanted, name: str) -> None:
        self._topic = wanted.topic
        self._client = connect(wanted.bootstrap, name)
        self._producer = self._client.producer(
            acks="all" if wanted.acks < 0 else wanted.acks,
            linger_ms=2,
            delivery_timeout_ms=int(wanted.patience_s * 1000),
            block_ms_max=REQUEST_MS,
            creates_topics=False,
        )

    async def send(self, partition: int, body: bytes, told: Told) -> None:
        """Takes a record in."""
        try:
            delivery = await self._producer.send(self._topic, body, partition=partition)
        except ClientError as error:
            told(Fate(error=str(error), is_unsent=True))
            return
        delivery.add_done_callback(partial(_tell, told))

    async def close(self) -> None:
        """Gives up what is under way."""
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

    def __init__(self, wanted: Wanted, name: str) -> None:
        self._topic = wanted.topic
        self._client = connect(wanted.bootstrap, name)
        settings = FetchSettings(wait_ms_max=FETCH_WAIT_MS, patience_ms=int(wanted.patience_s * 1000))
        self._consumer = self._client.consumer(settings)

    def assign(self, ranges: Ranges) -> None:
        """Reads these from now on."""
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
        """Ends."""
        await self._client.close()


class PenstockLister:
    """See the module. It asks for whichever client drives the load."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._topic = topic
        self._client = connect(bootstrap, "lister")

    async def offsets(self, partitions: Sequence[int], moment: Moment, timeout_ms: int) -> dict[int, int]:
        """By partition."""
        moments = {TopicPartition(self._topic, each): moment for each in partitions}
        found = await list_offsets(self._client.cluster, moments, timeout_ms=timeout_ms)
        return {each.partition: at.offset for each, at in found.items()}

    async def close(self) -> None:
        """Ends."""
        await self._client.close()
