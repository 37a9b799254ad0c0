"""A directory with a penstock.yml, the commands that are run in it, and the resulting table."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from harness.spark.shared_classes import with_classes
from harness.spark.standalone import processes
from penstock.client.blocking import SyncClient
from penstock.client.consumer.consumer import Message
from penstock.client.producer.producer import Producer

COMMAND = (sys.executable, "-m", "penstock", "spark")
DEADLINE_S = 300
FILE = """
cluster: {{bootstrap: ["{bootstrap}"]}}
spark:{spark}
pipelines:
  orders_lake:
    kind: lake
    from: {{topic: {topic}}}
    decode: {{key: text, value: json, schema: "n BIGINT"}}
    to: {{delta: lake, compact: {{after: 1 second}}}}
    trigger: 100 ms
    max_batch: {max_batch}
    on_bad_record: {{dlq: {topic}.dlq}}
  orders_audit: {{kind: audit, of: orders_lake, to: {{delta: audit}}}}
"""
LOCAL = """
  master: local[2]
  memory: 512m
  conf:
    spark.driver.extraJavaOptions: "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
    spark.sql.shuffle.partitions: 2"""
Place = tuple[int, int]
"""Partition and offset."""
KEPT = {"retention.ms": "-1"}
"""The records have old timestamps: by default the broker would delete them before the comparison."""


@dataclass
class Pipeline:
    """One lake."""

    directory: Path
    bootstrap: str
    topic: str
    client: SyncClient

    def describe(self, max_batch: str = "2 GB", spark: str = LOCAL) -> None:
        """Writes the file."""
        text = FILE.format(bootstrap=self.bootstrap, topic=self.topic, max_batch=max_batch, spark=spark)
        (self.directory / "penstock.yml").write_text(text)

    def fill(self, numbers: Iterable[int], partitions: int = 3) -> None:
        """Writes a document for each number; every hundredth is cut off. A day has 4,500 of them."""

        async def send() -> None:
            producer = Producer(self.client.admin.cluster, linger_ms=5)
            try:
                deliveries = [
                    await producer.send(
                        self.topic,
                        b'{"n": %d' % number if is_bad(number) else b'{"n": %d}' % number,
                        key=b"%d" % (number % 7),
                        headers=[("n", b"%d" % number)],
                        partition=number % partitions,
                        timestamp_ms=1_769_817_600_000 + number * 19_200,
                    )
                    for number in numbers
                ]
                await asyncio.gather(*deliveries)
            finally:
                await producer.close()

        self.client.run(send())

    def run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Runs a command from its start to its end."""
        return subprocess.run(
            [*COMMAND, *arguments],
            cwd=self.directory,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )

    def start(self, *arguments: str) -> "Driver":
        """`penstock spark run`, in the background."""
        return Driver(self.directory, *arguments)

    @property
    def table(self) -> DeltaTable:
        """The current table."""
        return DeltaTable(self.directory / "lake")

    def rows(self) -> list[dict[str, Any]]:
        """All rows."""
        found: list[dict[str, Any]] = self.table.to_pyarrow_table().to_pylist()
        return sorted(found, key=place)

    def dead_letters(self) -> Iterator[Place]:
        """The places that dead letters come from; some may occur twice."""
        for each in self.client.consume(f"{self.topic}.dlq", until_end=True):
            headers = dict(each.headers)
            yield int(headers["__dlq.errors.partition"] or b""), int(headers["__dlq.errors.offset"] or b"")

    def assert_table_is_topic(self) -> tuple[int, int]:
        """Checks row for row, and that every bad record is a dead letter. Returns the number of both."""
        good: list[dict[str, Any]] = []
        row: dict[str, Any]
        bad: set[Place] = set()
        for each in self.client.consume(self.topic, until_end=True):
            headers = [{"key": name, "value": value} for name, value in each.headers]
            number = number_of(each)
            if is_bad(number):
                bad.add((each.partition, each.offset))
            else:
                moment = datetime.fromtimestamp(each.timestamp_ms / 1000, UTC)
                row = {"partition": each.partition, "offset": each.offset, "key": (each.key or b"").decode()}
                row |= {"value": {"n": number}, "headers": headers, "timestamp": moment, "day": moment.date()}
                good.append(row)
        found = [{name: row[name] for name in good[0]} for row in self.rows()]
        assert found == sorted(good, key=place)
        assert set(self.dead_letters()) == bad
        return len(good), len(bad)


class Driver:
    """A run in the background. Its batch reports are read as they come."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        self.said: list[dict[str, Any]] = []
        self._news = threading.Condition()
        self._errors = (directory / f"errors-{id(self)}.txt").open("w+")
        self.process = subprocess.Popen(
            [*COMMAND, "run", "-o", "json", *arguments],
            cwd=directory,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def wait_for(self, rows: int) -> None:
        """Waits until it reports that it has written this number of rows."""
        assert self.reaches(rows), self.log

    def gets_further(self) -> bool:
        """Whether it writes more rows before it ends by itself."""
        return self.reaches(self._rows() + 1)

    def reaches(self, rows: int) -> bool:
        """Whether it writes this number of rows before it ends."""
        return self._comes(lambda: self._rows() >= rows)

    def wait_until(self, state: str) -> dict[str, Any]:
        """Waits until it reports this state; returns the report."""
        assert self._comes(lambda: bool(self.said) and self.said[-1]["state"] == state), self.log
        return self.said[-1]

    def wait_for_each(self, names: Iterable[str]) -> None:
        """Waits until each of these pipelines has more rows than before."""
        before = self.rows_by_name()
        wanted = {name: before.get(name, 0) for name in names}
        assert self._comes(lambda: all(self.rows_by_name().get(name, 0) > had for name, had in wanted.items())), (
            self.log
        )

    def _comes(self, condition: Callable[[], bool]) -> bool:
        for _ in range(DEADLINE_S):  # in steps of a second, so that a suspended machine counts as one
            with self._news:
                if self._news.wait_for(lambda: condition() or self.process.poll() is not None, 1.0):
                    return condition()
        raise AssertionError(f"nothing new in {DEADLINE_S} s: {self.log}")

    def end(self, by: signal.Signals = signal.SIGTERM) -> int:
        """Ends it cleanly; returns its exit code."""
        self.process.send_signal(by)
        return self.wait()

    def kill(self, what: str = "both") -> None:
        """Kills its Python, its JVM, or both. Waits until the driver has ended."""
        jvms = self._jvms()
        for pid in jvms if what != "python" else ():
            _signalled(pid, signal.SIGKILL)
        if what != "jvm":
            self.process.kill()
        self.wait()

    def pause(self) -> None:
        """Pauses it (SIGSTOP)."""
        for pid in (*self._jvms(), self.process.pid):
            _signalled(pid, signal.SIGSTOP)

    def wake(self) -> None:
        """Resumes it (SIGCONT)."""
        for pid in (*self._jvms(), self.process.pid):
            _signalled(pid, signal.SIGCONT)

    def _jvms(self) -> list[int]:
        return [pid for pid, parent, command in processes() if parent == self.process.pid and b"java" in command]

    def wait(self, limit_s: float = DEADLINE_S) -> int:
        """Waits until it ends; returns its exit code."""
        code = self.process.wait(limit_s)
        self._listener.join(DEADLINE_S)
        self._errors.close()
        return code

    @property
    def log(self) -> str:
        """Its error output."""
        return Path(self._errors.name).read_text()

    def rows_by_name(self) -> dict[str, int]:
        """The number of rows that it has written, by pipeline."""
        return {each["name"]: int(each["rows"]) for each in list(self.said) if "rows" in each}

    def _rows(self) -> int:
        return sum(self.rows_by_name().values())

    def _listen(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                with self._news:
                    self.said.append(json.loads(line))
                    self._news.notify_all()
        with self._news:
            self._news.notify_all()


def _signalled(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def number_of(record: Message) -> int:
    """The number that its writer put into a header, even if the value cannot be read."""
    return int(record.headers[0][1] or b"")


def is_bad(number: int) -> bool:
    """Whether a number is written as an unreadable value."""
    return number % 100 == 50


def place(row: dict[str, Any]) -> Place:
    """The place that a row comes from."""
    return row["partition"], row["offset"]


def environment() -> dict[str, str]:
    """Our environment without settings of another cluster, and with the options that let Spark start fast."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("PENSTOCK_", "KAFKA_"))}
    return with_classes(ours)
