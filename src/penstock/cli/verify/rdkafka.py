"""librdkafka as a client of `penstock verify`, if confluent-kafka is installed. It is polled, and never blocks."""

import asyncio
import time
from functools import partial
from typing import Any, Final

from penstock.cli.errors import Misused
from penstock.cli.verify.clients import READ_MAX, ClientSettings, Fate, Ranges, Reader, Row, Sender, Told, Unreadable

PAUSE_S: Final = 0.01
CALM: Final[dict[str, str | int | float | bool]] = {
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 200,
    "topic.metadata.refresh.interval.ms": 1_000,
    "socket.connection.setup.timeout.ms": 2_000,
    "log_level": 0,
}
"""Short intervals, so that a client soon reconnects to a broker that is back."""


class RdkafkaClients:
    """librdkafka."""

    def __init__(self, settings: ClientSettings) -> None:
        try:
            import confluent_kafka
        except ImportError:
            raise Misused(
                "--client librdkafka needs the package confluent-kafka: `pip install confluent-kafka`"
            ) from None
        if any(name.startswith(("security.", "sasl.", "ssl.")) for name in settings.cluster.properties):
            raise Misused("--client librdkafka takes no login and no TLS yet: leave it out, or use another listener")
        self.name = f"librdkafka {confluent_kafka.libversion()[0]}"
        self._settings = settings
        self._kafka: Any = confluent_kafka

    def sender(self, name: str) -> Sender:
        """A producer of its own."""
        return RdkafkaSender(self._kafka, self._settings, name)

    def reader(self, name: str) -> Reader:
        """A consumer of its own."""
        return RdkafkaReader(self._kafka, self._settings, name)


def _common_config(settings: ClientSettings, name: str) -> dict[str, str | int | float | bool]:
    return {**CALM, "bootstrap.servers": settings.cluster.bootstrap, "client.id": f"penstock-verify-{name}"}


class RdkafkaSender:
    """See the module."""

    def __init__(self, kafka: Any, settings: ClientSettings, name: str) -> None:
        self._topic = settings.topic
        self._error = kafka.KafkaException
        self._producer = kafka.Producer(
            {
                **_common_config(settings, name),
                "acks": settings.acks,
                "enable.idempotence": settings.acks < 0,
                "linger.ms": 2,
                "message.timeout.ms": int(settings.patience_s * 1000),
                "request.timeout.ms": 5_000,
            }
        )
        self._listening = asyncio.get_running_loop().create_task(self._listen())

    async def send(self, partition: int, body: bytes, told: Told) -> None:
        """Accepts a record."""
        try:
            self._producer.produce(self._topic, body, partition=partition, on_delivery=partial(_tell, told))
        except (self._error, BufferError) as error:
            told(Fate(error=str(error), is_unsent=True))

    async def _listen(self) -> None:
        while True:
            self._producer.poll(0)
            await asyncio.sleep(PAUSE_S)

    async def close(self) -> None:
        """Abandons records in flight."""
        self._listening.cancel()
        self._producer.purge()
        self._producer.poll(0)


def _tell(told: Told, error: Any, message: Any) -> None:
    told(Fate(message.offset()) if error is None else Fate(error=str(error)))


class RdkafkaReader:
    """See the module."""

    def __init__(self, kafka: Any, settings: ClientSettings, name: str) -> None:
        self._kafka = kafka
        self._topic = settings.topic
        self._positions: dict[int, int] = {}
        self._ends: dict[int, int | None] = {}
        self._trouble: Unreadable | None = None
        self._consumer = kafka.Consumer(
            {
                **_common_config(settings, name),
                "group.id": "penstock-verify-without-a-group",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "enable.partition.eof": True,
                "check.crcs": True,
                "fetch.wait.max.ms": 200,
                "fetch.error.backoff.ms": 50,
            }
        )

    def assign(self, ranges: Ranges) -> None:
        """Reads these ranges from now on."""
        self._trouble = None
        self._positions = {each: start for each, (start, _) in ranges.items()}
        self._ends = {each: end for each, (_, end) in ranges.items()}
        places = [self._kafka.TopicPartition(self._topic, each, start) for each, (start, _) in ranges.items()]
        self._consumer.assign(places)

    async def read(self, limit_s: float) -> list[Row]:
        """The next records of several partitions."""
        deadline_s = time.monotonic() + limit_s
        while True:
            if self._trouble is not None:
                raise self._trouble
            messages = self._consumer.consume(READ_MAX, 0)
            rows = [row for message in messages if (row := self._row(message)) is not None]
            if messages or time.monotonic() > deadline_s:
                return rows
            await asyncio.sleep(PAUSE_S)

    def _row(self, message: Any) -> Row | None:
        """A record; None for an event, or for a record beyond the end. The next `read` raises errors."""
        error, partition, offset = message.error(), message.partition(), message.offset()
        if error is None:
            self._positions[partition] = offset + 1
            end = self._ends[partition]
            return Row(partition, offset, message.value() or b"") if end is None or offset < end else None
        if error.code() == self._kafka.KafkaError._PARTITION_EOF:
            self._positions[partition] = max(self._positions[partition], offset)
        elif error.code() == self._kafka.KafkaError._AUTO_OFFSET_RESET:
            self._trouble = Unreadable(str(error), is_gone=True)
        elif error.fatal() or not error.retriable():
            self._trouble = Unreadable(str(error), is_gone=False)
        return None

    def position(self, partition: int) -> int:
        """Everything before this offset was read."""
        return self._positions[partition]

    async def close(self) -> None:
        """Closes the consumer."""
        self._consumer.close()
