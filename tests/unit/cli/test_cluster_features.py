"""Feature levels are raised as far as every node supports; an obstacle is reported with its fix."""

import pytest

from penstock.cli.cluster.features import advice, feature_rows, levels_to_lower, levels_to_raise
from penstock.cli.errors import Failed, Misused
from penstock.client.admin.features import FeaturesDescription, Levels, NodeFeatures
from penstock.client.errors import Unreachable
from tests.unit.cli.conftest import Penstock

METADATA, ELIGIBLE = "metadata.version", "eligible.leader.replicas.version"


def node(most: int, *, level: int = 24, epoch: int = 100, knows_eligible: bool = True) -> NodeFeatures:
    known = {METADATA: Levels(7, most)} | ({ELIGIBLE: Levels(0, 1)} if knows_eligible else {})
    return NodeFeatures(known, {METADATA: level}, epoch)


UPGRADED = FeaturesDescription({1: node(29), 2: node(29)})
HALFWAY = FeaturesDescription({1: node(29), 2: node(24, knows_eligible=False), 3: node(29)})


def test_all_go_as_far_as_every_node_does() -> None:
    assert levels_to_raise(["all"], UPGRADED) == {METADATA: 29, ELIGIBLE: 1}
    assert levels_to_raise([METADATA], UPGRADED) == {METADATA: 29}
    assert levels_to_raise([f"{METADATA}=25"], UPGRADED) == {METADATA: 25}
    assert levels_to_raise([f"{METADATA}=24"], UPGRADED) == {}
    assert levels_to_raise(["all"], HALFWAY) == {}, "node 2 goes nowhere"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (f"{METADATA}=29", f"node 2 supports {METADATA} only up to level 24; upgrade it first"),
        (f"{METADATA}=30", f"node 1 supports {METADATA} only up to level 29; no node knows a level above 29"),
        (f"{ELIGIBLE}=1", f"node 2 does not know {ELIGIBLE} at all; upgrade it first"),
        (f"{METADATA}=23", f"{METADATA} is at level 24 already: `penstock cluster features --lower {METADATA}=23`"),
        ("metadata=29", f"no node knows a feature 'metadata'; there are {ELIGIBLE}, {METADATA}"),
    ],
)
def test_who_stands_in_the_way_is_named(text: str, sentence: str) -> None:
    with pytest.raises(Failed) as failed:
        levels_to_raise([text], HALFWAY)
    assert str(failed.value).startswith(sentence)


def test_lowering_needs_a_level_that_every_node_knows() -> None:
    assert levels_to_lower([f"{METADATA}=20"], HALFWAY) == {METADATA: 20}
    assert levels_to_lower([f"{ELIGIBLE}=0"], HALFWAY) == {}, "it is off"
    with pytest.raises(Failed, match="only from level 7 on"):
        levels_to_lower([f"{METADATA}=3"], HALFWAY)
    with pytest.raises(Failed, match="--raise"):
        levels_to_lower([f"{METADATA}=29"], HALFWAY)
    with pytest.raises(Misused, match="to which level"):
        levels_to_lower([METADATA], HALFWAY)


@pytest.mark.parametrize("text", ["=29", f"{METADATA}=", f"{METADATA}=-1", f"{METADATA}=x"])
def test_what_is_no_level_is_misuse(text: str) -> None:
    with pytest.raises(Misused, match="is not NAME=LEVEL"):
        levels_to_raise([text], UPGRADED)


def test_whoever_is_furthest_knows_what_is_in_force() -> None:
    found = FeaturesDescription({1: node(29, level=24, epoch=7), 2: node(29, level=29, epoch=9)})
    assert found.in_force[METADATA] == 29


def test_a_row_tells_what_each_node_knows() -> None:
    eligible, metadata = feature_rows(HALFWAY)
    assert metadata == {
        "feature": METADATA,
        "level": 24,
        "all_know": "7-24",
        "nodes": {"1": "7-29", "2": "7-24", "3": "7-29"},
    }
    assert (eligible["level"], eligible["nodes"]["2"]) == (0, None)


def test_advice_tells_what_can_be_raised_and_what_keeps_the_rest() -> None:
    assert list(advice(HALFWAY)) == [
        f"{ELIGIBLE} could be at level 1, which node 2 does not know: upgrade first, then raise it.",
        f"{METADATA} could be at level 29, which node 2 does not know: upgrade first, then raise it.",
    ]
    assert [line.partition(",")[0] for line in advice(UPGRADED)] == [
        f"{ELIGIBLE} can be raised to level 1",
        f"{METADATA} can be raised to level 29",
    ]
    silent = FeaturesDescription({1: node(29, level=29)}, {2: Unreachable("gone")})
    assert "Node 2 does not answer: start what is down before you raise anything." in list(advice(silent))


def test_the_command_line_must_make_sense(penstock: Penstock) -> None:
    for arguments in (("--raise", "a=1", "--lower", "b=1"), ("--dry-run",)):
        assert penstock("cluster", "features", *arguments).code == 2
