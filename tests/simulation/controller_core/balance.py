"""A controller that balances by itself, with brokers that copy as fast as they may, in virtual time.

    python -m tests.simulation.controller_core.balance           a fourth joins three with 3,000 partitions; one leaves
    python -m tests.simulation.controller_core.balance --record  the same, written to docs/results/balance.md

Every broker derives from the image what it copies now and how fast (`penstock.metadata.copying`); the leader adds a
replica to the ISR when it has arrived. No operator asks the controller to move anything.
"""

import argparse
import datetime
import os
import platform
import sys
from collections import Counter
from time import process_time
from typing import Final, NamedTuple

from penstock.metadata.cluster_commands import AlterPartition, DecommissionBroker, NewIsr
from penstock.metadata.commands import CreateTopics, NewTopic
from penstock.metadata.copying import copying
from penstock.metadata.image import Image
from penstock.metadata.index import PartitionEntry
from penstock.model.errors import ErrorCode
from tests.revision import revision
from tests.simulation.kit.results import RESULTS
from tests.unit.metadata.cluster_world import ClusterWorld

STEP_MS: Final = 100
SETTINGS: Final = {"auto.balance.enable": "true", "leader.imbalance.check.interval.seconds": "5"}
REST_MS: Final = 6_000
"""Until the next check for leaders that are not the preferred ones."""
VIRTUAL_MS_MAX: Final = 3 * 3_600_000


class Outcome(NamedTuple):
    """The cluster when it no longer changes."""

    held: dict[int, int]
    led: dict[int, int]
    virtual_s: float
    moved: int
    arriving_most: int
    """The maximum number of replicas in transit to one broker."""
    bytes_per_s_most: float
    """The maximum of bytes that one broker copied in any second."""
    records_most: int
    """The maximum number of records in one step of the controller."""

    @property
    def unevenness(self) -> float:
        """The largest relative deviation of a broker's share from even."""
        holding = [count for count in self.held.values() if count]
        even = sum(holding) / len(holding)
        return max(abs(count - even) for count in holding) / even


class Balance:
    """A cluster whose partitions all have the same size."""

    def __init__(self, partitions: int, partition_bytes: int, settings: dict[str, str] | None = None) -> None:
        self.world = ClusterWorld(settings={**SETTINGS, **(settings or {})})
        self._partition_bytes = partition_bytes
        topics = (NewTopic("orders", partitions // 3, 3), NewTopic("bills", partitions - partitions // 3, 3))
        for made in self.world.ask(CreateTopics(topics)):
            assert made.code is ErrorCode.NONE, made
        self._left: dict[tuple[bytes, int, int], float] = {}
        self._copied: dict[int, list[float]] = {}
        self._moved = 0
        self._arriving_most = 0
        self.world.records_most = 0

    def join(self, broker_id: int) -> Outcome:
        self.world.start(broker_id)
        return self._come_to_rest()

    def decommission(self, broker_id: int) -> Outcome:
        assert self.world.ask(DecommissionBroker(broker_id)).code is ErrorCode.NONE
        return self._come_to_rest()

    def _come_to_rest(self) -> Outcome:
        world = self.world
        began_ms, self._moved, self._copied, self._arriving_most = world.now, 0, {}, 0
        rested_ms = 0
        while rested_ms < REST_MS:
            world.pass_ms(STEP_MS)
            index = world.controller.index
            self._arriving_most = max([self._arriving_most, *index.arriving.values()])
            rested_ms = 0 if index.moving_count else rested_ms + STEP_MS
            self._copy()
            assert world.now - began_ms < VIRTUAL_MS_MAX, "it never comes to rest"
        return Outcome(
            dict(sorted(replicas_of(world.image).items())),
            dict(sorted(leaders_of(world.image).items())),
            (world.now - began_ms - REST_MS) / 1000,
            self._moved,
            self._arriving_most,
            max((fastest_second(each) for each in self._copied.values()), default=0.0),
            world.records_most,
        )

    def _copy(self) -> None:
        """Makes one step of all brokers' copying; replicas that have arrived join the ISR."""
        moving = list(self.world.controller.index.moving)
        arrived: list[tuple[PartitionEntry, int]] = []
        for broker_id in self.world.image.brokers:
            now = copying(broker_id, moving, self.world.settings)
            budget = now.bytes_per_second_max * STEP_MS / 1000
            copied = 0.0
            for entry in now.partitions:
                key = (entry.topic.topic_id, entry.number, broker_id)
                left = self._left.get(key, float(self._partition_bytes))
                part = min(left, budget - copied)
                copied += part
                self._left[key] = left - part
                if left == part:
                    del self._left[key]
                    arrived.append((entry, broker_id))
            self._copied.setdefault(broker_id, []).append(copied)
        self._take_into_sync(arrived)

    def _take_into_sync(self, arrived: list[tuple[PartitionEntry, int]]) -> None:
        by_leader: dict[int, list[NewIsr]] = {}
        for (topic, number, partition), broker_id in arrived:
            isr = tuple((each, self.world.broker(each).epoch) for each in (*partition.isr, broker_id))
            wanted = NewIsr(topic.topic_id, number, partition.leader_epoch, partition.partition_epoch, isr)
            by_leader.setdefault(partition.leader, []).append(wanted)
        for leader, wanted_isrs in by_leader.items():
            epoch = self.world.broker(leader).epoch
            altered = self.world.ask(AlterPartition(leader, epoch, tuple(wanted_isrs)))
            self._moved += sum(each.code in TAKEN for each in altered.partitions)


TAKEN: Final = (ErrorCode.NONE, ErrorCode.NEW_LEADER_ELECTED)


def replicas_of(image: Image) -> Counter[int]:
    counts: Counter[int] = Counter(dict.fromkeys(image.brokers, 0))
    for topic in image.topics.values():
        for partition in topic.partitions.values():
            counts.update(partition.replicas)
    return counts


def leaders_of(image: Image) -> Counter[int]:
    return Counter(p.leader for topic in image.topics.values() for p in topic.partitions.values())


def fastest_second(copied: list[float]) -> float:
    steps = 1000 // STEP_MS
    return max(sum(copied[at : at + steps]) for at in range(len(copied)))


# --- the report -------------------------------------------------------------------------------------------------------


HEADINGS: Final = (
    "What",
    "Replicas per broker",
    "Furthest from even",
    "Leaders per broker",
    "Replicas moved",
    "On the way to one, at most",
    "Into one broker, at most",
    "Virtual time",
)


def row(what: str, outcome: Outcome) -> str:
    cells = [
        what,
        ", ".join(f"{count:,}" for count in outcome.held.values()),
        f"{100 * outcome.unevenness:.1f} %",
        ", ".join(f"{count:,}" for count in outcome.led.values()),
        f"{outcome.moved:,}",
        f"{outcome.arriving_most}",
        f"{outcome.bytes_per_s_most / 2**20:.0f} MiB/s",
        f"{outcome.virtual_s:,.0f} s",
    ]
    return f"| {' | '.join(cells)} |"


def page(partitions: int, mebibytes: int, rows: list[str], cpu_s: float) -> str:
    memory_gib = round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30)
    return f"""# A cluster that balances itself

A controller core, three simulated brokers and {partitions:,} partitions with three replicas, {mebibytes} MiB each, in
virtual time (`tests/simulation/controller_core/balance.py`). A fourth broker joins; later one of the others is
decommissioned. Nobody asks for anything else. Limits are the defaults: 10 replicas on their way to a broker at a time,
50 MiB/s into each. Goals: every share within 10 % of even; nothing left on who leaves; limits kept.

| {" | ".join(HEADINGS)} |
|---|---|--:|---|--:|--:|--:|--:|
{chr(10).join(rows)}

Brokers are listed in the order of their numbers, 1 to 4. `python -m tests.simulation.controller_core.balance --record`,
{datetime.date.today().isoformat()}, revision {revision()}, {cpu_s:.0f} s of one core, Python
{platform.python_version()}, Linux, {os.cpu_count()} shared cores, {memory_gib} GiB.
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, default=3_000)
    parser.add_argument("--mebibytes", type=int, default=10, help="the size of a partition")
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    began_s = process_time()
    balance = Balance(options.partitions, options.mebibytes << 20)
    joined = balance.join(4)
    left = balance.decommission(2)
    rows = [row("broker 4 joins", joined), row("broker 2 is decommissioned", left)]
    print("\n".join(rows))
    if options.record:
        text = page(options.partitions, options.mebibytes, rows, process_time() - began_s)
        (RESULTS / "balance.md").write_text(text)
    is_good = joined.unevenness <= 0.1 and left.unevenness <= 0.1 and left.held[2] == 0
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
