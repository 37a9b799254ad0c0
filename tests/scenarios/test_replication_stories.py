"""The transcripts in `replication/` match the present code, and fail without the rule that they show."""

import pytest

from tests.scenarios.replication_rules import WITHOUT
from tests.scenarios.replication_stories import FOLDER, commands_of, retell
from tests.simulation.kit.invariants import Broken
from tests.simulation.kit.mutants import Plant

STORIES = sorted(path.name for path in FOLDER.glob("*.txt"))


@pytest.mark.parametrize("name", STORIES)
def test_the_transcript_is_what_happens(name: str) -> None:
    text = (FOLDER / name).read_text()
    assert retell(text) == text, "read the difference; python -m tests.scenarios.replication_stories writes it anew"


def test_there_is_a_story_for_each_mistake() -> None:
    numbers = {name.split("_")[0] for name in STORIES}
    assert numbers >= {*(f"r{number:02}" for number in range(1, 11)), "r28", "r29"}


@pytest.mark.parametrize(("story", "mutant", "reason"), WITHOUT, ids=lambda each: getattr(each, "__name__", str(each)))
def test_without_its_rule_a_story_ends_badly(
    story: str, mutant: Plant, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = next(each for each in STORIES if each.startswith(story))
    mutant(monkeypatch)
    with pytest.raises(Broken) as found:
        retell(commands_of(name))
    assert found.value.name == reason
