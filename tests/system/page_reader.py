"""Does what a page says: runs its blocks in one folder, in order, and stops at the first that does otherwise than told.

A line of shell must end with exit code 0, or as a comment behind it says:

    penstock cluster health          # exit code 1
    penstock consume orders          # until Ctrl-C
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from tests.fenced import Block
from tests.system.commands import ENVIRONMENT

LIMIT_S: Final = 600
UNTIL_CTRL_C_S: Final = 5
TIMED_OUT: Final = 124
RUN: Final = """
import ast, asyncio, inspect, sys
code = compile(open(sys.argv[1]).read(), sys.argv[1], "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
begun = eval(code, {"__name__": "__main__"})
if inspect.iscoroutine(begun):
    asyncio.run(begun)
"""
"""Runs a file that may await outside of functions."""


class PageReader:
    """Runs blocks with the programs of one environment."""

    def __init__(self, directory: Path, programs: Path | None = None, clean: Mapping[str, str] = ENVIRONMENT) -> None:
        """`programs` has python, pytest and penstock; by default they are those of this process."""
        self.directory = directory
        self.programs = programs or _programs(directory / "bin")
        self.replaced: dict[str, str] = {}
        """Texts of the pages, and what takes their place here, such as addresses."""
        self.environment = {
            **clean,
            "PATH": f"{self.programs}:{os.environ['PATH']}",
            "XDG_CONFIG_HOME": str(directory / "config"),
        }

    def run(self, block: Block) -> str:
        """Runs a block, or saves it; returns what it printed."""
        text = self._here(block.text)
        match block.language:
            case "sh":
                return self.types([*self._here(block.first).splitlines(), *text.splitlines()])
            case "console":
                self.types(self._here(block.first).splitlines())
                return self._converse(text)
            case "python":
                return self._run_python(block, f"{self._here(block.first)}\n{text}".lstrip("\n"))
        assert block.file, f"{block.page}:{block.line}: it has no name"
        (self.directory / block.file).write_text(text, encoding="utf-8")
        return ""

    def types(self, lines: Iterable[str]) -> str:
        """Runs lines of shell."""
        code, printed = self._done("bash", "-c", script_of(lines))
        assert code == 0, printed
        return printed

    def _converse(self, text: str) -> str:
        """Runs each line behind a `$`, and compares its output with the lines below; `…` stands for anything."""
        for command, wanted in re.findall(r"^\$ ([^\n]*)\n((?:(?!\$ )[^\n]*\n)*)", text, re.MULTILINE):
            script, code_wanted = _expected(command)
            code, printed = self._done("bash", "-c", script)
            assert code == code_wanted, f"$ {command}\n{printed}ended with {code}"
            pattern = ".*".join(map(re.escape, wanted.split("…")))
            assert re.fullmatch(pattern, printed, re.DOTALL), f"$ {command}\n{printed}is not\n{wanted}"
        return text

    def _run_python(self, block: Block, text: str) -> str:
        is_test = "\ndef test_" in f"\n{text}"
        path = self.directory / f"{'test_' if is_test else ''}block_{block.line}.py"
        path.write_text(text, encoding="utf-8")
        command = ("-m", "pytest", "-q") if is_test else ("-c", RUN)
        code, printed = self._done(str(self.programs / "python"), *command, str(path))
        assert code == 0, printed
        assert printed or "print(" not in text, f"{block.page}:{block.line} prints nothing"
        return printed

    def _done(self, *command: str) -> tuple[int, str]:
        done = subprocess.run(
            command,
            cwd=self.directory,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=LIMIT_S,
            check=False,
        )
        return done.returncode, done.stdout.decode()

    def _here(self, text: str) -> str:
        for old, new in self.replaced.items():
            text = text.replace(old, new)
        return text


def script_of(lines: Iterable[str]) -> str:
    """A script that stops at the first line that ends otherwise than told, and names it."""
    script = ["set -uo pipefail"]
    for line in lines:
        shown = line.replace("'", "'\\''")
        command, wanted = _expected(line)
        script += [f"echo '$ {shown}'", command]
        script.append(f'code=$?; test $code = {wanted} || {{ echo "ended with $code"; exit 1; }}')
    return "\n".join(script)


def _expected(line: str) -> tuple[str, int]:
    """The command of a line, and the exit code that it must have."""
    if (found := re.fullmatch(r"(.*?)\s+# exit code (\d+).*", line)) is not None:
        return found[1], int(found[2])
    if (found := re.fullmatch(r"(.*?)\s+#.*until Ctrl-C.*", line)) is not None:
        return f"timeout --signal=INT --kill-after=60 {UNTIL_CTRL_C_S} {found[1]}", TIMED_OUT
    return line, 0


def _programs(folder: Path) -> Path:
    folder.mkdir()
    for name, arguments in {"penstock": "-m penstock", "python": "", "pytest": "-m pytest"}.items():
        (folder / name).write_text(f'#!/bin/sh\nexec {sys.executable} {arguments} "$@"\n', encoding="utf-8")
        (folder / name).chmod(0o755)
    return folder
