"""Output formats of records, and start positions."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from penstock.cli.consume.formats import LETTERS, printer_of
from penstock.cli.consume.start_position import Place, parse_place, parse_time
from penstock.cli.errors import Misused
from penstock.client.consumer.consumer import Message
from tests.unit.cli.conftest import Penstock

RECORD = Message("orders", 2, 41, 1_700_000_000_000, b"alice", b"caf\xc3\xa9", (("source", b"web"), ("empty", None)))
TOMBSTONE = Message("orders", 0, 7, 0, None, None, ())
NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("form", "shown"),
    [
        (r"%s\n", "café\n"),
        (r"%t[%p]@%o %T %k=%s\n", "orders[2]@41 1700000000000 alice=café\n"),
        (r"%K\t%S\t%h%%", "5\t5\tsource=web,empty=%"),
        (r"\x41\\%v", "A\\café"),
        ("é %k", "é alice"),
    ],
)
def test_letters(form: str, shown: str) -> None:
    assert printer_of(form)(RECORD).decode() == shown


def test_nothing_has_the_length_minus_one() -> None:
    assert printer_of("%K %S [%k%s%h]")(TOMBSTONE) == b"-1 -1 []"


@pytest.mark.parametrize("form", ["%x", "%", r"\q", "\\"])
def test_an_unknown_letter_is_misuse(form: str) -> None:
    with pytest.raises(Misused, match="means nothing"):
        printer_of(form)


def test_json_keeps_everything() -> None:
    printer = printer_of("json")
    assert json.loads(printer(RECORD)) == {
        "topic": "orders",
        "partition": 2,
        "offset": 41,
        "timestamp_ms": 1_700_000_000_000,
        "key": "alice",
        "value": "café",
        "headers": [{"name": "source", "value": "web"}, {"name": "empty", "value": None}],
    }
    row = json.loads(printer(RECORD._replace(key=None, value=b"\xff", headers=())))
    assert (row["key"], row["value_base64"]) == (None, "/w==")
    assert "headers" not in row


def test_names_of_headers_that_are_not_text() -> None:
    record = RECORD._replace(headers=(("\udcff", b"x"),))
    assert printer_of("%h")(record) == b"\xff=x"
    assert json.loads(printer_of("json")(record))["headers"] == [{"name_base64": "/w==", "value": "x"}]


def test_help_documents_every_letter(penstock: Penstock) -> None:
    """The help and the page name all letters and escapes that a format may have."""
    page = (Path(__file__).parents[3] / "docs" / "records.md").read_text()
    shown = penstock("consume", "--help").out
    for text in (shown, page):
        assert [letter for letter in LETTERS if f"%{letter}" not in text] == []
        assert [escape for escape in ("\\n", "\\r", "\\t", "\\0", "\\xHH", "\\\\") if escape not in text] == []


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("start", Place("earliest")),
        ("beginning", Place("earliest")),
        ("end", Place("latest")),
        ("42", Place(offset=42)),
        ("-10", Place(offset=-10)),
        ("15m", Place(timestamp_ms=int(NOW.timestamp() - 900) * 1000)),
        ("2d ago", Place(timestamp_ms=int(NOW.timestamp() - 172_800) * 1000)),
        ("@1700000000000", Place(timestamp_ms=1_700_000_000_000)),
        ("s@1700000000000", Place(timestamp_ms=1_700_000_000_000)),
        ("2026-01-31T12:00:00Z", Place(timestamp_ms=int(NOW.timestamp()) * 1000)),
    ],
)
def test_places_to_start(text: str, place: Place) -> None:
    assert parse_place(text, NOW) == place


def test_a_place_that_is_none() -> None:
    with pytest.raises(Misused, match="no place to start"):
        parse_place("yesterdayish", NOW)


def test_times() -> None:
    assert parse_time("15m", NOW, "--since") == int(NOW.timestamp() - 900) * 1000
    assert parse_time("@1700000000000", NOW, "--since") == 1_700_000_000_000
    assert parse_time("99999999d", NOW, "--since") == 0
    for text in ("bogus", "start", "42", "20260131", "-10"):
        with pytest.raises(Misused, match=r"--since .* is no time: 2026-01-31T12:00, 15m") as told:
            parse_time(text, NOW, "--since")
        assert "offset" not in str(told.value)


@pytest.mark.parametrize("asked", [("--output", "json"), ("-o", "json")], ids=" ".join)
@pytest.mark.parametrize("other", [("-f", "%v"), ("-k",), ("-H",)], ids=" ".join)
def test_two_formats_are_misuse(penstock: Penstock, asked: tuple[str, ...], other: tuple[str, ...]) -> None:
    result = penstock("consume", "orders", *asked, *other, "-b", "127.0.0.1:1")
    assert result.code == 2
    assert "ask for different formats" in result.err
