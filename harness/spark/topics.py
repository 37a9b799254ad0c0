"""Numbered records in topics, and the rows that Spark makes of them."""

import base64
import itertools
import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from penstock.client.blocking import SyncClient

Row = dict[str, Any]
_serial = itertools.count()


class Seen(NamedTuple):
    """The fields of a row that tests compare."""

    partition: int
    offset: int
    number: int


class Topics:
    """Creates topics with unique names and fills them: the value of a record is its number."""

    def __init__(self, bootstrap: str, client: SyncClient) -> None:
        self.bootstrap = bootstrap
        self.client = client

    def create(self, partitions: int = 2, **configs: str) -> str:
        """Creates a topic and returns its name."""
        name = f"topic-{next(_serial)}"
        self.client.create_topic(
            name, partitions, configs={key.replace("_", "."): text for key, text in configs.items()}
        )
        return name

    def fill(self, topic: str, numbers: Iterable[int], partitions: int = 2) -> None:
        """Produces a record per number, to the partition `number % partitions`, several per batch."""

        async def send() -> None:
            producer = self.client._client.producer(linger_ms=5, creates_topics=False)
            sent = [
                await producer.send(topic, b"%d" % number, key=b"k", partition=number % partitions)
                for number in numbers
            ]
            for each in sent:
                await each
            await producer.close()

        self.client.run(send())

    def delete_before(self, topic: str, before: Mapping[int, int]) -> None:
        """Deletes records below an offset of each partition, as retention does."""
        self.client.run(self.client.admin.delete_records(topic, before))

    def options(self, topic: str, **options: str) -> dict[str, str]:
        """The source options that read a topic of this node."""
        return {"kafka.bootstrap.servers": self.bootstrap, "subscribe": topic, **options}

    def values(self, topic: str) -> list[Any]:
        """The values in a topic, parsed as JSON."""
        return [json.loads(message.value or b"null") for message in self.client.consume(topic, until_end=True)]


def seen(rows: Iterable[Row]) -> list[Seen]:
    """The rows, sorted by partition and offset."""
    return sorted(Seen(row["partition"], row["offset"], int(base64.b64decode(row["value"]["bytes"]))) for row in rows)


def numbers(rows: Iterable[Row]) -> list[int]:
    """The numbers in rows, sorted, duplicates included."""
    return sorted(each.number for each in seen(rows))


def together(batches: Mapping[str, list[Row]]) -> list[Row]:
    """The rows of all micro-batches."""
    return [row for rows in batches.values() for row in rows]
