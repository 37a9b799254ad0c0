"""Event names are unique, and every event's sentence can be formatted."""

import logging
import re
from collections import Counter
from pathlib import Path

import pytest

from docs.pages.logs import ROOMS

DOCS = Path(__file__).parents[3] / "docs"
KINDS = [kind for _, _, kinds in ROOMS for kind in kinds]
LINE = re.compile(r"[-\d]{10}T[:.\d]{12}Z (\w+) (\w+): (.+) \[([-a-z]+)\]")


def test_names_are_told_apart_and_stay_readable() -> None:
    assert not [name for name, count in Counter(kind.name for kind in KINDS).items() if count > 1]
    assert not [kind.name for kind in KINDS if not re.fullmatch(r"[a-z]+(-[a-z]+)*", kind.name)]


def test_what_reports_share_a_line_by_is_in_their_sentence() -> None:
    for kind in KINDS:
        named = re.findall(r"{(\w+)}", kind.sentence)
        assert {*kind.alike, *([kind.of_each] if kind.of_each else [])} <= set(named), kind.name
        assert kind.meaning.endswith("."), kind.name


@pytest.mark.parametrize("page", ["operating/broker-down.md", "results/killed-leader.md"])
def test_logs_that_pages_show_are_what_nodes_write(page: str) -> None:
    kinds = {kind.name: kind for kind in KINDS}
    shown = LINE.findall((DOCS / page).read_text())
    assert len(shown) >= 10
    for level, _, said, name in shown:
        kind = kinds[name]
        sentence = "".join(
            re.escape(part) if at % 2 == 0 else ".+" for at, part in enumerate(re.split(r"{(\w+)}", kind.sentence))
        )
        assert re.match(sentence, said), said
        assert level == logging.getLevelName(kind.level), said
