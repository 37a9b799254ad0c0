"""Transcripts: texts that hold what people do in a world and what then happens, and are written anew from the former.

A line that begins with ">" is a command, one with "#" a remark; the rest is what was said and done. The first command
describes the world.
"""

import shlex
from collections.abc import Callable
from pathlib import Path


class Teller:
    """Carries commands out, each by a method of the same name behind `do_`, and takes down what is said."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._is_quiet = False

    def _take_down(self, line: str) -> None:
        if not self._is_quiet:
            self.lines.append(line)

    def command(self, line: str) -> None:
        """Does it; behind `quietly`, without a word."""
        words = shlex.split(line)
        if words[0] == "quietly":
            self._is_quiet = True
            words = words[1:]
        work: Callable[..., None] = getattr(self, f"do_{words[0]}")
        work(*words[1:])
        self._is_quiet = False


def retold(text: str, begin: Callable[..., Teller]) -> str:
    """The transcript that the commands of a text lead to today; `begin` is given the words of the first one."""
    header = next(line for line in text.splitlines() if line.startswith("> "))
    story = begin(*header.split()[2:])
    for line in text.splitlines():
        if line.startswith(("#", ">")) or not line:
            if line or (story.lines and story.lines[-1]):
                story.lines.append(line)
            if line.startswith("> ") and line != header:
                story.command(line[2:])
    return "\n".join(story.lines).rstrip() + "\n"


def write_anew(folder: Path, retell: Callable[[str], str]) -> int:
    """All transcripts of a folder."""
    for path in sorted(folder.glob("*.txt")):
        path.write_text(retell(path.read_text()))
        print(path.name)
    return 0
