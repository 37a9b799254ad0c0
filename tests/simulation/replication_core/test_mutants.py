"""The worlds of replicas detect bugs: each removed rule is noticed, for a reason that the mutant names.

These are the mutants without a scenario of their own (`tests/scenarios/test_replication_stories.py`); each runs until a
world notices it.
"""

from collections.abc import Callable

import pytest

from tests.scenarios.replication_rules import WITHOUT
from tests.simulation.kit.mutants import Mutant, notice
from tests.simulation.replication_core.mutants import MUTANTS

TOLD = {plant.__name__ for _, plant, _ in WITHOUT}
UNTOLD = [mutant for mutant in MUTANTS.all if mutant.name not in TOLD]


@pytest.mark.parametrize("mutant", UNTOLD, ids=[mutant.name for mutant in UNTOLD])
def test_the_worlds_notice(
    mutant: Mutant, monkeypatch: pytest.MonkeyPatch, record_property: Callable[[str, object], None]
) -> None:
    record_property("seeds_needed", notice(MUTANTS, mutant, monkeypatch).seeds)


def test_stories_tell_of_mutants_that_there_are() -> None:
    assert set(MUTANTS.names) >= TOLD
    assert len(UNTOLD) < len(TOLD)


def test_what_others_learned_the_hard_way_has_mutants() -> None:
    wanted = {*(f"R{number:02}" for number in range(1, 11)), "R28", "R29"}
    assert wanted <= {mutant.rule for mutant in MUTANTS.all}
    history = {"truncates_to_the_high_watermark", "kip_101_only", "kip_279_only", "kip_320_first_try"}
    assert history <= set(MUTANTS.names)
