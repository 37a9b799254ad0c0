"""`penstock cluster …`: a cluster of real processes on this machine, to try and test; `health`, `features` of any."""

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.cluster_features import features
from penstock.cli.cluster_health import health
from penstock.cli.cluster_place import HOME, DirOption
from penstock.cli.cluster_restart import READY_S, restart, stop
from penstock.cli.cluster_watch import numbered, say, seen, wait_until_up
from penstock.cli.failing import Failed
from penstock.cli.help import examples
from penstock.cli.output import Output, OutputOption, show, show_json

if TYPE_CHECKING:
    from penstock.cli.cluster_nodes import LocalCluster
    from penstock.client.client import Client

NodeArgument = Annotated[int, typer.Argument(metavar="N", min=1, help="The number of a node.")]


def up(
    nodes: Annotated[int | None, typer.Option("--nodes", min=1, max=100, help="How many; 3 for a new cluster.")] = None,
    directory: DirOption = HOME,
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="Where to look for free ports from.")] = 19092,
    timeout: Annotated[float, typer.Option("--timeout", min=1, help="Seconds until all must serve.")] = READY_S,
) -> None:
    """Start a cluster, or what is missing of it; with more --nodes than before, brokers join it."""
    from penstock.cli.cluster_nodes import LocalCluster

    if (directory / "cluster.json").exists():
        cluster = LocalCluster.open(directory)
    else:
        directory.mkdir(parents=True, exist_ok=True)
        cluster = LocalCluster(directory)
        nodes = nodes or 3
    cluster.grow(nodes or len(cluster.nodes), port)
    started = [each.node_id for each in cluster.nodes if cluster.pid(each.node_id) is None]
    for node_id in started:
        cluster.start(node_id)
    say(f"Started {numbered(started)}." if started else "All nodes run already.")
    wait_until_up(cluster, time.monotonic() + timeout)
    typer.echo(f"{len(cluster.nodes)} nodes serve; bootstrap: {cluster.bootstrap}")


def down(directory: DirOption = HOME) -> None:
    """Stop all nodes; their data stays. Each first hands over what it leads."""
    from penstock.cli.cluster_nodes import LocalCluster

    stopped = stop(LocalCluster.open(directory))
    typer.echo(f"Stopped {numbered(stopped)}." if stopped else "No node was running.")


def kill(node: NodeArgument, directory: DirOption = HOME) -> None:
    """Kill a node, as a crash would (SIGKILL). `penstock cluster up` starts it again."""
    from penstock.cli.cluster_nodes import LocalCluster

    cluster = LocalCluster.open(directory)
    cluster.node(node)
    if not cluster.kill(node):
        raise Failed(f"node {node} does not run; `penstock cluster up --dir {directory}` starts it")
    typer.echo(f"Killed node {node}.")


def status(output: OutputOption = Output.TABLE, directory: DirOption = HOME) -> None:
    """Show every node: its process, its addresses, what it is in the cluster. Exit code 1 if one does not serve."""
    from penstock.cli.cluster_nodes import LocalCluster

    cluster = LocalCluster.open(directory)
    rows = _status(cluster)
    if output is Output.JSON:
        show_json(
            {"dir": str(directory), "cluster_id": cluster.cluster_id, "bootstrap": cluster.bootstrap, "nodes": rows}
        )
    else:
        show(rows, output)
    if not all(row["serves"] for row in rows):
        raise typer.Exit(1)


def decommission(
    node: NodeArgument,
    directory: DirOption = HOME,
    undo: Annotated[bool, typer.Option("--undo", help="Let it have replicas again after all.")] = False,
    wait: Annotated[float, typer.Option("--wait", min=0, help="Seconds to watch it being emptied.")] = 0.0,
) -> None:
    """Empty a broker: it gets no replicas any more, and those that it has move away by themselves."""
    from penstock.cli.cluster_nodes import LocalCluster
    from penstock.cli.running import run_with_client
    from penstock.client.configs import ConfigKind

    cluster = LocalCluster.open(directory)
    cluster.node(node)

    async def work(client: "Client") -> int:
        await client.admin.alter_configs(
            ConfigKind.BROKER, str(node), {"broker.decommission": None if undo else "true"}
        )
        return await _watch(client, node, 0.0 if undo else wait)

    left = run_with_client(cluster.bootstrap, 30.0, work)
    if undo:
        typer.echo(f"Node {node} may have replicas again; it has {left}.")
    elif left:
        typer.echo(
            f"Node {node} is being emptied: {left} replicas are left. The same command again tells how far it is."
        )
    else:
        typer.echo(f"Node {node} has no replicas: it can be stopped.")


async def _watch(client: "Client", node: int, wait_s: float) -> int:
    import asyncio

    deadline = time.monotonic() + wait_s
    while True:
        left = 0
        for topic in await client.admin.list_topics(with_internal=True):
            left += sum(node in partition.replicas for partition in topic.partitions)
        if not left or time.monotonic() >= deadline:
            return left
        say(f"{left} replicas are left.")
        await asyncio.sleep(1.0)


# --- looking ----------------------------------------------------------------------------------------------------------


def _status(cluster: "LocalCluster") -> list[dict[str, Any]]:
    brokers, leader, voters = seen(cluster)
    rows = []
    for each in cluster.nodes:
        pid = cluster.pid(each.node_id)
        role = "broker" if each.controller_port is None else "broker,controller"
        rows.append(
            {
                "node": each.node_id,
                "serves": pid is not None and each.node_id in brokers,
                "pid": pid,
                "role": role,
                "quorum": "leader" if each.node_id == leader else "voter" if each.node_id in voters else "observer",
                "address": each.address,
                "controller": each.controller_address,
                "metrics": each.metrics,
                "log": str(cluster.home(each.node_id) / "log"),
            }
        )
    return rows


def add_to(app: typer.Typer) -> None:
    """Makes the commands known."""
    group = typer.Typer(
        help="A cluster of several nodes on this machine; health and features of any.",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    group.callback()(lambda: None)
    here = "--dir ./my-cluster"
    group.command(epilog=examples("penstock cluster up --nodes 3", f"penstock cluster up --nodes 4 {here}"))(up)
    group.command(epilog=examples("penstock cluster down", f"penstock cluster down {here}"))(down)
    group.command(
        epilog=examples("penstock cluster kill 2", f"penstock cluster kill 2 {here}; penstock cluster up {here}")
    )(kill)
    group.command(epilog=examples("penstock cluster status", f"penstock cluster status -o json {here}"))(status)
    group.command(
        epilog=examples(
            "penstock cluster restart --rolling",
            f"penstock cluster restart 2 --rolling {here}",
            "penstock cluster restart",
        )
    )(restart)
    group.command(
        epilog=examples(
            "penstock cluster health",
            "penstock cluster health -b broker:9092 -o json",
            "penstock cluster health -b broker:9092 --wait 300 && echo 'go on'",
        )
    )(health)
    group.command(
        epilog=examples(
            "penstock cluster features",
            "penstock cluster features -b broker:9092 -o json",
            "penstock cluster features --raise all --dry-run",
            "penstock cluster features --raise metadata.version=29",
            "penstock cluster features --lower eligible.leader.replicas.version=0",
        )
    )(features)
    group.command(
        epilog=examples(
            "penstock cluster decommission 4",
            "penstock cluster decommission 4 --wait 60",
            "penstock cluster decommission 4 --undo",
        )
    )(decommission)
    app.add_typer(group, name="cluster")
