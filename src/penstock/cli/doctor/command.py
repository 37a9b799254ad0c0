"""`penstock doctor`: checks for common problems, and reports how to fix them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.connection.connecting import BootstrapOption, TimeoutOption, find
from penstock.cli.errors import Misused
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
    allows_plaintext: Annotated[
        bool, typer.Option("--allow-plaintext-beyond-loopback", help="As `penstock server` is started with it.")
    ] = False,
    offline: Annotated[bool, typer.Option("--offline", help="Look at this machine only.")] = False,
    bundle: Annotated[
        bool, typer.Option("--bundle", help="Also write a ZIP file with what a person needs who helps from afar.")
    ] = False,
    file: Annotated[
        Path | None, typer.Option("-f", "--file", help="Where the bundle goes: penstock-bundle-TIME.zip.")
    ] = None,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = TIMEOUT_S,
) -> None:
    """Find common problems, on this machine and with the broker.

    A bundle has these findings, the state, settings, metrics and groups of the cluster, facts about this machine, and
    the logs of a sandbox; no records, and no passwords. Exit code 1 if something is wrong.
    """
    from penstock.cli.doctor.machine import config_findings, local_findings

    if file is not None and not bundle:
        raise Misused("--file goes with --bundle")
    plan = None if config is None else _plan(config)
    place = None
    found = [] if config is None else list(config_findings(config, allows_plaintext=allows_plaintext))
    found += local_findings(data or (DATA if plan is None else plan.data_path))
    if not offline:
        import asyncio

        from penstock.cli.doctor.network import broker_findings

        if bootstrap is None and plan is not None and plan.address.port:
            bootstrap = f"{plan.address.host or 'localhost'}:{plan.address.port}"
        place = find(bootstrap)
        told = asyncio.run(broker_findings(place, timeout))
        has_lost = bool(told) and not told[0].is_well and told[0].check == "controller"
        found = [*told[:1], *found, *told[1:]] if has_lost else [*found, *told]
    if bundle:
        from penstock.cli.doctor.bundle import Bundle, default_path
        from penstock.cli.doctor.bundle_parts import fill

        parts = Bundle()
        fill(parts, found, config, place, timeout)
        found.append(parts.write(file or default_path()))
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
            "penstock doctor --bundle -b broker:9092",
            "penstock doctor --offline --config server.properties --data /var/lib/penstock",
        )
    )(doctor)
