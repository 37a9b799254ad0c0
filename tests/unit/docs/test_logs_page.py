"""Event names are unique, and every event's sentence can be formatted."""

import re
from collections import Counter

from docs.pages.logs import ROOMS

KINDS = [kind for _, _, kinds in ROOMS for kind in kinds]


def test_names_are_told_apart_and_stay_readable() -> None:
    assert not [name for name, count in Counter(kind.name for kind in KINDS).items() if count > 1]
    assert not [kind.name for kind in KINDS if not re.fullmatch(r"[a-z]+(-[a-z]+)*", kind.name)]


def test_what_reports_share_a_line_by_is_in_their_sentence() -> None:
    for kind in KINDS:
        named = re.findall(r"{(\w+)}", kind.sentence)
        assert {*kind.alike, *([kind.of_each] if kind.of_each else [])} <= set(named), kind.name
        assert kind.meaning.endswith("."), kind.name
