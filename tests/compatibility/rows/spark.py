"""Spark's Kafka connector, which uses another version of Kafka's Java client: batches written and read."""

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import ClassVar

from harness.answerer import Answerer, Failed
from harness.kafka.oracle import binary, text
from harness.spark import spark_session
from penstock.records.rows import Record
from tests.compatibility.rows.row import OF_GROUPS, OF_MEMBERS, Message, Operation, Producing, Row, TooLarge, lacking

NO_ADMIN = "the connector reads and writes topics, it does not administer them"
NO_GROUPS = "Spark keeps offsets in its checkpoints and joins no groups"


class Spark(Row):
    """One session in one process."""

    name = "Spark's Kafka connector"
    lacks: ClassVar[Mapping[Operation, str]] = {
        Operation.CREATE_TOPIC: NO_ADMIN,
        Operation.DESCRIBE_TOPIC: NO_ADMIN,
        Operation.ALTER_TOPIC: NO_ADMIN,
        Operation.ADD_PARTITIONS: NO_ADMIN,
        Operation.DELETE_TOPIC: NO_ADMIN,
        Operation.DELETE_RECORDS: NO_ADMIN,
        **lacking((*OF_MEMBERS, *OF_GROUPS), NO_GROUPS),
    }

    @cached_property
    def _session(self) -> Answerer:
        return spark_session.start()

    def version(self) -> str:
        return str(self._session.ask("version")["version"])

    def produce(self, bootstrap: str, topic: str, messages: Sequence[Message], how: Producing) -> None:
        options = {"kafka.bootstrap.servers": bootstrap, "topic": topic, **_producer_options(how)}
        try:
            self._session.ask("write", messages=[_as_json(message) for message in messages], options=options)
        except Failed as failed:
            if "RecordTooLargeException" in str(failed):
                raise TooLarge(str(failed)) from failed
            raise

    def consume(self, bootstrap: str, topic: str, partition: int, offset: int, count: int) -> Sequence[Record]:
        start = {"startingOffsets": json.dumps({topic: {partition: offset}})}
        return self._read(bootstrap, topic, partition, start)

    def consume_since(
        self, bootstrap: str, topic: str, partition: int, timestamp_ms: int, count: int
    ) -> Sequence[Record]:
        start = {"startingOffsetsByTimestamp": json.dumps({topic: {partition: timestamp_ms}})}
        return self._read(bootstrap, topic, partition, start)

    def _read(self, bootstrap: str, topic: str, partition: int, start: Mapping[str, str]) -> list[Record]:
        options = {
            "kafka.bootstrap.servers": bootstrap,
            "assign": json.dumps({topic: [partition]}),
            "endingOffsets": "latest",
            **start,
        }
        return [
            Record(row["offset"], row["timestamp_ms"], _bytes(row["key"]), _bytes(row["value"]))
            for row in self._session.ask("read", options=options)["records"]
        ]

    def close(self) -> None:
        self._session.close()


def _producer_options(how: Producing) -> dict[str, str]:
    options = {
        "kafka.compression.type": how.codec.name.lower(),
        "kafka.acks": how.acks,
        "kafka.enable.idempotence": str(how.idempotent).lower(),
        "kafka.max.in.flight.requests.per.connection": str(how.in_flight_max),
    }
    if how.request_bytes_max is not None:
        options["kafka.max.request.size"] = str(how.request_bytes_max)
    if how.batch_bytes is not None:
        options["kafka.batch.size"] = str(how.batch_bytes)
    return options


def _as_json(message: Message) -> list[str | None]:
    assert message == Message(message.key, message.value), "the row leaves the rest to the client"
    return [None if field is None else text(field) for field in (message.key, message.value)]


def _bytes(data: str | None) -> bytes | None:
    return None if data is None else binary(data)
