"""Four clients that other people wrote, behind one face: each writes records to a topic and reads them back.

Readers start at offset 0 of every partition and stop at the ends that they are given. A writer says what its client
refuses to send; everything else it must carry.
"""

import asyncio
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import aiokafka
import confluent_kafka

from penstock.records.compression import Codec
from penstock.records.header import NO_TIMESTAMP, TimestampType
from penstock.records.rows import Record
from tests.compatibility.oracle import Oracle, binary, text

with warnings.catch_warnings():
    # kafka-python reads its schemas in a way that Python 3.11 calls outdated.
    warnings.simplefilter("ignore")
    import kafka

READ_TIMEOUT_S = 30.0
# Long enough for all records of a scene to meet in one batch.
LINGER_MS = 20
BATCH_BYTES = 1_000_000

Ends = Mapping[int, int]
Written = Mapping[int, Sequence[Record]]


class Seen(NamedTuple):
    """A record as a consumer hands it out."""

    record: Record
    timestamp_type: TimestampType


class _Gathered:
    """Records as they come in, until all are there that should be."""

    def __init__(self, ends: Ends) -> None:
        self.partitions: dict[int, list[Seen]] = {partition: [] for partition in ends}
        self._ends = ends
        self._deadline = time.monotonic() + READ_TIMEOUT_S

    def add(self, messages: Iterable[tuple[int, Seen]]) -> None:
        for partition, seen in messages:
            self.partitions[partition].append(seen)

    @property
    def is_complete(self) -> bool:
        found = {partition: seen[-1].record.offset + 1 if seen else 0 for partition, seen in self.partitions.items()}
        if all(found[partition] >= end for partition, end in self._ends.items()):
            return True
        assert time.monotonic() < self._deadline, f"not all records came: {found} of {self._ends}"
        return False


class Stranger(ABC):
    """One client library."""

    name: str

    def accepts(self, record: Record) -> bool:
        """Whether the client's producer can be made to send the record."""
        return record.timestamp_ms >= 0

    @abstractmethod
    def write(self, bootstrap: str, topic: str, codec: Codec, records: Written) -> None:
        """Sends records to the partitions that they are listed under, and waits until they are stored."""

    @abstractmethod
    def read(self, bootstrap: str, topic: str, ends: Ends) -> dict[int, list[Seen]]:
        """All records below the ends."""


class Librdkafka(Stranger):
    """confluent-kafka, which is librdkafka."""

    name = "librdkafka"

    def accepts(self, record: Record) -> bool:
        # To it, a timestamp of 0 is none.
        return record.timestamp_ms > 0

    def write(self, bootstrap: str, topic: str, codec: Codec, records: Written) -> None:
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "compression.type": codec.name.lower(),
                "linger.ms": LINGER_MS,
                "batch.size": BATCH_BYTES,
                # Else a first try that fails, because the topic is young, changes the order.
                "enable.idempotence": True,
            }
        )
        troubles: list[str] = []

        def delivered(error: Any, _message: Any) -> None:
            if error is not None:
                troubles.append(error.str())

        for partition, rows in records.items():
            for row in rows:
                producer.produce(
                    topic,
                    row.value,
                    row.key,
                    partition,
                    on_delivery=delivered,
                    timestamp=row.timestamp_ms,
                    headers=list(row.headers),
                )
        left = producer.flush(READ_TIMEOUT_S)
        assert (left, troubles) == (0, [])

    def read(self, bootstrap: str, topic: str, ends: Ends) -> dict[int, list[Seen]]:
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "unused",
                "enable.auto.commit": False,
                "check.crcs": True,
                "fetch.wait.max.ms": 50,
            }
        )
        try:
            consumer.assign([confluent_kafka.TopicPartition(topic, partition, 0) for partition in ends])
            gathered = _Gathered(ends)
            while not gathered.is_complete:
                messages: list[Any] = consumer.consume(1000, 0.1)
                gathered.add((m.partition(), self.seen(m)) for m in messages)
        finally:
            consumer.close()
        return gathered.partitions

    @staticmethod
    def seen(message: Any) -> Seen:
        assert message.error() is None, message.error()
        kind, timestamp_ms = message.timestamp()
        if kind == confluent_kafka.TIMESTAMP_NOT_AVAILABLE:
            timestamp_ms = NO_TIMESTAMP
        append_time = kind == confluent_kafka.TIMESTAMP_LOG_APPEND_TIME
        headers = tuple(message.headers() or ())
        record = Record(message.offset(), timestamp_ms, message.key(), message.value(), headers)
        return Seen(record, TimestampType(append_time))


class Aiokafka(Stranger):
    """aiokafka."""

    name = "aiokafka"

    def accepts(self, record: Record) -> bool:
        return super().accepts(record) and not record.key is record.value is None

    def write(self, bootstrap: str, topic: str, codec: Codec, records: Written) -> None:
        asyncio.run(self._write(bootstrap, topic, codec, records))

    async def _write(self, bootstrap: str, topic: str, codec: Codec, records: Written) -> None:
        async with aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            compression_type=None if codec is Codec.NONE else codec.name.lower(),
            linger_ms=LINGER_MS,
            max_batch_size=BATCH_BYTES,
        ) as producer:
            sent = [
                await producer.send(topic, row.value, row.key, partition, row.timestamp_ms, list(row.headers))
                for partition, rows in records.items()
                for row in rows
            ]
            await asyncio.gather(*sent)

    def read(self, bootstrap: str, topic: str, ends: Ends) -> dict[int, list[Seen]]:
        return asyncio.run(self._read(bootstrap, topic, ends))

    async def _read(self, bootstrap: str, topic: str, ends: Ends) -> dict[int, list[Seen]]:
        gathered = _Gathered(ends)
        async with aiokafka.AIOKafkaConsumer(
            bootstrap_servers=bootstrap, enable_auto_commit=False, check_crcs=True, fetch_max_wait_ms=50
        ) as consumer:
            partitions = [aiokafka.TopicPartition(topic, partition) for partition in ends]
            consumer.assign(partitions)
            await consumer.seek_to_beginning(*partitions)
            while not gathered.is_complete:
                for messages in (await consumer.getmany(timeout_ms=100)).values():
                    gathered.add((m.partition, seen_in_python(m)) for m in messages)
        return gathered.partitions


class KafkaPython(Stranger):
    """kafka-python."""

    name = "kafka-python"

    def accepts(self, record: Record) -> bool:
        has_null_header = any(value is None for _, value in record.headers)
        return super().accepts(record) and not record.key is record.value is None and not has_null_header

    def write(self, bootstrap: str, topic: str, codec: Codec, records: Written) -> None:
        producer = kafka.KafkaProducer(
            bootstrap_servers=bootstrap,
            compression_type=None if codec is Codec.NONE else codec.name.lower(),
            linger_ms=LINGER_MS,
            batch_size=BATCH_BYTES,
        )
        try:
            sent = [
                producer.send(topic, row.value, row.key, list(row.headers), partition, row.timestamp_ms)
                for partition, rows in records.items()
                for row in rows
            ]
            for each in sent:
                each.get(READ_TIMEOUT_S)
        finally:
            producer.close()

    def read(self, bootstrap: str, topic: str, ends: Ends) -> dict[int, list[Seen]]:
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=bootstrap, enable_auto_commit=False, check_crcs=True, fetch_max_wait_ms=50
        )
        try:
            partitions = [kafka.TopicPartition(topic, partition) for partition in ends]
            consumer.assign(partitions)
            consumer.seek_to_beginning(*partitions)
            gathered = _Gathered(ends)
            while not gathered.is_complete:
                for messages in consumer.poll(100).values():
                    gathered.add((m.partition, seen_in_python(m)) for m in messages)
        finally:
            consumer.close()
        return gathered.partitions


class Java(Stranger):
    """Kafka's own client."""

    name = "java"

    def __init__(self, oracle: Oracle) -> None:
        self._oracle = oracle

    def write(self, bootstrap: str, topic: str, codec: Codec, records: Written) -> None:
        settings = {
            "bootstrap.servers": bootstrap,
            "compression.type": codec.name.lower(),
            "linger.ms": LINGER_MS,
            "batch.size": BATCH_BYTES,
        }
        rows = [as_json(row, partition=partition) for partition, part in records.items() for row in part]
        self._oracle.ask("produce", settings=settings, topic=topic, records=rows)

    def read(self, bootstrap: str, topic: str, ends: Ends) -> dict[int, list[Seen]]:
        settings = {"bootstrap.servers": bootstrap, "check.crcs": "true", "fetch.max.wait.ms": "50"}
        answer = self._oracle.ask("consume", settings=settings, topic=topic, ends=ends)
        return {
            int(partition): [Seen(from_json(row), TimestampType[row["timestamp_type"]]) for row in rows]
            for partition, rows in answer["partitions"].items()
        }


def as_json(record: Record, **more: object) -> dict[str, object]:
    """A record in a question to the oracle."""
    return {
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "key": None if record.key is None else text(record.key),
        "value": None if record.value is None else text(record.value),
        "headers": [[key, None if value is None else text(value)] for key, value in record.headers],
        **more,
    }


def from_json(row: Mapping[str, Any]) -> Record:
    """A record in an answer of the oracle."""
    key, value = (None if row[field] is None else binary(row[field]) for field in ("key", "value"))
    headers = tuple((name, None if content is None else binary(content)) for name, content in row["headers"])
    return Record(row["offset"], row["timestamp"], key, value, headers)


def seen_in_python(message: Any) -> Seen:
    """What both clients in Python hand out."""
    record = Record(message.offset, message.timestamp, message.key, message.value, tuple(message.headers))
    return Seen(record, TimestampType(message.timestamp_type))
