"""What is done to a broker in one round, and what is told of it.

Every load that writes is held against the log: the records that were acknowledged must be the records by which the end
offsets have grown. A round in which they are not gives no figure.
"""

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, ClassVar

from benchmarks.side_by_side import machine
from benchmarks.side_by_side.brokers import Broker
from benchmarks.side_by_side.frames import Batch
from benchmarks.side_by_side.jobs import Job, Load, Window
from benchmarks.side_by_side.machine import Cores, Sample
from benchmarks.side_by_side.payload import batch_of
from tests.compatibility.raw_client import Topic

GB = 1e9
MB = 1e6
LOAD_IS_LIMIT = 0.95
START_S = 1.5
FILL_S = 300.0

_numbers = count()


class WrongCount(Exception):
    """What was acknowledged is not what is in the log."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """How a round is run."""

    cores: Cores
    seconds: float = 3.0
    lead_s: float = 1.0
    """How long a load runs before it is measured."""

    def window(self) -> Window:
        """The next one; processes need a while to start."""
        begin_s = time.monotonic() + START_S + self.lead_s
        return Window(begin_s, begin_s + self.seconds)


Figures = dict[str, Any]


class Work(ABC):
    """A load, whoever serves it."""

    unit: ClassVar[str] = "mb_s"
    """The figure that counts."""

    @abstractmethod
    def measure(self, broker: Broker, settings: Mapping[str, str], conditions: Conditions) -> Figures:
        """One round."""

    def forget(self) -> None:  # noqa: B027 - most leave nothing
        """Removes what rounds have left for one another."""


@dataclass
class Produce(Work):
    """Pre-encoded batches, as many as the broker takes."""

    connections: int = 1
    partitions: int = 1
    in_flight: int = 5
    record_bytes: int = 100
    batch_bytes: int = 64 * 1024
    codec: str = "none"
    values: str = "random"
    processes: int = 1

    def job(self, broker: Broker, topic: Topic, window: Window, **more: Any) -> Job:
        """What a load process is told."""
        fields: dict[str, Any] = {
            "connections": self.connections,
            "in_flight": self.in_flight,
            "record_bytes": self.record_bytes,
            "batch_bytes": self.batch_bytes,
            "codec": self.codec,
            "values": self.values,
            **more,
        }
        return Job(broker.address, topic.name, topic.topic_id.hex(), self.partitions, window, **fields)

    def batch(self) -> Batch:
        """What is sent."""
        return batch_of(
            Job(
                "",
                "",
                "",
                1,
                Window(0, 0),
                record_bytes=self.record_bytes,
                batch_bytes=self.batch_bytes,
                codec=self.codec,
                values=self.values,
            )
        )

    def measure(self, broker: Broker, settings: Mapping[str, str], conditions: Conditions) -> Figures:
        with a_topic(broker, self.partitions, settings, self.batch()) as topic:
            window = conditions.window()
            shares = [self.connections // self.processes] * self.processes
            load = Load(
                [("generator", self.job(broker, topic, window, connections=each)) for each in shares],
                conditions.cores.load,
            )
            begin, end = watched(window, broker.pid, load)
            results = load.results()
            check_count(broker, topic, self.partitions, sum(each["acknowledged"] for each in results))
            return figures(broker, window.seconds, begin, end, results)


@dataclass
class Consume(Work):
    """Batches that lie in the page cache, as many as the broker gives."""

    connections: int = 1
    partitions: int = 1
    record_bytes: int = 100
    fill_bytes: int = 256 * 1024 * 1024
    fetch_bytes: int = 4 * 1024 * 1024

    def __post_init__(self) -> None:
        self._filled: dict[str, tuple[Broker, Topic]] = {}

    @property
    def writing(self) -> Produce:
        """How the topic is filled."""
        return Produce(self.partitions, self.partitions, record_bytes=self.record_bytes)

    def topic(self, broker: Broker, settings: Mapping[str, str], conditions: Conditions) -> Topic:
        """A filled topic, the same one for all rounds."""
        key = broker.name
        if key not in self._filled:
            batch = self.writing.batch()
            topic = broker.create(new_name(), self.partitions, settings, batch)
            self._filled[key] = broker, topic
            fill(broker, topic, self.writing, self.fill_bytes, conditions)
        return self._filled[key][1]

    def measure(self, broker: Broker, settings: Mapping[str, str], conditions: Conditions) -> Figures:
        topic = self.topic(broker, settings, conditions)
        window = conditions.window()
        job = self.writing.job(broker, topic, window, connections=self.connections, fetch_bytes=self.fetch_bytes)
        load = Load([("reader", job)], conditions.cores.load)
        begin, end = watched(window, broker.pid, load)
        return figures(broker, window.seconds, begin, end, load.results())

    def forget(self) -> None:
        for broker, topic in self._filled.values():
            broker.delete(topic)
        self._filled.clear()


# --- what loads share -------------------------------------------------------------------------------------------------


def new_name() -> str:
    """A topic that is not there yet."""
    return f"side-{os.getpid()}-{next(_numbers)}"


@contextmanager
def a_topic(broker: Broker, partitions: int, settings: Mapping[str, str], batch: Batch) -> Iterator[Topic]:
    """A new topic for one round. Before it begins, the disk has nothing left to do."""
    topic = broker.create(new_name(), partitions, settings, batch)
    try:
        os.sync()
        yield topic
    finally:
        broker.delete(topic)


def fill(broker: Broker, topic: Topic, writing: Produce, size_bytes: int, conditions: Conditions) -> None:
    """Writes so much, and waits until it is on disk, so that its writing disturbs nobody later."""
    now_s = time.monotonic()
    requests = max(writing.partitions, size_bytes // len(writing.batch().data))
    requests -= requests % writing.partitions
    job = writing.job(broker, topic, Window(now_s, now_s + FILL_S), requests_max=requests)
    (result,) = Load([("generator", job)], conditions.cores.load).results()
    check_count(broker, topic, writing.partitions, result["acknowledged"])
    os.sync()


def watched(window: Window, pid: int, load: Load) -> tuple[Sample, Sample]:
    """What the broker had used when the window began and when it ended."""
    found = []
    try:
        for moment_s in (window.begin_s, window.end_s):
            time.sleep(max(0.0, moment_s - time.monotonic()))
            found.append(machine.sample(pid))
    except BaseException:
        load.stop()
        raise
    begin, end = found
    return begin, end


def check_count(broker: Broker, topic: Topic, partitions: int, acknowledged: int) -> None:
    """Holds what the load was told against what is in the log."""
    stored = broker.end(topic, partitions)
    if stored != acknowledged:
        raise WrongCount(f"{broker.name} acknowledged {acknowledged} records and has {stored}")


def figures(
    broker: Broker, seconds: float, begin: Sample, end: Sample, results: Sequence[Mapping[str, Any]]
) -> Figures:
    """What a round tells."""
    value_bytes = sum(each["value_bytes"] for each in results)
    if not value_bytes:
        raise WrongCount(f"nothing came through {broker.name} within {seconds} s")
    watched_s = end.at_s - begin.at_s
    broker_cpu = (end.cpu_s - begin.cpu_s) / watched_s
    load_cpu = sum(each["cpu"] for each in results)
    machine_busy = (end.machine_busy_s - begin.machine_busy_s) / watched_s
    peak, now = machine.resident_bytes(broker.pid)
    found: Figures = {
        "mb_s": value_bytes / seconds / MB,
        "records_s": sum(each["records"] for each in results) / seconds,
        "requests_s": sum(each["requests"] for each in results) / seconds,
        "broker_cpu": broker_cpu,
        "cpu_s_per_gb": broker_cpu / (value_bytes / seconds / GB),
        "load_cpu": load_cpu,
        "load_is_limit": load_cpu >= LOAD_IS_LIMIT,
        "others_cpu": max(0.0, machine_busy - broker_cpu - load_cpu),
        "rss_peak_mb": peak / MB,
        "rss_end_mb": now / MB,
        "disk_read_mb": (end.disk_read_bytes - begin.disk_read_bytes) / MB,
    }
    for name in ("ack_ms", "end_to_end_ms", "answer_ms", "lateness_ms"):
        told = [each[name] for each in results if each.get(name)]
        if told:  # several processes carry the same load: their percentiles lie close, and the worst is told
            found[name] = {
                share: max((each[share] for each in told if each[share] is not None), default=None) for share in told[0]
            }
    return found


def with_window(job: Job, window: Window) -> Job:
    """The same work at another time."""
    return replace(job, window=window)
