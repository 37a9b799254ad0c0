"""Output of commands: a table for people, JSON for programs."""

import io
import sys
import unicodedata
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any, Self

import typer

from penstock.model.findings import Finding

_MISSING = ("", "-", "?")
_WIDE = ("W", "F")


class Output(StrEnum):
    """The output formats."""

    TABLE = "table"
    JSON = "json"


class Quantity(str):
    """A number formatted for people, with its unit: right-aligned in its column."""

    __slots__ = ()


OutputOption = Annotated[Output, typer.Option("-o", "--output", help="For people or for programs.")]


def show(rows: Sequence[Mapping[str, Any]], output: Output, empty: str = "Nothing.") -> None:
    """Shows rows that have the same columns. Without rows, a note goes to stderr, so that piped output stays empty."""
    if output is Output.JSON:
        show_json(rows)
    elif not rows:
        typer.echo(empty, err=True)
    else:
        show_table(rows)


def show_json(value: object) -> None:
    """Prints one JSON document."""
    typer.echo(json_text(value, indent=2))


def json_text(value: object, indent: int | None = None) -> str:
    """JSON text; with JSON escapes for non-ASCII characters if the encoding of stdout is not a UTF."""
    import json

    return json.dumps(value, indent=indent, ensure_ascii=not _encoding().lower().startswith("utf"))


def printable(text: str) -> str:
    """Untrusted text, with escapes for characters that would control a terminal or that stdout cannot encode."""
    shown = "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)
    return shown.encode(_encoding(), "backslashreplace").decode(_encoding())


def _encoding() -> str:
    return sys.stdout.encoding or "utf-8"


def escape_what_cannot_be_shown() -> None:
    """Makes stdout escape characters that it cannot encode."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


class Changes:
    """Reports what a command changes: a sentence for each change as it is made, or JSON, one list of them at the end.

    The list is also printed if a later change fails; nothing is printed if the first one does.
    """

    def __init__(self, output: Output) -> None:
        self._rows: list[Mapping[str, Any]] | None = [] if output is Output.JSON else None

    def tell(self, sentence: str, **row: object) -> None:
        """Reports a change; a sentence without a row is for people only."""
        if self._rows is None:
            typer.echo(sentence)
        elif row:
            self._rows.append(row)

    def note(self, **row: object) -> None:
        """Reports a change to programs only."""
        if self._rows is not None:
            self._rows.append(row)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._rows is not None and (self._rows or kind is None):
            show_json(self._rows)


def show_findings(found: Sequence[Finding], output: Output, exit_code: int = 1) -> None:
    """Shows findings; exits with this code if something is wrong."""
    if output is Output.JSON:
        show_json([each._asdict() for each in found])
    else:
        for each in found:
            typer.echo(f"{'ok   ' if each.is_well else 'WRONG'}  {each.check:<11}  {each.found}")
            if each.fix is not None:
                typer.echo(f"{'':20}→ {each.fix}")
    if not all(each.is_well for each in found):
        raise typer.Exit(exit_code)


def show_table(rows: Sequence[Mapping[str, Any]]) -> None:
    """Prints a table with columns as wide as needed and numbers right-aligned."""
    sys.stdout.write(table_text(rows))


def table_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """The text of `show_table`."""
    names = list(rows[0])
    texts = [[printable(_text(row[name])) for name in names] for row in rows]
    heads = [name.upper().replace("_", "-") for name in names]
    widths = [max(map(_width, column)) for column in zip(heads, *texts, strict=True)]
    to_the_right = [_is_counted([row[name] for row in rows]) for name in names]
    lines = []
    for line in (heads, *texts):
        cells = [
            " " * (width - _width(text)) + text if right else text + " " * (width - _width(text))
            for text, width, right in zip(line, widths, to_the_right, strict=True)
        ]
        lines.append("  ".join(cells).rstrip() + "\n")
    return "".join(lines)


def _is_counted(column: Sequence[object]) -> bool:
    """Whether a column holds numbers, some of which may be missing."""
    is_number = [isinstance(each, int | Quantity) for each in column]
    return any(is_number) and all(
        number or each is None or each in _MISSING for number, each in zip(is_number, column, strict=True)
    )


def _width(text: str) -> int:
    """The number of terminal columns that a text takes."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(each) else 1 + (unicodedata.east_asian_width(each) in _WIDE) for each in text)


def _text(value: object) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case list() | tuple():
            return ",".join(map(str, value)) or "-"
        case dict():
            return " ".join(f"{key}={inner}" for key, inner in value.items()) or "-"
    return str(value)
