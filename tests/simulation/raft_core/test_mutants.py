"""The worlds of raft cores detect bugs: each removed rule is noticed, for a reason that the mutant names."""

from collections.abc import Callable

import pytest

from tests.simulation.kit.mutants import Mutant, notice
from tests.simulation.raft_core.checks import INVARIANTS
from tests.simulation.raft_core.mutants import MUTANTS


@pytest.mark.parametrize("mutant", MUTANTS.all, ids=MUTANTS.names)
def test_the_worlds_notice(
    mutant: Mutant, monkeypatch: pytest.MonkeyPatch, record_property: Callable[[str, object], None]
) -> None:
    record_property("seeds_needed", notice(MUTANTS, mutant, monkeypatch).seeds)


def test_every_invariant_has_a_mutant_that_it_may_catch() -> None:
    named = {reason for mutant in MUTANTS.all for reason in mutant.reasons}
    assert set(INVARIANTS) <= named
    assert {"R31", "R32"} <= {mutant.rule for mutant in MUTANTS.all}
