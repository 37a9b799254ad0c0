"""confluent-kafka, which is librdkafka."""

import time
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

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
from tests.compatibility.rows.row import (
    AUTO_COMMIT_MS,
    HEARTBEAT_MS,
    POLL_S,
    GroupShown,
    Joining,
    Member,
    Message,
    Operation,
    Place,
    Producing,
    Protocol,
    Row,
    TooLarge,
    TopicSeen,
)
from tests.compatibility.seen import seen_by_librdkafka

TIMEOUT_S = 30.0


class LibrdkafkaMember(Member):
    """A member whose commits and errors are reported through callbacks, while it is polled."""

    def __init__(self, how: Joining) -> None:
        self._topic = how.topic
        self._failures: list[Any] = []
        settings: dict[str, Any] = {
            "bootstrap.servers": how.bootstrap,
            "group.id": how.group,
            "group.protocol": how.protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": how.is_auto,
            "auto.commit.interval.ms": AUTO_COMMIT_MS,
            "on_commit": self._committed,
        }
        if how.protocol == "classic":
            settings["heartbeat.interval.ms"] = HEARTBEAT_MS
        if how.instance_id is not None:
            settings["group.instance.id"] = how.instance_id
        self._consumer: Any = confluent_kafka.Consumer(settings)
        self._consumer.subscribe([how.topic])

    def _committed(self, error: Any, _places: Any) -> None:
        # The callback also reports that there was nothing to commit.
        if error is not None and error.code() != confluent_kafka.KafkaError._NO_OFFSET:
            self._failures.append(error)

    def poll(self) -> Sequence[Place]:
        found = []
        for message in self._consumer.consume(100, POLL_S):
            error = message.error()
            assert error is None or error.retriable(), error
            if error is None:
                found.append((message.partition(), message.offset()))
        assert not self._failures, self._failures
        return found

    def commit(self) -> None:
        self._consumer.commit(asynchronous=False)

    def commit_async(self) -> None:
        self._consumer.commit(asynchronous=True)

    def seek(self, partition: int, offset: int) -> None:
        self._consumer.seek(confluent_kafka.TopicPartition(self._topic, partition, offset))

    def pause(self, partition: int) -> None:
        self._consumer.pause([confluent_kafka.TopicPartition(self._topic, partition)])

    def resume(self, partition: int) -> None:
        self._consumer.resume([confluent_kafka.TopicPartition(self._topic, partition)])

    def leave(self) -> None:
        self._consumer.close()


class Librdkafka(Row):
    """Configured with Java's partitioner; its own hashes keys with CRC-32."""

    name = "confluent-kafka (librdkafka)"
    member = LibrdkafkaMember
    protocols: ClassVar[Sequence[Protocol]] = ("classic", "consumer")
    lacks: ClassVar[Mapping[Operation, str]] = {
        Operation.DELETE_GROUP_OFFSETS: "librdkafka can, but its Python client has no call for it",
    }

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

    def join(self, how: Joining) -> Member:
        return LibrdkafkaMember(how)

    def describe_group(self, bootstrap: str, group: str, topic: str) -> GroupShown:
        admin = _admin(bootstrap)
        listed = admin.list_consumer_groups().result(TIMEOUT_S).valid
        described = admin.describe_consumer_groups([group])[group].result(TIMEOUT_S)
        asked = confluent_kafka.ConsumerGroupTopicPartitions(group)
        offsets = admin.list_consumer_group_offsets([asked])[group].result(TIMEOUT_S).topic_partitions
        return GroupShown(
            group in {each.group_id for each in listed},
            described.state.name,
            len(described.members),
            {each.partition: each.offset for each in offsets if each.topic == topic},
        )

    def reset_group(self, bootstrap: str, group: str, topic: str, partition: int, offset: int) -> None:
        place = confluent_kafka.TopicPartition(topic, partition, offset)
        admin = _admin(bootstrap)
        wanted = confluent_kafka.ConsumerGroupTopicPartitions(group, [place])
        (moved,) = admin.alter_consumer_group_offsets([wanted])[group].result(TIMEOUT_S).topic_partitions
        assert moved.error is None, moved.error

    def delete_group(self, bootstrap: str, group: str) -> None:
        admin = _admin(bootstrap)
        admin.delete_consumer_groups([group])[group].result(TIMEOUT_S)


def _admin(bootstrap: str) -> Any:
    """An admin client; keep it in a variable: the futures of a discarded client never complete."""
    return AdminClient({"bootstrap.servers": bootstrap})


def _producer_settings(how: Producing) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "compression.type": how.codec.name.lower(),
        "acks": how.acks,
        "enable.idempotence": how.idempotent,
        "max.in.flight.requests.per.connection": how.in_flight_max,
        "partitioner": "murmur2_random",
        # Else all messages sent within 10 ms go to one partition.
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
    """A consumer with a manual assignment."""

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
