"""`penstock cluster decommission`: empties a broker of any cluster, so that it can be stopped for good."""

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.cluster.location import AnyDirOption, find_at, run_at
from penstock.cli.connection.connecting import TIMEOUT_S, BootstrapOption, TimeoutOption
from penstock.cli.connection.destructive import YesOption, announce
from penstock.cli.connection.majority import with_majority
from penstock.cli.errors import Failed
from penstock.cli.help import examples
from penstock.cli.output import Changes, Output, OutputOption
from penstock.cli.sandbox_place import HOME

if TYPE_CHECKING:
    from penstock.cli.decommission.drain import Situation
    from penstock.cli.reassign.watch import Pace
    from penstock.client.client import Client


def decommission(
    node: Annotated[int, typer.Argument(metavar="N", min=0, help="The id of a broker.")],
    undo: Annotated[bool, typer.Option("--undo", help="Let it have replicas again after all.")] = False,
    wait: Annotated[
        float | None, typer.Option("--wait", min=0, help="Seconds to watch; without it, until the broker is empty.")
    ] = None,
    bootstrap: BootstrapOption = None,
    directory: AnyDirOption = HOME,
    timeout: TimeoutOption = TIMEOUT_S,
    yes: YesOption = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Empty a broker, so that it can be stopped.

    Its replicas move to others. The exit code is 0 only once it has none; run the command again to continue. A broker
    that is down then is also removed from the list of brokers.
    """

    async def work(client: "Client") -> None:
        if undo:
            await _undo(client, node, changes)
        else:
            await _decommission(client, node, wait, changes)

    found = find_at(bootstrap, directory)
    if not undo:
        announce(found, yes=yes)
    with Changes(output) as changes:
        run_at(found, timeout, with_majority(timeout, work, is_long=True))


async def _decommission(client: "Client", node: int, wait_s: float | None, changes: Changes) -> None:
    from penstock.cli.decommission.drain import drain, mark, obstacles, removed_if_down, situation
    from penstock.cli.progress import ByteBar

    now = await situation(client, node)
    if why := obstacles(node, now):
        raise Failed(f"broker {node} cannot be decommissioned: {'; '.join(why)}")
    if now.is_marking and node in now.brokers and node not in now.leaving:
        await mark(client, node, is_leaving=True)
    if now.held:
        changes.tell(_beginning(node, now))
    try:
        with ByteBar("copied") as bar:

            def show(done_bytes: int, total_bytes: int, pace: "Pace") -> None:
                bar.show(done_bytes, total_bytes, pace.bytes_per_second, pace.eta_s)

            left = await drain(client, node, now, wait_s, show)
    except BaseException:  # Ctrl-C included
        typer.echo("What moves goes on; the same command again continues.", err=True)
        raise
    if left:
        raise Failed(
            f"broker {node} still has {_count(left, 'replica')}, and must not be stopped yet: what moves goes on, and "
            "the same command again watches it"
        )
    if await removed_if_down(client, node):
        told = f"Broker {node} has no replicas, and is down: it is removed from the list of brokers."
        changes.tell(told, broker=node, result="removed", replicas=0)
        return
    rest = "" if now.is_marking else "; stop it soon, since Apache Kafka may give it replicas of new topics"
    changes.tell(f"Broker {node} has no replicas: it can be stopped{rest}.", broker=node, result="empty", replicas=0)


def _beginning(node: int, now: "Situation") -> str:
    topics = len({each.topic for each in now.held})
    targets = ", ".join(map(str, sorted(now.targets(node))))
    return f"Broker {node} has {_count(len(now.held), 'replica')} of {_count(topics, 'topic')}; they move to {targets}."


async def _undo(client: "Client", node: int, changes: Changes) -> None:
    from penstock.cli.decommission.drain import cancel_moves, mark, situation

    now = await situation(client, node)
    if node not in now.brokers:
        raise Failed(f"broker {node} is not up: start it, or see `penstock cluster health`")
    if now.is_marking:
        await mark(client, node, is_leaving=False)
    cancelled = await cancel_moves(client, node)
    left = sum(node in each for each in (await situation(client, node)).placed.values())
    moves = f"; {_count(cancelled, 'move')} away from it cancelled" if cancelled else ""
    sentence = f"Broker {node} may have replicas again; it has {left}{moves}."
    changes.tell(sentence, broker=node, result="undone", replicas=left, cancelled=cancelled)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


def add_to(cluster: typer.Typer) -> None:
    """Registers the command below `cluster`."""
    cluster.command(
        epilog=examples(
            "penstock cluster decommission 4",
            "penstock cluster decommission 4 --wait 60 -b broker:9092",
            "penstock cluster decommission 4 --undo",
        )
    )(decommission)
