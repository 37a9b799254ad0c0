"""kcat, which is librdkafka on the command line.

Messages are written between delimiters, and read with their sizes in front.
"""

import subprocess
from collections.abc import Mapping, Sequence
from typing import ClassVar

from penstock.records.rows import Record
from tests.compatibility import debian
from tests.compatibility.rows.process import ProcessMember
from tests.compatibility.rows.row import (
    AUTO_COMMIT_MS,
    CONSUMER,
    HEARTBEAT_MS,
    OF_GROUPS,
    Joining,
    Member,
    Message,
    Operation,
    Place,
    Producing,
    Row,
    TooLarge,
    lacking,
)

TIMEOUT_S = 60.0
KEY_END = b"\x01"
MESSAGE_END = b"\x02"
# Offset, timestamp, sizes of key and value (-1 is null), then the raw key and value.
FORMAT = r"%o %T %K %S\n%k%s"
TOO_LARGE = "Message size too large"
NO_ADMIN = "kcat has no commands that change or describe settings"


class KcatFailed(Exception):
    """It ended with an error; the text is its output."""


class KcatMember(ProcessMember):
    """kcat -G."""

    def __init__(self, how: Joining) -> None:
        settings = {
            "auto.offset.reset": "earliest",
            "enable.auto.commit": str(how.is_auto).lower(),
            "auto.commit.interval.ms": str(AUTO_COMMIT_MS),
            "heartbeat.interval.ms": str(HEARTBEAT_MS),
        }
        if how.instance_id is not None:
            settings["group.instance.id"] = how.instance_id
        options = [f"-X{name}={value}" for name, value in settings.items()]
        kcat = debian.command("kcat", "kcat")
        super().__init__(
            [kcat, "-b", how.bootstrap, *options, "-u", "-f", r"%p %o\n", "-G", how.group, how.topic], _place
        )


def _place(line: str) -> Place:
    partition, offset = map(int, line.split())
    return partition, offset


class Kcat(Row):
    """Configured with Java's partitioner; its own hashes keys with CRC-32."""

    name = "kcat"
    member = KcatMember
    lacks: ClassVar[Mapping[Operation, str]] = {
        Operation.CREATE_TOPIC: NO_ADMIN,
        Operation.DESCRIBE_TOPIC: "kcat -L shows partitions, but no settings",
        Operation.ALTER_TOPIC: NO_ADMIN,
        Operation.ADD_PARTITIONS: NO_ADMIN,
        Operation.DELETE_TOPIC: NO_ADMIN,
        Operation.DELETE_RECORDS: "kcat has no command that deletes records",
        **lacking(CONSUMER, "librdkafka 2.0.2, which this kcat is built with, has only the classic protocol"),
        **lacking(
            (Operation.CLASSIC_COMMIT_SYNC, Operation.CLASSIC_COMMIT_ASYNC),
            "kcat -G commits by itself, or not at all",
        ),
        **lacking((Operation.CLASSIC_SEEK, Operation.CLASSIC_PAUSE), "kcat -G only reads on"),
        **lacking(OF_GROUPS, "kcat has no commands for groups other than its own"),
    }

    def version(self) -> str:
        said = run("-V").decode()
        own = said.partition("Version ")[2].split()[0]
        library = said.partition("librdkafka ")[2].split()[0]
        return f"{own} (librdkafka {library})"

    def produce(self, bootstrap: str, topic: str, messages: Sequence[Message], how: Producing) -> None:
        settings = [f"-X{name}={value}" for name, value in _settings(how).items()]
        # -E: a broken connection is not fatal.
        options = ["-P", "-E", "-b", bootstrap, "-t", topic, "-K", r"\x01", "-D", r"\x02", *settings]
        run(*options, stdin=b"".join(_line(message) for message in messages))

    def consume(self, bootstrap: str, topic: str, partition: int, offset: int, count: int) -> Sequence[Record]:
        return self._consume(bootstrap, topic, partition, str(offset), count)

    def consume_since(
        self, bootstrap: str, topic: str, partition: int, timestamp_ms: int, count: int
    ) -> Sequence[Record]:
        return self._consume(bootstrap, topic, partition, f"s@{timestamp_ms}", count)

    def join(self, how: Joining) -> Member:
        return KcatMember(how)

    @staticmethod
    def _consume(bootstrap: str, topic: str, partition: int, start: str, count: int) -> list[Record]:
        place = ["-t", topic, "-p", str(partition), "-o", start, "-c", str(count)]
        return _records(run("-C", "-b", bootstrap, *place, "-Xcheck.crcs=true", "-f", FORMAT))


def run(*arguments: str, stdin: bytes = b"") -> bytes:
    """Runs kcat and returns its output; raises if it fails."""
    kcat = debian.command("kcat", "kcat")
    done = subprocess.run([kcat, *arguments], input=stdin, capture_output=True, timeout=TIMEOUT_S, check=False)
    errors = done.stderr.decode(errors="replace")
    if TOO_LARGE in errors:
        raise TooLarge(errors)
    if done.returncode or "Delivery failed" in errors:
        raise KcatFailed(f"ended with {done.returncode}: {errors}")
    return done.stdout


def _line(message: Message) -> bytes:
    assert message == Message(message.key, message.value), "a line has a key and a value, nothing more"
    key = b"" if message.key is None else message.key + KEY_END
    assert message.value, "to kcat, no value and an empty one are the same"
    assert MESSAGE_END not in key + message.value
    assert KEY_END not in key[:-1] + message.value
    return key + message.value + MESSAGE_END


def _settings(how: Producing) -> dict[str, str]:
    settings = {
        "compression.type": how.codec.name.lower(),
        "acks": how.acks,
        "enable.idempotence": str(how.idempotent).lower(),
        "max.in.flight.requests.per.connection": str(how.in_flight_max),
        "topic.partitioner": "murmur2_random",
        # Else all messages sent within 10 ms go to one partition.
        "sticky.partitioning.linger.ms": "0",
        # Else it waits longer after every broken connection, up to ten seconds.
        "reconnect.backoff.max.ms": "100",
    }
    if how.request_bytes_max is not None:
        settings["message.max.bytes"] = str(how.request_bytes_max)
    if how.batch_bytes is not None:
        settings["batch.size"] = str(how.batch_bytes)
    return settings


def _records(said: bytes) -> list[Record]:
    found = []
    while said:
        numbers, _, said = said.partition(b"\n")
        offset, timestamp_ms, key_bytes, value_bytes = map(int, numbers.split())
        key, said = _take(said, key_bytes)
        value, said = _take(said, value_bytes)
        found.append(Record(offset, timestamp_ms, key, value))
    return found


def _take(said: bytes, size_bytes: int) -> tuple[bytes | None, bytes]:
    return (None, said) if size_bytes < 0 else (said[:size_bytes], said[size_bytes:])
