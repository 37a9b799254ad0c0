"""Four independent client libraries behind one interface: each writes records to a topic and reads them back.

Readers start at offset 0 of every partition and stop at the given ends. A writer reports which records its client
refuses to send; it must carry all others.
"""

import asyncio
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import aiokafka
import confluent_kafka

from harness.kafka.oracle import Oracle, from_json
from penstock.records.compression import Codec
from penstock.records.header import TimestampType
from penstock.records.rows import Record
from tests.compatibility.rows import aiokafka as aiokafka_row
from tests.compatibility.rows import java, kafka_python, librdkafka
from tests.compatibility.rows.row import Message, Producing, Row
from tests.compatibility.seen import Seen, seen_by_librdkafka, seen_in_python

with warnings.catch_warnings():
    # kafka-python reads its schemas in a way that Python 3.11 calls outdated.
    warnings.simplefilter("ignore")
    import kafka

READ_TIMEOUT_S = 30.0
# Long enough for all records of a scene to fit into one batch.
LINGER_MS = 20
BATCH_BYTES = 1_000_000

Ends = Mapping[int, int]
Written = Mapping[int, Sequence[Record]]


class _Gathered:
    """Records received so far, until all expected ones are there."""

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


class PeerClient(ABC):
    """One client library."""

    name: str

    def __init__(self, row: Row) -> None:
        self._row = row

    def accepts(self, record: Record) -> bool:
        """Whether the client's producer can be made to send the record."""
        return record.timestamp_ms >= 0

    def write(self, bootstrap: str, topic: str, codec: Codec, records: Written) -> None:
        """Sends records to the partitions that they are listed under, and waits until they are stored."""
        messages = [
            Message(each.key, each.value, partition, each.timestamp_ms, tuple(each.headers))
            for partition, part in records.items()
            for each in part
        ]
        # Idempotent, else a failed first try, because the topic is new, would change the order.
        how = Producing(codec, idempotent=True, batch_bytes=BATCH_BYTES, linger_ms=LINGER_MS)
        self._row.produce(bootstrap, topic, messages, how)

    @abstractmethod
    def read(self, bootstrap: str, topic: str, ends: Ends) -> dict[int, list[Seen]]:
        """All records below the ends."""


class Librdkafka(PeerClient):
    """confluent-kafka, which is librdkafka."""

    name = "librdkafka"

    def __init__(self) -> None:
        super().__init__(librdkafka.Librdkafka())

    def accepts(self, record: Record) -> bool:
        # It treats a timestamp of 0 as none.
        return record.timestamp_ms > 0

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
                gathered.add((m.partition(), seen_by_librdkafka(m)) for m in messages)
        finally:
            consumer.close()
        return gathered.partitions


class Aiokafka(PeerClient):
    """aiokafka."""

    name = "aiokafka"

    def __init__(self) -> None:
        super().__init__(aiokafka_row.Aiokafka())

    def accepts(self, record: Record) -> bool:
        return super().accepts(record) and not record.key is record.value is None

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


class KafkaPython(PeerClient):
    """kafka-python."""

    name = "kafka-python"

    def __init__(self) -> None:
        super().__init__(kafka_python.KafkaPython())

    def accepts(self, record: Record) -> bool:
        has_null_header = any(value is None for _, value in record.headers)
        return super().accepts(record) and not record.key is record.value is None and not has_null_header

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


class Java(PeerClient):
    """Kafka's own client."""

    name = "java"

    def __init__(self, oracle: Oracle) -> None:
        super().__init__(java.Java(oracle))
        self._oracle = oracle

    def read(self, bootstrap: str, topic: str, ends: Ends) -> dict[int, list[Seen]]:
        settings = {"bootstrap.servers": bootstrap, "check.crcs": "true", "fetch.max.wait.ms": "50"}
        answer = self._oracle.ask("consume", settings=settings, topic=topic, ends=ends)
        return {
            int(partition): [Seen(from_json(row), TimestampType[row["timestamp_type"]]) for row in rows]
            for partition, rows in answer["partitions"].items()
        }
