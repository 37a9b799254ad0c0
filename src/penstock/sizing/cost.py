"""What a load costs brokers, in CPU and memory.

A broker is one Python process, and one core is what it makes use of. Costs are those of a broker that is busy; one that
has little to do spends more on each request, and can afford it.
"""

from itertools import pairwise
from math import log
from typing import Final

from penstock.sizing.coefficients import COEFFICIENTS
from penstock.sizing.demand import Durability, Load
from penstock.sizing.evidence import pages

SIZES: Final = ("tiny", "small", "batch", "large", "huge")


def request_cpu_us(durability: Durability, value_bytes: float) -> float:
    """CPU of a busy broker for one request.

    Between the sizes that were measured on straight lines of the logarithms; below the least the same as there, above
    the greatest in proportion.
    """
    points = [
        (COEFFICIENTS[f"bytes.{durability}.{size}"].value, COEFFICIENTS[f"cpu.{durability}.{size}"].value)
        for size in SIZES
    ]
    if value_bytes <= points[0][0]:
        return points[0][1]
    for (low, low_us), (high, high_us) in pairwise(points):
        if value_bytes <= high:
            share = log(value_bytes / low) / log(high / low)
            return float(low_us * (high_us / low_us) ** share)
    last, last_us = points[-1]
    return last_us * value_bytes / last


def cores(load: Load) -> float:
    """CPU seconds per second of all brokers together, while they are busy."""
    producing = load.requests_s * request_cpu_us(load.durability, load.request_bytes) / 1e6
    following = (load.replication_factor - 1) * COEFFICIENTS[f"follower.{load.durability}"].value * producing
    reading = load.write_bytes_s / 1e9 * load.read_fanout * COEFFICIENTS["read.cpu"].value
    density = COEFFICIENTS["density.replicas"].value
    at_rest = load.partitions * load.replication_factor / density * COEFFICIENTS["density.idle"].value
    return producing + following + reading + at_rest


def usable_cores(durability: Durability, given: float) -> float:
    """What a broker makes of the cores that it has."""
    return min(given, 1.0) if given < 2 else max(1.0, COEFFICIENTS[f"second_core.{durability}"].value)


def image_bytes(partitions: int) -> float:
    """The metadata image of so many partitions, with the index that a controller keeps over it."""
    whole = COEFFICIENTS["controller.memory"].value - COEFFICIENTS["memory.base"].value
    return whole * partitions / COEFFICIENTS["controller.partitions"].value


def cpu_pages(load: Load) -> tuple[str, ...]:
    """Where the costs of CPU were measured."""
    sizes = [COEFFICIENTS[f"cpu.{load.durability}.{size}"] for size in SIZES]
    return pages(*sizes, COEFFICIENTS["read.cpu"], COEFFICIENTS["density.idle"])


def memory_pages() -> tuple[str, ...]:
    """Where the costs of memory were measured."""
    return pages(COEFFICIENTS["memory.base"], COEFFICIENTS["memory.replica"], COEFFICIENTS["controller.memory"])
