"""Log output of a node: text lines for people, JSON for programs."""

import json
import logging
import sys

from penstock.cli.serve.log_lines import JsonLines, TextLines


def entry(message: str, **more: object) -> logging.LogRecord:
    found = logging.LogRecord("penstock.quorum", logging.INFO, __file__, 1, message, (), None)
    found.created = 1_767_268_800.25
    found.__dict__.update(more)
    return found


def test_text_has_the_time_the_logger_and_the_event() -> None:
    lines = TextLines()
    assert lines.format(entry("Listens.")) == "2026-01-01T12:00:00.250Z INFO quorum: Listens."
    told = lines.format(entry("Leads.", event="quorum-leader", fields={"epoch": 7}))
    assert told == "2026-01-01T12:00:00.250Z INFO quorum: Leads. [quorum-leader]"


def test_nobody_writes_a_line_of_his_own() -> None:
    told = TextLines().format(entry("Group a\nFATAL b\x1b[2J\u2028 is gone."))
    assert told.endswith(r"Group a\u000aFATAL b\u001b[2J\u2028 is gone.")


def test_json_has_the_fields_too() -> None:
    told = json.loads(JsonLines().format(entry("Leads.", event="quorum-leader", fields={"epoch": 7})))
    assert told == {
        "time": "2026-01-01T12:00:00.250Z",
        "level": "INFO",
        "logger": "penstock.quorum",
        "event": "quorum-leader",
        "message": "Leads.",
        "fields": {"epoch": 7},
    }
    assert json.loads(JsonLines().format(entry("Zeile\numbruch")))["message"] == "Zeile\numbruch"


def test_a_traceback_comes_along() -> None:
    try:
        raise ValueError("planted")
    except ValueError:
        found = entry("A mistake of ours.")
        found.exc_info = sys.exc_info()
    assert "ValueError: planted" in TextLines().format(found)
    told = JsonLines().format(found)
    assert "\n" not in told
    assert "ValueError: planted" in json.loads(told)["traceback"]
