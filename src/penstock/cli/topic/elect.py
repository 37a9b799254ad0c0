"""`penstock topic elect`: elects preferred leaders; or any replica for partitions that no replica may lead."""

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.connection.completion import complete_topics
from penstock.cli.connection.connecting import TIMEOUT_S, BootstrapOption, TimeoutOption, find, run_with_client
from penstock.cli.connection.destructive import YesOption, announce
from penstock.cli.connection.majority import with_majority
from penstock.cli.errors import Failed
from penstock.cli.help import examples
from penstock.cli.output import Changes, Output, OutputOption

if TYPE_CHECKING:
    from penstock.client.admin.leaders import Unled
    from penstock.client.client import Client
    from penstock.client.errors import Refused
    from penstock.client.metadata import TopicPartition


def elect(
    names: Annotated[
        list[str], typer.Argument(metavar="TOPIC...", help="One or more topics.", autocompletion=complete_topics)
    ],
    unclean: Annotated[
        bool, typer.Option("--unclean", help="Have any replica lead what nobody leads: what it lacks is lost.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Even where a broker that is away has everything: its disk is gone.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
    yes: YesOption = False,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = TIMEOUT_S,
) -> None:
    """Elect preferred leaders; with --unclean, any replica.

    Without --unclean, the first replica of each partition leads. With it, some replica leads what nobody may lead.
    """
    found = find(bootstrap)
    if unclean and not dry_run:
        announce(found, yes=yes)

    async def work(client: "Client") -> None:
        admin = client.admin
        if not unclean:
            wanted = await _astray(client, names)
            done = {} if dry_run else await admin.elect_leaders(wanted)
            _tell(changes, wanted, done, "led by its first replica", dry_run=dry_run)
            return
        unled = await admin.unled(names)
        refused = [] if force else [each for each in unled if each.has_all]
        wanted = [each.partition for each in unled if each not in refused]
        done = {} if dry_run or not wanted else await admin.elect_leaders(wanted, is_unclean=True)
        if wanted or not refused:
            what = "led again, and its leader logs from which offset on records are lost"
            _tell(changes, wanted, done, what, dry_run=dry_run)
        if refused:
            raise Failed("; ".join(map(_why_not, refused)))

    with Changes(output) as changes:
        run_with_client(found, timeout, with_majority(timeout, work))


async def _astray(client: "Client", names: list[str]) -> "list[TopicPartition]":
    from penstock.client.metadata import TopicPartition

    topics = [await client.admin.describe_topic(name) for name in names]
    return [
        TopicPartition(topic.name, each.index)
        for topic in topics
        for each in topic.partitions
        if each.leader != each.replicas[0]
    ]


def _tell(
    changes: Changes,
    wanted: "list[TopicPartition]",
    done: "dict[TopicPartition, Refused | None]",
    what: str,
    *,
    dry_run: bool,
) -> None:
    if not wanted:
        changes.tell("No partition needs an election.")
    for each in wanted:
        if done.get(each) is None:
            sentence = f"{each} {'would be' if dry_run else 'is'} {what}."
            result = "would be elected" if dry_run else "elected"
            changes.tell(sentence, topic=each.topic, partition=each.partition, result=result)
    if failures := [str(each) for each in done.values() if each is not None]:
        raise Failed("; ".join(failures))


def _why_not(unled: "Unled") -> str:
    brokers = ", ".join(map(str, unled.has_all))
    return f"{unled.partition} is whole on broker {brokers}: start that, or give --force if its disk is gone"


def add_to(topic: typer.Typer) -> None:
    """Registers the command."""
    topic.command(
        "elect",
        epilog=examples(
            "penstock topic elect orders",
            "penstock topic elect orders --unclean --dry-run",
            "penstock topic elect orders payments --unclean",
        ),
    )(elect)
