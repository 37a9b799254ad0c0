"""Every command has help with examples, and printing it imports little."""

import re
import subprocess
import sys
from typing import Any

import pytest
import typer
import typer.main

from penstock.cli.main import app, reduced
from penstock.cli.old_names import MOVED
from tests.unit.cli.commands import commands
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


@pytest.mark.parametrize("path", list(commands()), ids=" ".join)
def test_help_has_examples(penstock: Penstock, path: tuple[str, ...]) -> None:
    result = penstock(*path, "--help")
    assert result.code == 0
    assert result.out.count(f"penstock {' '.join(path)}") >= 3, "the usage and two examples"


def test_help_imports_nothing_heavy() -> None:
    """Printing help must not wait for slow imports."""
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


@pytest.mark.parametrize("group", sorted({path[:-1] for path in commands()}), ids=" ".join)
def test_summaries_fit_80_columns(penstock: Penstock, group: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = penstock(*group, "--help").out.partition("Commands:")[2].partition("Examples:")[0].splitlines()
    assert [line for line in lines if line.endswith("...")] == []
    assert max(map(len, lines)) <= 80


RUN_UNTIL_THEY_ARE_STOPPED = {("dev",), ("server",)}


@pytest.mark.parametrize("path", sorted(set(commands()) - RUN_UNTIL_THEY_ARE_STOPPED), ids=" ".join)
def test_every_command_that_ends_has_output(path: tuple[str, ...]) -> None:
    assert "--output" in {name for each in parameters(path) for name in each.opts}


@pytest.mark.parametrize("path", list(commands()), ids=" ".join)
def test_names_of_topics_groups_and_contexts_are_completed(path: tuple[str, ...]) -> None:
    lacking = [
        each.name
        for each in parameters(path)
        if re.match(r"\[?(TOPIC|GROUP|CONTEXT)", each.metavar or "") or NAMING & set(each.opts)
        if each._custom_shell_complete is None
    ]
    assert lacking == []


NAMING = {"--topic", "--group", "--context"}


def parameters(path: tuple[str, ...]) -> list[Any]:
    command: Any = typer.main.get_command(app)
    for name in path:
        command = command.commands[name]
    return list(command.params)


@pytest.mark.parametrize(("old", "new"), MOVED.items(), ids=str)
def test_an_old_name_fails_and_names_the_new_one(penstock: Penstock, old: tuple[str, ...], new: str) -> None:
    for rest in ((), ("--help",), ("--nodes", "3", "-o", "json")):
        result = penstock(*old, *rest)
        assert (result.code, result.out) == (2, "")
        assert result.err == f"penstock: `penstock {' '.join(old)}` is `penstock {new}` now.\n"


@pytest.mark.parametrize("rest", [(), ("-o", "json"), ("-b", "a:1", "status")], ids=" ".join)
def test_quorum_alone_names_its_new_command(penstock: Penstock, rest: tuple[str, ...]) -> None:
    result = penstock("quorum", *rest)
    assert (result.code, result.out) == (2, "")
    assert "`penstock quorum` is `penstock quorum status` now" in result.err


def named(program: typer.Typer) -> dict[str | None, list[str | None]]:
    return {
        each.name: [one.name for one in each.typer_instance.registered_commands] if each.typer_instance else []
        for each in program.registered_groups
    }


def test_only_what_the_arguments_reach_is_built(penstock: Penstock) -> None:
    """To build all commands takes longer than to print a help text."""
    built = reduced(app, ["topic", "list", "-o", "json"])
    assert (built.registered_commands, named(built)) == ([], {"topic": ["list"]})
    assert len(named(reduced(app, ["topic", "lits"]))["topic"]) > 5, "an error may suggest another name"
    built = reduced(app, ["produce", "topic"])
    assert (len(built.registered_commands), named(built)) == (1, {})
    for arguments in ([], ["--help"], ["tpoic"]):
        built = reduced(app, arguments)
        assert built.registered_commands == app.registered_commands
        assert named(built) == {name: [] for name in named(app)}
    assert penstock("topic", "-h").code == penstock("group", "-h").code == 0, "the program itself is as it was"
    assert "did you mean" in penstock("topic", "lits").err.lower()
