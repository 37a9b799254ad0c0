"""The worlds of controller cores can fail: each rule that is taken out is missed, and for the reason that it names."""

from collections.abc import Callable

import pytest

from tests.simulation.controller_mutants import MUTANTS, SEEDS_MAX, Mutant, seeds_to_catch


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_the_worlds_notice(
    mutant: Mutant, monkeypatch: pytest.MonkeyPatch, record_property: Callable[[str, object], None]
) -> None:
    mutant.plant(monkeypatch)
    caught = seeds_to_catch(0)
    assert caught is not None, f"{mutant.name} went unnoticed in {SEEDS_MAX} worlds"
    seeds, reason = caught
    assert reason in mutant.reasons, f"{mutant.name} was caught by {reason}"
    record_property("seeds_needed", seeds)
