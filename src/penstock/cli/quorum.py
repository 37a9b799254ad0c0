"""`penstock quorum`: who leads the metadata quorum, and how far everybody is."""

from typing import TYPE_CHECKING, Any

import typer

from penstock.cli.cluster_place import HOME, AnyDirOption, run_with_cluster
from penstock.cli.help import examples
from penstock.cli.output import Output, OutputOption, show_json, show_table
from penstock.cli.running import TIMEOUT_S, BootstrapOption, TimeoutOption

if TYPE_CHECKING:
    from penstock.client.client import Client
    from penstock.client.quorum import QuorumDescription


def quorum(
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    directory: AnyDirOption = HOME,
    timeout: TimeoutOption = TIMEOUT_S,
) -> None:
    """Show the metadata quorum: its leader, its voters and observers, and how far behind each is."""
    import time

    async def work(client: "Client") -> "QuorumDescription":
        return await client.admin.describe_quorum()

    found = run_with_cluster(bootstrap, directory, timeout, work)
    rows = replicas(found, int(time.time() * 1000))
    if output is Output.JSON:
        show_json(
            {
                "leader": found.leader_id,
                "epoch": found.leader_epoch,
                "high_watermark": found.high_watermark,
                "lag_max": found.lag_max,
                "replicas": rows,
            }
        )
        return
    typer.echo(
        f"Leader {found.leader_id} of epoch {found.leader_epoch}; committed up to {found.high_watermark}; "
        f"the slowest voter is {found.lag_max} behind.\n"
    )
    show_table(rows)


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


def add_to(app: typer.Typer) -> None:
    """Makes the command known."""
    app.command(
        epilog=examples(
            "penstock quorum",
            "penstock quorum -o json --dir ./my-cluster",
            "penstock quorum -b broker:9092",
        )
    )(quorum)
