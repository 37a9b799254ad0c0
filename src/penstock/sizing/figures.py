"""The figures of a plan, each with its evidence."""

from typing import Final

from penstock.sizing.coefficients import COEFFICIENTS
from penstock.sizing.cost import cores, cpu_pages, image_bytes, memory_pages
from penstock.sizing.demand import Load
from penstock.sizing.evidence import Figure, Tag, known, pages
from penstock.sizing.limits import DISK_FULL_MAX, Requirement

CONTROLLERS: Final = 3
"""Controllers of a cluster; one of them may fail."""
TOGETHER: Final = 3
"""Number of brokers that were measured under load together."""


def of_cluster(load: Load, most: Requirement) -> tuple[Figure, ...]:
    """Figures for all brokers together."""
    stored, factor = load.stored_bytes_s, load.replication_factor
    best = COEFFICIENTS[f"most.{load.durability}"]
    return (
        Figure("brokers", most.brokers, "", Tag.EXTRAPOLATED, most.pages, most.brokers / TOGETHER),
        Figure(
            "work in all, in cores of busy brokers",
            cores(load),
            "cores",
            Tag.EXTRAPOLATED,
            cpu_pages(load),
            load.write_bytes_s / best.value,
        ),
        Figure("written to disks in all", stored * factor, "B/s", Tag.ARITHMETIC),
        Figure("kept on disks in all", stored * factor * load.retention_s, "B", Tag.ARITHMETIC),
    )


def of_broker(load: Load, brokers: int) -> tuple[Figure, ...]:
    """Figures for each broker, if the load is spread evenly."""
    stored, factor = load.stored_bytes_s, load.replication_factor
    replicas = load.partitions * factor / brokers
    density = COEFFICIENTS["density.replicas"]
    tag, reach = known(density.tag, replicas, density.value)
    memory = (
        COEFFICIENTS["memory.base"].value
        + image_bytes(load.partitions)
        + replicas * COEFFICIENTS["memory.replica"].value
    )
    best = COEFFICIENTS[f"most.{load.durability}"]
    return (
        Figure(
            "work per broker",
            cores(load) / brokers,
            "cores",
            Tag.EXTRAPOLATED,
            cpu_pages(load),
            load.write_bytes_s * factor / brokers / best.value,
        ),
        Figure("network in per broker", stored * factor / brokers, "B/s", Tag.ARITHMETIC),
        Figure("network out per broker", stored * (factor - 1 + load.read_fanout) / brokers, "B/s", Tag.ARITHMETIC),
        Figure("disk writes per broker", stored * factor / brokers, "B/s", Tag.ARITHMETIC),
        Figure(
            "disk to give each broker",
            stored * factor * load.retention_s / brokers / DISK_FULL_MAX,
            "B",
            Tag.ARITHMETIC,
        ),
        Figure("replicas per broker", replicas, "replicas", tag, pages(density), reach),
        Figure("memory per broker", memory, "B", Tag.EXTRAPOLATED, memory_pages(), reach),
    )


def of_controllers(load: Load, brokers: int) -> tuple[Figure, ...]:
    """Figures for controllers; a single broker is its own controller."""
    seen = COEFFICIENTS["controller.partitions"].value
    tag, reach = known(Tag.MEASURED, load.partitions, seen)
    memory = COEFFICIENTS["controller.memory"]
    lost = load.partitions * load.replication_factor / brokers
    per_record = COEFFICIENTS["controller.failure"].value / COEFFICIENTS["controller.failure.records"].value
    lost_tag, lost_reach = known(tag, lost, COEFFICIENTS["controller.failure.records"].value)
    rack = COEFFICIENTS["big.rack"]
    failover, led = COEFFICIENTS["failover.longest"], COEFFICIENTS["density.led_again"]
    figures = [
        Figure("controllers", 1 if brokers == 1 else CONTROLLERS, "", Tag.ARITHMETIC),
        Figure(
            "metadata memory per controller",
            COEFFICIENTS["memory.base"].value + image_bytes(load.partitions),
            "B",
            tag,
            pages(memory),
            reach,
        ),
        Figure(
            "loading the metadata",
            COEFFICIENTS["controller.load"].value * load.partitions / seen,
            "s",
            tag,
            pages(memory),
            reach,
        ),
        Figure(
            "metadata snapshot",
            COEFFICIENTS["controller.snapshot"].value * load.partitions / seen,
            "B",
            tag,
            pages(memory),
            reach,
        ),
    ]
    if brokers > 1:
        figures += [
            Figure(
                "deciding on a lost broker",
                per_record * lost,
                "s",
                lost_tag,
                pages(memory),
                lost_reach,
            ),
            _at_rest(brokers),
            Figure("led again after a lost rack, as seen", rack.value, rack.unit, rack.tag, pages(rack)),
            Figure("led again after a lost broker, longest seen", led.value, led.unit, led.tag, pages(led)),
            Figure("controller fail-over, longest seen", failover.value, "s", failover.tag, pages(failover)),
        ]
    return tuple(figures)


def _at_rest(brokers: int) -> Figure:
    """CPU that the active controller spends on idle brokers: heartbeats, and fetches of the metadata log."""
    simulated = COEFFICIENTS["big.brokers"]
    beats = COEFFICIENTS["big.heartbeats"].value * COEFFICIENTS["big.heartbeat"].value
    fetches = COEFFICIENTS["big.fetches"].value * COEFFICIENTS["big.fetch"].value
    tag, reach = known(simulated.tag, brokers, simulated.value)
    name = "controller at rest, its core alone"
    return Figure(name, brokers * (beats + fetches) / 1e6, "cores", tag, pages(simulated), reach)
