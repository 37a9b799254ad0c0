"""Help is there for every command, has examples, and costs little."""

import subprocess
import sys
from collections.abc import Iterator

import pytest
import typer.main

from penstock.cli.main import app
from tests.unit.cli.conftest import Penstock

HEAVY = (
    "asyncio",
    "rich",
    "pydantic",
    "cramjam",
    "penstock.server",
    "penstock.log",
    "penstock.metadata",
    "penstock.client",
)


def commands() -> Iterator[tuple[str, ...]]:
    def below(command: object, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        inner = getattr(command, "commands", None)
        if inner is None:
            yield path
        else:
            for name, each in inner.items():
                yield from below(each, (*path, name))

    return below(typer.main.get_command(app), ())


@pytest.mark.parametrize("path", list(commands()), ids=" ".join)
def test_help_has_examples(penstock: Penstock, path: tuple[str, ...]) -> None:
    result = penstock(*path, "--help")
    assert result.code == 0
    assert result.out.count(f"penstock {' '.join(path)}") >= 3, "the usage and two examples"


def test_help_imports_nothing_heavy() -> None:
    """Who asks for help waits for nothing else."""
    program = (
        "import sys; from penstock.cli.main import run; assert run(['--help']) == 0; "
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


def test_a_misspelt_command_is_misuse(penstock: Penstock) -> None:
    result = penstock("tpoic", "list")
    assert result.code == 2
    assert "No such command 'tpoic'" in result.err


def test_version(penstock: Penstock) -> None:
    assert penstock("--version").out.startswith("penstock ")
