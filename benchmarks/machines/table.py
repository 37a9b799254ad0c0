"""The figures of all machines, as one page."""

from dataclasses import dataclass
from typing import Any

from benchmarks.machines.cluster import Sample
from benchmarks.machines.inventory import Inventory
from penstock.sizing.cost import cores
from penstock.sizing.demand import Durability
from penstock.sizing.demand import Load as SizedLoad


@dataclass(frozen=True, slots=True)
class Round:
    """One load: the generators' figures, and the brokers' resource use before and after."""

    kind: str
    told: list[tuple[str, dict[str, Any]]]
    before: dict[str, Sample]
    after: dict[str, Sample]

    @property
    def mb_s(self) -> float:
        """Throughput of all generators together."""
        return float(sum(found["mb_per_s"] for _, found in self.told))

    @property
    def seconds(self) -> float:
        return float(max(found["seconds"] for _, found in self.told))

    @property
    def cpu_s(self) -> float:
        """CPU time of all brokers."""
        return sum(self.after[name].cpu_s - self.before[name].cpu_s for name in self.after)

    @property
    def cpu_s_per_gb(self) -> float:
        return self.cpu_s / max(1e-9, self.mb_s * self.seconds / 1e3)


def page(inventory: Inventory, versions: dict[str, str], rounds: list[Round]) -> str:
    """The page as Markdown."""
    brokers = len(inventory.nodes())
    generators = sum(machine.generators for machine in inventory.machines)
    topic = inventory.topic
    told = (
        f"{brokers} brokers on {sum(bool(each.brokers) for each in inventory.machines)} machines, {generators} "
        f"generators; {topic.partitions} partitions, {topic.replicas} replicas, durability={topic.durability}; "
        f"{inventory.load.record_bytes}-byte records in batches of {inventory.load.batch_bytes:,} bytes. "
        "Rates of generators are added up, each over its own window.\n"
    )
    parts = [
        "# Several machines\n",
        told,
        "| Load | Generator on | MB/s | records/s | ack p50 ms | p99 ms |",
        "|---|---|--:|--:|--:|--:|",
    ]
    for each in rounds:
        parts += [_generator(each.kind, name, found) for name, found in each.told]
        parts.append(f"| {each.kind} | **all** | **{each.mb_s:,.1f}** | | | |")
    parts += ["", "| Load | Brokers on | Cores used | Memory MB | Written to disk MB |", "|---|---|--:|--:|--:|"]
    for each in rounds:
        parts += [_brokers(each, name) for name in each.after]
        parts.append(f"| {each.kind} | **all** | **{each.cpu_s / each.seconds:,.2f}** | | |")
    parts += ["", *(f"{each.kind}: {each.cpu_s_per_gb:,.2f} CPU seconds of the brokers per GB." for each in rounds)]
    parts += [_against_the_plan(inventory, rounds[0]), ""]
    parts += [f"- {name}: {version}" for name, version in versions.items()]
    return "\n".join(parts) + "\n"


def _generator(kind: str, name: str, found: dict[str, Any]) -> str:
    p50, p99 = (found.get(f"ack_{each}_ms") for each in ("p50", "p99"))
    shown = [f"{each:,.2f}" if each is not None else "–" for each in (p50, p99)]
    return f"| {kind} | {name} | {found['mb_per_s']:,.1f} | {found['records_per_s']:,.0f} | {' | '.join(shown)} |"


def _brokers(each: Round, name: str) -> str:
    before, after = each.before[name], each.after[name]
    used = (after.cpu_s - before.cpu_s) / each.seconds
    return f"| {each.kind} | {name} | {used:,.2f} | {after.memory_mb:,.0f} | {after.disk_mb - before.disk_mb:,.0f} |"


def _against_the_plan(inventory: Inventory, produced: Round) -> str:
    """The CPU time per GB that `penstock size` assumes; if it is far off, the plan does not hold on these machines."""
    topic, load = inventory.topic, inventory.load
    asked = SizedLoad(
        produced.mb_s * 1e6,
        read_fanout=0,
        replication_factor=topic.replicas,
        partitions=topic.partitions,
        record_bytes=load.record_bytes,
        batch_bytes=load.batch_bytes,
        durability=Durability(topic.durability),
    )
    return f"`penstock size` supposes {cores(asked) / (produced.mb_s / 1e3):,.2f} for this kind of produce load."
