"""A cut-over from Apache Kafka to Penstock and back with MirrorMaker 2, under live producers and consumers.

    python -m tests.compatibility.migration --topics 10

A producer writes numbered records to all topics on Kafka; two groups read them there and commit; MirrorMaker copies
topics and translates the groups' offsets (docs/migrating.md). Then the producer stops, the copies are complete, one
group reads to the end and the other is stopped in the middle; both go on with Penstock, and so does the producer. At
last the way back: what lies on Penstock has come to Kafka under other names, and a group that goes back there reads on
where it was. Every record is read at least once by every group. One is read twice only where the translated offset lies
before the one that was committed: MirrorMaker translates exactly at the end of a partition, elsewhere it may fall
short, and never goes beyond.
"""

import argparse
import asyncio
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from penstock import Client
from tests.compatibility.kafka_node import KafkaNode
from tests.compatibility.mirror_maker import BACK, MirrorMaker, settings
from tests.compatibility.penstock_node import PenstockNode
from tests.system.density import say

Place = tuple[str, int]
PARTITIONS: Final = 2
RATE: Final = 400.0
WARM: Final = 40
"""Records of every partition before the cut-over."""
WAIT_S: Final = 120.0
"""For anything: much longer than it takes."""
DRAINED, STOPPED = "billing", "audit"
"""The group that reads to the end before it moves, and the one that does not."""
LISTED: Final = 20


class Migration(AssertionError):
    """Something was lost, or is not as it was."""


def until(is_so: Callable[[], bool], what: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not is_so():
        if time.monotonic() > deadline:
            raise Migration(f"not after {WAIT_S:.0f} s: {what()}")
        time.sleep(0.2)


class Producer(threading.Thread):
    """Numbers the records of every partition, on whichever cluster."""

    def __init__(self, bootstrap: str, numbers: dict[Place, int]) -> None:
        super().__init__(name="producer", daemon=True)
        self.numbers = numbers
        """What comes next."""
        self.problems: list[str] = []
        self._stopping = threading.Event()
        self._producer: Any = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0}
        )
        self.start()

    def run(self) -> None:
        places = list(self.numbers)
        sent = 0
        while not self._stopping.is_set():
            topic, partition = place = places[sent % len(places)]
            number = self.numbers[place]
            self._producer.produce(
                topic, str(number), str(number % 7), partition=partition, on_delivery=self._on_delivery
            )
            self.numbers[place] += 1
            sent += 1
            self._producer.poll(1 / RATE)

    def _on_delivery(self, error: Any, _message: Any) -> None:
        if error is not None:
            self.problems.append(str(error))

    def stop(self) -> None:
        """All that was sent is acknowledged."""
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
        self._consumer.close()

    def _commit(self) -> bool:
        """Whether it worked; else it is tried again."""
        try:
            done = self._consumer.commit(asynchronous=False)
        except confluent_kafka.KafkaException:
            return False
        self.committed |= {(each.topic, each.partition): each.offset for each in done if each.error is None}
        return all(each.error is None for each in done)

    def stop(self) -> None:
        self._stopping.set()
        self.join()


class Cluster:
    """What an operator asks either of them."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})

    def create(self, topics: list[str]) -> None:
        for done in self._admin.create_topics([NewTopic(each, PARTITIONS, 1) for each in topics]).values():
            done.result(WAIT_S)

    def ends(self, places: list[Place]) -> dict[Place, int]:
        """0 where there is nothing yet."""
        known = self._admin.list_topics(timeout=WAIT_S).topics
        there = [place for place in places if place[0] in known and place[1] in known[place[0]].partitions]
        latest: Any = OffsetSpec
        asked = self._admin.list_offsets({confluent_kafka.TopicPartition(*each): latest.latest() for each in there})
        found = {}
        for place, answer in asked.items():
            with suppress(confluent_kafka.KafkaException):  # just made, and its leader does not know yet
                found[place.topic, place.partition] = answer.result(WAIT_S).offset
        return {place: found.get(place, 0) for place in places}

    def offsets(self, group: str, places: list[Place]) -> dict[Place, int]:
        """Those that were committed."""
        found = asyncio.run(self._offsets(group, sorted({topic for topic, _ in places})))
        return {place: found[place] for place in places if place in found}

    async def _offsets(self, group: str, topics: list[str]) -> dict[Place, int]:
        async with Client(self.bootstrap) as client:
            return {
                (topic, partition): offset
                for topic in topics
                for partition, offset in (await client.committed(topic, group)).items()
            }


def copy_of(bootstrap: str, places: list[Place], ends: dict[Place, int]) -> dict[Place, list[tuple[Any, ...]]]:
    """All records with keys and times, in their order."""
    consumer: Any = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False, "log_level": 0}
    )
    found: dict[Place, list[tuple[Any, ...]]] = {place: [] for place in places}
    try:
        consumer.assign([confluent_kafka.TopicPartition(*place, 0) for place in places])
        deadline = time.monotonic() + WAIT_S
        while any(len(found[place]) < ends[place] for place in places) and time.monotonic() < deadline:
            for each in consumer.consume(500, 0.2):
                if each.error() is None:
                    found[each.topic(), each.partition()].append((each.key(), each.value(), each.timestamp()))
    finally:
        consumer.close()
    return found


@dataclass
class Outcome:
    """What a cut-over came to."""

    records: int = 0
    read_twice: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    stopped_s: float = 0.0
    """How long nothing was written."""

    def text(self) -> str:
        twice = ", ".join(f"{group} {count:,}" for group, count in self.read_twice.items())
        return (
            f"{self.records:,} records, none lost; read twice: {twice}; "
            f"nothing was written for {self.stopped_s:.1f} s; {self.seconds:.0f} s in all"
        )


class CutOver:
    """The story, step by step."""

    def __init__(self, kafka: Cluster, penstock: Cluster, topics: int, tell: Callable[[str], None]) -> None:
        self._kafka = kafka
        self._penstock = penstock
        self._topics = [f"orders-{number}" for number in range(topics)]
        self._places = [(topic, partition) for topic in self._topics for partition in range(PARTITIONS)]
        self._tell = tell
        self._numbers = dict.fromkeys(self._places, 0)
        self._read: dict[str, Counter[tuple[str, int, int]]] = {DRAINED: Counter(), STOPPED: Counter()}
        self._stack = ExitStack()

    def run(self) -> Outcome:
        began = time.monotonic()
        with self._stack:
            outcome = self._run()
        outcome.seconds = time.monotonic() - began
        return outcome

    def _run(self) -> Outcome:
        kafka, penstock, places, tell = self._kafka, self._penstock, self._places, self._tell
        tell("live on Kafka, mirrored to Penstock")
        producer = self._producer(kafka)
        readers = {group: self._reader(kafka, group, self._topics) for group in self._read}
        until(lambda: min(self._numbers.values()) >= WARM, lambda: self._numbers)
        until(lambda: min(penstock.ends(places).values()) > 0, lambda: penstock.ends(places))
        until(lambda: all(len(each.committed) == len(places) for each in readers.values()), lambda: "no commits")
        tell("the second group stops in the middle, the producer a little later")
        self._stop(readers[STOPPED], STOPPED)
        producer.stop()
        stopped_s = time.monotonic()
        ends = dict(self._numbers)
        until(lambda: penstock.ends(places) == ends, lambda: (penstock.ends(places), ends))
        tell("all is copied; the first group reads to the end, and offsets follow")
        self._wait_read(readers[DRAINED], {}, ends)
        until(lambda: readers[DRAINED].committed == ends, lambda: readers[DRAINED].committed)
        self._stop(readers[DRAINED], DRAINED)
        if copy_of(kafka.bootstrap, places, ends) != copy_of(penstock.bootstrap, places, ends):
            raise Migration("the copy has other records, or in another order")
        translated = self._await_offsets(readers[STOPPED].committed, ends)
        tell("live on Penstock")
        producer = self._producer(penstock)
        stopped_s = time.monotonic() - stopped_s
        readers = {group: self._reader(penstock, group, self._topics) for group in self._read}
        until(lambda: all(number > ends[place] + WARM for place, number in self._numbers.items()), lambda: ends)
        producer.stop()
        twice = {}
        for group, reader in readers.items():
            self._wait_read(reader, translated[group], self._numbers)
            self._stop(reader, group)
            twice[group] = self._check(group, translated[group])
        tell("and back")
        self._go_back()
        return Outcome(sum(self._numbers.values()), twice, stopped_s=stopped_s)

    # --- who lives there

    def _producer(self, cluster: Cluster) -> Producer:
        producer = Producer(cluster.bootstrap, self._numbers)
        self._stack.callback(producer.stop)
        return producer

    def _reader(self, cluster: Cluster, group: str, topics: list[str]) -> Reader:
        reader = Reader(cluster.bootstrap, group, topics)
        self._stack.callback(reader.stop)
        return reader

    def _stop(self, reader: Reader, group: str) -> None:
        reader.stop()
        self._read[group] += reader.read

    def _wait_read(self, reader: Reader, starts: dict[Place, int], ends: dict[Place, int]) -> None:
        """Everything from there on; more may come."""

        def missing() -> list[tuple[str, int, int]]:
            return [
                (*place, number)
                for place, end in ends.items()
                for number in range(starts.get(place, 0), end)
                if (*place, number) not in reader.read
            ]

        until(lambda: not missing(), lambda: f"{reader.name} has not read {missing()[:LISTED]}")

    # --- what must be true

    def _await_offsets(self, stopped: dict[Place, int], ends: dict[Place, int]) -> dict[str, dict[Place, int]]:
        """Exact for who has read to the end; never beyond what was committed, and of every partition."""
        penstock, places = self._penstock, self._places
        until(lambda: penstock.offsets(DRAINED, places) == ends, lambda: (penstock.offsets(DRAINED, places), ends))
        until(lambda: len(penstock.offsets(STOPPED, places)) == len(places), lambda: penstock.offsets(STOPPED, places))
        found = penstock.offsets(STOPPED, places)
        if beyond := {place: (offset, stopped[place]) for place, offset in found.items() if offset > stopped[place]}:
            raise Migration(f"offsets of {STOPPED} were translated beyond what was committed: {beyond}")
        return {DRAINED: dict(ends), STOPPED: found}

    def _check(self, group: str, translated: dict[Place, int]) -> int:
        """Every record was read; how many were read twice, which none was before the translated offset."""
        read = self._read[group]
        wanted = {(*place, number) for place, end in self._numbers.items() for number in range(end)}
        if lost := sorted(wanted - set(read)):
            raise Migration(f"{group} has never read {len(lost)} records: {lost[:LISTED]}")
        twice = [each for each, count in read.items() if count > 1]
        if early := [each for each in twice if each[2] < translated[each[0], each[1]]]:
            raise Migration(f"{group} has read again what lies before its offset: {early[:LISTED]}")
        return len(twice)

    def _go_back(self) -> None:
        """The first group reads on under the names of the way back, from where it was."""
        kafka, back = self._kafka, [(f"{BACK}{topic}", partition) for topic, partition in self._places]
        ends = {(f"{BACK}{topic}", partition): end for (topic, partition), end in self._numbers.items()}
        until(lambda: kafka.ends(back) == ends, lambda: (kafka.ends(back), ends))
        until(lambda: kafka.offsets(DRAINED, back) == ends, lambda: (kafka.offsets(DRAINED, back), ends))
        reader = self._reader(kafka, DRAINED, [f"{BACK}{topic}" for topic in self._topics])
        producer = self._producer(self._penstock)
        until(lambda: all(n > ends[f"{BACK}{t}", p] for (t, p), n in self._numbers.items()), lambda: "no records")
        producer.stop()
        more = {(f"{BACK}{topic}", partition): end for (topic, partition), end in self._numbers.items()}
        self._wait_read(reader, ends, more)
        reader.stop()
        if again := [each for each in reader.read if each[2] < ends[each[0], each[1]]]:
            raise Migration(f"{DRAINED} has read again on its way back: {again[:LISTED]}")


def run(
    directory: Path, kafka: str, penstock: str, topics: int, tell: Callable[[str], None] = lambda _: None
) -> Outcome:
    """With two clusters that are there."""
    story = CutOver(Cluster(kafka), Cluster(penstock), topics, tell)
    Cluster(kafka).create([f"orders-{number}" for number in range(topics)])
    configuration = settings(kafka, penstock, topics="orders-.*", groups=f"{DRAINED}|{STOPPED}")
    with MirrorMaker(directory, configuration) as mirror:
        try:
            return story.run()
        except Migration as error:
            raise Migration(f"{error}\n{mirror.complaints()}") from None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topics", type=int, default=10)
    parser.add_argument("--keep", type=Path, help="an empty directory for the logs, which are kept")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="penstock-migration-") as temporary:
        directory = options.keep or Path(temporary)
        with KafkaNode(directory) as kafka, PenstockNode(directory) as penstock:
            outcome = run(directory, kafka.bootstrap, penstock.bootstrap, options.topics, say)
    print(outcome.text())


if __name__ == "__main__":
    main()
