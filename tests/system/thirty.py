"""Thirty real nodes on one machine: three that are brokers and controllers, the rest brokers.

    python -m tests.system.thirty --nodes 30 --record

Each is a process of its own, as `penstock sandbox up --nodes 30` makes them, with their defaults. A topic with three
replicas is spread over all of them; librdkafka writes to it and reads it back; a broker is killed and its partitions
get new leaders; it restarts; librdkafka writes and reads once more; and all are stopped cleanly. The run also measures
how long they take to start, and the cost of an idle node. It shows that a cluster of that size works, not how fast it
would be: the nodes share one machine. `--record` adds to docs/results/thirty.md.
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
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import confluent_kafka

from harness.ports import free_port
from penstock.cli.sandbox.nodes import LocalCluster
from penstock.client.admin.admin import Admin, NewTopic
from penstock.client.cluster import Cluster
from penstock.client.errors import ClientError
from penstock.client.metadata import Partition, TopicPartition
from penstock.client.offsets import Moment, list_offsets
from penstock.log.directory import CLEAN
from tests.revision import revision
from tests.system.density import say
from tests.system.mortal_node import Broken
from tests.system.quorum_kills import RESULTS

NODES: Final = 30
TOPIC: Final = "everywhere"
REPLICAS: Final = 3
PARTITIONS_PER_NODE: Final = 2
RECORDS: Final = 60_000
IDLE_S: Final = 20.0
DEADLINE_S: Final = 180.0
STOP_S: Final = 120.0
PAUSE_S: Final = 0.1
TOLD_MAX: Final = 100
TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
HEAD: Final = (
    "| Nodes | All serve, s | Topic made and in sync, s | Records written and read back | Written in, s | Read in, s "
    "| Idle, % of a core: mean | Active controller | Memory per node, MB: PSS | RSS | All, PSS | Killed led "
    "| Led again, s | Back and in sync, s | All stopped, s | Date | Revision |"
)


@dataclass(frozen=True, slots=True)
class Measured:
    """One run, as on the page."""

    nodes: int
    partitions: int
    serve_s: float
    made_s: float
    records: int
    written_s: float
    read_s: float
    idle_percent: float
    controller_percent: float
    pss_mb: float
    rss_mb: float
    all_pss_mb: float
    led: int
    led_again_s: float
    in_sync_s: float
    stopped_s: float
    date: str
    revision: str

    def row(self) -> str:
        cells = (
            f"{self.nodes}",
            f"{self.serve_s:.1f}",
            f"{self.made_s:.1f}",
            f"{self.records:,}",
            f"{self.written_s:.1f}",
            f"{self.read_s:.1f}",
            f"{self.idle_percent:.2f}",
            f"{self.controller_percent:.1f}",
            f"{self.pss_mb:.0f}",
            f"{self.rss_mb:.0f}",
            f"{self.all_pss_mb:,.0f}",
            f"{self.led} of {self.partitions}",
            f"{self.led_again_s:.1f}",
            f"{self.in_sync_s:.1f}",
            f"{self.stopped_s:.1f}",
            self.date,
            self.revision,
        )
        return f"| {' | '.join(cells)} |"


class Village:
    """A number of nodes, and their observable state."""

    def __init__(self, directory: Path, nodes: int) -> None:
        self.brokers = LocalCluster(directory)
        self.brokers.grow(nodes, free_port())
        self.ids = [node.node_id for node in self.brokers.nodes]
        self.places = [TopicPartition(TOPIC, index) for index in range(nodes * PARTITIONS_PER_NODE)]

    # --- life cycle -----------------------------------------------------------------------------------------------

    async def start(self) -> float:
        """Seconds until all are registered."""
        began = time.monotonic()
        for node_id in self.ids:
            self.brokers.start(node_id)
        await self._until(self._missing_brokers, "serve")
        return time.monotonic() - began

    async def make_topic(self) -> float:
        """Seconds until all replicas are in sync; every broker must hold and lead some."""
        began = time.monotonic()
        async with self._client() as cluster:
            new = NewTopic(TOPIC, len(self.places), REPLICAS, {"min.insync.replicas": "2"})
            await Admin(cluster).create_topics([new], timeout_ms=60_000)
        await self._until(self._missing_replicas, "are in sync")
        took_s = time.monotonic() - began
        check_spread(await self._partitions(), self.ids)
        return took_s

    def look_while_idle(self, idle_s: float) -> dict[int, float]:
        """Percent of a core for each node."""
        before = {node_id: cpu_s(self._pid(node_id)) for node_id in self.ids}
        time.sleep(idle_s)
        return {node_id: 100 * (cpu_s(self._pid(node_id)) - was_s) / idle_s for node_id, was_s in before.items()}

    async def active_controller(self) -> int:
        async with self._client() as cluster:
            return (await Admin(cluster).describe_quorum(timeout_ms=60_000)).leader_id

    async def kill_one(self) -> tuple[int, float, float]:
        """Kills a non-controller: partitions it led, seconds until all are led again, and until it is back."""
        led = Counter(partition.leader for partition in await self._partitions())
        voters = {node.node_id for node in self.brokers.nodes if node.controller_port is not None}
        victim = max((each for each in self.ids if each not in voters), key=lambda each: led[each])
        say(f"node {victim} is killed, which leads {led[victim]} partitions")
        began = time.monotonic()
        self.brokers.signal(victim, signal.SIGKILL)
        await self._all_answer(victim)
        led_again_s = time.monotonic() - began
        self.brokers.wait_for_end(victim)
        began = time.monotonic()
        self.brokers.start(victim)
        await self._until(self._missing_replicas, "are in sync again")
        return led[victim], led_again_s, time.monotonic() - began

    def stop(self) -> float:
        """Signals all nodes at once; seconds until all have stopped cleanly."""
        began = time.monotonic()
        for node_id in self.ids:
            self.brokers.signal(node_id, signal.SIGTERM)
        for node_id in self.ids:
            if not self.brokers.wait_for_end(node_id, max(0.0, began + STOP_S - time.monotonic())):
                raise Broken(f"node {node_id} did not end: {self.brokers.last_words(node_id)}")
            if not (self.brokers.home(node_id) / "data" / CLEAN).exists():
                raise Broken(f"node {node_id} did not close its data: {self.brokers.last_words(node_id)}")
        return time.monotonic() - began

    def end(self) -> None:
        """Kills all nodes that still run."""
        for node_id in self.ids:
            self.brokers.kill(node_id)

    # --- observing ------------------------------------------------------------------------------------------------

    def pids(self) -> list[int]:
        return [self._pid(node_id) for node_id in self.ids]

    def _pid(self, node_id: int) -> int:
        pid = self.brokers.pid(node_id)
        if pid is None:
            raise Broken(f"node {node_id} has ended by itself: {self.brokers.last_words(node_id)}")
        return pid

    def _client(self, without: int | None = None) -> Cluster:
        where = [node.address for node in self.brokers.nodes if node.node_id != without]
        return Cluster(where, timeout_ms=60_000, request_timeout_ms=30_000)

    async def _partitions(self) -> Sequence[Partition]:
        async with self._client() as cluster:
            return (await Admin(cluster).describe_topic(TOPIC)).partitions

    async def _missing_brokers(self) -> str:
        async with self._client() as cluster:
            there = len((await Admin(cluster).describe_cluster(timeout_ms=5_000)).brokers)
        return "" if there == len(self.ids) else f"{there} brokers are there"

    async def _missing_replicas(self) -> str:
        parts = await self._partitions()
        whole = sum(len(part.isr) == REPLICAS and part.leader >= 0 for part in parts)
        return "" if whole == len(self.places) else f"{whole} of {len(self.places)} partitions are in sync"

    async def _all_answer(self, victim: int) -> None:
        """Waits until every partition reports its end offset through a leader other than the killed one."""
        async with self._client(without=victim) as cluster:
            deadline, left = time.monotonic() + DEADLINE_S, self.places
            while left:
                if time.monotonic() > deadline:
                    raise Broken(f"{len(left)} partitions are not led again after {DEADLINE_S:.0f} s")
                try:
                    await cluster.refresh([TOPIC])
                    leaders = {
                        each.index: each.leader for each in (await Admin(cluster).describe_topic(TOPIC)).partitions
                    }
                    ready = [each for each in left if leaders[each.partition] not in (-1, victim)]
                    found = await list_offsets(cluster, dict.fromkeys(ready, Moment.LATEST), timeout_ms=2_000)
                    left = [each for each in left if each not in found]
                except ClientError:
                    await asyncio.sleep(PAUSE_S)

    async def _until(self, question: Any, what: str) -> None:
        deadline, told = time.monotonic() + DEADLINE_S, ""
        while True:
            try:
                missing = await question()
            except ClientError as error:
                missing = str(error)
            if not missing:
                return
            if time.monotonic() > deadline:
                raise Broken(f"after {DEADLINE_S:.0f} s they do not {what}: {missing}")
            if missing != told:
                say(missing[:TOLD_MAX])
                told = missing
            await asyncio.sleep(PAUSE_S)


def check_spread(partitions: Sequence[Partition], brokers: Sequence[int]) -> None:
    """Checks that every broker holds replicas, and leads."""
    placed = Counter(each for partition in partitions for each in partition.replicas)
    led = Counter(partition.leader for partition in partitions)
    if placed.keys() != set(brokers) or led.keys() != set(brokers):
        raise Broken(f"the topic is not spread over all brokers: {dict(placed)}, led {dict(led)}")
    say(f"each broker has {min(placed.values())} to {max(placed.values())} replicas")


def cpu_s(pid: int) -> float:
    """CPU time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def memory_mb(pid: int, name: str) -> float:
    """`Rss`, or `Pss`, which divides shared pages among the processes that share them."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(rollup.partition(f"\n{name}:")[2].split()[0]) / 1024


# --- librdkafka -------------------------------------------------------------------------------------------------------


def write_records(bootstrap: str, partitions: int, values: Iterable[int]) -> float:
    """Writes with idempotence and acks=all; seconds until all are acknowledged."""
    failed: list[str] = []

    def on_delivery(error: Any, _message: Any) -> None:
        if error is not None:
            failed.append(str(error))

    began = time.monotonic()
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 20, "log_level": 0}
    )
    for value in values:
        producer.produce(TOPIC, str(value).encode(), partition=value % partitions, on_delivery=on_delivery)
        producer.poll(0)
    left = producer.flush(DEADLINE_S)
    if failed or left:
        raise Broken(f"{left} records were not acknowledged, {len(failed)} refused: {failed[:3]}")
    return time.monotonic() - began


def read_records(bootstrap: str, partitions: int, count: int) -> float:
    """Reads from the beginning; each value must occur once, in its partition. Returns the seconds."""
    began = time.monotonic()
    consumer: Any = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False, "log_level": 0}
    )
    consumer.assign([confluent_kafka.TopicPartition(TOPIC, index, 0) for index in range(partitions)])
    seen: Counter[int] = Counter()
    while seen.total() < count and time.monotonic() < began + DEADLINE_S:
        for message in consumer.consume(5_000, 0.2):
            if message.error() is not None:
                continue
            value = int(message.value())
            if value % partitions != message.partition():
                raise Broken(f"{value} was read in partition {message.partition()}")
            seen[value] += 1
    consumer.close()
    check_read(seen, count)
    return time.monotonic() - began


def check_read(seen: Counter[int], count: int) -> None:
    """Checks that every value was read once, and no other."""
    if seen != Counter(range(count)):
        raise Broken(f"{count:,} records were written, {seen.total():,} read, {len(seen):,} of them different")


# --- a run ------------------------------------------------------------------------------------------------------------


async def measure(directory: Path, nodes: int, records: int, idle_s: float = IDLE_S) -> Measured:
    village = Village(directory, nodes)
    partitions, bootstrap = len(village.places), village.brokers.bootstrap
    try:
        serve_s = await village.start()
        say(f"{nodes} nodes serve after {serve_s:.1f} s")
        made_s = await village.make_topic()
        written_s = write_records(bootstrap, partitions, range(records))
        read_s = read_records(bootstrap, partitions, records)
        say(f"{records:,} records were written in {written_s:.1f} s and read back in {read_s:.1f} s")
        idle = village.look_while_idle(idle_s)
        controller = await village.active_controller()
        pss = [memory_mb(pid, "Pss") for pid in village.pids()]
        rss = [memory_mb(pid, "Rss") for pid in village.pids()]
        say(f"idle: {sum(idle.values()) / nodes:.2f} % of a core and {sum(pss) / nodes:.0f} MB per node")
        led, led_again_s, in_sync_s = await village.kill_one()
        say(f"all are led again after {led_again_s:.1f} s, and in sync {in_sync_s:.1f} s after the broker came back")
        write_records(bootstrap, partitions, range(records, 2 * records))
        read_records(bootstrap, partitions, 2 * records)
        stopped_s = village.stop()
        say(f"all have stopped after {stopped_s:.1f} s")
    finally:
        village.end()
    return Measured(
        nodes=nodes,
        partitions=partitions,
        serve_s=round(serve_s, 1),
        made_s=round(made_s, 1),
        records=2 * records,
        written_s=round(written_s, 2),
        read_s=round(read_s, 2),
        idle_percent=round(sum(idle.values()) / nodes, 2),
        controller_percent=round(idle[controller], 2),
        pss_mb=round(sum(pss) / nodes, 1),
        rss_mb=round(sum(rss) / nodes, 1),
        all_pss_mb=round(sum(pss)),
        led=led,
        led_again_s=round(led_again_s, 2),
        in_sync_s=round(in_sync_s, 2),
        stopped_s=round(stopped_s, 1),
        date=datetime.date.today().isoformat(),
        revision=revision(),
    )


def load() -> list[dict[str, Any]]:
    path = RESULTS / "thirty.json"
    found: list[dict[str, Any]] = json.loads(path.read_text()) if path.exists() else []
    return found


def write(runs: list[Measured]) -> None:
    (RESULTS / "thirty.json").write_text(json.dumps([asdict(each) for each in runs], indent=1) + "\n")
    rows = "\n".join(each.row() for each in runs)
    text = f"""# Thirty nodes

So many processes on one machine of two shared cores, as `penstock sandbox up --nodes {NODES}` makes them: three are
brokers and controllers, the others brokers. They start all at once; *all serve* when the controllers have let in every
one. A topic with {PARTITIONS_PER_NODE} partitions per node and {REPLICAS} replicas of each is spread over all of
them; librdkafka writes records to it, idempotent and with acks=all, half of them before and half after a broker was
killed (SIGKILL), and reads all back. *Written in* and *read in* are of the first half. *Led again* is the time from the
kill until every partition has said, through its leader, where it ends. *Idle* is over {IDLE_S:.0f} seconds in which
nobody asks for anything; *PSS* is memory in which pages that processes share are shared out among them. In the end all
are told to stop at once, and hand over what they lead as far as somebody is left.

Every run ends well only if each value was read once and in its partition, every broker has replicas and leads, and
every node has stopped in good order. How fast thirty machines would be cannot be seen on one.

{HEAD}
|{"--:|" * 15}---|---|
{rows}

`./dev campaign thirty` adds to this table; Python {platform.python_version()}, 2 shared cores, 24 GiB.
"""
    (RESULTS / "thirty.md").write_text(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=NODES, help="three of them are controllers, too")
    parser.add_argument("--records", type=int, default=RECORDS, help="before the kill; as many follow it")
    parser.add_argument("--directory", type=Path, help="where the nodes' files go, and stay")
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    if options.nodes < REPLICAS + 1:
        parser.error(f"--nodes must be at least {REPLICAS + 1}: one is killed, and {REPLICAS} replicas have to be led")
    with tempfile.TemporaryDirectory(prefix="penstock-thirty-") as scratch:
        run = asyncio.run(measure(options.directory or Path(scratch), options.nodes, options.records))
    say(run.row())
    if options.record:
        write([*(Measured(**each) for each in load()), run])


if __name__ == "__main__":
    main()
