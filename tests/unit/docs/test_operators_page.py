"""docs/operators.md has every task of Kafka's scripts and of rpk, and names only commands and options that exist."""

import shlex
from pathlib import Path
from typing import Any

import pytest
import typer.main

from penstock.cli.main import app
from tests.operators_page import BELOW, ROOT, elsewhere, tasks

HERE = Path(__file__).parent


def test_every_task_of_kafka_s_scripts_is_there() -> None:
    """The list has each script in the bin/ of Apache Kafka 4.3, with the actions of those that have several."""
    told = [name.replace("=", " ").split() for task in tasks() for name in task.kafka]
    wanted = [line.split() for line in (HERE / "kafka-scripts.txt").read_text().splitlines()]
    assert len({words[0] for words in wanted}) == 43
    missing = [
        " ".join(words) for words in wanted if not any(each[0] == words[0] and set(words) <= set(each) for each in told)
    ]
    assert missing == []
    assert {each[0] for each in told} - {words[0] for words in wanted} == {"--command-config"}, "no script is invented"


def test_every_command_of_rpk_is_there() -> None:
    told = [name for task in tasks() for name in task.rpk]
    wanted = (HERE / "rpk-commands.txt").read_text().splitlines()

    def is_told(command: str) -> bool:
        return any(
            each == command
            or each.startswith(f"{command} ")
            or (each.endswith(BELOW) and command.startswith(each[:-2]))
            for each in told
        )

    assert [each for each in wanted if not is_told(each)] == []
    known = {*wanted, *(" ".join(each.split()[:count]) for each in wanted for count in (2, 3))}
    invented = [each for each in told if not any(f"{each} ".startswith(f"{one} ") for one in known)]
    assert invented == []


def test_every_row_has_a_command_or_a_reason() -> None:
    for task in tasks():
        assert task.has_command or len(task.ours.split()) > 4, task
        if task.has_command:
            assert task.commands, task


@pytest.mark.parametrize("command", [each for task in tasks() for each in task.commands], ids=str)
def test_commands_and_their_options_exist(command: str) -> None:
    words = shlex.split(command.rpartition("| ")[2].partition(" > ")[0])
    if words[0] != "penstock":
        return
    known: Any = typer.main.get_command(app)
    options = {"--version", "--show-completion", "-h"}
    for word in words[1:]:
        if word.startswith("-"):
            options |= {each for parameter in known.params for each in (*parameter.opts, *parameter.secondary_opts)}
            name = word if word.startswith("--") else word[:2]
            assert name in options or name[1:].isdigit(), f"{command}: {word}"
        elif hasattr(known, "commands"):
            known = known.commands[word]


def test_tests_that_run_the_rest_exist() -> None:
    told = {command for task in tasks() for command in task.commands}
    for command, test in elsewhere().items():
        assert command in told
        assert test.is_file(), test.relative_to(ROOT)
        words = command.split()[1:2]
        assert f'"{words[0]}"' in test.read_text(encoding="utf-8"), "the test runs that command"
