"""The tables of docs/operators.md: tasks of Kafka's scripts and of rpk, and the commands for them."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "operators.md"
BELOW = " …"
_ROW = re.compile(r"^\| (.*) \|$", re.MULTILINE)
_CELLS = re.compile(r" (?<!\\)\| ")
_CODE = re.compile(r"`([^`]+)`")
_WITHOUT = ("none", "not needed")


class Task(NamedTuple):
    """A row: the names of the others in full, and what ours says."""

    task: str
    kafka: tuple[str, ...]
    rpk: tuple[str, ...]
    ours: str

    @property
    def has_command(self) -> bool:
        """Whether there is a command for it."""
        return not self.ours.startswith(_WITHOUT)

    @property
    def commands(self) -> list[str]:
        """The commands that it names, as a shell takes them."""
        return [each.replace("\\|", "|") for each in _CODE.findall(self.ours)]


def tasks() -> list[Task]:
    """All rows of the tables of tasks, in order."""
    return [
        Task(task, tuple(_full(kafka)), tuple(_CODE.findall(rpk)), ours)
        for task, kafka, rpk, ours in (row for row in _rows() if len(row) == 4)
        if task not in ("Task", "---")
    ]


def elsewhere() -> dict[str, Path]:
    """Commands that other tests run, with the file of the test."""
    rows = [row for row in _rows() if len(row) == 2 and row[0].startswith("`")]
    return {command.strip("`"): ROOT / test.strip("`") for command, test in rows}


def _rows() -> Iterator[list[str]]:
    for found in _ROW.finditer(PAGE.read_text(encoding="utf-8")):
        yield _CELLS.split(found[1])


def _full(cell: str) -> Iterator[str]:
    """The names in a cell; an option alone belongs to the script before it."""
    script = ""
    for each in _CODE.findall(cell):
        if each.startswith("--") and script:
            yield f"{script} {each}"
        else:
            script = each.split()[0]
            yield each
