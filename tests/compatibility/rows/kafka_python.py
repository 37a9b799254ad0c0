"""kafka-python."""

import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

from penstock.records.compression import Codec
from penstock.records.rows import Record
from tests.compatibility.rows.row import Message, Producing, Row, TooLarge, TopicSeen
from tests.compatibility.seen import seen_in_python

with warnings.catch_warnings():
    # kafka-python reads its schemas in a way that Python 3.11 calls outdated.
    warnings.simplefilter("ignore")
    import kafka
    from kafka.admin import ConfigFilterType, ConfigResource, ConfigResourceType, NewPartitions, NewTopic
    from kafka.errors import MessageSizeTooLargeError

TIMEOUT_S = 30.0


class KafkaPython(Row):
    """Its idempotent producer has one batch per partition under way, and all of them in one request."""

    name = "kafka-python"
    pipelines = False

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
