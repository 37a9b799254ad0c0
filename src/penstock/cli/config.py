"""`penstock config check`: what is wrong with a broker's file, before the broker says so."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.help import examples
from penstock.cli.output import Output, OutputOption, show


def complaints_about(settings: Mapping[str, str]) -> list[str]:
    """All that is wrong, in sentences."""
    from penstock.cli.contradictions import contradictions
    from penstock.metadata.settings.broker import BROKER_SETTINGS
    from penstock.metadata.settings.checks import check_broker_file
    from penstock.metadata.settings.layers import BrokerSettings

    layers = BrokerSettings(settings)

    def number(name: str) -> int | None:
        value = layers.value(name) if name in BROKER_SETTINGS else None
        return value if isinstance(value, int) else None

    return [*check_broker_file(settings), *contradictions(settings, number)]


def check(
    file: Annotated[Path, typer.Argument(readable=False, help="server.properties, or TOML if it ends in .toml.")],
    environment: Annotated[
        bool, typer.Option("--env/--no-env", help="Count settings in KAFKA_… and PENSTOCK_… variables, too.")
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Check a broker's file: names with typos, values out of bounds, contradictions. Exit code 1 if there are any."""
    from penstock.cli.settings_file import from_environment, read_settings

    settings = read_settings(file) | (from_environment(os.environ) if environment else {})
    found = complaints_about(settings)
    if output is Output.JSON:
        show([{"complaint": each} for each in found], output)
    else:
        for each in found:
            typer.echo(each)
        typer.echo(f"{file}: {len(settings)} settings, {len(found) or 'no'} complaint{'s' * (len(found) != 1)}.")
    if found:
        raise typer.Exit(1)


def add_to(app: typer.Typer) -> None:
    """Makes the commands known."""
    config = typer.Typer(help="Files with a broker's settings.", no_args_is_help=True, rich_markup_mode=None)
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
