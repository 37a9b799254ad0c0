"""Logs keep their guarantees when operations overlap: group commit, truncation, sealing, deletion, replacement.

Every run uses fixed seeds plus fresh ones; a failure names its seed. Longer runs: `./dev simulate power-cuts`.
"""

from collections.abc import Callable

import pytest

from tests.simulation.kit.mutants import Mutant, notice
from tests.simulation.kit.regressions import seeds_of
from tests.simulation.log.overlap_mutants import MUTANTS
from tests.simulation.log.overlaps import run_overlaps
from tests.simulation.log.seeds import run_all


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
