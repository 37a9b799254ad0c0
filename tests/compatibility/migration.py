"""A cut-over from Apache Kafka to Penstock and back with MirrorMaker 2, under live producers and consumers.

    python -m tests.compatibility.migration --topics 10 --record

Producers write numbered records to all topics on Kafka; two groups read them there and commit; MirrorMaker copies
topics and translates the groups' offsets (docs/migrating.md). Then one group is stopped in the middle, the producers
stop, the copies become complete, and the other group reads to the end; both groups and the producers continue on
Penstock. Finally the way back: the records on Penstock have been mirrored to Kafka under other names, and producers and
a group continue there. Every record is read at least once by every group. A record is read twice only if it lies
between the translated offset and the committed one: MirrorMaker translates exactly at the end of a partition; elsewhere
the translated offset may be lower, but never higher. `--record` adds to docs/results/migration.md.
"""

import argparse
import datetime
import json
import platform
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from harness.kafka.kafka_node import KafkaNode
from harness.penstock_node import PenstockNode
from tests.compatibility.migration_clients import (
    LISTED,
    PARTITIONS,
    Cluster,
    Migration,
    Place,
    Producer,
    Reader,
    copy_of,
    until,
)
from tests.compatibility.mirror_maker import BACK, MirrorMaker, settings
from tests.revision import revision
from tests.system.density import say
from tests.system.quorum_kills import RESULTS

Starts = dict[Place, int]
TOPICS: Final = 10
PRODUCERS: Final = 2
RECORDS: Final = 1_000
"""Records of every partition before the cut-over, and as many after it."""
DRAINED, STOPPED = "billing", "audit"
"""The group that reads to the end before it moves, and the one that does not."""
HEAD: Final = (
    f"| Topics × partitions | Records | Lost | Read twice by `{DRAINED}` | By `{STOPPED}` | Copied after, s "
    "| Nothing written for, s | Back on Kafka after, s | All, s | Date | Revision |"
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a cut-over."""

    topics: int
    partitions: int
    records: int
    """Records of all topics, including those on the way back."""
    again: int
    """Records read twice by the group that was stopped in the middle; the other group reads none twice."""
    copied_s: float
    """From the last record on Kafka until Penstock had it."""
    paused_s: float
    """How long nothing was written."""
    back_s: float
    """From the last record on Penstock until Kafka had it, and the group's offsets."""
    seconds: float
    date: str
    revision: str

    def row(self) -> str:
        """A row of the page."""
        cells = (
            f"{self.topics} × {self.partitions}",
            f"{self.records:,}",
            "0",
            "0",
            f"{self.again:,}",
            f"{self.copied_s:.1f}",
            f"{self.paused_s:.1f}",
            f"{self.back_s:.1f}",
            f"{self.seconds:.0f}",
            self.date,
            self.revision,
        )
        return f"| {' | '.join(cells)} |"

    def text(self) -> str:
        """A summary for people."""
        return (
            f"{self.records:,} records in {self.topics} topics, none lost; {DRAINED} has read none twice, {STOPPED} "
            f"{self.again:,}; nothing was written for {self.paused_s:.1f} s; {self.seconds:.0f} s in all"
        )


class CutOver:
    """The cut-over, step by step."""

    def __init__(
        self, kafka: Cluster, penstock: Cluster, topics: int, records: int, tell: Callable[[str], None]
    ) -> None:
        self._kafka = kafka
        self._penstock = penstock
        self.topics = [f"orders-{number}" for number in range(topics)]
        self._places = [(topic, partition) for topic in self.topics for partition in range(PARTITIONS)]
        self._records = records
        self._tell = tell
        self._numbers = dict.fromkeys(self._places, 0)
        self._read: dict[str, Counter[tuple[str, int, int]]] = {DRAINED: Counter(), STOPPED: Counter()}
        self._stack = ExitStack()

    def run(self, stop_mirror: Callable[[], None]) -> Outcome:
        with self._stack:
            return self._run(stop_mirror)

    def _run(self, stop_mirror: Callable[[], None]) -> Outcome:
        began = time.monotonic()
        kafka, penstock, places, tell = self._kafka, self._penstock, self._places, self._tell
        tell(f"live on Kafka with {len(self.topics)} topics, mirrored to Penstock")
        producers = self._producers(kafka)
        readers = {group: self._reader(kafka, group, self.topics) for group in self._read}
        until(lambda: min(self._numbers.values()) >= self._records, lambda: self._numbers)
        until(lambda: min(penstock.ends(places).values()) > 0, lambda: penstock.ends(places))
        until(lambda: all(len(each.committed) == len(places) for each in readers.values()), lambda: "no commits")
        tell(f"{STOPPED} stops in the middle, the producers a little later")
        self._stop(readers[STOPPED], STOPPED)
        stopped = readers[STOPPED].committed
        self._stop_producers(producers)
        paused = time.monotonic()
        ends = dict(self._numbers)
        until(lambda: penstock.ends(places) == ends, lambda: (penstock.ends(places), ends))
        copied_s = time.monotonic() - paused
        tell(f"all is copied after {copied_s:.1f} s; {DRAINED} reads to the end, and offsets follow")
        self._wait_read(readers[DRAINED], {}, ends)
        until(lambda: readers[DRAINED].committed == ends, lambda: readers[DRAINED].committed)
        self._stop(readers[DRAINED], DRAINED)
        translated = self._await_offsets(stopped, ends)
        producers = self._producers(penstock)
        paused_s = time.monotonic() - paused
        tell(f"live on Penstock, after {paused_s:.1f} s without a producer")
        readers = {group: self._reader(penstock, group, self.topics) for group in self._read}
        if copy_of(kafka.bootstrap, places, ends) != copy_of(penstock.bootstrap, places, ends):
            raise Migration("the copy has other records, or in another order")
        until(lambda: all(n > ends[place] + self._records for place, n in self._numbers.items()), lambda: ends)
        self._stop_producers(producers)
        written = time.monotonic()
        for group, reader in readers.items():
            self._wait_read(reader, translated[group], self._numbers)
            self._stop(reader, group)
        self._check(DRAINED, ends, ends)
        again = self._check(STOPPED, translated[STOPPED], stopped)
        back_s = self._go_back(written, stop_mirror)
        return Outcome(
            topics=len(self.topics),
            partitions=PARTITIONS,
            records=sum(self._numbers.values()),
            again=again,
            copied_s=round(copied_s, 1),
            paused_s=round(paused_s, 1),
            back_s=round(back_s, 1),
            seconds=round(time.monotonic() - began, 1),
            date=datetime.date.today().isoformat(),
            revision=revision(),
        )

    # --- clients

    def _producers(self, cluster: Cluster) -> list[Producer]:
        """Starts producers; each has partitions of its own."""
        shares = [self._places[number::PRODUCERS] for number in range(PRODUCERS)]
        started = [Producer(cluster.bootstrap, share, self._numbers) for share in shares]
        for each in started:
            self._stack.callback(each.stop)
        return started

    @staticmethod
    def _stop_producers(producers: list[Producer]) -> None:
        for each in producers:
            each.stop()

    def _reader(self, cluster: Cluster, group: str, topics: list[str]) -> Reader:
        reader = Reader(cluster.bootstrap, group, topics)
        self._stack.callback(reader.stop)
        return reader

    def _stop(self, reader: Reader, group: str) -> None:
        reader.stop()
        self._read[group] += reader.read

    def _wait_read(self, reader: Reader, starts: Starts, ends: Starts) -> None:
        """Waits until everything between the offsets was read; the reader may read more."""

        def missing() -> list[tuple[str, int, int]]:
            return [
                (*place, number)
                for place, end in ends.items()
                for number in range(starts.get(place, 0), end)
                if (*place, number) not in reader.read
            ]

        until(lambda: not missing(), lambda: f"{reader.name} has not read {missing()[:LISTED]}")

    # --- checks

    def _await_offsets(self, stopped: Starts, ends: Starts) -> dict[str, Starts]:
        """Translated offsets: exact for the group that read to the end, never beyond the committed ones."""
        penstock, places = self._penstock, self._places
        until(lambda: penstock.offsets(DRAINED, places) == ends, lambda: (penstock.offsets(DRAINED, places), ends))
        until(lambda: len(penstock.offsets(STOPPED, places)) == len(places), lambda: penstock.offsets(STOPPED, places))
        found = penstock.offsets(STOPPED, places)
        if beyond := {place: (offset, stopped[place]) for place, offset in found.items() if offset > stopped[place]}:
            raise Migration(f"offsets of {STOPPED} were translated beyond what was committed: {beyond}")
        return {DRAINED: dict(ends), STOPPED: found}

    def _check(self, group: str, translated: Starts, committed: Starts) -> int:
        """Checks that every record was read; counts those read twice, all between translated and committed offset."""
        read = self._read[group]
        wanted = {(*place, number) for place, end in self._numbers.items() for number in range(end)}
        if lost := sorted(wanted - set(read)):
            raise Migration(f"{group} has never read {len(lost)} records: {lost[:LISTED]}")
        twice = [each for each, count in read.items() if count > 1]
        if wrong := [each for each in twice if not translated[each[:2]] <= each[2] < committed[each[:2]]]:
            raise Migration(f"{group} has read twice what no offset explains: {sorted(wrong)[:LISTED]}")
        return len(twice)

    def _go_back(self, written: float, stop_mirror: Callable[[], None]) -> float:
        """Goes back for good: producers write to the topics on Kafka again, and the first group continues there.

        The records read on Penstock are on Kafka under prefixed names, with the group's offsets. They include the
        records under the original names, which are skipped. Returns the seconds until everything is there.
        """
        kafka, back = self._kafka, [(f"{BACK}{topic}", partition) for topic, partition in self._places]
        ends = {(f"{BACK}{topic}", partition): end for (topic, partition), end in self._numbers.items()}
        until(lambda: kafka.ends(back) == ends, lambda: (kafka.ends(back), ends))
        until(lambda: kafka.offsets(DRAINED, back) == ends, lambda: (kafka.offsets(DRAINED, back), ends))
        back_s = time.monotonic() - written
        self._tell(f"and back: all of it is on Kafka after {back_s:.1f} s")
        stop_mirror()
        kafka.skip(DRAINED, self.topics)
        starts = dict(self._numbers)
        producers = self._producers(kafka)
        reader = self._reader(kafka, DRAINED, [*self.topics, *(f"{BACK}{topic}" for topic in self.topics)])
        until(lambda: all(end > starts[place] for place, end in self._numbers.items()), lambda: "no records")
        self._stop_producers(producers)
        self._wait_read(reader, starts, self._numbers)
        reader.stop()
        if again := [each for each, count in reader.read.items() if count > 1 or each[2] < starts.get(each[:2], 0)]:
            raise Migration(f"{DRAINED} has read again on its way back: {again[:LISTED]}")
        if strange := [each for each in reader.read if each[:2] not in starts]:
            raise Migration(f"{DRAINED} has read again what was mirrored back: {strange[:LISTED]}")
        return back_s


def run(
    directory: Path,
    kafka: str,
    penstock: str,
    topics: int,
    records: int,
    tell: Callable[[str], None] = lambda _: None,
) -> Outcome:
    """Runs a cut-over between two existing clusters."""
    story = CutOver(Cluster(kafka), Cluster(penstock), topics, records, tell)
    Cluster(kafka).create(story.topics)
    configuration = settings(kafka, penstock, topics="orders-.*", groups=f"{DRAINED}|{STOPPED}")
    with MirrorMaker(directory, configuration) as mirror:
        try:
            return story.run(mirror.stop)
        except Migration as error:
            raise Migration(f"{error}\n{mirror.complaints()}") from None


def load() -> list[Outcome]:
    path = RESULTS / "migration.json"
    return [Outcome(**each) for each in json.loads(path.read_text())] if path.exists() else []


def write(runs: list[Outcome]) -> None:
    (RESULTS / "migration.json").write_text(json.dumps([asdict(each) for each in runs], indent=1) + "\n")
    rows = "\n".join(each.row() for each in runs)
    text = f"""# Moving from Apache Kafka, and back

Apache Kafka, one Penstock node and MirrorMaker 2 between them, both ways, with the settings of
[migrating](../migrating.md) and intervals of one or two seconds. {PRODUCERS} producers (librdkafka, idempotent) write
numbered records to every partition on Kafka, and two groups read and commit them there. `{STOPPED}` is stopped in the
middle, then the producers stop; when all is copied, `{DRAINED}` reads to the end and stops. When their offsets are
translated, producers and groups go on with Penstock. At last producers and `{DRAINED}` go back to Kafka for good.

A run ends well only if the copy is the original, record by record with keys, times and order; every group has read
every record; no translated offset lies beyond the one that was committed; and whatever was read twice lies between the
two. MirrorMaker translates exactly for a group that has read to the end: `{DRAINED}` reads nothing twice, neither there
nor on its way back.

{HEAD}
|{"--:|" * 9}---|---|
{rows}

*Copied after* is the time from the last record on Kafka until Penstock had it, *nothing written* from that record until
the producers started on Penstock, and *back* from the last record on Penstock until Kafka had it and the offsets of
`{DRAINED}`.

`./dev campaign migration` adds to this table; Python {platform.python_version()}, 2 shared cores, 24 GiB.
"""
    (RESULTS / "migration.md").write_text(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topics", type=int, default=TOPICS)
    parser.add_argument("--records", type=int, default=RECORDS, help="of a partition, before the cut-over and after it")
    parser.add_argument("--keep", type=Path, help="an empty directory for the logs, which are kept")
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="penstock-migration-") as temporary:
        directory = options.keep or Path(temporary)
        with KafkaNode(directory) as kafka, PenstockNode(directory) as penstock:
            outcome = run(directory, kafka.bootstrap, penstock.bootstrap, options.topics, options.records, say)
    say(outcome.text())
    if options.record:
        write([*load(), outcome])


if __name__ == "__main__":
    main()
