"""Runs every command in the tables of docs/operators.md, in order, on the cluster that its first one starts."""

import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.operators_page import elsewhere, tasks
from tests.system.page_reader import PageReader

pytestmark = pytest.mark.xdist_group("cluster")

FIRST_PORT = 19092
PORTS = 12


def free_row() -> int:
    """The first of enough free ports in a row."""
    for first in range(21000, 32000, PORTS):
        try:
            for port in range(first, first + PORTS):
                with socket.create_server(("127.0.0.1", port)):
                    pass
        except OSError:
            continue
        return first
    raise AssertionError("no free ports in a row")


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[PageReader]:
    reader = PageReader(tmp_path)
    try:
        yield reader
    finally:
        if (tmp_path / ".penstock").exists():
            reader.types(["penstock sandbox down"])


def test_every_command_of_the_tables_does_what_it_says(reader: PageReader) -> None:
    first = free_row()
    lines = [
        command
        for task in tasks()
        if task.has_command
        for command in task.commands
        if command not in elsewhere() and re.match(r"(penstock|seq|printf|rm) ", command)
    ]
    assert len(lines) > 90

    def moved(found: re.Match[str]) -> str:
        return str(first + int(found[0]) - FIRST_PORT)

    reader.types([re.sub(r"\b190[0-9]{2}\b|\b191[0-9]{2}\b", moved, line) for line in lines])
    assert len((reader.directory / "all.txt").read_text().splitlines()) == 1002
    assert len((reader.directory / "billed.txt").read_text().splitlines()) == 100
    assert (reader.directory / "bundle.zip").exists()
