"""How reading commands show what they found: a table for people, JSON for programs."""

import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any

import typer

from penstock.model.findings import Finding


class Output(StrEnum):
    """The forms."""

    TABLE = "table"
    JSON = "json"


OutputOption = Annotated[Output, typer.Option("-o", "--output", help="For people or for programs.")]


def show(rows: Sequence[Mapping[str, Any]], output: Output, empty: str = "Nothing.") -> None:
    """Rows that have the same columns. Without any, a table says so on stderr: what is piped on stays empty."""
    if output is Output.JSON:
        show_json(rows)
    elif not rows:
        typer.echo(empty, err=True)
    else:
        show_table(rows)


def show_json(value: object) -> None:
    """One document."""
    import json

    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def show_findings(found: Sequence[Finding], output: Output, exit_code: int = 1) -> None:
    """What looks have shown; ends with this code if something is wrong."""
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
    """Columns as wide as they must be; numbers to the right."""
    sys.stdout.write(table_text(rows))


def table_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """The same, as lines."""
    names = list(rows[0])
    texts = [[_text(row[name]) for name in names] for row in rows]
    heads = [name.upper().replace("_", "-") for name in names]
    widths = [max(map(len, column)) for column in zip(heads, *texts, strict=True)]
    is_number = [isinstance(rows[0][name], int) for name in names]
    lines = []
    for line in (heads, *texts):
        cells = [
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(line, widths, is_number, strict=True)
        ]
        lines.append("  ".join(cells).rstrip() + "\n")
    return "".join(lines)


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
