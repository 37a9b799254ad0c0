"""`penstock reassign cancel`: ends moves of replicas; each partition goes back to the replicas that it had."""

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.cluster.location import AnyDirOption, find_at, run_at
from penstock.cli.connection.completion import complete_topics
from penstock.cli.connection.connecting import TIMEOUT_S, BootstrapOption, TimeoutOption
from penstock.cli.connection.destructive import YesOption, announce
from penstock.cli.errors import Failed
from penstock.cli.output import Changes, Output, OutputOption
from penstock.cli.sandbox_place import HOME

if TYPE_CHECKING:
    from penstock.client.client import Client


def cancel(
    topics: Annotated[
        list[str] | None,
        typer.Option("--topic", help="Only this one; repeatable.", autocompletion=complete_topics),
    ] = None,
    yes: YesOption = False,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    directory: AnyDirOption = HOME,
    timeout: TimeoutOption = TIMEOUT_S,
) -> None:
    """End moves; partitions go back to the replicas they had."""
    place = announce(find_at(bootstrap, directory), yes=yes)
    with Changes(output) as changes:
        run_at(place, timeout, lambda client: _cancel(client, topics, changes))


async def _cancel(client: "Client", topics: list[str] | None, changes: Changes) -> None:
    from penstock.cli.reassign.plan import Move
    from penstock.cli.reassign.throttle import throttle_for

    moving = [
        each for each in await client.admin.list_reassignments() if topics is None or each.partition.topic in topics
    ]
    if not moving:
        changes.tell("No partition moves.")
        return
    done = await client.admin.alter_reassignments({each.partition: None for each in moving})
    moves = [
        Move(each.partition, tuple(broker for broker in each.replicas if broker not in each.adding), each.target)
        for each in moving
        if done[each.partition] is None
    ]
    if moves:
        await (await throttle_for(client, moves, None)).take_back()
    for move in moves:
        changes.tell(
            f"{move.partition} stays on brokers {', '.join(map(str, move.before))}.",
            topic=move.partition.topic,
            partition=move.partition.partition,
            brokers=list(move.before),
            result="cancelled",
        )
    if refused := [str(each) for each in done.values() if each is not None]:
        raise Failed(f"{len(refused)} of {len(done)} moves were not ended: {refused[0]}")
