"""Output of `penstock size` for people and for programs."""

import json

import pytest

from docs.pages.scale import SIZES, planned
from tests.unit.cli.conftest import Penstock


def test_a_plan_for_people_names_the_first_limit_and_how_each_figure_is_known(penstock: Penstock) -> None:
    result = penstock("size", "--write", "1GB/s", "--read-fanout", "3")
    assert result.code == 0
    assert "The first limit is cpu. What would move it:" in result.out
    figures = result.out.partition("\n\n")[0].splitlines()[1:]
    assert len(figures) > 10
    for row in figures:
        assert any(tag in row for tag in ("measured", "simulated", "extrapolated", "arithmetic")), row


@pytest.mark.parametrize("arguments", SIZES.values())
def test_the_commands_of_the_page_give_its_figures(penstock: Penstock, arguments: str) -> None:
    found = json.loads(penstock("size", *arguments.split(), "-o", "json").out)
    expected = planned(arguments)
    assert found["brokers"] == expected.brokers
    assert [each["value"] for each in found["figures"]] == [each.value for each in expected.figures]
    assert found["limits"][0]["limit"] == found["first_limit"] == expected.first_limit


def test_one_node_is_told_how_much_room_it_has(penstock: Penstock) -> None:
    assert "One broker has room for" in penstock("size", "--write", "5MB/s", "--replication-factor", "1").out
    assert "one node carries this load" in penstock("size", "--write", "5MB/s").out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--write", "1GB"), "--write: '1GB' is no rate"),
        (("--write", "1GB/s", "--retention", "week"), "--retention: "),
        (("--write", "1GB/s", "--disk", "large"), "--disk: "),
        (("--write", "1GB/s", "-p", "50000000"), "--memory"),
    ],
)
def test_what_makes_no_sense_is_misuse_and_is_told_in_a_sentence(
    penstock: Penstock, arguments: tuple[str, ...], told: str
) -> None:
    result = penstock("size", *arguments)
    assert result.code == 2
    assert told in result.err
    assert "Traceback" not in result.err
