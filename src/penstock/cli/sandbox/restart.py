"""`penstock sandbox restart`: restarts all nodes at once, or one after the other without an outage for clients.

A rolling restart begins only on a healthy cluster, and continues with the next node only when every replica is in sync
again; the active controller comes last, so that it changes once.
"""

import signal
import time
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.cluster.health import PAUSE_S, look, state_of
from penstock.cli.errors import Failed
from penstock.cli.output import Changes, Output, OutputOption
from penstock.cli.progress import say
from penstock.cli.sandbox.nodes import DirOption
from penstock.cli.sandbox.startup_watch import numbered, seen, wait_until_up
from penstock.cli.sandbox_place import HOME

if TYPE_CHECKING:
    from penstock.cli.sandbox.nodes import LocalCluster
    from penstock.model.findings import Finding

READY_S = 60.0


def restart(
    nodes: Annotated[list[int] | None, typer.Argument(metavar="[N]...", help="Only these nodes.")] = None,
    rolling: Annotated[
        bool, typer.Option("--rolling", help="One after the other, each once everything is in sync.")
    ] = False,
    directory: DirOption = HOME,
    timeout: Annotated[float, typer.Option("--timeout", min=1, help="Seconds that each node has.")] = READY_S,
    output: OutputOption = Output.TABLE,
) -> None:
    """Restart nodes. Each hands over what it leads before it stops; --rolling keeps the cluster in use."""
    from penstock.cli.sandbox.nodes import LocalCluster

    cluster = LocalCluster.open(directory)
    wanted = [cluster.node(each).node_id for each in nodes] if nodes else [each.node_id for each in cluster.nodes]
    began = time.monotonic()
    with Changes(output) as changes:
        if rolling:
            _roll(cluster, wanted, timeout)
        else:
            stop(cluster, wanted)
            _start(cluster, wanted, timeout)
        changes.tell(f"Restarted {numbered(wanted)} in {time.monotonic() - began:.0f} s.")
        for node_id in wanted:
            changes.note(node=node_id, result="restarted")


def stop(cluster: "LocalCluster", node_ids: list[int] | None = None) -> list[int]:
    """Stops nodes (or all) by controlled shutdown; returns those that ran."""
    wanted = [each.node_id for each in cluster.nodes] if node_ids is None else node_ids
    running = [each for each in wanted if cluster.signal(each, signal.SIGTERM)]
    late = [node_id for node_id in running if not cluster.wait_for_end(node_id)]
    if late:
        raise Failed(
            f"{numbered(late)} did not stop; see {cluster.home(late[0]) / 'log'}, or `penstock sandbox kill {late[0]}`"
        )
    return running


def _start(cluster: "LocalCluster", node_ids: list[int], timeout_s: float) -> None:
    for node_id in node_ids:
        cluster.start(node_id)
    wait_until_up(cluster, time.monotonic() + timeout_s)


# --- rolling restart --------------------------------------------------------------------------------------------------


def _roll(cluster: "LocalCluster", node_ids: list[int], timeout_s: float) -> None:
    troubles = _troubles(cluster)
    if troubles:
        raise Failed(
            f"the cluster is not well, and a restart would make it worse: {troubles[0].found}; "
            f"`penstock cluster health --dir {cluster.path}` tells what to do"
        )
    _warn_of_single_replicas(cluster)
    left = list(node_ids)
    while left:
        _, leader, _ = seen(cluster)
        node_id = next((each for each in left if each != leader), left[0])
        left.remove(node_id)
        say(f"Restarting node {node_id}.")
        stop(cluster, [node_id])
        _start(cluster, [node_id], timeout_s)
        _wait_until_well(cluster, node_id, left, timeout_s)


def _troubles(cluster: "LocalCluster") -> "list[Finding]":
    """All problems except full disks, which are no reason not to restart."""
    found, _ = look(cluster.bootstrap, cluster.place)
    return [each for each in found if not each.is_well and each.check != "disk"]


def _wait_until_well(cluster: "LocalCluster", node_id: int, left: list[int], timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while troubles := _troubles(cluster):
        if time.monotonic() > deadline:
            rest = f"; {numbered(left)} {'was' if len(left) == 1 else 'were'} not restarted" if left else ""
            raise Failed(f"node {node_id} is back, but after {timeout_s:.0f} s {troubles[0].found}{rest}")
        say(f"Waiting: {troubles[0].found}.")
        time.sleep(PAUSE_S)


def _warn_of_single_replicas(cluster: "LocalCluster") -> None:
    """Warns of topics with one replica: their leadership cannot be handed over."""
    names = {topic for topic, part in state_of(cluster.bootstrap).partitions() if len(part.replicas) == 1}
    if names:
        few = ", ".join(sorted(names)[:3]) + (" and others" if len(names) > 3 else "")
        typer.echo(f"{few}: one replica only, so these are away while their node restarts.", err=True)
