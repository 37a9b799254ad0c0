"""Kafka's command-line tools: each operation as a person would type it, without plug-ins of ours."""

import json
import re
import tempfile
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import ClassVar

from harness.kafka.kafka_tools import KafkaTools, ToolFailed, command_of
from penstock.records.rows import Record
from tests.compatibility.rows.process import ProcessMember
from tests.compatibility.rows.row import (
    AUTO_COMMIT_MS,
    HEARTBEAT_MS,
    OF_MEMBERS,
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
    lacking,
)

SETTING = re.compile(r"^  (\S+?)=(.*) sensitive=(?:true|false) synonyms=\{.*\}$", re.MULTILINE)
PARTITIONS = re.compile(r"\tPartitionCount: (\d+)\t")
KEY_END = "\x01"
RECORD_END = "\x02"
NULL = "\x03"
TIMEOUT_MS = 30_000
RETRIES = 1000


class ConsoleMember(ProcessMember):
    """kafka-console-consumer --group."""

    def __init__(self, how: Joining) -> None:
        settings = {
            "group.protocol": how.protocol,
            "enable.auto.commit": str(how.is_auto).lower(),
            "auto.commit.interval.ms": str(AUTO_COMMIT_MS),
        }
        if how.protocol == "classic":
            settings["heartbeat.interval.ms"] = str(HEARTBEAT_MS)
        if how.instance_id is not None:
            settings["group.instance.id"] = how.instance_id
        shown = {"print.partition": "true", "print.offset": "true", "print.value": "false"}
        place = ["--bootstrap-server", how.bootstrap, "--group", how.group, "--topic", how.topic, "--from-beginning"]
        options = [*_each("--command-property", settings), *_each("--formatter-property", shown)]
        super().__init__(command_of("kafka-console-consumer", *place, *options), _place)


def _place(line: str) -> Place:
    partition, offset = (int(word.partition(":")[2]) for word in line.split())
    return partition, offset


class KafkaToolsRow(Row):
    """kafka-topics, -configs, -console-producer, -console-consumer, -get-offsets, -delete-records, -consumer-groups."""

    name = "Kafka's command-line tools"
    member = ConsoleMember
    protocols: ClassVar[Sequence[Protocol]] = ("classic", "consumer")
    lacks: ClassVar[Mapping[Operation, str]] = {
        **lacking(
            (each for each in OF_MEMBERS if each.name.endswith(("COMMIT_SYNC", "COMMIT_ASYNC"))),
            "kafka-console-consumer commits by itself, or not at all",
        ),
        **lacking(
            (each for each in OF_MEMBERS if each.name.endswith(("SEEK", "PAUSE"))),
            "kafka-console-consumer only reads on",
        ),
    }

    # Every member is a JVM of its own, running the consumer that the Java client's row already tests.
    seldom: ClassVar[Collection[Operation]] = (
        Operation.CLASSIC_STATIC,
        Operation.CLASSIC_COMMIT_AUTO,
        Operation.CONSUMER_SHARE,
        Operation.CONSUMER_STATIC,
        Operation.CONSUMER_COMMIT_AUTO,
    )

    @cached_property
    def _tools(self) -> KafkaTools:
        return KafkaTools()

    def _run(self, tool: str, bootstrap: str, *arguments: str, stdin: bytes = b"") -> bytes:
        return self._tools.run(tool, "--bootstrap-server", bootstrap, *arguments, stdin=stdin)

    def version(self) -> str:
        return self._tools.run("kafka-topics", "--version").decode().split()[0]

    def create_topic(self, bootstrap: str, topic: str, partitions: int, settings: Mapping[str, str]) -> None:
        shape = ["--partitions", str(partitions), "--replication-factor", "1"]
        self._run("kafka-topics", bootstrap, "--create", "--topic", topic, *shape, *_each("--config", settings))

    def describe_topic(self, bootstrap: str, topic: str) -> TopicSeen:
        described = self._run("kafka-topics", bootstrap, "--describe", "--topic", topic).decode()
        found = PARTITIONS.search(described)
        assert found is not None, described
        settings = self._run("kafka-configs", bootstrap, "--describe", "--all", "--topic", topic).decode()
        return TopicSeen(int(found[1]), {name: _value(value) for name, value in SETTING.findall(settings)})

    def alter_topic(self, bootstrap: str, topic: str, settings: Mapping[str, str]) -> None:
        added = ",".join(f"{name}=[{value}]" for name, value in settings.items())
        self._run("kafka-configs", bootstrap, "--alter", "--topic", topic, "--add-config", added)

    def add_partitions(self, bootstrap: str, topic: str, total: int) -> None:
        self._run("kafka-topics", bootstrap, "--alter", "--topic", topic, "--partitions", str(total))

    def delete_topic(self, bootstrap: str, topic: str) -> None:
        self._run("kafka-topics", bootstrap, "--delete", "--topic", topic)

    def delete_records(self, bootstrap: str, topic: str, partition: int, before: int) -> None:
        place = {"topic": topic, "partition": partition, "offset": before}
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump({"version": 1, "partitions": [place]}, file)
            file.flush()
            said = self._run("kafka-delete-records", bootstrap, "--offset-json-file", file.name).decode()
        assert f"low_watermark: {before}" in said, said

    def produce(self, bootstrap: str, topic: str, messages: Sequence[Message], how: Producing) -> None:
        reader = {"parse.key": "true", "key.separator": KEY_END, "null.marker": NULL}
        options = [
            *_each("--reader-property", reader),
            *_each("--command-property", _settings(how)),
            "--compression-codec",
            how.codec.name.lower(),
            "--message-send-max-retries",
            str(RETRIES),
        ]
        lines = b"".join(_line(message) for message in messages)
        try:
            self._run("kafka-console-producer", bootstrap, "--topic", topic, *options, stdin=lines)
        except ToolFailed as failed:
            if "RecordTooLargeException" in str(failed):
                raise TooLarge(str(failed)) from failed
            raise

    def consume(self, bootstrap: str, topic: str, partition: int, offset: int, count: int) -> Sequence[Record]:
        shown = {
            "print.timestamp": "true",
            "print.offset": "true",
            "print.key": "true",
            "key.separator": KEY_END,
            "line.separator": RECORD_END,
            "null.literal": NULL,
        }
        place = ["--topic", topic, "--partition", str(partition), "--offset", str(offset)]
        limits = ["--max-messages", str(count), "--timeout-ms", str(TIMEOUT_MS)]
        said = self._run("kafka-console-consumer", bootstrap, *place, *limits, *_each("--formatter-property", shown))
        return [_record(line) for line in said.split(RECORD_END.encode())[:-1]]

    def consume_since(
        self, bootstrap: str, topic: str, partition: int, timestamp_ms: int, count: int
    ) -> Sequence[Record]:
        """The consumer takes no timestamp; kafka-get-offsets converts it to an offset first."""
        place = ["--topic-partitions", f"{topic}:{partition}", "--time", str(timestamp_ms)]
        said = self._run("kafka-get-offsets", bootstrap, *place).decode()
        return self.consume(bootstrap, topic, partition, int(said.rpartition(":")[2]), count)

    def join(self, how: Joining) -> Member:
        return ConsoleMember(how)

    def describe_group(self, bootstrap: str, group: str, topic: str) -> GroupShown:
        listed = self._run("kafka-consumer-groups", bootstrap, "--list").decode().split()
        _, shown = self._table(bootstrap, "--describe", "--group", group, "--state")
        _, *offsets = self._table(bootstrap, "--describe", "--group", group)
        committed = {int(each[2]): int(each[3]) for each in offsets if each[1] == topic and each[3] != "-"}
        return GroupShown(group in listed, shown[-2], int(shown[-1]), committed)

    def _table(self, bootstrap: str, *arguments: str) -> list[list[str]]:
        said = self._run("kafka-consumer-groups", bootstrap, *arguments).decode()
        return [line.split() for line in said.splitlines() if line.strip() and not line.startswith("Consumer group")]

    def reset_group(self, bootstrap: str, group: str, topic: str, partition: int, offset: int) -> None:
        where = ["--topic", f"{topic}:{partition}", "--to-offset", str(offset)]
        self._run("kafka-consumer-groups", bootstrap, "--group", group, "--reset-offsets", *where, "--execute")

    def delete_group_offsets(self, bootstrap: str, group: str, topic: str, partition: int) -> None:
        where = ["--topic", f"{topic}:{partition}"]
        said = self._run("kafka-consumer-groups", bootstrap, "--group", group, "--delete-offsets", *where).decode()
        assert "Request succeed" in said, said

    def delete_group(self, bootstrap: str, group: str) -> None:
        said = self._run("kafka-consumer-groups", bootstrap, "--delete", "--group", group).decode()
        if "successful" not in said:
            raise ToolFailed(said)

    def close(self) -> None:
        self._tools.close()


def _each(option: str, values: Mapping[str, str]) -> list[str]:
    return [word for name, value in values.items() for word in (option, f"{name}={value}")]


def _value(shown: str) -> str:
    return "" if shown == "null" else shown


def _settings(how: Producing) -> dict[str, str]:
    settings = {
        "acks": how.acks,
        "enable.idempotence": str(how.idempotent).lower(),
        "max.in.flight.requests.per.connection": str(how.in_flight_max),
    }
    if how.request_bytes_max is not None:
        settings["max.request.size"] = str(how.request_bytes_max)
    if how.batch_bytes is not None:
        settings["batch.size"] = str(how.batch_bytes)
    return settings


def _line(message: Message) -> bytes:
    assert message == Message(message.key, message.value), "a line has a key and a value, nothing more"
    null, key_end = NULL.encode(), KEY_END.encode()
    key, value = (null if field is None else field for field in (message.key, message.value))
    assert not {b"\n"[0], key_end[0]} & set(key + value)
    return key + key_end + value + b"\n"


def _record(line: bytes) -> Record:
    timestamp, offset, key, value = line.split(KEY_END.encode(), 3)
    return Record(int(offset.removeprefix(b"Offset:")), int(timestamp.partition(b":")[2]), _field(key), _field(value))


def _field(shown: bytes) -> bytes | None:
    return None if shown == NULL.encode() else shown
