"""`penstock sandbox …`: a cluster of real processes on this machine, to try and to test."""

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.connection.connecting import TimeoutOption
from penstock.cli.connection.majority import details, headline, is_confirmed
from penstock.cli.errors import Failed
from penstock.cli.help import examples
from penstock.cli.output import Changes, Output, OutputOption, show, show_json
from penstock.cli.progress import say
from penstock.cli.sandbox.nodes import DirOption
from penstock.cli.sandbox.restart import READY_S, restart, stop
from penstock.cli.sandbox.startup_watch import answers, numbered, wait_until_up
from penstock.cli.sandbox_place import FILE, HOME

if TYPE_CHECKING:
    from penstock.cli.sandbox.nodes import LocalCluster
    from penstock.client.admin.majority import QuorumProbe

STATUS_S = 5.0
NodeArgument = Annotated[int, typer.Argument(metavar="N", min=1, help="The number of a node.")]


def up(
    nodes: Annotated[int | None, typer.Option("--nodes", min=1, max=100, help="How many; 3 for a new cluster.")] = None,
    directory: DirOption = HOME,
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="Where to look for free ports from.")] = 19092,
    timeout: Annotated[float, typer.Option("--timeout", min=1, help="Seconds until all must serve.")] = READY_S,
    output: OutputOption = Output.TABLE,
) -> None:
    """Start a cluster, or what is missing of it.

    With more --nodes than before, brokers join it. Commands that start in this directory find it.
    """
    from penstock.cli.sandbox.nodes import LocalCluster

    if (directory / FILE).exists():
        cluster = LocalCluster.open(directory)
    else:
        directory.mkdir(parents=True, exist_ok=True)
        cluster = LocalCluster(directory)
        nodes = nodes or 3
    cluster.grow(nodes or len(cluster.nodes), port)
    cluster.tell_address()
    started = [each.node_id for each in cluster.nodes if cluster.pid(each.node_id) is None]
    for node_id in started:
        cluster.start(node_id)
    say(f"Started {numbered(started)}." if started else "All nodes run already.")
    with Changes(output) as changes:
        wait_until_up(cluster, time.monotonic() + timeout)
        changes.tell(f"{len(cluster.nodes)} nodes serve; bootstrap: {cluster.bootstrap}")
        for each in cluster.nodes:
            result = "started" if each.node_id in started else "ran already"
            changes.note(node=each.node_id, address=each.address, result=result)


def down(directory: DirOption = HOME, output: OutputOption = Output.TABLE) -> None:
    """Stop all nodes; their data stays. Each first hands over what it leads."""
    from penstock.cli.sandbox.nodes import LocalCluster

    with Changes(output) as changes:
        stopped = stop(LocalCluster.open(directory))
        changes.tell(f"Stopped {numbered(stopped)}." if stopped else "No node was running.")
        for node_id in stopped:
            changes.note(node=node_id, result="stopped")


def kill(node: NodeArgument, directory: DirOption = HOME, output: OutputOption = Output.TABLE) -> None:
    """Kill a node, as a crash would (SIGKILL). `penstock sandbox up` starts it again."""
    from penstock.cli.sandbox.nodes import LocalCluster

    cluster = LocalCluster.open(directory)
    cluster.node(node)
    if not cluster.kill(node):
        raise Failed(f"node {node} does not run; `penstock sandbox up --dir {directory}` starts it")
    with Changes(output) as changes:
        changes.tell(f"Killed node {node}.", node=node, result="killed")


def status(output: OutputOption = Output.TABLE, directory: DirOption = HOME, timeout: TimeoutOption = STATUS_S) -> None:
    """Show every node: its process, its addresses, its role.

    Exit code 1 if one does not serve.
    """
    from penstock.cli.sandbox.nodes import LocalCluster

    cluster = LocalCluster.open(directory)
    answering, probe = answers(cluster, int(timeout * 1000))
    rows = _status(cluster, answering, probe)
    if output is Output.JSON:
        show_json(
            {
                "dir": str(directory),
                "cluster_id": cluster.cluster_id,
                "bootstrap": cluster.bootstrap,
                "majority": probe.majority.value,
                "controllers": probe.count_text,
                "nodes": rows,
            }
        )
    else:
        typer.echo(f"{headline(probe)}.")
        if not is_confirmed(probe):
            typer.echo("\n".join(details(probe)))
        typer.echo("")
        show(rows, output)
    if not all(row["serves"] for row in rows):
        raise typer.Exit(1)


# --- status -----------------------------------------------------------------------------------------------------------


def _status(cluster: "LocalCluster", answering: list[int], probe: "QuorumProbe") -> list[dict[str, Any]]:
    """A row per node. Without a majority, nobody confirms that a node which answers serves, or what it is."""
    is_sure = is_confirmed(probe)
    leader = probe.quorum.leader_id if is_sure and probe.quorum is not None else None
    voters = [each.node_id for each in probe.controllers]
    rows = []
    for each in cluster.nodes:
        answers_itself = each.node_id in answering
        role = "broker" if each.controller_port is None else "broker,controller"
        place = "voter" if each.node_id in voters else "observer"
        rows.append(
            {
                "node": each.node_id,
                "answers": answers_itself,
                "serves": answers_itself and (True if is_sure else None),
                "pid": cluster.pid(each.node_id),
                "role": role,
                "quorum": "leader" if each.node_id == leader else place,
                "address": each.address,
                "controller": each.controller_address,
                "metrics": each.metrics,
                "log": str(cluster.home(each.node_id) / "log"),
            }
        )
    return rows


def add_to(app: typer.Typer) -> None:
    """Registers the commands."""
    group = typer.Typer(
        help="Run a cluster of processes on this machine, to try and test.",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    group.callback()(lambda: None)
    here = "--dir ./my-cluster"
    group.command(epilog=examples("penstock sandbox up --nodes 3", f"penstock sandbox up --nodes 4 {here}"))(up)
    group.command(epilog=examples("penstock sandbox down", f"penstock sandbox down {here}"))(down)
    group.command(
        epilog=examples("penstock sandbox kill 2", f"penstock sandbox kill 2 {here}; penstock sandbox up {here}")
    )(kill)
    group.command(epilog=examples("penstock sandbox status", f"penstock sandbox status -o json {here}"))(status)
    group.command(
        epilog=examples(
            "penstock sandbox restart --rolling",
            f"penstock sandbox restart 2 --rolling {here}",
            "penstock sandbox restart",
        )
    )(restart)
    app.add_typer(group, name="sandbox")
