"""Many partitions on few brokers: how long until all have a leader again after one of three brokers is killed.

    python -m tests.system.density --partitions 10000 --record

Three nodes, each broker and controller and a process of its own, with their defaults; every partition has three
replicas and a record. A broker is killed (SIGKILL): once one that is not the active controller, and once the active
controller. The clock stops when every partition's leader has reported the end offset, which proves that it leads and
has the log. Then the broker is restarted, and all replicas must be in sync again. The run also measures how long
creating the topics took, and the cost of idle brokers. `--record` adds to docs/results/density.md.
"""

import argparse
import asyncio
import datetime
import json
import os
import platform
import signal
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, TypeAlias

from harness.ports import free_port
from penstock.cli.sandbox.nodes import LocalCluster
from penstock.client.admin.admin import Admin, NewTopic
from penstock.client.cluster import Cluster
from penstock.client.errors import ClientError
from penstock.client.metadata import Topic, TopicPartition
from penstock.client.offsets import Moment, list_offsets
from penstock.client.producer.producer import Producer
from tests.revision import revision
from tests.system.mortal_node import Broken
from tests.system.quorum_kills import RESULTS

BROKERS: Final = 3
PARTITIONS_PER_TOPIC: Final = 100
TOPICS_AT_ONCE: Final = 5
IDLE_S: Final = 10.0
LED_AGAIN_S_MAX: Final = 10.0
"""The goal."""
DEADLINE_S: Final = 600.0
PAUSE_S: Final = 0.1
NEWS_S: Final = 1.0
TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
HEAD: Final = (
    "| Partitions | Replicas per broker | Made and in sync, s | Idle, % of a core per broker | Memory, MB per broker "
    "| Killed | Led again, s | Back and in sync, s | Date | Revision |"
)


@dataclass(frozen=True, slots=True)
class Measured:
    """One run, as on the page."""

    partitions: int
    made_s: float
    idle_percent: float
    memory_mb: float
    killed: str
    led_again_s: float
    in_sync_s: float
    date: str
    revision: str

    def row(self) -> str:
        return (
            f"| {self.partitions:,} | {self.partitions:,} | {self.made_s:.0f} | {self.idle_percent:.1f} "
            f"| {self.memory_mb:.0f} | {self.killed} | {self.led_again_s:.1f} | {self.in_sync_s:.1f} | {self.date} "
            f"| {self.revision} |"
        )


Question: TypeAlias = Callable[[], Awaitable[str]]
"""Returns a description of what is missing; empty if the condition holds."""


class Crowd:
    """A cluster with a number of partitions, and a client."""

    def __init__(self, directory: Path, partitions: int) -> None:
        self.brokers = LocalCluster(directory)
        self.brokers.grow(BROKERS, free_port())
        self.names = [f"density-{number:04d}" for number in range(-(-partitions // PARTITIONS_PER_TOPIC))]
        self.places = [
            TopicPartition(name, index)
            for number, name in enumerate(self.names)
            for index in range(min(PARTITIONS_PER_TOPIC, partitions - number * PARTITIONS_PER_TOPIC))
        ]
        self.made_s = self.idle_percent = self.memory_mb = 0.0

    async def make(self) -> None:
        """Starts the brokers and creates the topics; each partition gets a record."""
        for node in self.brokers.nodes:
            self.brokers.start(node.node_id)
        async with self._client() as cluster:
            await self._until(lambda: self._serve(cluster), "serve")
            began = time.monotonic()
            left = list(self.names)
            while left:
                now, left = left[:TOPICS_AT_ONCE], left[TOPICS_AT_ONCE:]
                new = [NewTopic(name, sum(each.topic == name for each in self.places), BROKERS) for name in now]
                await Admin(cluster).create_topics(new, waits=False, timeout_ms=120_000)
                say(f"{len(self.names) - len(left)} of {len(self.names)} topics are made")
            await self._until(lambda: self._all_in_sync(cluster), "are in sync")
            self.made_s = time.monotonic() - began
            await self._write(cluster)
        self._look_while_idle()

    async def _write(self, cluster: Cluster) -> None:
        producer = Producer(cluster, delivery_timeout_ms=120_000, creates_topics=False)
        sent = [await producer.send(place.topic, b"one", partition=place.partition) for place in self.places]
        await asyncio.gather(*sent)
        await producer.close()

    def _look_while_idle(self) -> None:
        before = {node.node_id: self._cpu_s(node.node_id) for node in self.brokers.nodes}
        time.sleep(IDLE_S)
        used = [self._cpu_s(node_id) - cpu_s for node_id, cpu_s in before.items()]
        self.idle_percent = 100.0 * sum(used) / len(used) / IDLE_S
        self.memory_mb = sum(self._memory_mb(node.node_id) for node in self.brokers.nodes) / BROKERS
        say(f"idle: {self.idle_percent:.1f} % of a core and {self.memory_mb:.0f} MB per broker")

    def _cpu_s(self, node_id: int) -> float:
        pid = self.brokers.pid(node_id)
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_S

    def _memory_mb(self, node_id: int) -> float:
        status = Path(f"/proc/{self.brokers.pid(node_id)}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) / 1024

    # --- killing --------------------------------------------------------------------------------------------------

    async def kill(self, *, is_controller: bool) -> tuple[float, float]:
        """Kills and restarts a broker; seconds until all partitions were led again, and until all were in sync."""
        async with self._client() as cluster:
            active = (await Admin(cluster).describe_quorum()).leader_id
            victim = active if is_controller else next(n.node_id for n in self.brokers.nodes if n.node_id != active)
            topics = await self._topics(cluster)
            led = sum(part.leader == victim for topic in topics for part in topic.partitions)
        survivors = [node.address for node in self.brokers.nodes if node.node_id != victim]
        async with self._client(survivors) as cluster:
            await self._topics(cluster)
            say(f"node {victim} is killed, which leads {led} partitions")
            began = time.monotonic()
            self.brokers.signal(victim, signal.SIGKILL)
            await self._all_answer(cluster, victim)
            led_again_s = time.monotonic() - began
            say(f"all are led again after {led_again_s:.1f} s")
            self.brokers.wait_for_end(victim)
            began = time.monotonic()
            self.brokers.start(victim)
            await self._until(lambda: self._all_in_sync(cluster), "are in sync again")
        return led_again_s, time.monotonic() - began

    async def _all_answer(self, cluster: Cluster, victim: int) -> None:
        """Waits until every partition reports its end offset through a leader other than the killed one."""
        deadline_s = time.monotonic() + DEADLINE_S
        left = self.places
        while left:
            if time.monotonic() > deadline_s:
                raise Broken(f"{len(left)} partitions are not led again after {DEADLINE_S:.0f} s")
            try:
                topics = await self._topics(cluster)
                leaders = {(topic.name, part.index): part.leader for topic in topics for part in topic.partitions}
                ready = [each for each in left if leaders.get(each, -1) not in (-1, victim)]
                found = await list_offsets(cluster, dict.fromkeys(ready, Moment.LATEST), timeout_ms=2_000)
            except ClientError:
                await asyncio.sleep(PAUSE_S)
                continue
            if wrong := [each for each, at in found.items() if at.offset < 1]:
                raise Broken(f"{wrong[:5]} lost their record")
            left = [each for each in left if each not in found]
            await asyncio.sleep(PAUSE_S if left else 0.0)

    # --- observing ------------------------------------------------------------------------------------------------

    def _client(self, addresses: list[str] | None = None) -> Cluster:
        where = addresses or [node.address for node in self.brokers.nodes]
        return Cluster(where, timeout_ms=60_000, request_timeout_ms=60_000)

    async def _topics(self, cluster: Cluster) -> list[Topic]:
        return [topic for topic in await Admin(cluster).list_topics() if topic.name.startswith("density-")]

    async def _serve(self, cluster: Cluster) -> str:
        there = len((await Admin(cluster).describe_cluster()).brokers)
        return "" if there == BROKERS else f"{there} brokers are there"

    async def _all_in_sync(self, cluster: Cluster) -> str:
        parts = [part for topic in await self._topics(cluster) for part in topic.partitions]
        whole = sum(len(part.isr) == BROKERS and part.leader >= 0 for part in parts)
        return "" if whole == len(self.places) else f"{whole} of {len(self.places)} partitions are in sync"

    async def _until(self, question: Question, name: str) -> None:
        deadline_s, told_s = time.monotonic() + DEADLINE_S, 0.0
        while True:
            try:
                missing = await question()
            except ClientError as error:
                missing = str(error)
            if not missing:
                return
            if time.monotonic() > deadline_s:
                raise Broken(f"after {DEADLINE_S:.0f} s they do not {name}: {missing}")
            if time.monotonic() > told_s + 10 * NEWS_S:
                told_s = time.monotonic()
                say(missing)
            await asyncio.sleep(NEWS_S)


def say(sentence: str) -> None:
    print(f"{datetime.datetime.now():%H:%M:%S} {sentence}", flush=True)


async def measure(directory: Path, partitions: int) -> list[Measured]:
    crowd = Crowd(directory, partitions)
    try:
        await crowd.make()
        return [await killed(crowd, is_controller=is_controller) for is_controller in (False, True)]
    finally:
        for node in crowd.brokers.nodes:
            crowd.brokers.kill(node.node_id)


async def killed(crowd: Crowd, *, is_controller: bool) -> Measured:
    led_again_s, in_sync_s = await crowd.kill(is_controller=is_controller)
    return Measured(
        partitions=len(crowd.places),
        made_s=round(crowd.made_s, 1),
        idle_percent=round(crowd.idle_percent, 2),
        memory_mb=round(crowd.memory_mb),
        killed="the active controller" if is_controller else "another",
        led_again_s=round(led_again_s, 2),
        in_sync_s=round(in_sync_s, 2),
        date=datetime.date.today().isoformat(),
        revision=revision(),
    )


# --- results ----------------------------------------------------------------------------------------------------------


def load() -> list[Measured]:
    path = RESULTS / "density.json"
    return [Measured(**each) for each in json.loads(path.read_text())] if path.exists() else []


def write(runs: list[Measured]) -> None:
    (RESULTS / "density.json").write_text(json.dumps([asdict(each) for each in runs], indent=1) + "\n")
    rows = "\n".join(each.row() for each in runs)
    text = f"""# Many partitions on three brokers

Three nodes, each broker and controller and a process of its own, share one machine; every partition has three replicas
and a record, so each broker has as many replicas as there are partitions. One is killed (SIGKILL). *Led again* is the
time from there until every partition has said, through its leader, where it ends; {LED_AGAIN_S_MAX:.0f} seconds are
asked for. *Back and in sync* is the time from starting it again until all partitions have three replicas in sync.
*Idle* is over {IDLE_S:.0f} seconds in which nobody asks for anything.

{HEAD}
|--:|--:|--:|--:|--:|---|--:|--:|---|---|
{rows}

`./dev campaign density --partitions 10000` adds to this table; Python {platform.python_version()},
2 shared cores, 24 GiB.
"""
    (RESULTS / "density.md").write_text(text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, default=1_000)
    parser.add_argument("--directory", type=Path, help="where the brokers' files go, and stay")
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="penstock-density-") as scratch:
        runs = asyncio.run(measure(options.directory or Path(scratch), options.partitions))
    for run in runs:
        say(run.row())
    if options.record:
        write([*load(), *runs])
    return 0 if all(run.led_again_s <= LED_AGAIN_S_MAX for run in runs) else 1


if __name__ == "__main__":
    raise SystemExit(main())
