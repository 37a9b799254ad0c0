"""The limits of a cluster, and how many brokers each limit requires."""

from dataclasses import dataclass
from enum import StrEnum
from math import ceil, inf
from typing import Final

from penstock.sizing.coefficients import COEFFICIENTS
from penstock.sizing.cost import cores, cpu_pages, image_bytes, memory_pages, usable_cores
from penstock.sizing.demand import Hardware, Load
from penstock.sizing.evidence import Tag, pages

DISK_FULL_MAX: Final = 0.85
"""A fuller disk leaves no time to react."""
MEMORY_MAX: Final = 0.5
"""Share of memory for the process; the rest is the page cache, from which consumers and followers are served."""


class Limit(StrEnum):
    """A resource that may determine the number of brokers."""

    CPU = "cpu"
    NETWORK_IN = "network in"
    NETWORK_OUT = "network out"
    DISK_PACE = "disk writes"
    DISK_SPACE = "disk space"
    PARTITIONS = "replicas per broker"
    MEMORY = "memory"
    COPIES = "one broker per replica"


@dataclass(frozen=True, slots=True)
class Requirement:
    """The number of brokers that one limit requires."""

    limit: Limit
    exact: float
    """Brokers as a fraction: below one, the rest is headroom."""
    tag: Tag
    pages: tuple[str, ...] = ()

    @property
    def brokers(self) -> int:
        """The number of whole brokers."""
        return max(1, ceil(self.exact - 1e-9))


class Impossible(ValueError):
    """No number of brokers with this hardware is enough; the message names what to change."""


def requirements_of(load: Load, hardware: Hardware) -> tuple[Requirement, ...]:
    """The brokers that every limit requires, the largest number first."""
    stored, factor, busy = load.stored_bytes_s, load.replication_factor, hardware.busy_max
    network, space = busy * hardware.network_bytes_s, DISK_FULL_MAX * (hardware.disk_bytes or inf)
    density = COEFFICIENTS["density.replicas"]
    work = cores(load) / (busy * usable_cores(load.durability, hardware.cores))
    requirements = (
        Requirement(Limit.CPU, work, Tag.EXTRAPOLATED, cpu_pages(load)),
        Requirement(Limit.NETWORK_IN, stored * factor / network, Tag.ARITHMETIC),
        Requirement(Limit.NETWORK_OUT, stored * (factor - 1 + load.read_fanout) / network, Tag.ARITHMETIC),
        Requirement(Limit.DISK_PACE, stored * factor / (busy * hardware.disk_write_bytes_s), Tag.ARITHMETIC),
        Requirement(Limit.DISK_SPACE, stored * factor * load.retention_s / space, Tag.ARITHMETIC),
        Requirement(Limit.PARTITIONS, load.partitions * factor / density.value, density.tag, pages(density)),
        Requirement(Limit.MEMORY, _by_memory(load, hardware), Tag.EXTRAPOLATED, memory_pages()),
        Requirement(Limit.COPIES, factor if factor > 1 else 0.0, Tag.ARITHMETIC),
    )
    return tuple(sorted(requirements, key=lambda each: -each.exact))


def _by_memory(load: Load, hardware: Hardware) -> float:
    left = MEMORY_MAX * hardware.memory_bytes - COEFFICIENTS["memory.base"].value - image_bytes(load.partitions)
    if left <= 0:
        raise Impossible(
            f"the metadata of {load.partitions:,} partitions alone takes more than half of a broker's memory: "
            "give brokers more --memory, or ask for fewer --partitions"
        )
    return load.partitions * load.replication_factor * COEFFICIENTS["memory.replica"].value / left
