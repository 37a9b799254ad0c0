"""`penstock group …`: shows groups, their lag and why they rebalanced; resets their offsets and deletes them."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.connection.completion import complete_groups
from penstock.cli.connection.connecting import TIMEOUT_S, BootstrapOption, TimeoutOption, find, run_with_client
from penstock.cli.connection.destructive import YesOption, announce
from penstock.cli.errors import Failed, sentence
from penstock.cli.group import lag, offset_delete, reset, why
from penstock.cli.help import examples
from penstock.cli.output import Changes, Output, OutputOption, printable, show, show_json, show_table

if TYPE_CHECKING:
    from penstock.client.admin.groups import GroupDescription, GroupListing
    from penstock.client.client import Client

Names = Annotated[
    list[str], typer.Argument(metavar="GROUP...", help="One or more groups.", autocompletion=complete_groups)
]


def list_groups(
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = TIMEOUT_S,
) -> None:
    """List groups."""

    async def work(client: "Client") -> "list[GroupListing]":
        return await client.admin.list_groups()

    rows = [
        {
            "group": each.group_id,
            "type": each.type.lower() or None,
            "state": each.state or None,
            "protocol": each.protocol_type or None,
            "coordinator": each.coordinator,
        }
        for each in run_with_client(bootstrap, timeout, work)
    ]
    show(rows, output, lag.NO_GROUPS)


def describe(
    names: Names,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = TIMEOUT_S,
) -> None:
    """Show who is in groups, and what each member reads."""

    async def work(client: "Client") -> "list[tuple[GroupDescription, int]]":
        return [(await client.admin.describe_group(name), await client.cluster.coordinator(name)) for name in names]

    found = run_with_client(bootstrap, timeout, work)
    if output is Output.JSON:
        show_json([_as_json(group, coordinator) for group, coordinator in found])
        return
    for number, (group, coordinator) in enumerate(found):
        if number:
            typer.echo("")
        assignor = f", shared out by {group.assignor}" if group.assignor else ""
        epoch = f", epoch {group.epoch}" if group.epoch >= 0 else ""
        told = f"{group.group_id}: {group.state}, {group.type}{epoch}{assignor}, coordinated by broker {coordinator}"
        typer.echo(printable(told))
        if group.members:
            show_table([_row(each) for each in _as_json(group, coordinator)["members"]])
        else:
            typer.echo("Nobody is in it.")


def _as_json(group: "GroupDescription", coordinator: int) -> dict[str, Any]:
    return {
        "group": group.group_id,
        "state": group.state,
        "type": group.type,
        "epoch": group.epoch if group.epoch >= 0 else None,
        "assignor": group.assignor or None,
        "coordinator": coordinator,
        "members": [
            {
                "member": each.member_id,
                "instance": each.instance_id,
                "client": each.client_id,
                "host": each.host,
                "partitions": [{"topic": place.topic, "partition": place.partition} for place in each.assignment],
            }
            for each in group.members
        ],
    }


def _row(member: dict[str, Any]) -> dict[str, Any]:
    topics: dict[str, list[int]] = {}
    for each in member["partitions"]:
        topics.setdefault(each["topic"], []).append(each["partition"])
    reads = " ".join(f"{topic}[{','.join(map(str, sorted(numbers)))}]" for topic, numbers in sorted(topics.items()))
    return {
        "client": member["client"],
        "instance": member["instance"],
        "host": member["host"].lstrip("/"),
        "count": len(member["partitions"]),
        "reads": reads,
        "member": member["member"],
    }


def delete(
    names: Names,
    yes: YesOption = False,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = TIMEOUT_S,
) -> None:
    """Delete groups without members, and their offsets."""
    found = announce(find(bootstrap), yes=yes)

    async def work(client: "Client") -> list[str]:
        from penstock.client.errors import Refused

        failures = []
        for name in names:
            try:
                await _delete(client, name)
            except (Failed, Refused) as failure:
                failures.append(sentence(failure) or "")
            else:
                changes.tell(f"{printable(name)} deleted.", group=name, result="deleted")
        return failures

    with Changes(output) as changes:
        failures = run_with_client(found, timeout, work)
        if len(failures) > 1:
            failures.insert(0, f"{len(failures)} of {len(names)} groups were not deleted:")
        if failures:
            raise Failed("\n  ".join(failures))


async def _delete(client: "Client", name: str) -> None:
    from penstock.client.errors import Refused
    from penstock.model.errors import ErrorCode

    try:
        await client.admin.delete_group(name)
    except Refused as refused:
        if refused.code is not ErrorCode.NON_EMPTY_GROUP:
            raise
        described = await client.admin.describe_group(name)
        raise Failed(reset.at_work(described, "A group at work is not deleted")) from refused


def add_to(app: typer.Typer) -> None:
    """Registers the commands."""
    group = typer.Typer(
        help="Show groups and their lag; reset and delete them.",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    group.command("list", epilog=examples("penstock group list", "penstock group list -b broker:9092 -o json"))(
        list_groups
    )
    group.command(
        "describe", epilog=examples("penstock group describe billing", "penstock group describe billing audit -o json")
    )(describe)
    group.command(
        "lag",
        epilog=examples(
            "penstock group lag",
            "penstock group lag billing --watch",
            "penstock group lag billing -t orders -o json",
        ),
    )(lag.lag)
    group.command(
        "reset",
        epilog=examples(
            "penstock group reset billing --to-earliest",
            "penstock group reset billing -t orders:0,1 --to-datetime 2026-01-31T12:00 --execute",
            "penstock group reset billing --shift-by -100 --execute",
        ),
    )(reset.reset)
    group.command(
        "seek", hidden=True, epilog=examples("penstock group seek billing --to-earliest", "penstock group reset -h")
    )(reset.reset)
    group.command(
        "offset-delete",
        epilog=examples(
            "penstock group offset-delete billing -t orders",
            "penstock group offset-delete billing -t orders:0,1 -t payments",
        ),
    )(offset_delete.offset_delete)
    group.command("delete", epilog=examples("penstock group delete billing", "penstock group delete billing audit"))(
        delete
    )
    group.command(
        "why",
        epilog=examples(
            "penstock group why billing", "penstock group why billing --since 2h", "penstock group why billing -o json"
        ),
    )(why.why)
    app.add_typer(group, name="group")
