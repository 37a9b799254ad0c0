"""`penstock doctor`: looks for what is usually wrong, and says how it is mended."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.help import examples
from penstock.cli.output import Output, OutputOption, show_findings
from penstock.cli.running import BootstrapOption

if TYPE_CHECKING:
    from penstock.cli.plan import Plan

DATA = Path(".penstock/data")


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
) -> None:
    """Look for what is usually wrong, on this machine and between it and the broker. Exit code 1 if something is."""
    from penstock.cli.checkups import config_findings, local_findings

    plan = None if config is None else _plan(config)
    found = [] if config is None else list(config_findings(config))
    found += local_findings(data or (DATA if plan is None else plan.data_path))
    if not offline:
        import asyncio

        from penstock.cli.broker_checkups import broker_findings

        if bootstrap is None and plan is not None and plan.port:
            bootstrap = f"{plan.host or 'localhost'}:{plan.port}"
        found += asyncio.run(broker_findings(bootstrap))
    show_findings(found, output)


def _plan(config: Path) -> "Plan | None":
    """What the file says of the broker, if it can be used."""
    from penstock.cli.failing import Failed
    from penstock.cli.plan import plan_of
    from penstock.cli.settings_file import read_settings

    try:
        return plan_of(read_settings(config), allows_plaintext=True, is_verbose=False)
    except (Failed, ValueError):
        return None


def add_to(app: typer.Typer) -> None:
    """Makes the command known."""
    app.command(
        epilog=examples(
            "penstock doctor",
            "penstock doctor -b broker:9092 -o json",
            "penstock doctor --offline --config server.properties --data /var/lib/penstock",
        )
    )(doctor)
