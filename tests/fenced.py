"""The fenced blocks of README.md, of the pages in docs/ and of examples/, and what is to be done with each.

A comment in front of a block says what a reader does not see:

    <!-- run by: tests/test_x.py --> it is run, or compared with what is run, by another test than those of pages
    <!-- not run: why -->           it is not run
    <!-- first: a line, or several --> what is run in front of it, in the same language
    <!-- file: server.properties --> it is saved under this name, and a later command of the page uses it
"""

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[1]
README: Final = "README.md"
OPERATING: Final = (
    "docs/operating.md",
    *sorted(f"docs/operating/{path.name}" for path in (ROOT / "docs" / "operating").glob("*.md")),
)
"""These share a cluster, and are run in this order."""
PAGES: Final = (
    README,
    *OPERATING,
    *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md") if path.name != "operating.md"),
    *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "examples").rglob("*.md")),
)
COMMANDS: Final = frozenset({"sh", "console", "python"})
FILES: Final = frozenset({"properties", "toml", "yaml", "json"})
OUTPUT: Final = "text"

_FENCE: Final = re.compile(r"(?ms)^(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^(?P=indent)```$")
_NOTES: Final = re.compile(r"(?s)(?:<!--(?:(?!-->).)*-->\s*)+\Z")
_NOTE: Final = re.compile(r"(?s)<!-- (run by|not run|first|file):\s(.*?)\s*-->")


class Block(NamedTuple):
    """A fenced block."""

    page: str
    line: int
    language: str
    text: str
    run_by: str = ""
    """The test that runs it, if it is none of the tests of pages."""
    reason: str = ""
    """Why it is not run; empty if it is."""
    first: str = ""
    """What is run in front of it."""
    file: str = ""
    """The name under which it is saved; empty if it is none."""

    @property
    def is_run(self) -> bool:
        """Whether a test of pages runs it, or saves it for a command that uses it."""
        return self.language in COMMANDS | FILES and not self.reason and not self.run_by


def blocks(page: str, text: str) -> Iterator[Block]:
    """The blocks of a page, in order."""
    end = 0
    for found in _FENCE.finditer(text):
        before = _NOTES.search(text[end : found.start()])
        notes = dict(_NOTE.findall(before.group())) if before else {}
        yield Block(
            page,
            text.count("\n", 0, found.start()) + 1,
            found["language"],
            textwrap.dedent(found["text"]),
            notes.get("run by", ""),
            " ".join(notes.get("not run", "").split()),
            notes.get("first", ""),
            notes.get("file", ""),
        )
        end = found.end()


def blocks_of(page: str) -> list[Block]:
    """The blocks of a page of this repository."""
    return list(blocks(page, (ROOT / page).read_text(encoding="utf-8")))


def pages_run_alone() -> list[str]:
    """Pages with something to run, but for README and those about operating, which have tests of their own."""
    others = (page for page in PAGES if page != README and page not in OPERATING)
    return [page for page in others if any(block.is_run for block in blocks_of(page))]
