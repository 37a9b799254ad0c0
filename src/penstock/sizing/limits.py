"""What limits a cluster, and how many brokers each limit asks for."""

from dataclasses import dataclass
from enum import StrEnum
from math import ceil, inf
from typing import Final

from penstock.sizing.coefficients import COEFFICIENTS
from penstock.sizing.cost import cores, cpu_pages, image_bytes, memory_pages, usable_cores
from penstock.sizing.demand import Hardware, Load
from penstock.sizing.evidence import Tag, pages

DISK_FULL_MAX: Final = 0.85
"""A disk that is fuller than that leaves no time to react."""
MEMORY_MAX: Final = 0.5
"""The other half of the memory is the page cache, from which readers and followers are served."""


class Limit(StrEnum):
    """What may ask for a number of brokers."""

    CPU = "cpu"
    NETWORK_IN = "network in"
    NETWORK_OUT = "network out"
    DISK_PACE = "disk writes"
    DISK_SPACE = "disk space"
    PARTITIONS = "replicas per broker"
    MEMORY = "memory"
    COPIES = "one broker per replica"


@dataclass(frozen=True, slots=True)
class Asking:
    """How many brokers one limit asks for."""

    limit: Limit
    exact: float
    """Brokers and parts of them: below one, what is left of it is room."""
    tag: Tag
    pages: tuple[str, ...] = ()

    @property
    def brokers(self) -> int:
        """Whole ones."""
        return max(1, ceil(self.exact - 1e-9))


class Impossible(ValueError):
    """No number of such brokers is enough; the text says what to change."""


def ask(load: Load, hardware: Hardware) -> tuple[Asking, ...]:
    """What every limit asks for, the greatest first."""
    stored, factor, busy = load.stored_bytes_s, load.replication_factor, hardware.busy_max
    network, space = busy * hardware.network_bytes_s, DISK_FULL_MAX * (hardware.disk_bytes or inf)
    density = COEFFICIENTS["density.replicas"]
    work = cores(load) / (busy * usable_cores(load.durability, hardware.cores))
    askings = (
        Asking(Limit.CPU, work, Tag.EXTRAPOLATED, cpu_pages(load)),
        Asking(Limit.NETWORK_IN, stored * factor / network, Tag.ARITHMETIC),
        Asking(Limit.NETWORK_OUT, stored * (factor - 1 + load.read_fanout) / network, Tag.ARITHMETIC),
        Asking(Limit.DISK_PACE, stored * factor / (busy * hardware.disk_write_bytes_s), Tag.ARITHMETIC),
        Asking(Limit.DISK_SPACE, stored * factor * load.retention_s / space, Tag.ARITHMETIC),
        Asking(Limit.PARTITIONS, load.partitions * factor / density.value, density.tag, pages(density)),
        Asking(Limit.MEMORY, _by_memory(load, hardware), Tag.EXTRAPOLATED, memory_pages()),
        Asking(Limit.COPIES, factor if factor > 1 else 0.0, Tag.ARITHMETIC),
    )
    return tuple(sorted(askings, key=lambda each: -each.exact))


def _by_memory(load: Load, hardware: Hardware) -> float:
    left = MEMORY_MAX * hardware.memory_bytes - COEFFICIENTS["memory.base"].value - image_bytes(load.partitions)
    if left <= 0:
        raise Impossible(
            f"the metadata of {load.partitions:,} partitions alone takes more than half of a broker's memory: "
            "give brokers more --memory, or ask for fewer --partitions"
        )
    return load.partitions * load.replication_factor * COEFFICIENTS["memory.replica"].value / left
