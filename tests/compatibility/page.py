"""docs/compatibility.md, written from a run of the client matrix and from the rows themselves.

A ✓ stands for a scenario that passed in the recorded run. Running a row replaces everything recorded for it: a scenario
that did not run has no ✓.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.compatibility.rows.row import Operation, Row
from tests.compatibility.rows.table import MODULES, row_class

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "compatibility.md"
RECORD = DOCS / "results" / "compatibility.json"

PASSED, FAILED, NOT_RUN = "✓", "**fails**", "*not run*"


@dataclass
class Recorded:
    """The record of one client: its version, the date, and whether each scenario passed."""

    version: str
    date: str
    passed: dict[str, bool] = field(default_factory=dict)
    notes: dict[str, int] = field(default_factory=dict)


Record = Mapping[str, Recorded]


class Outcome(NamedTuple):
    """The outcome of one scenario, with the numbers that it noted."""

    module: str
    version: str
    operation: str
    notes: Mapping[str, int]
    passed: bool


def load() -> dict[str, Recorded]:
    """The record by module of the row; empty before the first run."""
    found = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    return {module: Recorded(**row) for module, row in found.items()}


def save(record: Record) -> None:
    """Saves the record in the order of the table and of the operations."""
    known = {module: record[module] for module in MODULES if module in record}
    rows = {
        module: vars(row)
        | {"passed": {each.name: row.passed[each.name] for each in Operation if each.name in row.passed}}
        for module, row in known.items()
    }
    RECORD.write_text(json.dumps(rows, indent=1) + "\n")


def table() -> dict[str, type[Row]]:
    """Every row by its module."""
    return {module: row_class(module) for module in MODULES}


def render(record: Record, rows: Mapping[str, type[Row]]) -> str:
    """The text of the page."""
    reasons: list[str] = []
    lines = [
        "# Clients that were tried",
        "",
        *INTRODUCTION,
        "",
        *_versions(record, rows),
        "",
        *_table(record, rows, reasons),
    ]
    if reasons:
        lines += ["", "What a client does not offer:", "", *(f"{at}. {text}" for at, text in enumerate(reasons, 1))]
    return "\n".join([*lines, ""])


INTRODUCTION = (
    "Each ✓ is a scenario of `tests/compatibility/scenarios.py` or `group_scenarios.py` that passed against a Penstock",
    "node of its own process: the scene is set and the outcome is checked on the wire, by a client that trusts nobody.",
    "CI runs the scenarios again, but for some of kafka-console-consumer's, which are those of the Java client.",
    "`./dev campaign compatibility` runs the matrix and writes this page; nothing here is written by hand.",
)


def _versions(record: Record, rows: Mapping[str, type[Row]]) -> list[str]:
    lines = [_line("Client", ["Version", "Recorded", "In flight when idempotent, at most"]), "|---|---|---|---|"]
    for module, row in rows.items():
        seen = record.get(module, Recorded("–", NOT_RUN))
        figures = ", ".join(f"{what} {figure}" for what, figure in seen.notes.items())
        lines.append(_line(row.name, [seen.version, seen.date, figures or "–"]))
    return lines


def _table(record: Record, rows: Mapping[str, type[Row]], reasons: list[str]) -> list[str]:
    """Operations down, clients across; a reason is a number that refers to the list below."""
    lines = [_line("", [row.name for row in rows.values()]), "|---|" + ":-:|" * len(rows)]
    for operation in Operation:
        cells = [_cell(record.get(module), row, operation, reasons) for module, row in rows.items()]
        lines.append(_line(operation.value, cells))
    return lines


def _cell(seen: Recorded | None, row: type[Row], operation: Operation, reasons: list[str]) -> str:
    if operation in row.lacks:
        reason = f"{row.name}: {row.lacks[operation]}"
        if reason not in reasons:
            reasons.append(reason)
        return f"– ({reasons.index(reason) + 1})"
    passed = None if seen is None else seen.passed.get(operation.name)
    return NOT_RUN if passed is None else PASSED if passed else FAILED


def _line(first: str, cells: Sequence[str]) -> str:
    return "| " + " | ".join([first, *cells]) + " |"


def remember(outcomes: Iterable[Outcome], date: str) -> Record:
    """The previous record, in which every row that ran is replaced."""
    fresh: dict[str, Recorded] = {}
    for outcome in outcomes:
        row = fresh.setdefault(outcome.module, Recorded(outcome.version, date))
        row.passed[outcome.operation] = outcome.passed and row.passed.get(outcome.operation, True)
        row.notes |= outcome.notes
    return load() | fresh
