"""Kafka's own client, for Java."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

from harness.kafka.oracle import Json, Oracle, OracleError, as_json, from_json
from penstock.records.rows import Record
from tests.compatibility.rows.row import (
    AUTO_COMMIT_MS,
    HEARTBEAT_MS,
    GroupShown,
    Joining,
    Member,
    Message,
    Place,
    Producing,
    Protocol,
    Row,
    TooLarge,
    TopicSeen,
)


class JavaMember(Member):
    """A consumer on the other side of the pipe, identified by its number."""

    def __init__(self, oracle: Oracle, how: Joining) -> None:
        self._oracle = oracle
        settings: dict[str, object] = {
            "bootstrap.servers": how.bootstrap,
            "group.id": how.group,
            "group.protocol": how.protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": how.is_auto,
            "auto.commit.interval.ms": AUTO_COMMIT_MS,
        }
        if how.protocol == "classic":
            settings["heartbeat.interval.ms"] = HEARTBEAT_MS
        if how.instance_id is not None:
            settings["group.instance.id"] = how.instance_id
        self._number = oracle.ask("member_join", settings=settings, topic=how.topic)["member"]

    def _ask(self, command: str, **question: object) -> Json:
        return self._oracle.ask(command, member=self._number, **question)

    def poll(self) -> Sequence[Place]:
        return [(partition, offset) for partition, offset in self._ask("member_poll")["places"]]

    def commit(self) -> None:
        self._ask("member_commit")

    def commit_async(self) -> None:
        self._ask("member_commit_async")

    def seek(self, partition: int, offset: int) -> None:
        self._ask("member_seek", partition=partition, offset=offset)

    def pause(self, partition: int) -> None:
        self._ask("member_pause", partition=partition)

    def resume(self, partition: int) -> None:
        self._ask("member_resume", partition=partition)

    def leave(self) -> None:
        self._ask("member_leave")


class Java(Row):
    """The Java client behind the pipe of an oracle, a shared one or its own."""

    name = "Java client"
    member = JavaMember
    protocols: ClassVar[Sequence[Protocol]] = ("classic", "consumer")

    def __init__(self, oracle: Oracle | None = None) -> None:
        self._lent = oracle

    @cached_property
    def _oracle(self) -> Oracle:
        return self._lent or Oracle()

    def close(self) -> None:
        if self._lent is None and "_oracle" in vars(self):
            self._oracle.close()

    def _ask(
        self, command: str, bootstrap: str, topic: str, client: Mapping[str, object] | None = None, **question: object
    ) -> Json:
        """Sends a command; `client` are settings besides the address."""
        settings = {"bootstrap.servers": bootstrap, **(client or {})}
        return self._oracle.ask(command, settings=settings, topic=topic, **question)

    def version(self) -> str:
        return str(self._oracle.ask("version")["version"])

    def create_topic(self, bootstrap: str, topic: str, partitions: int, settings: Mapping[str, str]) -> None:
        self._ask("create_topic", bootstrap, topic, partitions=partitions, configs=dict(settings))

    def describe_topic(self, bootstrap: str, topic: str) -> TopicSeen:
        seen = self._ask("describe_topic", bootstrap, topic)
        return TopicSeen(seen["partitions"], {name: value or "" for name, value in seen["configs"].items()})

    def alter_topic(self, bootstrap: str, topic: str, settings: Mapping[str, str]) -> None:
        self._ask("alter_topic", bootstrap, topic, configs=dict(settings))

    def add_partitions(self, bootstrap: str, topic: str, total: int) -> None:
        self._ask("add_partitions", bootstrap, topic, total=total)

    def delete_topic(self, bootstrap: str, topic: str) -> None:
        self._ask("delete_topic", bootstrap, topic)

    def delete_records(self, bootstrap: str, topic: str, partition: int, before: int) -> None:
        self._ask("delete_records", bootstrap, topic, partition=partition, before=before)

    def produce(self, bootstrap: str, topic: str, messages: Sequence[Message], how: Producing) -> None:
        rows = [
            as_json(
                Record(0, 0, each.key, each.value, each.headers), partition=each.partition, timestamp=each.timestamp_ms
            )
            for each in messages
        ]
        try:
            self._ask("produce", bootstrap, topic, client=_producer_settings(how), records=rows)
        except OracleError as error:
            if error.kind != "RecordTooLargeException":
                raise
            raise TooLarge(str(error)) from error

    def consume(self, bootstrap: str, topic: str, partition: int, offset: int, count: int) -> Sequence[Record]:
        seen = self._ask("consume_from", bootstrap, topic, partition=partition, offset=offset, count=count)
        return [from_json(row) for row in seen["records"]]

    def consume_since(
        self, bootstrap: str, topic: str, partition: int, timestamp_ms: int, count: int
    ) -> Sequence[Record]:
        seen = self._ask("consume_from", bootstrap, topic, partition=partition, timestamp=timestamp_ms, count=count)
        return [from_json(row) for row in seen["records"]]

    def join(self, how: Joining) -> Member:
        return JavaMember(self._oracle, how)

    def describe_group(self, bootstrap: str, group: str, topic: str) -> GroupShown:
        seen = self._ask("describe_group", bootstrap, topic, group=group)
        committed = {int(partition): offset for partition, offset in seen["committed"].items()}
        return GroupShown(seen["is_listed"], seen["state"], seen["members"], committed)

    def reset_group(self, bootstrap: str, group: str, topic: str, partition: int, offset: int) -> None:
        self._ask("reset_group", bootstrap, topic, group=group, partition=partition, offset=offset)

    def delete_group_offsets(self, bootstrap: str, group: str, topic: str, partition: int) -> None:
        self._ask("delete_group_offsets", bootstrap, topic, group=group, partition=partition)

    def delete_group(self, bootstrap: str, group: str) -> None:
        self._ask("delete_group", bootstrap, "", group=group)


def _producer_settings(how: Producing) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "compression.type": how.codec.name.lower(),
        "acks": how.acks,
        "enable.idempotence": how.idempotent,
        "max.in.flight.requests.per.connection": how.in_flight_max,
    }
    if how.request_bytes_max is not None:
        settings["max.request.size"] = how.request_bytes_max
    if how.batch_bytes is not None:
        settings["batch.size"] = how.batch_bytes
    if how.linger_ms is not None:
        settings["linger.ms"] = how.linger_ms
    return settings
