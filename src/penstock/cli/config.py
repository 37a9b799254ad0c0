"""`penstock config check`: reports errors in a broker's settings file before the broker starts."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.help import examples
from penstock.cli.output import Output, OutputOption, show

if TYPE_CHECKING:
    from penstock.cli.settings.validation import Validation


def check(
    file: Annotated[Path, typer.Argument(readable=False, help="server.properties, or TOML if it ends in .toml.")],
    environment: Annotated[
        bool, typer.Option("--env/--no-env", help="Count settings in KAFKA_… and PENSTOCK_… variables, too.")
    ] = False,
    allows_plaintext: Annotated[
        bool, typer.Option("--allow-plaintext-beyond-loopback", help="As `penstock server` is started with it.")
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Check the file of a broker before it starts.

    It validates as `penstock server` does, and reports errors (typos, values out of bounds, contradictions), refusals
    (what must not be ignored and is not there yet), and settings without effect. Exit code 1 if `penstock server` would
    not start: with errors or refusals.
    """
    from penstock.cli.settings.settings_file import from_environment, read_settings
    from penstock.cli.settings.validation import validate

    settings = read_settings(file) | (from_environment(os.environ) if environment else {})
    found = validate(settings, allows_plaintext=allows_plaintext)
    rows = [
        *({"kind": "error", "complaint": each} for each in found.errors),
        *({"kind": "refusal", "complaint": each} for each in found.refusals),
        *({"kind": "no effect", "complaint": gap.sentence(name)} for name, gap in found.without_effect.items()),
    ]
    if output is Output.JSON:
        show(rows, output)
    else:
        for each in rows:
            typer.echo(f"{each['kind']:<9}  {each['complaint']}")
        typer.echo(f"{file}: {_summary(len(settings), found)}")
    if not found.is_usable:
        raise typer.Exit(1)


def _summary(count: int, found: "Validation") -> str:
    errors, refusals, idle = len(found.errors), len(found.refusals), len(found.without_effect)
    if not errors + refusals + idle:
        return f"{count} settings, no complaints."
    parts = (
        f"{errors} error{'s' * (errors != 1)}" if errors else "",
        f"{refusals} refusal{'s' * (refusals != 1)}" if refusals else "",
        f"{idle} without effect" if idle else "",
    )
    starts = "starts" if found.is_usable else "does not start"
    return f"{count} settings, {', '.join(filter(None, parts))}: `penstock server` {starts} with them."


def add_to(app: typer.Typer) -> None:
    """Registers the commands."""
    config = typer.Typer(help="Check a broker's settings.", no_args_is_help=True, rich_markup_mode=None)
    config.callback()(lambda: None)
    config.command(
        "check",
        epilog=examples(
            "penstock config check server.properties",
            "penstock config check --env broker.toml",
            "penstock config check server.properties -o json",
        ),
    )(check)
    app.add_typer(config, name="config")
