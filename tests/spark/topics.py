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
    """A row, as far as a story is about it."""

    partition: int
    offset: int
    number: int


class Topics:
    """Makes topics whose names nobody else uses, and fills them: the value of a record is its number."""

    def __init__(self, bootstrap: str, client: SyncClient) -> None:
        self.bootstrap = bootstrap
        self.client = client

    def create(self, partitions: int = 2, **configs: str) -> str:
        """A new topic."""
        name = f"topic-{next(_serial)}"
        self.client.create_topic(
            name, partitions, configs={key.replace("_", "."): text for key, text in configs.items()}
        )
        return name

    def fill(self, topic: str, numbers: Iterable[int], partitions: int = 2) -> None:
        """Numbers in turn to each partition, in batches of some."""

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
        """As retention does."""
        self.client.run(self.client.admin.delete_records(topic, before))

    def options(self, topic: str, **options: str) -> dict[str, str]:
        """Reads a topic of this node."""
        return {"kafka.bootstrap.servers": self.bootstrap, "subscribe": topic, **options}

    def values(self, topic: str) -> list[Any]:
        """What a topic holds, each as JSON."""
        return [json.loads(message.value or b"null") for message in self.client.consume(topic, until_end=True)]


def seen(rows: Iterable[Row]) -> list[Seen]:
    """Rows in the order of partitions and offsets."""
    return sorted(Seen(row["partition"], row["offset"], int(base64.b64decode(row["value"]["bytes"]))) for row in rows)


def numbers(rows: Iterable[Row]) -> list[int]:
    """The numbers in rows, sorted; who is there twice is there twice."""
    return sorted(each.number for each in seen(rows))


def together(batches: Mapping[str, list[Row]]) -> list[Row]:
    """The rows of all micro-batches."""
    return [row for rows in batches.values() for row in rows]
