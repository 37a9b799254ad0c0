"""The command line at a terminal and in a pipe: how it ends, its progress output, and how fast help appears."""

import json
import os
import pty
import resource
import select
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.slowness import slowness
from tests.system.commands import ENVIRONMENT, PENSTOCK, Shell, a_broker
from tests.unit.cli.commands import commands

HELP_S_MAX = 0.3
TRIES_MAX = 20
PATIENCE_S = 30


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    directory = tmp_path_factory.mktemp("terminal")
    with a_broker(directory, "dev", "--ephemeral", "--port", "0"):
        yield Shell(directory)


def to_a_reader(shell: Shell, *arguments: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [*PENSTOCK, *arguments], cwd=shell.directory, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def leave(process: "subprocess.Popen[bytes]") -> tuple[int, bytes]:
    """Closes the reader's end; returns the exit code and stderr of the command."""
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    try:
        return process.wait(PATIENCE_S), process.stderr.read()
    finally:
        process.kill()
        process.stderr.close()


# --- pipes ------------------------------------------------------------------------------------------------------------


def test_a_reader_that_has_seen_enough_ends_the_command_while_it_waits(shell: Shell) -> None:
    """`penstock consume t | head -1`: after the one record there is nothing to write, so no write can fail."""
    shell("produce", "one", given=b"first\n")
    process = to_a_reader(shell, "consume", "one")
    assert process.stdout is not None
    assert process.stdout.readline() == b"first\n"
    assert leave(process) == (0, b"")


def test_a_reader_that_has_seen_enough_ends_the_command_while_it_writes(shell: Shell) -> None:
    shell("produce", "many", "-q", given=b"".join(b"line %d\n" % number for number in range(50_000)))
    process = to_a_reader(shell, "consume", "many")
    assert process.stdout is not None
    assert process.stdout.readline() == b"line 0\n"
    assert leave(process) == (0, b"")


@pytest.mark.parametrize(
    "command", ["topic list", "topic describe one", "doctor --offline", "consume one -e", "--help"]
)
def test_nobody_reads(shell: Shell, command: str) -> None:
    shell("produce", "one", given=b"more\n")
    assert leave(to_a_reader(shell, *command.split(" "))) == (0, b"")


# --- programs ---------------------------------------------------------------------------------------------------------


def test_whoever_reads_can_have_json(shell: Shell) -> None:
    shell("topic", "create", "read", "-p", "1")
    (shell.directory / "server.properties").write_text("node.id=1\n")
    assert json.loads(shell("produce", "read", "-o", "json", given=b"x\n"))[0]["records"] == 1
    assert {"name": "read", "partitions": 1, "replicas": 1} in json.loads(shell("topic", "list", "-o", "json"))
    assert json.loads(shell("topic", "describe", "read", "-o", "json"))[0]["name"] == "read"
    assert json.loads(shell("consume", "read", "-e", "-o", "json"))["value"] == "x"
    assert json.loads(shell("consume", "read", "-e", "-o", "json", "-o", "-1"))["offset"] == 0
    assert json.loads(shell("config", "check", "server.properties", "-o", "json")) == []
    rows = json.loads(shell.run("doctor", "-o", "json").stdout)
    assert {"broker", "disk", "clock"} <= {row["check"] for row in rows}


# --- progress ---------------------------------------------------------------------------------------------------------


def at_a_terminal(shell: Shell, *arguments: str, given: int | None = None, out: int | None = None) -> str:
    """The output on stderr at a terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*PENSTOCK, *arguments], cwd=shell.directory, env=ENVIRONMENT, stdin=given, stdout=out, stderr=theirs
    )
    os.close(theirs)
    shown = b""
    deadline_s = time.monotonic() + 2 * PATIENCE_S
    try:
        while time.monotonic() < deadline_s and select.select([ours], [], [], PATIENCE_S)[0]:
            try:
                shown += os.read(ours, 65536)
            except OSError:  # a terminal ends with this error
                break
        assert process.wait(PATIENCE_S) == 0, shown
    finally:
        process.kill()
        os.close(ours)
    return shown.decode()


def test_long_work_shows_how_far_it_is(shell: Shell) -> None:
    (shell.directory / "long").write_bytes(b"a line of a file that takes more than a second\n" * 150_000)
    shown = at_a_terminal(shell, "produce", "long", "--file", "long", "-q", out=subprocess.DEVNULL)
    assert "150,000 records to long" in shown
    assert "100%" in shown
    watched = at_a_terminal(shell, "consume", "long", "-e", "-f", "json", out=subprocess.DEVNULL)
    assert "150,000 records from long" in watched
    assert "100%" in watched


def test_short_work_and_work_that_nobody_watches_show_nothing(shell: Shell) -> None:
    shell("produce", "some", "-q", given=b"a line\n" * 400)
    assert at_a_terminal(shell, "consume", "some", "-e", out=subprocess.DEVNULL) == ""
    assert shell.run("consume", "some", "-e").stderr == b""


# --- help and completion ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [(), *commands()], ids=" ".join)
def test_help_comes_at_once(
    shell: Shell, path: tuple[str, ...], record_property: Callable[[str, object], None]
) -> None:
    """Measured in CPU time, best of a few: help does not wait, and other processes may use the machine."""
    taken: list[float] = []
    limit_s = HELP_S_MAX
    while len(taken) < TRIES_MAX and min(taken, default=1) > limit_s:
        limit_s = max(limit_s, HELP_S_MAX * slowness())
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        text = shell(*path, "--help")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        taken.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    record_property("seconds", min(taken))
    assert "Examples:" in text
    assert min(taken) < limit_s, "look at python -X importtime -m penstock --help"


@pytest.mark.parametrize(
    ("shell_name", "part"),
    [
        ("bash", "complete -o default -F _penstock_completion penstock"),
        ("zsh", "compdef _penstock_completion penstock"),
        ("fish", "complete --command penstock"),
    ],
)
def test_every_shell_gets_its_completion(shell: Shell, shell_name: str, part: str) -> None:
    forced = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    done = shell.run("--show-completion", shell_name, environment=forced)
    assert part in done.stdout.decode()


def test_bash_completes_what_is_typed(shell: Shell, tmp_path: Path) -> None:
    """Installs the completion into an empty home, and lets bash itself complete."""
    program = tmp_path / "penstock"
    program.write_text(f'#!/bin/sh\nexec {" ".join(PENSTOCK)} "$@"\n')
    program.chmod(0o755)
    forced = {
        "HOME": str(tmp_path),
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1",
    }
    assert b"installed" in shell.run("--install-completion", "bash", environment=forced).stdout
    typed = (
        f"source {tmp_path}/.bashrc; COMP_WORDS=(penstock topic de); COMP_CWORD=2; "
        '_penstock_completion penstock; echo "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", typed], env=ENVIRONMENT | forced, capture_output=True, text=True, check=True)
    assert sorted(done.stdout.split()) == ["delete", "describe"]
