"""A real cluster that balances itself: a fourth broker joins three under load, later another one is emptied.

    python -m tests.system.balance --record                          600 partitions with three replicas (12 minutes)
    python -m tests.system.balance --partitions 60 --before 5        a short one
    python -m tests.system.balance --set reassignment.replicas.per.broker.max=1

Nodes are processes of their own with their defaults. A librdkafka producer (acks=all) writes to all partitions at a
steady pace: first to three brokers, then while the fourth joins and receives its share, then while one is
decommissioned (`penstock cluster decommission`). No other request is made. Everything has to be acknowledged; the
metadata log shows afterwards whether a partition ever lacked a replica. `--record` writes docs/results/balance-real.md,
which has a section for each choice of settings.
"""

import argparse
import asyncio
import datetime
import json
import os
import platform
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

import confluent_kafka

from harness.ports import free_port
from penstock.cli.sandbox.nodes import LocalCluster
from penstock.client.admin.admin import Admin, NewTopic
from penstock.client.cluster import Cluster
from penstock.client.errors import ClientError
from penstock.client.metadata import Partition
from tests.revision import revision
from tests.system.commands import Shell
from tests.system.density import TICKS_PER_S, say
from tests.system.mortal_node import Broken
from tests.system.partition_histories import histories_of
from tests.system.quorum_kills import RESULTS, percentile

REPLICAS: Final = 3
JOINS: Final = 4
LEAVES: Final = 2
PARTITIONS_PER_TOPIC: Final = 100
TOPIC: Final = "balance-"
RATE: Final = 100.0
RECORD_BYTES: Final = 1_000
FILLING_BYTES: Final = 32_000
LOOK_S: Final = 1.0
DEADLINE_S: Final = 600.0
UNEVEN_MAX: Final = 0.1
SLOWER_MAX: Final = 2.0
"""Goals: how far a share may be from even, and p99 relative to the first phase."""


Place: TypeAlias = tuple[str, int]


# --- load -------------------------------------------------------------------------------------------------------------


class Load(threading.Thread):
    """A producer that sends `rate` records a second, each to a random partition.

    It is not idempotent: an idempotent producer has at most five requests in flight, each perhaps for one partition, so
    a late response could not be attributed to the brokers.
    """

    def __init__(self, bootstrap: str, places: list[Place], rate: float) -> None:
        super().__init__(name="load", daemon=True)
        self.acked: list[tuple[float, float, Place]] = []
        """Per record: when it was sent, how long the acknowledgement took, and its partition."""
        self.problems: list[str] = []
        self._places = places
        self._pace_s = 1.0 / rate
        self._stopping = threading.Event()
        self._producer: Any = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "acks": "all", "log_level": 0})

    def fill(self, partition_bytes: int) -> None:
        """Writes data to every partition, so that there is something to copy."""
        sizes = [min(FILLING_BYTES, partition_bytes - at) for at in range(0, partition_bytes, FILLING_BYTES)]
        for topic, index in self._places:
            for size in sizes:
                self._send(topic, index, os.urandom(size))
            self._producer.poll(0)
        if self._producer.flush(DEADLINE_S):
            raise Broken("what was to be copied could not be written")
        self.acked.clear()

    def run(self) -> None:
        drawn = random.Random(7)
        value = drawn.randbytes(RECORD_BYTES)
        due_s = time.monotonic()
        while not self._stopping.is_set():
            now_s = time.monotonic()
            if now_s >= due_s:
                self._send(*drawn.choice(self._places), value)
                due_s = max(due_s + self._pace_s, now_s - LOOK_S)
            self._producer.poll(max(0.0, due_s - time.monotonic()))

    def _send(self, topic: str, index: int, value: bytes) -> None:
        sent_s = time.monotonic()

        def on_delivery(error: Any, _message: Any) -> None:
            if error is not None:
                self.problems.append(f"{topic}-{index}: a record was given up: {error}")
            else:
                self.acked.append((sent_s, time.monotonic() - sent_s, (topic, index)))

        self._producer.produce(topic, value, partition=index, on_delivery=on_delivery)

    def stop(self) -> None:
        """Stops sending, and waits for the records in flight."""
        self._stopping.set()
        self.join()
        if left := self._producer.flush(DEADLINE_S):
            self.problems.append(f"{left} records were never answered")

    def took_ms(self, began_s: float, ended_s: float, besides: Set[Place]) -> list[float]:
        """Acknowledgement times of the records sent in an interval, except those of the partitions in `besides`."""
        return [
            1000 * took_s
            for sent_s, took_s, place in self.acked
            if began_s <= sent_s < ended_s and place not in besides
        ]


# --- the cluster ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Spread:
    """Replicas and leaders per broker."""

    held: dict[int, int]
    led: dict[int, int]
    moving: int

    @property
    def held_unevenness(self) -> float:
        return unevenness(self.held)

    @property
    def led_unevenness(self) -> float:
        return unevenness(self.led)


def cpu_s(pid: int) -> float:
    """CPU time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def unevenness(counts: Mapping[int, int]) -> float:
    """The largest relative deviation of a share from the mean."""
    even = sum(counts.values()) / len(counts)
    return max(abs(each - even) for each in counts.values()) / even


def spread_of(partitions: Iterable[Partition], brokers: list[int]) -> Spread:
    held, led = Counter(dict.fromkeys(brokers, 0)), Counter(dict.fromkeys(brokers, 0))
    moving = 0
    for each in partitions:
        held.update(each.replicas)
        led[each.leader] += 1
        moving += len(each.replicas) > REPLICAS
    return Spread(dict(sorted(held.items())), dict(sorted(led.items())), moving)


class Town:
    """Nodes, and a client's view of them."""

    def __init__(self, directory: Path, partitions: int, settings: Mapping[str, str]) -> None:
        self.local = LocalCluster(directory)
        self._shell = Shell(directory)
        self._settings = settings
        self.grow(REPLICAS)
        self.places = [
            (f"{TOPIC}{at // PARTITIONS_PER_TOPIC:02d}", at % PARTITIONS_PER_TOPIC) for at in range(partitions)
        ]
        self.cluster = Cluster([each.address for each in self.local.nodes], timeout_ms=60_000)
        self.admin = Admin(self.cluster)

    def grow(self, count: int) -> None:
        """Adds nodes until there are `count`, and starts them as an operator does."""
        for node in self.local.grow(count, free_port()):
            with (self.local.home(node.node_id) / "server.properties").open("a") as file:
                file.writelines(f"{name}={value}\n" for name, value in self._settings.items())
        self._shell("sandbox", "up", "--dir", ".")

    async def make(self) -> None:
        """Creates the topics."""
        await self.until(self._all_serve, "all three serve")
        counts = Counter(topic for topic, _ in self.places)
        await self.admin.create_topics(
            [NewTopic(name, count, REPLICAS, {"min.insync.replicas": "2"}) for name, count in counts.items()],
            timeout_ms=120_000,
        )
        await self.until(self._all_in_sync, "all are in sync")

    def decommission(self, node_id: int) -> None:
        """Decommissions a node as an operator does, who first takes its vote. Does not wait until it is empty."""
        self._shell("quorum", "remove", str(node_id), "--dir", ".")
        done = self._shell.run("cluster", "decommission", str(node_id), "--wait", "0", "--dir", ".")
        assert done.returncode == 0 or b"still has" in done.stderr, done.stderr.decode()

    async def partitions(self) -> dict[Place, Partition]:
        topics = [each for each in await self.admin.list_topics() if each.name.startswith(TOPIC)]
        return {(topic.name, each.index): each for topic in topics for each in topic.partitions}

    def spread(self, partitions: Mapping[Place, Partition]) -> Spread:
        return spread_of(partitions.values(), [each.node_id for each in self.local.nodes])

    def cpu_s(self) -> float:
        """CPU time that all nodes have used."""
        return sum(cpu_s(pid) for each in self.local.nodes if (pid := self.local.pid(each.node_id)) is not None)

    async def _all_serve(self) -> bool:
        return len((await self.admin.describe_cluster()).brokers) == len(self.local.nodes)

    async def _all_in_sync(self) -> bool:
        found = await self.partitions()
        return len(found) == len(self.places) and all(len(each.isr) == REPLICAS for each in found.values())

    async def until(self, question: Callable[[], Any], what: str, deadline_s: float = DEADLINE_S) -> None:
        """Waits until a condition holds, up to a deadline."""
        end_s = time.monotonic() + deadline_s
        while True:
            try:
                if await question():
                    return
            except ClientError:
                pass  # no broker serves yet
            if time.monotonic() > end_s:
                raise Broken(f"after {deadline_s:.0f} s it is not so that {what}")
            await asyncio.sleep(LOOK_S / 4)

    async def close(self) -> None:
        await self.cluster.close()
        for node in self.local.nodes:
            self.local.kill(node.node_id)


# --- measuring --------------------------------------------------------------------------------------------------------


@dataclass
class Phase:
    """A period under load, as on the page."""

    what: str
    seconds: float
    acks: int
    p50_ms: float
    p99_ms: float
    stayed_p99_ms: float
    """Of the partitions that kept their leader."""
    cores: float
    """CPU use of all brokers."""
    held: dict[int, int] = field(default_factory=dict)
    led: dict[int, int] = field(default_factory=dict)


@dataclass
class Outcome:
    """A run, as on the page."""

    partitions: int
    partition_bytes: int
    rate: float
    settings: dict[str, str]
    phases: list[Phase]
    lacks: list[str]
    moves: int
    arriving_most: int
    date: str
    revision: str

    def phase(self, what: str) -> Phase:
        return next(each for each in self.phases if each.what == what)

    def slower(self, what: str) -> float:
        """The phase's p99 relative to the first phase."""
        return self.phase(what).p99_ms / self.phases[0].p99_ms

    @property
    def is_balanced(self) -> bool:
        return self.is_balanced_to(UNEVEN_MAX)

    def is_balanced_to(self, uneven_max: float) -> bool:
        """Whether all shares are even enough, no partition ever lacked a replica, and the broker that left is empty."""
        joined, left = self.phase(JOINING), self.phase(LEAVING)
        shares = (joined.held, joined.led, _without(left.held), _without(left.led))
        is_empty = not left.held[LEAVES] and not left.led[LEAVES]
        return is_empty and not self.lacks and all(unevenness(each) <= uneven_max for each in shares)


BEFORE: Final = "three brokers"
JOINING: Final = f"broker {JOINS} joins"
AFTER: Final = "four brokers, at rest"
LEAVING: Final = f"broker {LEAVES} is decommissioned"
AT_LAST: Final = "three brokers, at rest"


def _without(counts: Mapping[int, int]) -> dict[int, int]:
    return {node_id: count for node_id, count in counts.items() if node_id != LEAVES}


class Measurement:
    """Measures one phase after another."""

    def __init__(self, town: Town, load: Load, deadline_s: float) -> None:
        self._town = town
        self._load = load
        self._deadline_s = deadline_s
        self._used_s = 0.0
        self._leaders: dict[Place, int] = {}
        """Leaders at the start of the phase."""
        self._led_elsewhere: set[Place] = set()
        """Partitions that have had another leader since then."""
        self.phases: list[Phase] = []

    async def rest(self, what: str, seconds: float) -> None:
        """A phase in which nothing happens but the load."""
        began_s = await self._begin()
        while time.monotonic() < began_s + seconds:
            await self._look()  # as often as in the other phases
            await asyncio.sleep(LOOK_S)
        await self._end(what, began_s)

    async def until(self, what: str, cause: Callable[[], None], is_done: Callable[[Spread], bool]) -> None:
        """A phase that begins with a cause and ends when the cluster has reacted to it."""
        began_s, told_s = await self._begin(), 0.0
        await asyncio.to_thread(cause)
        while True:
            spread = await self._look()
            if is_done(spread) and not spread.moving:
                break
            if self._load.problems:
                raise Broken("; ".join(self._load.problems[:5]))
            if time.monotonic() > began_s + self._deadline_s:
                raise Broken(f"{what}: not done in {self._deadline_s:.0f} s, {spread}")
            if time.monotonic() > told_s + 10 * LOOK_S:
                told_s = time.monotonic()
                say(f"{what}: {spread.held}, leading {spread.led}, {spread.moving} moving")
            await asyncio.sleep(LOOK_S)
        await self._end(what, began_s)

    async def _begin(self) -> float:
        self._leaders = {place: each.leader for place, each in (await self._town.partitions()).items()}
        self._led_elsewhere = set()
        self._used_s = self._town.cpu_s()
        return time.monotonic()

    async def _look(self) -> Spread:
        found = await self._town.partitions()
        self._led_elsewhere |= {place for place, each in found.items() if each.leader != self._leaders[place]}
        return self._town.spread(found)

    async def _end(self, what: str, began_s: float) -> None:
        ended_s, spread = time.monotonic(), await self._look()
        seconds = ended_s - began_s
        took_ms = self._load.took_ms(began_s, ended_s, frozenset())
        stayed_ms = self._load.took_ms(began_s, ended_s, self._led_elsewhere)
        phase = Phase(
            what,
            round(seconds, 1),
            len(took_ms),
            round(percentile(took_ms, 50), 1),
            round(percentile(took_ms, 99), 1),
            round(percentile(stayed_ms, 99), 1),
            round((self._town.cpu_s() - self._used_s) / seconds, 2),
            spread.held,
            spread.led,
        )
        self.phases.append(phase)
        say(phase_row(self.phases[-1], self.phases[0].p99_ms))


@contextmanager
def loading(town: Town, rate: float, partition_bytes: int) -> Iterator[Load]:
    """Runs the load; everything has to be acknowledged."""
    load = Load(",".join(each.address for each in town.local.nodes), town.places, rate)
    load.fill(partition_bytes)
    load.start()
    try:
        yield load
    finally:
        load.stop()
    if load.problems:
        raise Broken("; ".join(load.problems[:5]))


async def measure(
    directory: Path,
    partitions: int,
    *,
    before_s: float,
    rate: float = RATE,
    partition_bytes: int = 0,
    deadline_s: float = DEADLINE_S,
    settings: Mapping[str, str] | None = None,
) -> Outcome:
    """Measures a broker that joins and another one that leaves."""
    town = Town(directory, partitions, settings or {})
    try:
        await town.make()
        say(f"{partitions} partitions are made")
        with loading(town, rate, partition_bytes) as load:
            measurement = Measurement(town, load, deadline_s)
            await measurement.rest(BEFORE, before_s)
            await measurement.until(JOINING, lambda: town.grow(JOINS), _is_even)
            await measurement.rest(AFTER, before_s / 2)
            await measurement.until(LEAVING, lambda: town.decommission(LEAVES), _is_empty)
            await measurement.rest(AT_LAST, before_s / 2)
            histories = histories_of(town.local.home(1) / "data")
    finally:
        await town.close()
    return Outcome(
        partitions,
        partition_bytes,
        rate,
        dict(settings or {}),
        measurement.phases,
        histories.lacks,
        histories.moves,
        histories.arriving_most,
        datetime.date.today().isoformat(),
        revision(),
    )


def _is_even(spread: Spread) -> bool:
    return max(spread.held_unevenness, spread.led_unevenness) <= UNEVEN_MAX


def _is_empty(spread: Spread) -> bool:
    return not spread.held[LEAVES] and not spread.led[LEAVES]


# --- results ----------------------------------------------------------------------------------------------------------

HEAD: Final = (
    "| What | Seconds | Replicas per broker | Leaders per broker | Acknowledged | p50 ms | p99 ms | Compared "
    "| p99 ms where the leader stayed | Cores |"
)


def phase_row(phase: Phase, first_p99_ms: float) -> str:
    cells = [
        phase.what,
        f"{phase.seconds:.0f}",
        ", ".join(f"{each}" for each in phase.held.values()),
        ", ".join(f"{each}" for each in phase.led.values()),
        f"{phase.acks:,}",
        f"{phase.p50_ms:.1f}",
        f"{phase.p99_ms:.1f}",
        f"{phase.p99_ms / first_p99_ms:.2f}",
        f"{phase.stayed_p99_ms:.1f}",
        f"{phase.cores:.2f}",
    ]
    return f"| {' | '.join(cells)} |"


def load_runs() -> list[dict[str, Any]]:
    path = RESULTS / "balance-real.json"
    found: list[dict[str, Any]] = json.loads(path.read_text()) if path.exists() else []
    return found


def outcome_of(run: Mapping[str, Any]) -> Outcome:
    """Restores a recorded run."""
    phases = [
        Phase(**{**each, **{name: {int(k): v for k, v in each[name].items()} for name in ("held", "led")}})
        for each in run["phases"]
    ]
    return Outcome(**{**run, "phases": phases})


def write(outcomes: list[Outcome]) -> None:
    lines = ",\n".join(f" {json.dumps(asdict(each))}" for each in outcomes)
    (RESULTS / "balance-real.json").write_text(f"[\n{lines}\n]\n")
    text = f"""# A cluster that balances itself, for real

Three nodes, each broker and controller and a process of its own, on one machine of two shared cores; partitions have
three replicas, min.insync.replicas=2. A librdkafka producer (acks=all) sends records of 1 kB at a steady pace, each to
any partition. A fourth broker is started; later one of the others is decommissioned (`penstock cluster decommission
{LEAVES}`). Nobody asks for anything else. Goals: every share within 10 % of even; nothing left on who leaves; no
partition that lacks a replica; p99 of acknowledgements at most {SLOWER_MAX:.0f} times that of the beginning
(*Compared*). *Cores* is what all brokers used together. Brokers are listed in the order of their numbers.
[balance.md](balance.md) has 3,000 partitions in virtual time.

{chr(10).join(map(_section, outcomes))}
`python -m tests.system.balance --record` writes this page; Python {platform.python_version()}, 2 shared cores, 24 GiB.
"""
    (RESULTS / "balance-real.md").write_text(text)


def _section(outcome: Outcome) -> str:
    settings = ", ".join(f"`{name}={value}`" for name, value in outcome.settings.items())
    joined, left = outcome.phase(JOINING), outcome.phase(LEAVING)
    rows = "\n".join(phase_row(each, outcome.phases[0].p99_ms) for each in outcome.phases)
    return f"""## {settings or "Defaults"}

{outcome.partitions} partitions with {outcome.partition_bytes // 1024} KiB in each, {outcome.rate:.0f} records a second.

{HEAD}
|---|--:|---|---|--:|--:|--:|--:|--:|--:|
{rows}

Furthest from even once broker {JOINS} had joined: {100 * unevenness(joined.held):.1f} % of replicas,
{100 * unevenness(joined.led):.1f} % of leaders; among the three that were left at last
{100 * unevenness(_without(left.held)):.1f} % and {100 * unevenness(_without(left.led)):.1f} %. {outcome.moves:,}
replicas were moved, at most {outcome.arriving_most} on the way to one broker at a time. Times at which a replica that
was not on its way was not in sync, by the metadata log: {len(outcome.lacks)}. Every record was acknowledged.
{outcome.date}, revision {outcome.revision}.
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, default=600)
    parser.add_argument("--kibibytes", type=int, default=256, help="what lies in each partition at first")
    parser.add_argument("--rate", type=float, default=RATE, help="records per second")
    parser.add_argument("--before", type=float, default=30.0, metavar="SECONDS", help="how long it is at rest at first")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of all brokers")
    parser.add_argument("--directory", type=Path, help="where the brokers' files go, and stay")
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))  # no node is left running
    with tempfile.TemporaryDirectory(prefix="penstock-balance-") as scratch:
        outcome = asyncio.run(
            measure(
                options.directory or Path(scratch),
                options.partitions,
                before_s=options.before,
                rate=options.rate,
                partition_bytes=options.kibibytes << 10,
                settings=dict(each.split("=", 1) for each in options.set),
            )
        )
    say(f"{outcome.moves} moves, {outcome.arriving_most} at a time, lacking a replica: {outcome.lacks[:5]}")
    if options.record:
        others = [each for each in map(outcome_of, load_runs()) if each.settings != outcome.settings]
        write(sorted([*others, outcome], key=lambda each: list(each.settings.items())))
    is_fast = max(outcome.slower(JOINING), outcome.slower(LEAVING)) <= SLOWER_MAX
    return 0 if outcome.is_balanced and is_fast else 1


if __name__ == "__main__":
    raise SystemExit(main())
