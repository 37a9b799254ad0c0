"""confluent-kafka, which is librdkafka."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

import confluent_kafka
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)

from penstock.records.rows import Record
from tests.compatibility.rows.row import Message, Producing, Row, TooLarge, TopicSeen
from tests.compatibility.seen import seen_by_librdkafka

TIMEOUT_S = 30.0


class Librdkafka(Row):
    """Set to Java's partitioner; its own hashes keys with CRC-32."""

    name = "confluent-kafka (librdkafka)"

    def version(self) -> str:
        return f"{confluent_kafka.__version__} ({confluent_kafka.libversion()[0]})"

    def create_topic(self, bootstrap: str, topic: str, partitions: int, settings: Mapping[str, str]) -> None:
        wanted = NewTopic(topic, partitions, 1, config=dict(settings))
        admin = _admin(bootstrap)
        admin.create_topics([wanted])[topic].result(TIMEOUT_S)

    def describe_topic(self, bootstrap: str, topic: str) -> TopicSeen:
        admin = _admin(bootstrap)
        partitions = admin.list_topics(topic, TIMEOUT_S).topics[topic].partitions
        (described,) = admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, topic)]).values()
        settings = {name: entry.value or "" for name, entry in described.result(TIMEOUT_S).items()}
        return TopicSeen(len(partitions), settings)

    def alter_topic(self, bootstrap: str, topic: str, settings: Mapping[str, str]) -> None:
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in settings.items()
        ]
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
        admin = _admin(bootstrap)
        (altered,) = admin.incremental_alter_configs([resource]).values()
        altered.result(TIMEOUT_S)

    def add_partitions(self, bootstrap: str, topic: str, total: int) -> None:
        admin = _admin(bootstrap)
        admin.create_partitions([NewPartitions(topic, total)])[topic].result(TIMEOUT_S)

    def delete_topic(self, bootstrap: str, topic: str) -> None:
        admin = _admin(bootstrap)
        admin.delete_topics([topic])[topic].result(TIMEOUT_S)

    def delete_records(self, bootstrap: str, topic: str, partition: int, before: int) -> None:
        place = confluent_kafka.TopicPartition(topic, partition, before)
        admin = _admin(bootstrap)
        admin.delete_records([place])[place].result(TIMEOUT_S)

    def produce(self, bootstrap: str, topic: str, messages: Sequence[Message], how: Producing) -> None:
        producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, **_producer_settings(how)})
        errors: list[Any] = []

        def delivered(error: Any, _message: Any) -> None:
            if error is not None:
                errors.append(error)

        for message in messages:
            more: dict[str, Any] = {}
            if message.partition is not None:
                more["partition"] = message.partition
            if message.timestamp_ms is not None:
                more["timestamp"] = message.timestamp_ms
            if message.headers:
                more["headers"] = list(message.headers)
            producer.produce(topic, message.value, message.key, on_delivery=delivered, **more)
        left = producer.flush(TIMEOUT_S)
        if any(error.code() == confluent_kafka.KafkaError.MSG_SIZE_TOO_LARGE for error in errors):
            raise TooLarge(str(errors[0]))
        assert (left, errors) == (0, [])

    def consume(self, bootstrap: str, topic: str, partition: int, offset: int, count: int) -> Sequence[Record]:
        with _Reader(bootstrap) as reader:
            return reader.read(topic, partition, offset, count)

    def consume_since(
        self, bootstrap: str, topic: str, partition: int, timestamp_ms: int, count: int
    ) -> Sequence[Record]:
        with _Reader(bootstrap) as reader:
            (found,) = reader.consumer.offsets_for_times(
                [confluent_kafka.TopicPartition(topic, partition, timestamp_ms)], TIMEOUT_S
            )
            return reader.read(topic, partition, found.offset, count)


def _admin(bootstrap: str) -> Any:
    """To be held in a variable: futures of a client that was forgotten never end."""
    return AdminClient({"bootstrap.servers": bootstrap})


def _producer_settings(how: Producing) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "compression.type": how.codec.name.lower(),
        "acks": how.acks,
        "enable.idempotence": how.idempotent,
        "max.in.flight.requests.per.connection": how.in_flight_max,
        "partitioner": "murmur2_random",
        # Else all that is sent within 10 ms goes to one partition.
        "sticky.partitioning.linger.ms": 0,
    }
    if how.request_bytes_max is not None:
        settings["message.max.bytes"] = how.request_bytes_max
    if how.batch_bytes is not None:
        settings["batch.size"] = how.batch_bytes
    if how.linger_ms is not None:
        settings["linger.ms"] = how.linger_ms
    return settings


class _Reader:
    """A consumer that is told what to read."""

    def __init__(self, bootstrap: str) -> None:
        self.consumer: Any = confluent_kafka.Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False, "check.crcs": True}
        )

    def __enter__(self) -> "_Reader":
        return self

    def __exit__(self, *_: object) -> None:
        self.consumer.close()

    def read(self, topic: str, partition: int, offset: int, count: int) -> list[Record]:
        self.consumer.assign([confluent_kafka.TopicPartition(topic, partition, offset)])
        deadline = time.monotonic() + TIMEOUT_S
        found: list[Record] = []
        while len(found) < count:
            assert time.monotonic() < deadline, f"{len(found)} of {count} records came"
            found += [seen_by_librdkafka(message).record for message in self.consumer.consume(count, 0.1)]
        return found
