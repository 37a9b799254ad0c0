"""kafka-python."""

import time
import warnings
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from typing import Any, ClassVar

from penstock.records.compression import Codec
from penstock.records.rows import Record
from tests.compatibility.rows.row import (
    AUTO_COMMIT_MS,
    CONSUMER,
    HEARTBEAT_MS,
    POLL_S,
    GroupShown,
    Joining,
    Member,
    Message,
    Operation,
    Place,
    Producing,
    Row,
    TooLarge,
    TopicSeen,
    lacking,
)
from tests.compatibility.seen import seen_in_python

with warnings.catch_warnings():
    # kafka-python reads its schemas in a way that Python 3.11 calls outdated.
    warnings.simplefilter("ignore")
    import kafka
    from kafka.admin import ConfigFilterType, ConfigResource, ConfigResourceType, NewPartitions, NewTopic
    from kafka.errors import MessageSizeTooLargeError

TIMEOUT_S = 30.0


class KafkaPythonMember(Member):
    """A consumer with callbacks for its commits."""

    def __init__(self, how: Joining) -> None:
        self._topic = how.topic
        self._failures: list[Any] = []
        self._consumer: Any = kafka.KafkaConsumer(
            how.topic,
            bootstrap_servers=how.bootstrap,
            group_id=how.group,
            group_instance_id=how.instance_id,
            auto_offset_reset="earliest",
            enable_auto_commit=how.is_auto,
            auto_commit_interval_ms=AUTO_COMMIT_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
        )
        # A member that joins before it has the topic's metadata joins again once it has it; a poll that ends during
        # that rejoin drops it, and the member never reads. kafka-python 3.0.12 does so with Apache Kafka as well.
        self._consumer.partitions_for_topic(how.topic)

    def poll(self) -> Sequence[Place]:
        found = [
            (each.partition, each.offset)
            for batch in self._consumer.poll(int(POLL_S * 1000)).values()
            for each in batch
        ]
        assert not self._failures, self._failures
        return found

    def commit(self) -> None:
        self._consumer.commit()

    def commit_async(self) -> None:
        def committed(_offsets: Any, answer: Any) -> None:
            if isinstance(answer, Exception):
                self._failures.append(answer)

        self._consumer.commit_async(callback=committed)

    def seek(self, partition: int, offset: int) -> None:
        self._consumer.seek(kafka.TopicPartition(self._topic, partition), offset)

    def pause(self, partition: int) -> None:
        self._consumer.pause(kafka.TopicPartition(self._topic, partition))

    def resume(self, partition: int) -> None:
        self._consumer.resume(kafka.TopicPartition(self._topic, partition))

    def leave(self) -> None:
        self._consumer.close()


class KafkaPython(Row):
    """Its idempotent producer has one batch per partition in flight, and all of them in one request."""

    name = "kafka-python"
    pipelines = False
    member = KafkaPythonMember
    lacks: ClassVar[Mapping[Operation, str]] = lacking(CONSUMER, "kafka-python has only the classic protocol")

    # On a busy machine a member that did not restart sometimes joins again; the cause is not known yet.
    seldom: ClassVar[Collection[Operation]] = (Operation.CLASSIC_STATIC,)

    def version(self) -> str:
        return str(kafka.__version__)

    def create_topic(self, bootstrap: str, topic: str, partitions: int, settings: Mapping[str, str]) -> None:
        with _admin(bootstrap) as admin:
            admin.create_topics([NewTopic(topic, partitions, 1, topic_configs=dict(settings))])

    def describe_topic(self, bootstrap: str, topic: str) -> TopicSeen:
        with _admin(bootstrap) as admin:
            (described,) = admin.describe_topics([topic])
            resource = ConfigResource(ConfigResourceType.TOPIC, topic)
            found = admin.describe_configs([resource], config_filter=ConfigFilterType.ALL)
        settings = {name: entry["value"] or "" for name, entry in found["topic"][topic].items()}
        return TopicSeen(len(described["partitions"]), settings)

    def alter_topic(self, bootstrap: str, topic: str, settings: Mapping[str, str]) -> None:
        with _admin(bootstrap) as admin:
            admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, dict(settings))])

    def add_partitions(self, bootstrap: str, topic: str, total: int) -> None:
        with _admin(bootstrap) as admin:
            admin.create_partitions({topic: NewPartitions(total)})

    def delete_topic(self, bootstrap: str, topic: str) -> None:
        with _admin(bootstrap) as admin:
            admin.delete_topics([topic])

    def delete_records(self, bootstrap: str, topic: str, partition: int, before: int) -> None:
        with _admin(bootstrap) as admin:
            admin.delete_records({kafka.TopicPartition(topic, partition): before})

    def produce(self, bootstrap: str, topic: str, messages: Sequence[Message], how: Producing) -> None:
        with closing(kafka.KafkaProducer(bootstrap_servers=bootstrap, **_producer_settings(how))) as producer:
            sent = [
                producer.send(topic, each.value, each.key, list(each.headers), each.partition, each.timestamp_ms)
                for each in messages
            ]
            try:
                for each in sent:
                    each.get(TIMEOUT_S)
            except MessageSizeTooLargeError as error:
                raise TooLarge(str(error)) from error

    def consume(self, bootstrap: str, topic: str, partition: int, offset: int, count: int) -> Sequence[Record]:
        with closing(_consumer(bootstrap)) as consumer:
            return _read(consumer, kafka.TopicPartition(topic, partition), offset, count)

    def consume_since(
        self, bootstrap: str, topic: str, partition: int, timestamp_ms: int, count: int
    ) -> Sequence[Record]:
        place = kafka.TopicPartition(topic, partition)
        with closing(_consumer(bootstrap)) as consumer:
            found = consumer.offsets_for_times({place: timestamp_ms})
            return _read(consumer, place, found[place].offset, count)

    def join(self, how: Joining) -> Member:
        return KafkaPythonMember(how)

    def describe_group(self, bootstrap: str, group: str, topic: str) -> GroupShown:
        with _admin(bootstrap) as admin:
            listed = {each["group_id"] for each in admin.list_groups()}
            described = admin.describe_groups([group])[group]
            offsets = admin.list_group_offsets(group)[group]
        committed = {place.partition: found.offset for place, found in offsets.items() if place.topic == topic}
        return GroupShown(group in listed, str(described["group_state"]), len(described["members"]), committed)

    def reset_group(self, bootstrap: str, group: str, topic: str, partition: int, offset: int) -> None:
        place = kafka.TopicPartition(topic, partition)
        with _admin(bootstrap) as admin:
            (error,) = admin.alter_group_offsets(group, {place: kafka.OffsetAndMetadata(offset, "", -1)}).values()
        assert error.errno == 0, error

    def delete_group_offsets(self, bootstrap: str, group: str, topic: str, partition: int) -> None:
        with _admin(bootstrap) as admin:
            (error,) = admin.delete_group_offsets(group, [kafka.TopicPartition(topic, partition)]).values()
        assert error.errno == 0, error

    def delete_group(self, bootstrap: str, group: str) -> None:
        with _admin(bootstrap) as admin:
            said = admin.delete_groups([group])[group]
        assert said == "OK", said


def _admin(bootstrap: str) -> Any:
    return closing(kafka.KafkaAdminClient(bootstrap_servers=bootstrap))


def _producer_settings(how: Producing) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "compression_type": None if how.codec is Codec.NONE else how.codec.name.lower(),
        "acks": how.acks if how.acks == "all" else int(how.acks),
        "enable_idempotence": how.idempotent,
        "max_in_flight_requests_per_connection": how.in_flight_max,
    }
    if how.request_bytes_max is not None:
        settings["max_request_size"] = how.request_bytes_max
    if how.batch_bytes is not None:
        settings["batch_size"] = how.batch_bytes
    if how.linger_ms is not None:
        settings["linger_ms"] = how.linger_ms
    return settings


def _consumer(bootstrap: str) -> Any:
    return kafka.KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False, check_crcs=True)


def _read(consumer: Any, place: Any, offset: int, count: int) -> list[Record]:
    consumer.assign([place])
    consumer.seek(place, offset)
    deadline = time.monotonic() + TIMEOUT_S
    found: list[Record] = []
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} records came"
        found += [seen_in_python(message).record for message in consumer.poll(100).get(place, ())]
    return found
