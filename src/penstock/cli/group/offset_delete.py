"""`penstock group offset-delete`: deletes committed offsets of a group."""

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.connection.completion import complete_groups, complete_topics
from penstock.cli.connection.connecting import TIMEOUT_S, BootstrapOption, TimeoutOption, find, run_with_client
from penstock.cli.connection.destructive import YesOption, announce
from penstock.cli.errors import Failed
from penstock.cli.group.reset import places_of
from penstock.cli.output import Changes, Output, OutputOption, printable

if TYPE_CHECKING:
    from penstock.client.client import Client


def offset_delete(
    group: Annotated[str, typer.Argument(metavar="GROUP", autocompletion=complete_groups)],
    topics: Annotated[
        list[str],
        typer.Option(
            "-t",
            "--topic",
            metavar="TOPIC[:P,P]",
            help="A topic, or some of its partitions; repeatable.",
            autocompletion=complete_topics,
        ),
    ],
    yes: YesOption = False,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = TIMEOUT_S,
) -> None:
    """Delete offsets that a group has committed.

    The group then reads these partitions from where its consumers are set to begin. A topic that members of the group
    read is refused.
    """
    found = announce(find(bootstrap), yes=yes)

    async def work(client: "Client") -> None:
        await client.admin.describe_group(group)
        committed = await client.admin.group_offsets(group)
        places = [each for each in await places_of(client, topics, committed) if each in committed]
        if not places:
            changes.tell(f"{printable(group)} has committed nothing there.")
            return
        done = await client.admin.delete_group_offsets(group, places)
        for place, refused in done.items():
            if refused is None:
                changes.tell(
                    f"{place}: offset {committed[place]} deleted.",
                    group=group,
                    topic=place.topic,
                    partition=place.partition,
                    offset=committed[place],
                    result="deleted",
                )
        if failures := [str(refused) for refused in done.values() if refused is not None]:
            raise Failed("; ".join(failures))

    with Changes(output) as changes:
        run_with_client(found, timeout, work)
