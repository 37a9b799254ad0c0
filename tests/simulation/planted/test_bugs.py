"""Each subtle bug is noticed by its proof, for its reason; and each proof holds without the bug."""

import re
from importlib import import_module

import pytest

from penstock.log.log import Log
from tests.simulation.planted.bugs import ALL, CoreMutant, why_not
from tests.simulation.planted.planting import Edit, plant


@pytest.mark.parametrize("mutant", ALL, ids=lambda mutant: mutant.name)
def test_the_proof_notices(mutant: CoreMutant) -> None:
    before = why_not(mutant.proof)
    assert before is None, before
    with pytest.MonkeyPatch.context() as patch:
        plant(patch, *mutant.edits)
        found = why_not(mutant.proof)
    assert found is not None, f"went unnoticed: {mutant.name}"
    assert re.search(mutant.reason, found), f"{mutant.name} was noticed for another reason: {found}"
    assert why_not(mutant.proof) is None, "what was planted is still there"


def test_mutants_of_worlds_that_are_named_exist() -> None:
    for mutant in ALL:
        for each in mutant.worlds:
            path, _, name = each.partition("::")
            module = import_module("tests.simulation." + path.removesuffix(".py").replace("/", "."))
            assert callable(getattr(module, name, None)), f"{mutant.name}: {each}"


def test_a_piece_that_is_gone_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AssertionError, match="has 0 times what the mutant replaces"):
        plant(monkeypatch, Edit(Log.roll, "no such line", ""))
    with pytest.raises(AssertionError, match="has 2 times what the mutant replaces"):
        plant(monkeypatch, Edit(Log.producers_at, "ProducerStates", ""))
