"""`penstock doctor`: checks for common problems, and reports how to fix them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.connection.connecting import BootstrapOption, TimeoutOption, find
from penstock.cli.help import examples
from penstock.cli.output import Output, OutputOption, show_findings

if TYPE_CHECKING:
    from penstock.cli.settings.startup import Plan

DATA = Path(".penstock/data")
TIMEOUT_S = 10.0


def doctor(
    config: Annotated[
        Path | None,
        typer.Option(
            "--config", "-c", readable=False, help="The broker's file: where its data is, and where it listens."
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option("--data", help="Where the broker keeps its records: as its file says, or .penstock/data."),
    ] = None,
    offline: Annotated[bool, typer.Option("--offline", help="Look at this machine only.")] = False,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = TIMEOUT_S,
) -> None:
    """Find common problems, on this machine and with the broker.

    Exit code 1 if something is wrong.
    """
    from penstock.cli.doctor.machine import config_findings, local_findings

    plan = None if config is None else _plan(config)
    found = [] if config is None else list(config_findings(config))
    found += local_findings(data or (DATA if plan is None else plan.data_path))
    if not offline:
        import asyncio

        from penstock.cli.doctor.network import broker_findings

        if bootstrap is None and plan is not None and plan.address.port:
            bootstrap = f"{plan.address.host or 'localhost'}:{plan.address.port}"
        told = asyncio.run(broker_findings(find(bootstrap), timeout))
        has_lost = bool(told) and not told[0].is_well and told[0].check == "controller"
        found = [*told[:1], *found, *told[1:]] if has_lost else [*found, *told]
    show_findings(found, output)


def _plan(config: Path) -> "Plan | None":
    """The plan of the broker by its file, if the file can be used."""
    from penstock.cli.errors import Failed
    from penstock.cli.settings.settings_file import read_settings
    from penstock.cli.settings.startup import plan_of

    try:
        return plan_of(read_settings(config), allows_plaintext=True)
    except (Failed, ValueError):
        return None


def add_to(app: typer.Typer) -> None:
    """Registers the command."""
    app.command(
        epilog=examples(
            "penstock doctor",
            "penstock doctor -b broker:9092 -o json",
            "penstock doctor --offline --config server.properties --data /var/lib/penstock",
        )
    )(doctor)
