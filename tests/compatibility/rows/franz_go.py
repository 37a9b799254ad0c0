"""franz-go, a Go client without C, in a small program of ours (`go/main.go`)."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from harness.answerer import Answerer, Failed, Json
from harness.kafka.oracle import binary, text
from penstock.records.rows import Record
from tests.compatibility import golang
from tests.compatibility.rows.row import (
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

PROJECT = Path(__file__).parents[1] / "go"
MODULE = "github.com/twmb/franz-go"


class FranzGoMember(Member):
    """A client on the other side of the pipe, identified by its number."""

    def __init__(self, program: Answerer, how: Joining) -> None:
        self._program = program
        self._number = program.ask("member_join", **how._asdict() | {"instance_id": how.instance_id or ""})["member"]

    def _ask(self, command: str, **question: object) -> Json:
        return self._program.ask(command, member=self._number, **question)

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


class FranzGo(Row):
    """Its own partitioner agrees with Java's on keys."""

    name = "franz-go"
    member = FranzGoMember
    protocols: ClassVar[Sequence[Protocol]] = ("classic", "consumer")

    @cached_property
    def _program(self) -> Answerer:
        return Answerer([str(golang.build(PROJECT))])

    def version(self) -> str:
        return str(self._program.ask("version")[MODULE]).removeprefix("v")

    def create_topic(self, bootstrap: str, topic: str, partitions: int, settings: Mapping[str, str]) -> None:
        self._program.ask("create", bootstrap=bootstrap, topic=topic, partitions=partitions, settings=settings)

    def describe_topic(self, bootstrap: str, topic: str) -> TopicSeen:
        seen = self._program.ask("describe", bootstrap=bootstrap, topic=topic)
        return TopicSeen(seen["partitions"], seen["settings"])

    def alter_topic(self, bootstrap: str, topic: str, settings: Mapping[str, str]) -> None:
        self._program.ask("alter", bootstrap=bootstrap, topic=topic, settings=settings)

    def add_partitions(self, bootstrap: str, topic: str, total: int) -> None:
        self._program.ask("add_partitions", bootstrap=bootstrap, topic=topic, partitions=total)

    def delete_topic(self, bootstrap: str, topic: str) -> None:
        self._program.ask("delete", bootstrap=bootstrap, topic=topic)

    def delete_records(self, bootstrap: str, topic: str, partition: int, before: int) -> None:
        self._program.ask("delete_records", bootstrap=bootstrap, topic=topic, partition=partition, offset=before)

    def produce(self, bootstrap: str, topic: str, messages: Sequence[Message], how: Producing) -> None:
        try:
            self._program.ask(
                "produce",
                bootstrap=bootstrap,
                topic=topic,
                messages=[_as_json(message) for message in messages],
                codec=how.codec.name.lower(),
                acks=how.acks,
                idempotent=how.idempotent,
                in_flight_max=how.in_flight_max,
                batch_bytes=how.batch_bytes or 0,
            )
        except Failed as failed:
            if failed.kind == "MESSAGE_TOO_LARGE":
                raise TooLarge(str(failed)) from failed
            raise

    def consume(self, bootstrap: str, topic: str, partition: int, offset: int, count: int) -> Sequence[Record]:
        place = {"bootstrap": bootstrap, "topic": topic, "partition": partition, "count": count}
        return _records(self._program.ask("consume", **place, offset=offset))

    def consume_since(
        self, bootstrap: str, topic: str, partition: int, timestamp_ms: int, count: int
    ) -> Sequence[Record]:
        place = {"bootstrap": bootstrap, "topic": topic, "partition": partition, "count": count}
        return _records(self._program.ask("consume_since", **place, timestamp_ms=timestamp_ms))

    def join(self, how: Joining) -> Member:
        return FranzGoMember(self._program, how)

    def describe_group(self, bootstrap: str, group: str, topic: str) -> GroupShown:
        seen = self._program.ask("describe_group", bootstrap=bootstrap, group=group, topic=topic)
        committed = {int(partition): offset for partition, offset in seen["committed"].items()}
        return GroupShown(seen["is_listed"], seen["state"], seen["members"], committed)

    def reset_group(self, bootstrap: str, group: str, topic: str, partition: int, offset: int) -> None:
        place = {"topic": topic, "partition": partition, "offset": offset}
        self._program.ask("reset_group", bootstrap=bootstrap, group=group, **place)

    def delete_group_offsets(self, bootstrap: str, group: str, topic: str, partition: int) -> None:
        place = {"topic": topic, "partition": partition}
        self._program.ask("delete_group_offsets", bootstrap=bootstrap, group=group, **place)

    def delete_group(self, bootstrap: str, group: str) -> None:
        self._program.ask("delete_group", bootstrap=bootstrap, group=group)

    def close(self) -> None:
        self._program.close()


def _as_json(message: Message) -> Json:
    assert message == Message(message.key, message.value), "the row leaves the rest to the client"
    return {"key": _text(message.key), "value": _text(message.value)}


def _text(data: bytes | None) -> str | None:
    return None if data is None else text(data)


def _records(answer: Json) -> list[Record]:
    return [
        Record(row["offset"], row["timestamp_ms"], _bytes(row["key"]), _bytes(row["value"]))
        for row in answer["records"]
    ]


def _bytes(data: str | None) -> bytes | None:
    return None if data is None else binary(data)
