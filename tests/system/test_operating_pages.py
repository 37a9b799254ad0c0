"""Runs every command on the pages about operating a cluster, page by page, on the cluster that the first one creates.

Each page begins with a healthy cluster, and leaves one. `# exit code N` after a command is compared with its exit code.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.ports import free_port
from tests.system.commands import ENVIRONMENT

pytestmark = pytest.mark.xdist_group("cluster")

DOCS = Path(__file__).parents[2] / "docs"
FIRST = "operating.md"
PAGES = (FIRST, *sorted(f"operating/{path.name}" for path in (DOCS / "operating").glob("*.md")))
PORT = "19092"
LIMIT_S = 600


def commands(page: str) -> list[str]:
    """The commands in blocks of shell."""
    blocks = re.findall(r"^```sh\n(.*?)^```", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


def script_of(lines: list[str], port: int) -> str:
    """A script that stops at the first command with another exit code than expected, and names it."""
    script = ["set -uo pipefail"]
    for line in lines:
        command, _, wanted = line.partition("  # exit code ")
        shown = command.replace("'", "'\\''")
        script += [
            f"echo '$ {shown}'",
            command.replace(PORT, str(port)),
            f'code=$?; test $code = {wanted or 0} || {{ echo "ended with $code"; exit 1; }}',
        ]
    return "\n".join(script)


class Reader:
    """Runs the commands of the pages in one directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = free_port(is_kept=False)
        tools = directory / "bin"
        tools.mkdir()
        penstock = tools / "penstock"
        penstock.write_text(f'#!/bin/sh\nexec {sys.executable} -m penstock "$@"\n')
        penstock.chmod(0o755)
        self.environment = ENVIRONMENT | {"PATH": f"{tools}:{os.environ['PATH']}"}

    def types(self, lines: list[str]) -> None:
        done = subprocess.run(
            ["bash", "-c", script_of(lines, self.port)],
            cwd=self.directory,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=LIMIT_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout.decode()


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    reader = Reader(tmp_path_factory.mktemp("operating"))
    try:
        yield reader
    finally:
        reader.types(["penstock sandbox down"])


@pytest.mark.parametrize("page", PAGES)
def test_what_the_page_says_is_so(reader: Reader, page: str) -> None:
    lines = commands(page)
    assert lines[-1] == "penstock cluster health --wait 60", "what one page has harmed, the next does not begin with"
    reader.types(lines)


def test_a_command_that_ends_otherwise_than_told_is_noticed(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    reader.types(["true", "false  # exit code 1"])
    for wrong in ("false", "true  # exit code 1", "penstock cluster health -b 127.0.0.1:1  # exit code 1"):
        with pytest.raises(AssertionError, match="ended with"):
            reader.types([wrong, "true"])
