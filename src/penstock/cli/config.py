"""`penstock config check`: reports errors in a broker's settings file before the broker starts."""

import os
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.help import examples
from penstock.cli.output import Output, OutputOption, show


def check(
    file: Annotated[Path, typer.Argument(readable=False, help="server.properties, or TOML if it ends in .toml.")],
    environment: Annotated[
        bool, typer.Option("--env/--no-env", help="Count settings in KAFKA_… and PENSTOCK_… variables, too.")
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Check the file of a broker before it starts.

    It reports names with typos, values out of bounds, and contradictions. Exit code 1 if there are any.
    """
    from penstock.cli.settings.setting_errors import setting_errors
    from penstock.cli.settings.settings_file import from_environment, read_settings

    settings = read_settings(file) | (from_environment(os.environ) if environment else {})
    found = setting_errors(settings)
    if output is Output.JSON:
        show([{"complaint": each} for each in found], output)
    else:
        for each in found:
            typer.echo(each)
        typer.echo(f"{file}: {len(settings)} settings, {len(found) or 'no'} complaint{'s' * (len(found) != 1)}.")
    if found:
        raise typer.Exit(1)


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
