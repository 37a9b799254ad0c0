"""`penstock quorum status`: shows the leader of the metadata quorum, and the lag of every replica."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.cluster.location import AnyDirOption, run_with_cluster
from penstock.cli.connection.connecting import TIMEOUT_S, BootstrapOption, TimeoutOption
from penstock.cli.connection.majority import NoMajority, is_confirmed
from penstock.cli.errors import Misused
from penstock.cli.help import examples
from penstock.cli.output import Output, OutputOption, show_json, show_table
from penstock.cli.quorum import voters
from penstock.cli.sandbox_place import HOME

if TYPE_CHECKING:
    from penstock.client.admin.majority import QuorumProbe
    from penstock.client.admin.quorum import QuorumDescription
    from penstock.client.client import Client


def status(
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    directory: AnyDirOption = HOME,
    timeout: TimeoutOption = TIMEOUT_S,
) -> None:
    """Show the leader, the voters, and how far behind each is."""
    import time

    from penstock.client.admin.quorum_probe import probe_quorum

    async def work(client: "Client") -> "QuorumProbe":
        return await probe_quorum(client.cluster, int(timeout * 1000))

    probe = run_with_cluster(bootstrap, directory, timeout, work)
    found = probe.quorum
    if found is None or not is_confirmed(probe):
        if output is Output.JSON:
            show_json(_unconfirmed(probe))
            raise typer.Exit(1)
        raise NoMajority(probe)
    rows = replicas(found, int(time.time() * 1000))
    if output is Output.JSON:
        show_json(
            {
                "majority": probe.majority.value,
                "leader": found.leader_id,
                "epoch": found.leader_epoch,
                "high_watermark": found.high_watermark,
                "lag_max": found.lag_max,
                "replicas": rows,
            }
        )
        return
    typer.echo(
        f"{probe.count_text}. Leader {found.leader_id} of epoch {found.leader_epoch}; "
        f"committed up to {found.high_watermark}; the slowest voter is {found.lag_max} behind.\n"
    )
    show_table(rows)


def _unconfirmed(probe: "QuorumProbe") -> dict[str, Any]:
    controllers = [
        {"node": each.node_id, "address": each.address, "silent": each.failure} for each in probe.controllers
    ]
    return {"majority": probe.majority.value, "leader": None, "controllers": controllers, "waited_ms": probe.waited_ms}


def replicas(found: "QuorumDescription", now_ms: int) -> list[dict[str, Any]]:
    """A row per voter and observer."""
    rows = []
    for status, group in (("voter", found.voters), ("observer", found.observers)):
        for each in group:
            is_known = each.log_end_offset >= 0
            rows.append(
                {
                    "node": each.node_id,
                    "status": "leader" if each.node_id == found.leader_id else status,
                    "log_end": each.log_end_offset if is_known else None,
                    "lag": found.log_end_offset - each.log_end_offset if is_known else None,
                    "heard_ms_ago": max(0, now_ms - each.last_fetch_ms) if each.last_fetch_ms >= 0 else None,
                    "controller": each.endpoints[0] if each.endpoints else None,
                    "directory": each.directory_id.hex(),
                }
            )
    return rows


def _bare(
    context: typer.Context,
    output: Annotated[str | None, typer.Option("-o", "--output", hidden=True)] = None,
    bootstrap: Annotated[str | None, typer.Option("-b", "--bootstrap", hidden=True)] = None,
    directory: Annotated[str | None, typer.Option("--dir", hidden=True)] = None,
    timeout: Annotated[str | None, typer.Option("--timeout", hidden=True)] = None,
) -> None:
    if context.invoked_subcommand is None or any((output, bootstrap, directory, timeout)):
        raise Misused("`penstock quorum` is `penstock quorum status` now, and options stand after it")


def add_to(app: typer.Typer) -> None:
    """Registers the commands."""
    group = typer.Typer(help="Show and change the metadata quorum.", rich_markup_mode=None)
    group.callback(invoke_without_command=True)(_bare)
    group.command(
        epilog=examples(
            "penstock quorum status",
            "penstock quorum status -o json --dir ./my-cluster",
            "penstock quorum status -b broker:9092",
        )
    )(status)
    voters.add_to(group)
    app.add_typer(group, name="quorum")
