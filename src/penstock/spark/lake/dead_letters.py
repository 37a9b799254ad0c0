"""Writes bad records to a dead letter topic, whole, with headers that name their origin and the error.

The headers are those that Kafka's brokers write for share groups (KIP-1191), all of them strings, and two of Kafka
Connect's. A record goes to the partition of its own number, modulo the number of partitions. Every letter is in the log
before the batch of its record is committed; a task that runs again may write it again.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self

from penstock.client.blocking import SyncClient
from penstock.client.errors import ClientError, Refused
from penstock.client.producer.producer import Producer
from penstock.model.errors import ErrorCode
from penstock.spark.project.connecting import connect
from penstock.spark.project.plan import ClusterPlan

if TYPE_CHECKING:
    import pyarrow as pa

PREFIX = "__dlq.errors."


class Letter(NamedTuple):
    """A bad record."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    kind: str
    """The name of the error."""
    reason: str


@dataclass(frozen=True, slots=True)
class DeadLetterPlan:
    """The cluster and topic for letters, and the pipeline that sends them."""

    cluster: ClusterPlan
    topic: str
    pipeline: str


class DeadLetters:
    """Sends letters; connects at the first one. Use it as a context manager."""

    def __init__(self, plan: DeadLetterPlan) -> None:
        self._plan = plan
        self._client: SyncClient | None = None
        self._producer: Producer | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._client is not None:
            try:
                if self._producer is not None:
                    self._client.run(self._producer.close(0))
            finally:
                self._client.close()

    def send(self, letters: Sequence[Letter]) -> None:
        """Sends letters and waits until all of them are in the log."""
        if not letters:
            return
        if self._client is None:
            self._client = connect(self._plan.cluster)
        try:
            self._client.run(self._sent(self._client, letters))
        except Refused as error:
            if error.code is ErrorCode.MESSAGE_TOO_LARGE:
                raise ClientError(
                    f"A bad record with its headers is too large for {self._plan.topic}: raise the topic's "
                    "max.message.bytes by 4096 or more."
                ) from error
            raise

    async def _sent(self, client: SyncClient, letters: Sequence[Letter]) -> None:
        topic = self._plan.topic
        if self._producer is None:
            self._producer = Producer(client.admin.cluster)
        count = len((await client.admin.cluster.topic(topic)).partitions)
        deliveries = [
            await self._producer.send(
                topic,
                each.value,
                key=each.key,
                headers=[*each.headers, *headers_of(each, self._plan.pipeline)],
                partition=each.partition % count,  # dated now: retention would delete one with an old timestamp
            )
            for each in letters
        ]
        await asyncio.gather(*deliveries)


def headers_of(letter: Letter, pipeline: str) -> list[tuple[str, bytes]]:
    """The headers added to a record's own."""
    texts = {
        "topic": letter.topic,
        "partition": str(letter.partition),
        "offset": str(letter.offset),
        "timestamp": str(letter.timestamp_ms),
        "group": pipeline,
        "message": letter.reason,
        "exception.class.name": letter.kind,
        "exception.message": letter.reason,
    }
    return [(PREFIX + name, text.encode()) for name, text in texts.items()]


def letters_of(bad: "pa.RecordBatch", wrong: "Sequence[tuple[str, str]]") -> list[Letter]:
    """Letters from rows of the source, with the name of the error and the reason for each."""
    named = [name for name in ("topic", "partition", "offset", "key", "value", "headers") if name in bad.schema.names]
    return [
        Letter(
            row["topic"],
            row["partition"],
            row["offset"],
            stamp_us // 1000,
            row["key"],
            row["value"],
            [(each["key"], each["value"]) for each in row.get("headers") or ()],
            kind,
            reason,
        )
        for row, stamp_us, (kind, reason) in zip(
            bad.select(named).to_pylist(), bad.column("timestamp").cast("int64").to_pylist(), wrong, strict=True
        )
    ]
