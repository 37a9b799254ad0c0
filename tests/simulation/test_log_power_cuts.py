"""The log keeps its promises through power cuts, failing syncs, full disks and flipped bits.

The seeds are fixed plus, in every run, fresh ones; a failure names its seed. More at once: `./dev power-cuts`.
"""

from collections.abc import Callable
from pathlib import Path
from random import SystemRandom

import pytest

from penstock.log.settings import Durability
from tests.simulation.log_faults import run_failing_syncs, run_flip, run_full_disk
from tests.simulation.log_histories import run_history

CHUNKS = 8
FRESH = SystemRandom().randrange(10**9, 10**12)


def seeds(chunk: int, fixed: int, fresh: int) -> list[int]:
    own = range(chunk * fixed, (chunk + 1) * fixed)
    return [*own, *range(FRESH + chunk * fresh, FRESH + (chunk + 1) * fresh)]


def run_all(chunk: int, run: Callable[[int], object], fixed: int, fresh: int) -> None:
    for seed in seeds(chunk, fixed, fresh):
        try:
            run(seed)
        except BaseException as trouble:
            raise AssertionError(f"seed {seed}: {trouble!r}") from trouble


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
    lines = Path(__file__).with_name("regressions.txt").read_text().splitlines()
    seeds = [line.split() for line in lines if line.startswith(tuple(kinds))]
    assert seeds
    for kind, seed in seeds:
        kinds[kind](int(seed))
