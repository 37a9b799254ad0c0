"""The load on a broker in one round, and its figures.

Every load that writes is checked against the log: the end offsets must have grown by exactly the acknowledged records.
A round that fails the check gives no figures.
"""

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from benchmarks.side_by_side.brokers import Broker
from benchmarks.side_by_side.frames import Batch, make_batch
from benchmarks.side_by_side.jobs import FOLLOWERS, Job, Load
from benchmarks.side_by_side.payload import batch_of
from harness import machine
from harness.machine import Cores, Sample
from harness.raw_client import Topic

GB = 1e9
MB = 1e6
LOAD_IS_LIMIT = 0.95
FILL_S = 300.0
GUESS_RECORDS_S = 20_000.0
CLIENTS_S_MAX = 120.0

_numbers = count()


class WrongCount(Exception):
    """The counts of a round are wrong, for example acknowledged records differ from those in the log."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """The cores and times of a round."""

    cores: Cores
    seconds: float = 3.0
    lead_s: float = 1.0
    """Time under load before the measured window."""


Figures = dict[str, Any]


class Work(ABC):
    """A load, independent of the broker that serves it."""

    @property
    def unit(self) -> str:
        """The figure by which contenders are compared."""
        return "mb_s"

    @abstractmethod
    def measure(self, broker: Broker, settings: Mapping[str, str], conditions: Conditions) -> Figures:
        """Measures one round."""

    def warm(self, broker: Broker, settings: Mapping[str, str], conditions: Conditions) -> Figures:
        """Runs the same load or a similar one, to warm up the broker."""
        return self.measure(broker, settings, conditions)

    def prepare(  # noqa: B027 - most need nothing
        self, contenders: Sequence[tuple[Broker, Mapping[str, str]]], conditions: Conditions
    ) -> None:
        """Determines settings that depend on all contenders, such as the rate, before the first round."""

    def forget(self) -> None:  # noqa: B027 - most leave nothing
        """Deletes topics that rounds share."""


@dataclass
class Produce(Work):
    """Pre-encoded batches, as many as the broker accepts."""

    connections: int = 1
    partitions: int = 1
    in_flight: int = 5
    record_bytes: int = 100
    batch_bytes: int = 64 * 1024
    codec: str = "none"
    values: str = "random"
    processes: int = 1

    def job(self, broker: Broker, topic: Topic, **more: Any) -> Job:
        """The job of a load process."""
        fields: dict[str, Any] = {
            "connections": self.connections,
            "in_flight": self.in_flight,
            "record_bytes": self.record_bytes,
            "batch_bytes": self.batch_bytes,
            "codec": self.codec,
            "values": self.values,
            **more,
        }
        return Job(broker.address, topic.name, topic.topic_id.hex(), self.partitions, **fields)

    def batch(self) -> Batch:
        """The batch that is sent."""
        return batch_of(
            Job(
                "",
                "",
                "",
                1,
                record_bytes=self.record_bytes,
                batch_bytes=self.batch_bytes,
                codec=self.codec,
                values=self.values,
            )
        )

    def measure(self, broker: Broker, settings: Mapping[str, str], conditions: Conditions) -> Figures:
        with a_topic(broker, self.partitions, settings, self.batch()) as topic:
            shares = [self.connections // self.processes] * self.processes
            load = Load(
                [("generator", self.job(broker, topic, connections=each)) for each in shares],
                conditions.cores.load,
            )
            begin, end = watched(load, broker, conditions)
            results = load.results()
            check_count(broker, topic, self.partitions, sum(each["acknowledged"] for each in results))
            return figures(broker, conditions.seconds, begin, end, results)


@dataclass
class Consume(Work):
    """Reads of batches in the page cache, as many as the broker serves."""

    connections: int = 1
    partitions: int = 1
    record_bytes: int = 100
    fill_bytes: int = 256 * 1024 * 1024
    fetch_bytes: int = 4 * 1024 * 1024

    def __post_init__(self) -> None:
        self._filled: dict[str, tuple[Broker, Topic]] = {}

    @property
    def writing(self) -> Produce:
        """The load that fills the topic."""
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
        job = self.writing.job(broker, topic, connections=self.connections, fetch_bytes=self.fetch_bytes)
        load = Load([("reader", job)], conditions.cores.load)
        begin, end = watched(load, broker, conditions)
        return figures(broker, conditions.seconds, begin, end, load.results())

    def forget(self) -> None:
        for broker, topic in self._filled.values():
            broker.delete(topic)
        self._filled.clear()


@dataclass
class Latency(Produce):
    """Requests at half of the slower contender's maximum rate; measures ack and end-to-end latency."""

    rate: float = 0.0
    """Requests per second; determined by a trial if it is 0."""

    @property
    def unit(self) -> str:
        return "ack_p99"

    def warm(self, broker: Broker, settings: Mapping[str, str], conditions: Conditions) -> Figures:
        return self._saturating(broker).measure(broker, settings, conditions)

    def prepare(self, contenders: Sequence[tuple[Broker, Mapping[str, str]]], conditions: Conditions) -> None:
        if not self.rate:
            rates = [
                self.warm(broker, settings, conditions)["requests_s"]
                for broker, settings in contenders
                if broker.name != "bare"
            ]
            # Under full load a read returns many records. At a fixed rate each record costs a read of its own, so half
            # of the requests are reads: half of the slower contender's maximum is a quarter of its produce rate.
            self.rate = min(rates) / 4

    def _saturating(self, broker: Broker) -> Produce:
        """The same load without a rate limit, with the same readers."""
        shape = (self.connections, self.partitions, self.in_flight, self.record_bytes, self.batch_bytes)
        return Everyday(*shape, readers=FOLLOWERS) if self._follows(broker) else Produce(*shape)

    def _follows(self, broker: Broker) -> bool:
        """Whether records are read as well: the bare limit has no long polls, and an offset must identify a request."""
        return broker.name != "bare" and self.batch().records == 1

    def measure(self, broker: Broker, settings: Mapping[str, str], conditions: Conditions) -> Figures:
        with a_topic(broker, self.partitions, settings, self.batch()) as topic:
            follows = self._follows(broker)
            job = self.job(broker, topic, rate=self.rate, follows=follows, fetch_bytes=256 * 1024)
            load = Load([("pacer", job)], conditions.cores.load)
            begin, end = watched(load, broker, conditions)
            results = load.results()
            check_count(broker, topic, self.partitions, results[0]["acknowledged"])
            found = figures(broker, conditions.seconds, begin, end, results)
        # A paced load spins, so its CPU says nothing; its lateness shows whether it kept the rate.
        return {**found, "rate": self.rate, "load_is_limit": False}


@dataclass
class ColdReplay(Work):
    """A reader replays records that are not in the page cache, beside a paced producer whose latency is measured."""

    rate: float = 500.0
    fill_bytes: int = 1024 * 1024 * 1024

    def __post_init__(self) -> None:
        self._replayed = Consume(fill_bytes=self.fill_bytes)
        self._paced = Latency(connections=4, partitions=4, batch_bytes=1, rate=self.rate)

    def warm(self, broker: Broker, settings: Mapping[str, str], conditions: Conditions) -> Figures:
        self._replayed.measure(broker, settings, conditions)
        return self._paced.warm(broker, settings, conditions)

    def measure(self, broker: Broker, settings: Mapping[str, str], conditions: Conditions) -> Figures:
        old = self._replayed.topic(broker, settings, conditions)
        alone = self._paced.measure(broker, settings, conditions)
        with a_topic(broker, self._paced.partitions, settings, self._paced.batch()) as topic:
            machine.drop_from_page_cache(broker.files())
            replay = self._replayed.writing.job(
                broker, old, connections=1, is_replay=True, fetch_bytes=self._replayed.fetch_bytes
            )
            pace = self._paced.job(broker, topic, rate=self.rate)
            load = Load([("reader", replay), ("pacer", pace)], conditions.cores.load)
            begin, end = watched(load, broker, conditions)
            read, paced = load.results()
            check_count(broker, topic, self._paced.partitions, paced["acknowledged"])
            found = figures(broker, read["seconds"], begin, end, [read])
        if found["disk_read_mb"] * MB < read["batch_bytes"] / 2:
            raise WrongCount(f"{broker.name} read {found['disk_read_mb']:.0f} MB from disk: the replay was not cold")
        return {
            **found,
            # The window may be longer than the replay: the cost is that of all bytes read in it.
            "cpu_s_per_gb": (end.cpu_s - begin.cpu_s) / (read["value_bytes"] / GB),
            "ack_ms": paced["ack_ms"],
            "ack_alone_ms": alone["ack_ms"],
            "lateness_ms": paced["lateness_ms"],
            "rate": self.rate,
            "load_is_limit": False,
        }

    def forget(self) -> None:
        self._replayed.forget()


@dataclass
class Everyday(Produce):
    """Many producers and readers of raw batches at once; each producer writes to all partitions in turn."""

    readers: int = 10

    def measure(self, broker: Broker, settings: Mapping[str, str], conditions: Conditions) -> Figures:
        with a_topic(broker, self.partitions, settings, self.batch()) as topic:
            writing = self.job(broker, topic, settings={"spreads": True})
            reading = self.job(broker, topic, connections=self.readers, settings={"tails": True})
            load = Load([("generator", writing), ("reader", reading)], conditions.cores.load)
            begin, end = watched(load, broker, conditions)
            written, read = load.results()
            check_count(broker, topic, self.partitions, written["acknowledged"])
            found = figures(broker, conditions.seconds, begin, end, [written])
        return _with_reading(found, read, read["value_bytes"] / conditions.seconds / MB)


@dataclass
class Clients(Work):
    """Real clients send a number of records; the figures come from the growth of the log, not from the clients."""

    kind: str
    """`java_producer` or `rdkafka_producer`."""
    producers: int = 1
    consumers: int = 0
    partitions: int = 1
    record_bytes: int = 100
    codec: str = "none"
    values: str = "random"
    rate: float = 0.0
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._pace: dict[tuple[str, ...], float] = {}

    @property
    def unit(self) -> str:
        return "ack_p99" if self.rate else super().unit

    def measure(self, broker: Broker, settings: Mapping[str, str], conditions: Conditions) -> Figures:
        who = (broker.name, *settings)
        pace = self.rate or self._pace.get(who, GUESS_RECORDS_S)
        lead = int(pace * conditions.lead_s)
        total = lead + int(pace * conditions.seconds)
        with a_topic(broker, self.partitions, settings, make_batch([b""])) as topic:
            job = Job(
                broker.address,
                topic.name,
                topic.topic_id.hex(),
                self.partitions,
                connections=self.producers,
                requests_max=total,
                record_bytes=self.record_bytes,
                codec=self.codec,
                values=self.values,
                rate=self.rate,
                settings=self.settings,
            )
            work = [(self.kind, job)]
            if self.consumers:
                work.append(("rdkafka_consumer", replace(job, connections=self.consumers, settings={})))
            load = Load(work, conditions.cores.load)
            load.begin(0.0, CLIENTS_S_MAX)
            begin, begin_count = self._reached(broker, topic, lead, load)
            end, end_count = self._reached(broker, topic, total, load)
            results = load.results()
            check_count(broker, topic, self.partitions, results[0]["acknowledged"])
            seconds = end.at_s - begin.at_s
            written = {
                **results[0],
                "records": end_count - begin_count,
                "value_bytes": (end_count - begin_count) * self.record_bytes,
                "requests": 0,
            }
            found = figures(broker, seconds, begin, end, [written])
        found["requests_s"] = None
        self._pace[who] = found["records_s"]
        if self.consumers:
            read = results[1]
            if read["read"] != total:
                raise WrongCount(f"{read['read']} of {total} records were read from {broker.name}")
            found = _with_reading(found, read, found["mb_s"])
        return found

    def _reached(self, broker: Broker, topic: Topic, wanted: int, load: Load) -> tuple[Sample, int]:
        deadline_s = time.monotonic() + CLIENTS_S_MAX
        while time.monotonic() < deadline_s and not load.has_failed:
            stored = broker.end(topic, self.partitions)
            if stored >= wanted:
                return machine.sample(*broker.pids), stored
            time.sleep(0.02)
        load.results()
        raise WrongCount(f"{broker.name} has {stored} of {wanted} records after {CLIENTS_S_MAX:.0f} s")


def _with_reading(found: Figures, read: Mapping[str, Any], out_mb_s: float) -> Figures:
    """The figures of a load that writes and reads; the broker's cost is that of both."""
    load_cpu = found["load_cpu"] + read["cpu"]
    more: Figures = {
        "out_mb_s": out_mb_s,
        "cpu_s_per_gb": found["broker_cpu"] / ((found["mb_s"] + out_mb_s) / 1000),
        "load_cpu": load_cpu,
        "load_is_limit": load_cpu >= LOAD_IS_LIMIT,
        "others_cpu": max(0.0, found["others_cpu"] - read["cpu"]),
    }
    if read.get("end_to_end_ms"):
        more["end_to_end_ms"] = read["end_to_end_ms"]
    return {**found, **more}


# --- shared by loads --------------------------------------------------------------------------------------------------


def new_name() -> str:
    """An unused topic name."""
    return f"side-{os.getpid()}-{next(_numbers)}"


@contextmanager
def a_topic(broker: Broker, partitions: int, settings: Mapping[str, str], batch: Batch) -> Iterator[Topic]:
    """A new topic for one round. Before the round dirty pages are written back, after it deleted files are removed."""
    before_bytes = broker.used_bytes()
    topic = broker.create(new_name(), partitions, settings, batch)
    os.sync()
    yield topic
    broker.delete(topic)  # after a failure the broker's directory is removed anyway
    broker.wait_until_removed(before_bytes)


def fill(broker: Broker, topic: Topic, writing: Produce, size_bytes: int, conditions: Conditions) -> None:
    """Writes `size_bytes` of batches and syncs them, so that write-back does not disturb later measurements."""
    requests = max(writing.partitions, size_bytes // len(writing.batch().data))
    requests -= requests % writing.partitions
    load = Load([("generator", writing.job(broker, topic, requests_max=requests))], conditions.cores.load)
    load.begin(0.0, FILL_S)
    (result,) = load.results()
    check_count(broker, topic, writing.partitions, result["acknowledged"])
    os.sync()


def watched(load: Load, broker: Broker, conditions: Conditions) -> tuple[Sample, Sample]:
    """Runs the load; samples the broker's resource use at the beginning and at the end of the window."""
    window = load.begin(conditions.lead_s, conditions.seconds)
    found = []
    try:
        for moment_s in (window.begin_s, window.end_s):
            time.sleep(max(0.0, moment_s - time.monotonic()))
            found.append(machine.sample(*broker.pids))
    except BaseException:
        load.stop()
        raise
    begin, end = found
    return begin, end


def check_count(broker: Broker, topic: Topic, partitions: int, acknowledged: int) -> None:
    """Compares the acknowledged records with those in the log."""
    stored = broker.end(topic, partitions)
    if stored != acknowledged:
        raise WrongCount(f"{broker.name} acknowledged {acknowledged} records and has {stored}")


def figures(
    broker: Broker, seconds: float, begin: Sample, end: Sample, results: Sequence[Mapping[str, Any]]
) -> Figures:
    """The figures of a round."""
    value_bytes = sum(each["value_bytes"] for each in results)
    if not value_bytes:
        raise WrongCount(f"nothing came through {broker.name} within {seconds} s")
    watched_s = end.at_s - begin.at_s
    broker_cpu = (end.cpu_s - begin.cpu_s) / watched_s
    load_cpu = sum(each["cpu"] for each in results)
    machine_busy = (end.machine_busy_s - begin.machine_busy_s) / watched_s
    peak, now = machine.resident_bytes(*broker.pids)
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
        if told:  # several processes carry the same load: their percentiles are close, and the worst is reported
            found[name] = {
                share: max((each[share] for each in told if each[share] is not None), default=None) for share in told[0]
            }
    return found
