"""A plan reproduces the measurements, is monotonic, and marks every extrapolation."""

from dataclasses import replace
from pathlib import Path

import pytest

import docs.pages.scale
import penstock.sizing
from docs.pages.coefficients import Found, all_found, rounded
from penstock.sizing.coefficients import COEFFICIENTS
from penstock.sizing.cost import SIZES, request_cpu_us, usable_cores
from penstock.sizing.demand import Durability, Hardware, Load
from penstock.sizing.evidence import Figure, Tag, known
from penstock.sizing.limits import Impossible, Limit, requirements_of
from penstock.sizing.plan import Plan, plan

GIGABYTE = Load(1e9, read_fanout=3, partitions=3_000)
RESULTS = Path(__file__).parents[3] / "docs" / "results"


def figure(found: Plan, name: str) -> Figure:
    return next(each for each in found.figures if each.name == name)


# --- coefficients -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("found", list(all_found()), ids=lambda found: found.key)
def test_a_coefficient_is_what_the_page_of_results_says(found: Found) -> None:
    coefficient = COEFFICIENTS[found.key]
    assert coefficient.value == rounded(found.value), "a result was recorded anew: run ./dev pages"
    assert coefficient.tag.name == found.tag
    assert (RESULTS / coefficient.page).exists()


def test_no_coefficient_is_there_for_nothing() -> None:
    rooms = [path for path in Path(penstock.sizing.__path__[0]).glob("*.py") if path.stem != "coefficients"]
    used = "".join(path.read_text() for path in (*rooms, Path(docs.pages.scale.__file__)))
    names = {key.removesuffix(".fsync").removesuffix(".replicated") for key in COEFFICIENTS}
    curves = {f"{what}.{durability}.{size}" for what in ("bytes", "cpu") for durability in Durability for size in SIZES}
    assert [name for name in names - curves if name not in used] == []
    assert curves <= COEFFICIENTS.keys()


@pytest.mark.parametrize("durability", list(Durability))
def test_one_broker_takes_about_what_it_was_seen_to_take(durability: Durability) -> None:
    """The highest measured throughput of a broker on one core, from the CPU time per request; the rest was waiting."""
    seen = COEFFICIENTS[f"most.{durability}"].value
    load = Load(seen, read_fanout=0, replication_factor=1, record_bytes=100, durability=durability)
    load = replace(load, batch_bytes=COEFFICIENTS[f"bytes.{durability}.batch"].value)
    cpu = next(each for each in requirements_of(load, Hardware(cores=1, busy_max=1.0)) if each.limit is Limit.CPU)
    assert 0.8 <= cpu.exact <= 1.05


@pytest.mark.parametrize("durability", list(Durability))
def test_between_sizes_that_were_measured_a_request_costs_what_lies_between(durability: Durability) -> None:
    points = [
        (COEFFICIENTS[f"bytes.{durability}.{s}"].value, COEFFICIENTS[f"cpu.{durability}.{s}"].value) for s in SIZES
    ]
    for value_bytes, cpu_us in points:
        assert request_cpu_us(durability, value_bytes) == pytest.approx(cpu_us)
    (low, low_us), (high, high_us) = points[1:3]
    assert low_us < request_cpu_us(durability, (low * high) ** 0.5) < high_us
    assert request_cpu_us(durability, 1) == points[0][1]
    assert request_cpu_us(durability, 10 * points[-1][0]) == pytest.approx(10 * points[-1][1])


# --- tags -------------------------------------------------------------------------------------------------------------


def test_only_what_was_seen_at_that_size_is_measured() -> None:
    assert known(Tag.MEASURED, 1_000_000, 1_000_000) == (Tag.MEASURED, 1.0)
    assert known(Tag.SIMULATED, 95, 100)[0] is Tag.SIMULATED
    assert known(Tag.MEASURED, 10_000, 1_000_000) == (Tag.EXTRAPOLATED, 0.01)
    assert known(Tag.MEASURED, 2_000_000, 1_000_000) == (Tag.EXTRAPOLATED, 2.0)


def test_the_metadata_of_a_million_partitions_is_measured_and_of_two_is_not() -> None:
    name = "metadata memory per controller"
    million, two = (plan(replace(GIGABYTE, partitions=count), Hardware()) for count in (1_000_000, 2_000_000))
    assert figure(million, name).tag is Tag.MEASURED
    assert figure(million, name).value == pytest.approx(COEFFICIENTS["controller.memory"].value)
    assert figure(two, name).tag is Tag.EXTRAPOLATED
    assert figure(two, name).reach == 2.0
    assert figure(million, "replicas per broker").tag is Tag.MEASURED


@pytest.mark.parametrize("load", [GIGABYTE, Load(1e7, replication_factor=1), replace(GIGABYTE, partitions=1_000_000)])
def test_the_number_of_brokers_is_never_more_than_extrapolated(load: Load) -> None:
    assert figure(plan(load, Hardware()), "brokers").tag is Tag.EXTRAPOLATED


def test_a_figure_that_no_page_supports_is_arithmetic() -> None:
    for each in plan(GIGABYTE, Hardware()).figures:
        assert (each.tag is Tag.ARITHMETIC) == (not each.pages), each


# --- results ----------------------------------------------------------------------------------------------------------


def test_a_small_load_takes_one_node() -> None:
    found = plan(Load(20e6, replication_factor=1, partitions=100), Hardware())
    assert found.brokers == 1
    assert figure(found, "controllers").value == 1
    assert found.requirements[0].exact < 0.2, "and there is room"


def test_three_replicas_take_three_brokers_however_small_the_load_is() -> None:
    found = plan(Load(1e6, partitions=10), Hardware())
    assert (found.brokers, found.first_limit, found.alone) == (3, Limit.COPIES, 1)


@pytest.mark.parametrize(
    ("load", "hardware", "limit"),
    [
        (GIGABYTE, Hardware(), Limit.CPU),
        (GIGABYTE, Hardware(network_bytes_s=50e6), Limit.NETWORK_OUT),
        (replace(GIGABYTE, read_fanout=0), Hardware(network_bytes_s=50e6), Limit.NETWORK_IN),
        (GIGABYTE, Hardware(disk_write_bytes_s=100e6), Limit.DISK_PACE),
        (GIGABYTE, Hardware(disk_bytes=1e12), Limit.DISK_SPACE),
        (replace(GIGABYTE, partitions=1_000_000), Hardware(), Limit.PARTITIONS),
        (replace(GIGABYTE, partitions=1_000_000), Hardware(memory_bytes=1.24e9), Limit.MEMORY),
    ],
)
def test_whatever_is_scarce_is_the_first_limit(load: Load, hardware: Hardware, limit: Limit) -> None:
    found = plan(load, hardware)
    assert found.first_limit is limit
    assert found.brokers == max(each.brokers for each in found.requirements)


def test_every_lever_that_is_named_takes_fewer_brokers() -> None:
    found = plan(replace(GIGABYTE, batch_bytes=4096), Hardware(disk_bytes=20e12))
    assert "--batch-bytes 64KiB" in [each.change for each in found.levers]
    assert all(each.brokers < found.brokers for each in found.levers)


def test_twice_the_load_never_takes_fewer_brokers() -> None:
    counts = [plan(replace(GIGABYTE, write_bytes_s=1e6 * 2**n), Hardware()).brokers for n in range(14)]
    assert counts == sorted(counts)
    assert counts[-1] > 100


def test_more_cores_than_two_bring_nothing_and_the_plan_says_so() -> None:
    assert usable_cores(Durability.FSYNC, 0.5) == 0.5
    assert usable_cores(Durability.FSYNC, 64) == usable_cores(Durability.FSYNC, 2) < 1.5
    many = plan(GIGABYTE, Hardware(cores=64))
    assert many.brokers == plan(GIGABYTE, Hardware()).brokers
    assert any("one Python process" in each for each in many.warnings)


def test_too_few_partitions_are_told() -> None:
    found = plan(replace(GIGABYTE, partitions=2), Hardware())
    assert any("2 partitions cannot spread this load" in each for each in found.warnings)


def test_metadata_that_does_not_fit_is_refused_with_what_to_do() -> None:
    with pytest.raises(Impossible, match="--memory"):
        plan(replace(GIGABYTE, partitions=10_000_000), Hardware())
