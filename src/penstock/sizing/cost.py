"""The CPU and memory that a load costs brokers.

A broker is one Python process and uses about one core. Costs are those of a busy broker; an idle broker spends more on
each request, and has the CPU to spare.
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

    Log-linear interpolation between the measured sizes; constant below the smallest, proportional above the largest.
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
    """The cores that a broker makes use of."""
    return min(given, 1.0) if given < 2 else max(1.0, COEFFICIENTS[f"second_core.{durability}"].value)


def image_bytes(partitions: int) -> float:
    """Memory of the metadata image of a number of partitions, with the controller's index over it."""
    whole = COEFFICIENTS["controller.memory"].value - COEFFICIENTS["memory.base"].value
    return whole * partitions / COEFFICIENTS["controller.partitions"].value


def cpu_pages(load: Load) -> tuple[str, ...]:
    """The result pages with the CPU measurements."""
    sizes = [COEFFICIENTS[f"cpu.{load.durability}.{size}"] for size in SIZES]
    return pages(*sizes, COEFFICIENTS["read.cpu"], COEFFICIENTS["density.idle"])


def memory_pages() -> tuple[str, ...]:
    """The result pages with the memory measurements."""
    return pages(COEFFICIENTS["memory.base"], COEFFICIENTS["memory.replica"], COEFFICIENTS["controller.memory"])
