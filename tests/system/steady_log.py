"""Log output of a cluster of three under a steady load: `python -m tests.system.steady_log --minutes 60 --record`.

Two producers and a consumer group of two, librdkafka each, write and read all the time. Lines are counted once the
group's first rebalance is over and the offsets topic exists.
"""

import argparse
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, Producer

from harness import machine
from harness.ports import free_port
from tests.revision import revision
from tests.system.commands import Shell
from tests.system.log_story import logs_of, since

PAGE: Final = Path(__file__).parents[2] / "docs" / "results" / "steady-log.md"
PARTITIONS: Final = 12
RATE: Final = 100
"""Records per second of each producer."""
WARM_UP_S: Final = 20
LINES_MAX: Final = 20
"""Log lines of all nodes together in an hour."""


@dataclass
class Steady:
    """The result of a run."""

    seconds: float
    written: int
    read: int
    lines: list[str]


class Load:
    """Clients in threads; each one runs until `stop`."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._is_over = threading.Event()
        self._counts: Counter[str] = Counter()
        self._threads = [threading.Thread(target=each) for each in (self._write, self._write, self._read, self._read)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> Counter[str]:
        self._is_over.set()
        for thread in self._threads:
            thread.join()
        return self._counts

    def _write(self) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap, "acks": "all"})
        while not self._is_over.wait(1 / RATE):
            producer.produce("orders", b"x" * 200, on_delivery=self._delivered)
            producer.poll(0)
        producer.flush(30)

    def _delivered(self, error: object, _record: object) -> None:
        self._counts["written" if error is None else "refused"] += 1

    def _read(self) -> None:
        settings = {"bootstrap.servers": self._bootstrap, "group.id": "readers", "auto.offset.reset": "earliest"}
        consumer = Consumer(settings)
        consumer.subscribe(["orders"])
        while not self._is_over.is_set():
            record = consumer.poll(0.5)
            if record is not None and record.error() is None:
                self._counts["read"] += 1
        consumer.close()


def run(folder: Path, seconds: float) -> Steady:
    """Starts a cluster and a load, waits, stops both."""
    shell = Shell(folder)
    try:
        said = shell("sandbox", "up", "--nodes", "3", "--port", str(free_port()))
        bootstrap = said.rpartition("bootstrap: ")[2].strip()
        shell("topic", "create", "orders", "-p", str(PARTITIONS), "-r", "3", "-b", bootstrap)
        load = Load(bootstrap)
        load.start()
        try:
            time.sleep(WARM_UP_S)
            before = logs_of(folder)
            time.sleep(seconds)
            logged = since(before, logs_of(folder))
        finally:
            counts = load.stop()
    finally:
        shell.run("sandbox", "down")
    lines = [f"node {node}: {line}" for node, entries in logged.items() for line in entries]
    return Steady(seconds, counts["written"], counts["read"], lines)


def page(steady: Steady) -> str:
    """The text of the page."""
    shape, minutes = machine.describe(), round(steady.seconds / 60)
    what = (
        f"Three nodes, one topic with {PARTITIONS} partitions and three replicas, two producers, a consumer group of "
        f"two for {minutes} minutes: {steady.written:,} records written, {steady.read:,} read, and {len(steady.lines)} "
        "lines at INFO of all nodes together. [All events](../operating/logs.md)."
    )
    made = (
        f"Made by `python -m tests.system.steady_log --minutes {minutes} --record` on {datetime.now(UTC):%Y-%m-%d}, "
        f"revision {revision()}, {shape['cores']} cores, {shape['memory_gib']} GiB."
    )
    shown = ["", "```text", *steady.lines, "```"] if steady.lines else []
    return "\n".join(["# The logs of a steady load", "", what, "", made, *shown, ""])


def main() -> int:
    """Runs for an hour, or less."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--record", action="store_true", help="write the page")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        steady = run(Path(folder), options.minutes * 60)
    if options.record:
        PAGE.write_text(page(steady), encoding="utf-8")
    print(page(steady))
    return 0 if len(steady.lines) <= LINES_MAX else 1


if __name__ == "__main__":
    sys.exit(main())
