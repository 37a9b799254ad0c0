"""Parses Java's properties format, in which Kafka's configuration files are written."""

import re
from collections.abc import Iterator

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(text: str) -> Iterator[tuple[str, str]]:
    """Names and values as Java reads them: `=`, `:` or space between; `#` and `!` begin comments."""
    for line in _logical_lines(text):
        found = re.match(r"((?:\\.|[^\\=:\s])*)\s*[=:]?\s*(.*)", line, re.DOTALL)
        if found is not None:
            yield _unescaped(found[1]), _unescaped(found[2]).rstrip()


def _logical_lines(text: str) -> Iterator[str]:
    begun = ""
    for raw in text.splitlines():
        line = raw.lstrip()
        if not begun and (not line or line[0] in "#!"):
            continue
        begun += line
        if (len(line) - len(line.rstrip("\\"))) % 2:
            begun = begun[:-1]
            continue
        yield begun
        begun = ""
    if begun:
        yield begun


def _unescaped(text: str) -> str:
    def plain(found: "re.Match[str]") -> str:
        escape = found[1]
        return chr(int(escape[1:], 16)) if len(escape) == 5 else _ESCAPES.get(escape, escape)

    return re.sub(r"\\(u[0-9a-fA-F]{4}|.)", plain, text)
