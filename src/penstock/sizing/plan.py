"""Computes how many brokers a load requires on given hardware, and which changes would require fewer."""

from dataclasses import dataclass, replace
from math import ceil
from typing import Final

from penstock.sizing.coefficients import COEFFICIENTS
from penstock.sizing.cost import cores
from penstock.sizing.demand import Durability, Hardware, Load
from penstock.sizing.evidence import Figure
from penstock.sizing.figures import TOGETHER, of_broker, of_cluster, of_controllers
from penstock.sizing.limits import Limit, Requirement, requirements_of

REST: Final = 0.3
"""Cores of work below which a broker is mostly idle."""


@dataclass(frozen=True, slots=True)
class Lever:
    """A change that would require fewer brokers."""

    change: str
    brokers: int
    then: Limit


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan for a load on given hardware."""

    load: Load
    hardware: Hardware
    requirements: tuple[Requirement, ...]
    """The limit that requires the most brokers first."""
    figures: tuple[Figure, ...]
    levers: tuple[Lever, ...]
    warnings: tuple[str, ...]
    alone: int
    """Brokers required if every partition had one replica. If this is one, replicas serve availability while a machine
    is down, not the load."""

    @property
    def brokers(self) -> int:
        """The number of brokers required."""
        return self.requirements[0].brokers

    @property
    def first_limit(self) -> Limit:
        """The limit that requires the most brokers."""
        return self.requirements[0].limit


def plan(load: Load, hardware: Hardware) -> Plan:
    """Computes the plan for a load."""
    requirements = requirements_of(load, hardware)
    brokers = requirements[0].brokers
    figures = (*of_cluster(load, requirements[0]), *of_broker(load, brokers), *of_controllers(load, brokers))
    return Plan(
        load,
        hardware,
        requirements,
        figures,
        _levers(load, hardware, brokers),
        _warnings(load, hardware, brokers),
        alone=requirements_of(replace(load, replication_factor=1), hardware)[0].brokers,
    )


# --- levers and warnings ----------------------------------------------------------------------------------------------


def _levers(load: Load, hardware: Hardware, brokers: int) -> tuple[Lever, ...]:
    """Single changes with the number of brokers that each would require; changes without effect are left out."""
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
        most = requirements_of(other_load, other_hardware)[0]
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
    """Warns of too few partitions: a partition has one leader, and so one broker's event loop."""
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
    """Warns of mostly idle brokers: costs were measured on fully loaded brokers."""
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
