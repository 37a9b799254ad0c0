"""The measurements of groups, on Penstock and, where a comparison is meaningful, on Apache Kafka in turn."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import confluent_kafka

from benchmarks.groups import members
from benchmarks.groups.committing import group_id
from benchmarks.groups.members import Members, waits
from benchmarks.side_by_side.brokers import Broker, Kafka, Penstock
from harness import machine
from harness.kafka import kafka_tools
from harness.load import create_topics
from harness.machine import ROOT, Cores, pinned
from harness.ports import free_port
from harness.raw_client import RawClient
from penstock.cli.sandbox.nodes import LocalCluster
from penstock.coordinator.placement import partition_of
from penstock.model.errors import ErrorCode
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from penstock.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse

TOPIC: Final = "work"
DEADLINE_S: Final = 120.0
ONE_SHARD: Final = {"offsets.topic.num.partitions": "1"}
Figures = dict[str, Any]
Tell = Callable[[str, str, Figures], None]


@dataclass(frozen=True)
class Sizes:
    """Sizes of the measurements; smaller ones are for trial runs."""

    rounds: int = 3
    seconds: float = 10.0
    groups: int = 10_000
    partitions: int = 10
    commits: int = 1_000_000
    members: int = 100
    handler_s: float = 0.005
    records: int = 2_000_000


class Unsynced(Penstock):
    """Penstock that acknowledges records in the page cache, as Kafka does."""

    name = "penstock-replicated"

    def __init__(self, directory: Path, cpus: Sequence[int], settings: dict[str, str]) -> None:
        super().__init__(directory, cpus, {**settings, "log.durability": "replicated"})


@contextlib.contextmanager
def both_at_once(
    cores: Cores, settings: dict[str, str], kinds: tuple[type[Penstock | Kafka], ...] = (Penstock, Kafka)
) -> Iterator[list[Broker]]:
    """Runs Penstock and Apache Kafka at the same time, to be measured in turn."""
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-groups-")))
        yield [stack.enter_context(kind(directory / kind.name, cores.broker, settings)) for kind in kinds]


def contenders(directory: Path, cores: Cores, settings: dict[str, str]) -> Iterator[Broker]:
    """Runs Penstock, and after it Apache Kafka."""
    for kind in (Penstock, Kafka):
        with kind(directory / kind.name, cores.broker, settings) as broker:
            yield broker


# --- committing -------------------------------------------------------------------------------------------------------


def commits(sizes: Sizes, tell: Tell) -> Figures:
    """Commits of ten thousand groups on one coordinator."""
    cores = machine.divided_cores()
    paced_s = 20_000 / sizes.partitions
    loads = {"as fast as it goes": (16, 8, 0.0), "20,000 offsets/s": (16, 1, paced_s)}
    found: Figures = {}
    with both_at_once(cores, ONE_SHARD, (Penstock, Kafka, Unsynced)) as both:
        for broker in both:
            broker.create(TOPIC, sizes.partitions, {})
            until_coordinated(broker.address, group_id(0))
        for _ in range(sizes.rounds):
            for what, (lines, depth, requests_s) in loads.items():
                for broker in both:
                    os.sync()  # writes back dirty pages of the other broker
                    before = machine.cpu_seconds(broker.pid)
                    shape = (sizes.groups, sizes.partitions, sizes.seconds, lines, depth, requests_s)
                    seen = commit(broker.address, cores.load, *shape)
                    seen["broker_cpu_s"] = machine.cpu_seconds(broker.pid) - before
                    found.setdefault(what, {}).setdefault(broker.name, []).append(seen)
                    tell(f"commits, {what}", broker.name, seen)
    return found


def commit(address: str, cpus: Sequence[int], *shape: float, shard: int = -1, shards: int = 1) -> Figures:
    """One run of `committing`, on the cores of the load."""
    command = [sys.executable, "-m", "benchmarks.groups.committing", address, TOPIC]
    with pinned(cpus):
        done = subprocess.run(
            [*command, *map(str, shape), str(shard), str(shards)], cwd=ROOT, check=True, stdout=subprocess.PIPE
        )
    found: Figures = json.loads(done.stdout.splitlines()[-1])
    return found


def until_coordinated(address: str, group: str) -> str:
    """Waits until a group has a coordinator, and returns its address."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        with contextlib.suppress(OSError), RawClient(address) as client:
            request = FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
            (said,) = client.ask(request, FindCoordinatorResponse, 4).coordinators
            if said.error_code is ErrorCode.NONE:
                return f"{said.host}:{said.port}"
        if time.monotonic() > deadline:
            raise TimeoutError(f"nobody coordinates {group} after {DEADLINE_S:.0f} s")
        time.sleep(0.01)


# --- loading ----------------------------------------------------------------------------------------------------------


def reload(sizes: Sizes, tell: Tell) -> Figures:
    """Kills the coordinator of a million commits; measures the time until another one has loaded them."""
    cores = machine.divided_cores()
    rounds = []
    with tempfile.TemporaryDirectory(prefix="penstock-groups-") as temporary:
        for number in range(sizes.rounds):
            seen = _reload_once(Path(temporary) / str(number), sizes, cores)
            rounds.append(seen)
            tell("reload", "penstock", seen)
    return {"": {"penstock": rounds}}


def _reload_once(directory: Path, sizes: Sizes, cores: Cores) -> Figures:
    directory.mkdir()
    local = LocalCluster(directory)
    local.grow(3, free_port())
    try:
        for node in local.nodes:
            local.start(node.node_id)
        shards = 50
        first = next(group_id(each) for each in range(10**6) if partition_of(group_id(each), shards) == 0)
        coordinator = until_coordinated(local.nodes[0].address, first)
        create_topics(coordinator, [(TOPIC, sizes.partitions)])
        groups = sizes.groups // 10
        for _ in range(sizes.commits // (groups * sizes.partitions)):
            commit(coordinator, cores.load, groups, sizes.partitions, 0.0, 16, 8, 0.0, shard=0, shards=shards)
        (dead,) = [each for each in local.nodes if each.address == coordinator]
        others = [each.address for each in local.nodes if each is not dead]
        local.kill(dead.node_id)
        killed_s = time.monotonic()
        found_s = None
        while True:
            with contextlib.suppress(OSError, TimeoutError):
                now = until_coordinated(others[0], first)
                if now != coordinator:
                    found_s = found_s or time.monotonic() - killed_s
                    if _knows(now, first, sizes.partitions):
                        break
            if time.monotonic() - killed_s > DEADLINE_S:
                raise TimeoutError("no other coordinator knows the commits")
            time.sleep(0.01)
        known_s = time.monotonic() - killed_s
        return {"commits": sizes.commits, "found_s": found_s, "known_s": known_s, "load_s": known_s - (found_s or 0.0)}
    finally:
        for node in local.nodes:
            local.kill(node.node_id)


def _knows(address: str, group: str, partitions: int) -> bool:
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)], require_stable=False)
    with RawClient(address) as client:
        (said,) = client.ask(request, OffsetFetchResponse, 8).groups
    return said.error_code is ErrorCode.NONE and sum(len(each.partitions) for each in said.topics) == partitions


# --- coming together --------------------------------------------------------------------------------------------------


def stable(sizes: Sizes, tell: Tell) -> Figures:
    """Lets a hundred members join at once, and then one more while all partitions are being read."""
    cores = machine.divided_cores()
    found: Figures = {}
    settings = {**ONE_SHARD, "group.initial.rebalance.delay.ms": "3000"}
    with both_at_once(cores, settings) as both:
        for broker in both:
            broker.create(TOPIC, 2 * sizes.members, {"message.timestamp.type": "LogAppendTime"})
            until_coordinated(broker.address, "stable")
        for number in range(sizes.rounds):
            for name, protocol in members.PROTOCOLS.items():
                for broker in both:
                    group = f"stable-{number}-{name.replace(' ', '-')}"
                    seen = _come_together(broker.address, group, protocol, sizes)
                    found.setdefault(name, {}).setdefault(broker.name, []).append(seen)
                    tell(f"stable, {name}", broker.name, seen)
    return found


def _come_together(address: str, group: str, protocol: dict[str, str], sizes: Sizes) -> Figures:
    partitions = 2 * sizes.members
    group_members = Members(address, group, TOPIC, partitions, protocol)
    writer = Writer(address, partitions)
    try:
        group_members.join(sizes.members)
        together_s = group_members.until_stable(DEADLINE_S)
        writer.start()
        group_members.turn_for(sizes.seconds)
        quiet = waits(group_members.heard, time.time() - sizes.seconds / 2)
        had = {partition: member for member in group_members.all for partition in member.owned}
        for member in group_members.all:
            member.lost.clear()
        began_s = time.time()
        group_members.join(1)
        again_s = group_members.until_stable(DEADLINE_S)
        group_members.turn_for(max(0.0, sizes.seconds / 2 - again_s))
        moved = {each for each, member in had.items() if each not in member.owned}
        taken = {each for member in group_members.all for each in member.lost}
        waited = waits(group_members.heard, began_s)
        stayed = [wait for partition, wait in waited.items() if partition not in moved]
        return {
            "together_s": together_s,
            "again_s": again_s,
            "moved": len(moved),
            "taken_though_they_stay": len(taken - moved),
            "quiet_wait_ms": 1000 * max(quiet.values()),
            "stayed_wait_ms": 1000 * max(stayed),
            "moved_wait_ms": 1000 * max((waited[each] for each in moved), default=0.0),
        }
    finally:
        writer.stop()
        group_members.close()


class Writer(threading.Thread):
    """Produces ten records a second to each partition."""

    def __init__(self, address: str, partitions: int) -> None:
        super().__init__(daemon=True)
        self._partitions = partitions
        self._is_stopping = threading.Event()
        self._producer: Any = confluent_kafka.Producer({**members.CALM, "bootstrap.servers": address, "linger.ms": 5})

    def run(self) -> None:
        due_s = time.monotonic()
        while not self._is_stopping.is_set():
            for partition in range(self._partitions):
                self._producer.produce(TOPIC, b"record", partition=partition)
            self._producer.poll(0)
            due_s += 0.1
            self._is_stopping.wait(max(0.0, due_s - time.monotonic()))

    def stop(self) -> None:
        self._is_stopping.set()
        if self.is_alive():
            self.join()
        self._producer.flush(10)


# --- working ----------------------------------------------------------------------------------------------------------


def scaling(sizes: Sizes, tell: Tell) -> Figures:
    """Throughput of one, two, four and eight members that wait 5 ms for each record."""
    cores = machine.divided_cores()
    found: Figures = {}
    with tempfile.TemporaryDirectory(prefix="penstock-groups-") as temporary:
        for broker in contenders(Path(temporary), cores, ONE_SHARD):
            broker.create(TOPIC, 16, {})
            until_coordinated(broker.address, "scaling")
            _fill(broker.address, int(16 * sizes.seconds / sizes.handler_s), 16)
            for number in range(sizes.rounds):
                for count in (1, 2, 4, 8):
                    seen = _work(broker.address, f"scaling-{number}-{count}", count, sizes)
                    found.setdefault(f"{count} members", {}).setdefault(broker.name, []).append(seen)
                    tell(f"scaling, {count} members", broker.name, seen)
    return found


def _fill(address: str, records: int, partitions: int) -> None:
    producer: Any = confluent_kafka.Producer({**members.CALM, "bootstrap.servers": address, "linger.ms": 20})
    for number in range(records):
        producer.produce(TOPIC, b"record", partition=number % partitions)
        if number % 1_000 == 0:
            producer.poll(0)
    producer.flush(60)


def _work(address: str, group: str, count: int, sizes: Sizes) -> Figures:
    counts = [0] * count
    begin, end = threading.Barrier(count + 1), threading.Event()

    def work(number: int) -> None:
        consumer: Any = confluent_kafka.Consumer(
            {
                **members.CALM,
                **members.CONSUMER,
                "bootstrap.servers": address,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 1000,
            }
        )
        consumer.subscribe([TOPIC])
        while len(consumer.assignment()) != 16 // count:
            consumer.poll(0.05)
            consumer.pause(consumer.assignment())  # else the first member would read everything meanwhile
        begin.wait()
        consumer.resume(consumer.assignment())
        while not end.is_set():
            for message in consumer.consume(10, 0.1):
                if message.error() is None:
                    time.sleep(sizes.handler_s)
                    counts[number] += 1
        consumer.close()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for each in threads:
        each.start()
    begin.wait()
    before, began_s = sum(counts), time.monotonic()
    time.sleep(sizes.seconds)
    done, took_s = sum(counts) - before, time.monotonic() - began_s
    end.set()
    for each in threads:
        each.join()
    return {"records_s": done / took_s}


# --- Kafka's own measure ----------------------------------------------------------------------------------------------


def perf(sizes: Sizes, tell: Tell) -> Figures:
    """Reads a topic by `kafka-consumer-perf-test` with a new group, on both brokers in turn."""
    cores = machine.divided_cores()
    found: Figures = {}
    with both_at_once(cores, {**ONE_SHARD, "group.initial.rebalance.delay.ms": "0"}) as both:
        for broker in both:
            broker.create(TOPIC, 4, {})
            until_coordinated(broker.address, "perf")
            _fill_well(broker.address, sizes.records)
        for number in range(-1, sizes.rounds):  # the first round warms up
            for protocol in ("classic", "consumer"):
                for broker in both:
                    seen = _perf_once(broker.address, f"perf-{protocol}-{number}", protocol, sizes.records, cores)
                    if number >= 0:
                        found.setdefault(protocol, {}).setdefault(broker.name, []).append(seen)
                        tell(f"consumer-perf-test, {protocol}", broker.name, seen)
    return found


def _fill_well(address: str, records: int) -> None:
    settings = {"batch.size": 100_000, "linger.ms": 20, "queue.buffering.max.messages": 1_000_000}
    producer: Any = confluent_kafka.Producer({**members.CALM, **settings, "bootstrap.servers": address})
    body = b"x" * 100
    for number in range(records):
        while True:
            try:
                producer.produce(TOPIC, body, partition=number % 4)
            except BufferError:
                producer.poll(0.1)
            else:
                break
    producer.flush(120)


def _perf_once(address: str, group: str, protocol: str, records: int, cores: Cores) -> Figures:
    with pinned(cores.load):
        said = kafka_tools.run_alone(
            "kafka-consumer-perf-test",
            *("--bootstrap-server", address, "--topic", TOPIC, "--messages", str(records), "--group", group),
            *("--command-property", f"group.protocol={protocol}", "--timeout", "60000", "--hide-header"),
        )
    fields = [each.strip() for each in said.strip().splitlines()[-1].split(",")]
    return {"mb_s": float(fields[3]), "records_s": float(fields[5]), "rebalance_ms": float(fields[6])}


ROWS: Final[dict[str, Callable[[Sizes, Tell], Figures]]] = {
    "commits": commits,
    "reload": reload,
    "stable": stable,
    "scaling": scaling,
    "perf": perf,
}
