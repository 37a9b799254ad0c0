"""The log keeps its guarantees through power cuts, failing syncs, full disks and flipped bits.

Every run uses fixed seeds plus fresh ones; a failure names its seed. Longer runs: `./dev simulate power-cuts`.
"""

from collections.abc import Callable

import pytest

from penstock.log.settings import Durability
from tests.simulation.kit import regressions
from tests.simulation.log.faults import run_failing_syncs, run_flip, run_full_disk
from tests.simulation.log.histories import run_history
from tests.simulation.log.seeds import run_all

CHUNKS = 8


@pytest.mark.parametrize("chunk", range(CHUNKS))
@pytest.mark.parametrize("durability", list(Durability))
def test_power_cuts(chunk: int, durability: Durability) -> None:
    run_all(chunk, lambda seed: run_history(seed, durability), fixed=60, fresh=15)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_bit_flips_are_noticed_and_cost_nothing(chunk: int) -> None:
    run_all(chunk, run_flip, fixed=100, fresh=25)


@pytest.mark.parametrize("chunk", range(2))
def test_a_failed_sync_takes_the_log_offline(chunk: int) -> None:
    run_all(chunk, run_failing_syncs, fixed=100, fresh=25)


@pytest.mark.parametrize("chunk", range(2))
def test_a_full_disk_does_no_harm(chunk: int) -> None:
    run_all(chunk, run_full_disk, fixed=50, fresh=12)


def test_seeds_that_failed_once() -> None:
    kinds: dict[str, Callable[[int], object]] = {
        "fsync": lambda seed: run_history(seed, Durability.FSYNC),
        "replicated": lambda seed: run_history(seed, Durability.REPLICATED),
        "flip": run_flip,
        "failing-sync": run_failing_syncs,
        "full-disk": run_full_disk,
    }
    lines = regressions.PATH.read_text().splitlines()
    seeds = [line.split() for line in lines if line.startswith(tuple(kinds))]
    assert seeds
    for kind, seed in seeds:
        kinds[kind](int(seed))
