"""The worlds of whole clusters detect bugs: each removed rule is noticed, for a reason that the mutant names."""

from collections.abc import Callable

import pytest

from tests.simulation.controllers_on_quorum.mutants import MUTANTS
from tests.simulation.kit.mutants import Mutant, notice


@pytest.mark.parametrize("mutant", MUTANTS.all, ids=MUTANTS.names)
def test_the_worlds_notice(
    mutant: Mutant, monkeypatch: pytest.MonkeyPatch, record_property: Callable[[str, object], None]
) -> None:
    record_property("seeds_needed", notice(MUTANTS, mutant, monkeypatch).seeds)
