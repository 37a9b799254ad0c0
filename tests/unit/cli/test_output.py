"""Tables: columns line up for any content and on any terminal."""

import io
import json
import sys
from typing import Any

import pytest

from penstock.cli.output import Quantity, json_text, printable, table_text
from tests.unit.cli.conftest import Penstock


def test_numbers_stand_to_the_right_also_where_the_first_is_missing() -> None:
    rows: list[dict[str, Any]] = [
        {"name": "a", "count": None, "age": Quantity("3.0 s"), "host": "10"},
        {"name": "b", "count": 12, "age": Quantity("1 min 15 s"), "host": "b"},
        {"name": "c", "count": "?", "age": "-", "host": None},
    ]
    assert table_text(rows).splitlines() == [
        "NAME  COUNT         AGE  HOST",
        "a         -       3.0 s  10",
        "b        12  1 min 15 s  b",
        "c         ?           -  -",
    ]


def test_wide_characters_take_two_places() -> None:
    rows = [{"name": "蛇口", "host": "a"}, {"name": "🚰", "host": "b"}, {"name": "cafe\u0301", "host": "c"}]
    assert table_text(rows).splitlines() == ["NAME  HOST", "蛇口  a", "🚰    b", "cafe\u0301  c"]


def test_what_steers_a_terminal_is_escaped() -> None:
    assert printable("with\nnewline\x1b[31mred\u202e") == r"with\nnewline\x1b[31mred\u202e"
    assert table_text([{"name": "a\nb"}]) == "NAME\na\\nb\n"


def test_a_terminal_that_shows_ascii_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    assert table_text([{"name": "emoji-🚰"}]) == "NAME\nemoji-\\U0001f6b0\n"
    assert json_text(["🚰"]).isascii()
    assert json.loads(json_text(["🚰"])) == ["🚰"]


def test_json_stays_as_it_is() -> None:
    assert json_text(["🚰\n"]) == '["🚰\\n"]'


def test_no_command_fails_for_want_of_a_character(penstock: Penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    narrow = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", narrow)
    penstock("--version")
    narrow.write("→")
    narrow.flush()
    assert isinstance(narrow.buffer, io.BytesIO)
    assert narrow.buffer.getvalue().endswith(b"\\u2192")
