"""docs/compatibility.md agrees with the rows, and shows a ✓ only for a recorded success."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import pytest

from tests.compatibility import page
from tests.compatibility.page import FAILED, NOT_RUN, PASSED, Recorded
from tests.compatibility.rows.row import Operation, Row

pytestmark = pytest.mark.peers

DAY = "2026-01-02"


class Able(Row):
    """A client that offers everything."""

    name = "able"


class Modest(Row):
    """A client that does not create topics."""

    name = "modest"
    lacks: ClassVar[Mapping[Operation, str]] = {Operation.CREATE_TOPIC: "it is modest"}


ROWS: Mapping[str, type[Row]] = {"able": Able, "modest": Modest}


def cells(text: str, operation: Operation) -> list[str]:
    (line,) = (line for line in text.splitlines() if line.startswith(f"| {operation.value} |"))
    return [cell.strip() for cell in line.split("|")[2:-1]]


def test_the_page_is_what_the_record_and_the_rows_say() -> None:
    """Fails after a change of rows, operations or reasons: run './dev campaign compatibility'."""
    assert page.PAGE.read_text() == page.render(page.load(), page.table()), "run './dev campaign compatibility'"


def test_every_story_that_a_client_offers_has_passed_in_the_record() -> None:
    record = page.load()
    for module, row in page.table().items():
        wanted = {operation.name: True for operation in Operation if operation not in row.lacks}
        assert record[module].passed == wanted, module


def test_only_what_passed_has_a_tick() -> None:
    record = {"able": Recorded("1", DAY, {"CREATE_TOPIC": True, "ALTER_TOPIC": False})}
    text = page.render(record, ROWS)
    assert cells(text, Operation.CREATE_TOPIC) == [PASSED, "– (1)"]
    assert cells(text, Operation.ALTER_TOPIC) == [FAILED, NOT_RUN]
    assert cells(text, Operation.KEYED) == [NOT_RUN, NOT_RUN]
    assert "1. modest: it is modest" in text
    assert text.count(PASSED) - "".join(page.INTRODUCTION).count(PASSED) == 1


def test_a_run_replaces_all_that_was_recorded_of_its_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "RECORD", tmp_path / "record.json")
    before = {
        each: {"version": "1", "date": DAY, "passed": {"KEYED": True, "ACKS_0": True}} for each in ("java", "aiokafka")
    }
    page.RECORD.write_text(json.dumps(before))
    ends = [page.Outcome("java", "2", "KEYED", {"figures": 7}, passed) for passed in (True, False)]
    page.save(page.remember(ends, "2026-03-04"))
    assert page.load() == {
        "aiokafka": Recorded("1", DAY, {"KEYED": True, "ACKS_0": True}),
        "java": Recorded("2", "2026-03-04", {"KEYED": False}, {"figures": 7}),
    }
