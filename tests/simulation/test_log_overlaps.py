"""Logs keep their promises when operations overlap: beside group commit, truncation, sealing, deletion, replacement.

The seeds are fixed plus, in every run, fresh ones; a failure names its seed. More at once: `./dev power-cuts`.
"""

from collections.abc import Callable

import pytest

from tests.simulation.log_overlaps import run_overlaps
from tests.simulation.mutants import Mutant, notice
from tests.simulation.overlap_mutants import MUTANTS
from tests.simulation.regressions import seeds_of
from tests.simulation.test_log_power_cuts import run_all


@pytest.mark.parametrize("chunk", range(8))
def test_overlapping_operations(chunk: int) -> None:
    run_all(chunk, run_overlaps, fixed=40, fresh=20)


def test_seeds_that_failed_once() -> None:
    seeds = seeds_of("overlap")
    assert seeds
    for seed in seeds:
        run_overlaps(seed)


@pytest.mark.parametrize("mutant", MUTANTS.all, ids=MUTANTS.names)
def test_the_histories_notice(
    mutant: Mutant, monkeypatch: pytest.MonkeyPatch, record_property: Callable[[str, object], None]
) -> None:
    record_property("seeds_needed", notice(MUTANTS, mutant, monkeypatch).seeds)
