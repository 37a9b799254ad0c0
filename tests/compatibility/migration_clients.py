"""Clients of the clusters of a migration, and an operator's requests to either cluster; see `migration.py`."""

import asyncio
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from penstock import Client

Place = tuple[str, int]
PARTITIONS: Final = 2
RATE: Final = 400.0
"""Maximum rate of a producer, in records per second."""
WAIT_S: Final = 120.0
"""Time limit of every wait: much longer than any step takes."""
LISTED: Final = 20


class Migration(AssertionError):
    """A record was lost, or differs from the original."""


def until(is_so: Callable[[], bool], what: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not is_so():
        if time.monotonic() > deadline:
            raise Migration(f"not after {WAIT_S:.0f} s: {what()}")
        time.sleep(0.2)


class Producer(threading.Thread):
    """Writes numbered records to its partitions, on either cluster."""

    def __init__(self, bootstrap: str, places: list[Place], numbers: dict[Place, int]) -> None:
        super().__init__(name="producer", daemon=True)
        self._places = places
        self._numbers = numbers
        """The next number of each partition."""
        self.problems: list[str] = []
        self._stopping = threading.Event()
        self._producer: Any = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0}
        )
        self.start()

    def run(self) -> None:
        sent = 0
        while not self._stopping.is_set():
            topic, partition = place = self._places[sent % len(self._places)]
            number = self._numbers[place]
            self._producer.produce(
                topic, str(number), str(number % 7), partition=partition, on_delivery=self._on_delivery
            )
            self._numbers[place] += 1
            sent += 1
            self._producer.poll(1 / RATE)

    def _on_delivery(self, error: Any, _message: Any) -> None:
        if error is not None:
            self.problems.append(str(error))

    def stop(self) -> None:
        """Stops sending; everything sent must be acknowledged."""
        if not self._stopping.is_set():
            self._stopping.set()
            self.join()
            if self._producer.flush(WAIT_S) or self.problems:
                raise Migration(f"records were not taken: {self.problems[:LISTED]}")


class Reader(threading.Thread):
    """The only member of a group: reads, then commits."""

    def __init__(self, bootstrap: str, group: str, topics: list[str]) -> None:
        super().__init__(name=group, daemon=True)
        self.read: Counter[tuple[str, int, int]] = Counter()
        self.committed: dict[Place, int] = {}
        self._stopping = threading.Event()
        self._consumer: Any = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "log_level": 0,
            }
        )
        self._consumer.subscribe(topics)
        self.start()

    def run(self) -> None:
        is_saved = True
        while not self._stopping.is_set():
            for each in self._consumer.consume(200, 0.3):
                if each.error() is None:
                    self.read[each.topic(), each.partition(), int(each.value())] += 1
                    is_saved = False
            if not is_saved:
                is_saved = self._commit()
        if not is_saved:
            self._commit()
        self._consumer.close()

    def _commit(self) -> bool:
        """Whether the commit succeeded; else it is tried again."""
        try:
            done = self._consumer.commit(asynchronous=False)
        except confluent_kafka.KafkaException:
            return False
        # A partition without a new offset has none in the response.
        news = [each for each in done if each.error is None and each.offset >= 0]
        self.committed |= {(each.topic, each.partition): each.offset for each in news}
        return all(each.error is None for each in done)

    def stop(self) -> None:
        self._stopping.set()
        self.join()


class Cluster:
    """An operator's requests to a cluster."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})

    def create(self, topics: list[str]) -> None:
        for done in self._admin.create_topics([NewTopic(each, PARTITIONS, 1) for each in topics]).values():
            done.result(WAIT_S)

    def ends(self, places: list[Place]) -> dict[Place, int]:
        """End offsets; 0 for a partition that does not exist yet."""
        known = self._admin.list_topics(timeout=WAIT_S).topics
        there = [place for place in places if place[0] in known and place[1] in known[place[0]].partitions]
        latest: Any = OffsetSpec
        asked = self._admin.list_offsets({confluent_kafka.TopicPartition(*each): latest.latest() for each in there})
        found = {}
        for place, answer in asked.items():
            with suppress(confluent_kafka.KafkaException):  # just created, and its leader has not applied it yet
                found[place.topic, place.partition] = answer.result(WAIT_S).offset
        return {place: found.get(place, 0) for place in places}

    def offsets(self, group: str, places: list[Place]) -> dict[Place, int]:
        """Committed offsets."""
        found = asyncio.run(self._offsets(group, sorted({topic for topic, _ in places})))
        return {place: found[place] for place in places if place in found}

    def skip(self, group: str, topics: list[str]) -> None:
        """Moves a group to the end of topics."""
        chosen = [part for topic in topics for part in ("-t", topic)]
        command = [sys.executable, "-m", "penstock", "group", "reset", group, *chosen, "--to-latest"]
        done = subprocess.run(
            [*command, "--execute", "-b", self.bootstrap], capture_output=True, text=True, timeout=WAIT_S, check=False
        )
        if done.returncode:
            raise Migration(f"{group} cannot be reset: {done.stderr}")

    async def _offsets(self, group: str, topics: list[str]) -> dict[Place, int]:
        async with Client(self.bootstrap) as client:
            return {
                (topic, partition): offset
                for topic in topics
                for partition, offset in (await client.committed(topic, group)).items()
            }


def copy_of(bootstrap: str, places: list[Place], ends: dict[Place, int]) -> dict[Place, list[tuple[Any, ...]]]:
    """All records before these ends, with keys and timestamps, in order."""
    consumer: Any = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False, "log_level": 0}
    )
    found: dict[Place, list[tuple[Any, ...]]] = {place: [] for place in places}
    try:
        consumer.assign([confluent_kafka.TopicPartition(*place, 0) for place in places])
        deadline = time.monotonic() + WAIT_S
        while any(len(found[place]) < ends[place] for place in places) and time.monotonic() < deadline:
            for each in consumer.consume(500, 0.2):
                place = (each.topic(), each.partition())
                if each.error() is None and each.offset() < ends[place]:
                    found[place].append((each.key(), each.value(), each.timestamp()))
    finally:
        consumer.close()
    return found
