"""Transcripts: texts of commands in a world and the events that follow, which are written again from the commands.

A line that begins with ">" is a command, one with "#" a remark; the others are events. The first command describes the
world.
"""

import shlex
from collections.abc import Callable
from pathlib import Path


class Teller:
    """Carries out commands, each by the method of that name with the prefix `do_`, and records the events."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._is_quiet = False

    def _take_down(self, line: str) -> None:
        if not self._is_quiet:
            self.lines.append(line)

    def command(self, line: str) -> None:
        """Carries out a command; after `quietly`, without recording."""
        words = shlex.split(line)
        if words[0] == "quietly":
            self._is_quiet = True
            words = words[1:]
        work: Callable[..., None] = getattr(self, f"do_{words[0]}")
        work(*words[1:])
        self._is_quiet = False


def retold(text: str, begin: Callable[..., Teller]) -> str:
    """The transcript of a text's commands with the present code; `begin` is given the words of the first one."""
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
    """Writes all transcripts of a folder again."""
    for path in sorted(folder.glob("*.txt")):
        path.write_text(retell(path.read_text()))
        print(path.name)
    return 0
