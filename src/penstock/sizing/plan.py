"""From a load and what brokers have to how many brokers it takes, and what would take fewer."""

from dataclasses import dataclass, replace
from math import ceil
from typing import Final

from penstock.sizing.coefficients import COEFFICIENTS
from penstock.sizing.cost import cores
from penstock.sizing.demand import Durability, Hardware, Load
from penstock.sizing.evidence import Figure
from penstock.sizing.figures import TOGETHER, of_broker, of_cluster, of_controllers
from penstock.sizing.limits import Asking, Limit, ask

REST: Final = 0.3
"""Work for a broker that leaves it mostly waiting."""


@dataclass(frozen=True, slots=True)
class Lever:
    """Something that would take fewer brokers."""

    change: str
    brokers: int
    then: Limit


@dataclass(frozen=True, slots=True)
class Plan:
    """What it takes."""

    load: Load
    hardware: Hardware
    askings: tuple[Asking, ...]
    """The greatest first."""
    figures: tuple[Figure, ...]
    levers: tuple[Lever, ...]
    warnings: tuple[str, ...]
    alone: int
    """How many it would take if every partition had one replica: with one, replicas are for who cannot wait for a
    machine to come back, and not for the load."""

    @property
    def brokers(self) -> int:
        """How many it takes."""
        return self.askings[0].brokers

    @property
    def first_limit(self) -> Limit:
        """The one that asks for the most."""
        return self.askings[0].limit


def plan(load: Load, hardware: Hardware) -> Plan:
    """The plan for a load."""
    askings = ask(load, hardware)
    brokers = askings[0].brokers
    figures = (*of_cluster(load, askings[0]), *of_broker(load, brokers), *of_controllers(load, brokers))
    return Plan(
        load,
        hardware,
        askings,
        figures,
        _levers(load, hardware, brokers),
        _warnings(load, hardware, brokers),
        alone=ask(replace(load, replication_factor=1), hardware)[0].brokers,
    )


# --- what would change it ---------------------------------------------------------------------------------------------


def _levers(load: Load, hardware: Hardware, brokers: int) -> tuple[Lever, ...]:
    """Single changes, each with the brokers that it would take; those that bring nothing are left out."""
    batch_bytes = COEFFICIENTS[f"bytes.{load.durability}.batch"].value
    tries: list[tuple[str, Load, Hardware]] = [
        ("--durability replicated", replace(load, durability=Durability.REPLICATED), hardware),
        ("--batch-bytes 64KiB", replace(load, batch_bytes=max(load.batch_bytes, batch_bytes)), hardware),
        ("producers that compress to half", replace(load, write_bytes_s=load.write_bytes_s / 2), hardware),
        ("half of the partitions", replace(load, partitions=max(1, load.partitions // 2)), hardware),
        ("half of the retention", replace(load, retention_s=load.retention_s / 2), hardware),
        ("twice the network", load, replace(hardware, network_bytes_s=2 * hardware.network_bytes_s)),
        ("disks twice as fast", load, replace(hardware, disk_write_bytes_s=2 * hardware.disk_write_bytes_s)),
    ]
    if hardware.disk_bytes is not None:
        tries.append(("disks twice as large", load, replace(hardware, disk_bytes=2 * hardware.disk_bytes)))
    found = []
    for change, other_load, other_hardware in tries:
        most = ask(other_load, other_hardware)[0]
        if most.brokers < brokers:
            found.append(Lever(change, most.brokers, most.limit))
    return tuple(sorted(found, key=lambda each: each.brokers))


def _warnings(load: Load, hardware: Hardware, brokers: int) -> tuple[str, ...]:
    return tuple(
        filter(
            None,
            (
                _on_partitions(load, hardware, brokers),
                _on_cores(load, hardware),
                _on_rest(load, brokers),
                _on_size(brokers),
            ),
        )
    )


def _on_partitions(load: Load, hardware: Hardware, brokers: int) -> str | None:
    """A partition has one leader, and so one broker's loop."""
    each = hardware.busy_max * COEFFICIENTS[f"most.partition.{load.durability}"].value
    least = max(brokers, ceil(load.write_bytes_s / each))
    if load.partitions >= least:
        return None
    return f"{load.partitions} partitions cannot spread this load: ask for at least {least}"


def _on_cores(load: Load, hardware: Hardware) -> str | None:
    if hardware.cores <= 2:
        return None
    gain = COEFFICIENTS[f"second_core.{load.durability}"].value
    return (
        f"a broker is one Python process: a second core made it {gain:.2f} times as fast, and more were not tried; "
        "run one broker for every two cores, and give its share of the machine as --disk and --network"
    )


def _on_rest(load: Load, brokers: int) -> str | None:
    """Costs were measured on brokers that had as much to do as they could."""
    if cores(load) / brokers > REST:
        return None
    steady = COEFFICIENTS[f"steady.{load.durability}"].value
    return (
        "a broker with little to do spends more CPU on each byte than these figures say, and has it to spare: "
        f"{steady:.2f} of a core were seen at 50 MB/s of 64 KiB batches"
    )


def _on_size(brokers: int) -> str | None:
    if brokers <= TOGETHER:
        return None
    simulated, ran = COEFFICIENTS["big.brokers"].value, COEFFICIENTS["thirty.nodes"].value
    return (
        f"{brokers} brokers were never under load together: {TOGETHER} were, on one machine; {ran} ran there with next "
        f"to nothing to do, and {simulated} were simulated; the number follows from what one broker does, and supposes "
        "that the load is spread evenly and that nothing but these limits counts"
    )
