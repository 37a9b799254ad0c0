"""`penstock doctor`: looks for what is usually wrong, and says how it is mended."""

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.help import examples
from penstock.cli.output import Output, OutputOption, show_json
from penstock.cli.running import BootstrapOption


def doctor(
    config: Annotated[Path | None, typer.Option("--config", "-c", help="A broker's file to look at, too.")] = None,
    data: Annotated[Path, typer.Option("--data", help="Where the broker keeps its records.")] = Path(".penstock/data"),
    offline: Annotated[bool, typer.Option("--offline", help="Look at this machine only.")] = False,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
) -> None:
    """Look for what is usually wrong, on this machine and between it and the broker. Exit code 1 if something is."""
    from penstock.cli.checkups import local_findings

    found = list(local_findings(data, config))
    if not offline:
        import asyncio

        from penstock.cli.broker_checkups import broker_findings

        found += asyncio.run(broker_findings(bootstrap))
    if output is Output.JSON:
        show_json([each._asdict() for each in found])
    else:
        for each in found:
            typer.echo(f"{'ok   ' if each.is_well else 'WRONG'}  {each.check:<11}  {each.found}")
            if each.fix is not None:
                typer.echo(f"{'':20}→ {each.fix}")
    if not all(each.is_well for each in found):
        raise typer.Exit(1)


def add_to(app: typer.Typer) -> None:
    """Makes the command known."""
    app.command(
        epilog=examples(
            "penstock doctor",
            "penstock doctor -b broker:9092 -o json",
            "penstock doctor --offline --config server.properties --data /var/lib/penstock",
        )
    )(doctor)
