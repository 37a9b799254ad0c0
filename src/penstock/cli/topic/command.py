"""`penstock topic …`: creates, shows, changes and deletes topics."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.connection.completion import complete_topics
from penstock.cli.connection.connecting import (
    TIMEOUT_S,
    BootstrapOption,
    TimeoutOption,
    find,
    parse_pairs,
    run_with_client,
)
from penstock.cli.connection.destructive import YesOption, announce, decides_on_deletion
from penstock.cli.connection.majority import with_majority
from penstock.cli.consume.command import consume
from penstock.cli.errors import Failed, Misused
from penstock.cli.help import examples
from penstock.cli.output import Changes, Output, OutputOption, show, show_json, show_table
from penstock.cli.produce.command import produce
from penstock.cli.setting_gaps import effect_of, gaps_of, table_rows, warn_of_gaps
from penstock.cli.topic import elect, offsets

if TYPE_CHECKING:
    from penstock.client.admin.configs import ConfigEntry
    from penstock.client.client import Client
    from penstock.client.metadata import Topic
    from penstock.model.setting_gap import SettingGap

Names = Annotated[
    list[str], typer.Argument(metavar="TOPIC...", help="One or more topics.", autocompletion=complete_topics)
]
ConfigOption = Annotated[list[str] | None, typer.Option("-c", "--config", metavar="K=V", help="A setting; repeatable.")]
DEFAULT = -1


def create(
    names: Names,
    partitions: Annotated[int, typer.Option("-p", "--partitions", help="-1: as the broker is set.")] = DEFAULT,
    replicas: Annotated[
        int, typer.Option("-r", "--replicas", "--replication-factor", help="-1: as the broker is set.")
    ] = DEFAULT,
    configs: ConfigOption = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="Topics that are there are fine.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only ask whether it would work.")] = False,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = TIMEOUT_S,
) -> None:
    """Create topics. They can be used as soon as the command is done."""
    from penstock.client.errors import Refused
    from penstock.model.errors import ErrorCode

    settings = parse_pairs(configs, "-c")

    async def work(client: "Client") -> None:
        failures, has_made = [], False
        for name in names:
            try:
                made = await client.admin.create_topic(name, partitions, replicas, settings, validate_only=dry_run)
            except Refused as refused:
                if if_not_exists and refused.code is ErrorCode.TOPIC_ALREADY_EXISTS:
                    changes.tell(f"{name} is there already.", topic=name, result="exists")
                else:
                    failures.append(refused)
            else:
                verb = "could be created" if dry_run else "created"
                size = f"{_count(made.partitions, 'partition')}, {_count(made.replication_factor, 'replica')}"
                changes.tell(
                    f"{name} {verb}: {size}.",
                    topic=name,
                    result=verb,
                    partitions=made.partitions,
                    replicas=made.replication_factor,
                )
                has_made = True
        if has_made:
            await warn_of_gaps(client, settings)
        _raise(failures)

    with Changes(output) as changes:
        run_with_client(bootstrap, timeout, with_majority(timeout, work))


def list_topics(
    internal: Annotated[bool, typer.Option("-i", "--internal", help="Show internal topics, too.")] = False,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = TIMEOUT_S,
) -> None:
    """List topics."""

    async def work(client: "Client") -> "list[Topic]":
        return await client.admin.list_topics(with_internal=internal)

    rows = [
        {"name": topic.name, "partitions": len(topic.partitions), "replicas": _replicas(topic)}
        for topic in run_with_client(bootstrap, timeout, work)
    ]
    show(rows, output, "There are no topics: `penstock topic create NAME` makes one.")


def describe(
    names: Names,
    show_all: Annotated[bool, typer.Option("-a", "--all", help="Show settings that nobody has set, too.")] = False,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = TIMEOUT_S,
) -> None:
    """Show the partitions, offsets and settings of topics."""
    from penstock.client.admin.configs import ConfigKind
    from penstock.client.offsets import Moment

    async def work(client: "Client") -> list[dict[str, Any]]:
        found, gaps = [], await gaps_of(client)
        for name in names:
            topic = await client.admin.describe_topic(name)
            starts = await client.admin.offsets(name, Moment.EARLIEST)
            ends = await client.admin.offsets(name, Moment.LATEST)
            configs = await client.admin.describe_configs(ConfigKind.TOPIC, name)
            partitions = [
                {
                    "partition": each.index,
                    "leader": each.leader,
                    "epoch": each.leader_epoch,
                    "replicas": list(each.replicas),
                    "in_sync": list(each.isr),
                    "offline": list(each.offline),
                    "start_offset": starts[each.index].offset,
                    "end_offset": ends[each.index].offset,
                }
                for each in topic.partitions
            ]
            settings = [_setting(each, gaps) for each in configs.values() if show_all or not each.is_default]
            summary = {"name": name, "id": topic.topic_id.hex(), "replicas": _replicas(topic)}
            found.append({**summary, "partitions": partitions, "settings": settings})
        return found

    found = run_with_client(bootstrap, timeout, work)
    if output is Output.JSON:
        show_json(found)
        return
    for topic in found:
        count = len(topic["partitions"])
        typer.echo(
            f"{topic['name']}: {_count(count, 'partition')}, {_count(topic['replicas'], 'replica')}, id {topic['id']}"
        )
        show_table(topic["partitions"])
        if topic["settings"]:
            typer.echo("")
            show_table(table_rows(topic["settings"]))


def alter(
    name: Annotated[str, typer.Argument(metavar="TOPIC", autocompletion=complete_topics)],
    partitions: Annotated[
        int | None, typer.Option("-p", "--partitions", min=1, help="How many there shall be; never fewer than now.")
    ] = None,
    configs: ConfigOption = None,
    unset: Annotated[
        list[str] | None, typer.Option("-d", "--delete-config", metavar="K", help="Back to the default.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only ask whether it would work.")] = False,
    yes: YesOption = False,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = TIMEOUT_S,
) -> None:
    """Change the settings of a topic, or let it grow. With more partitions, keys move to other ones."""
    from penstock.client.admin.configs import ConfigKind

    changes: dict[str, str | None] = {**parse_pairs(configs, "-c"), **dict.fromkeys(unset or ())}
    if partitions is None and not changes:
        raise Misused("nothing to change: give -p, -c name=value or -d name")
    found = find(bootstrap)
    if decides_on_deletion(changes) and not dry_run:
        announce(found, yes=yes)

    async def work(client: "Client") -> None:
        if changes:
            await client.admin.alter_configs(ConfigKind.TOPIC, name, changes, validate_only=dry_run)
            await warn_of_gaps(client, changes)
        if partitions is not None:
            await client.admin.add_partitions(name, partitions, validate_only=dry_run)

    with Changes(output) as changed:
        run_with_client(found, timeout, with_majority(timeout, work))
        result = "could be changed" if dry_run else "changed"
        changed.tell(f"{name} {result}.", topic=name, result=result)


def delete(
    names: Names,
    yes: YesOption = False,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = TIMEOUT_S,
) -> None:
    """Delete topics and all that is in them."""
    found = announce(find(bootstrap), yes=yes)

    async def work(client: "Client") -> None:
        results = await client.admin.delete_topics(names)
        for name, refused in results.items():
            if refused is None:
                changes.tell(f"{name} deleted.", topic=name, result="deleted")
        _raise([refused for refused in results.values() if refused is not None])

    with Changes(output) as changes:
        run_with_client(found, timeout, with_majority(timeout, work))


def _setting(entry: "ConfigEntry", gaps: "Mapping[str, SettingGap]") -> dict[str, Any]:
    value = "(secret)" if entry.is_sensitive else entry.value
    source = entry.source.name.lower()
    return {"setting": entry.name, "value": value, "source": source, "effect": effect_of(gaps, entry.name, entry.value)}


def _replicas(topic: "Topic") -> int:
    return max((len(each.replicas) for each in topic.partitions), default=0)


def _count(number: int, noun: str) -> str:
    if number < 0:
        return f"as many {noun}s as the broker is set to"
    return f"{number} {noun}{'s' * (number != 1)}"


def _raise(failures: list[Any]) -> None:
    """Raises one failure as it is, several in one sentence."""
    if len(failures) == 1:
        raise failures[0]
    if failures:
        raise Failed("; ".join(map(str, failures)))


def add_to(app: typer.Typer) -> None:
    """Registers the commands."""
    topic = typer.Typer(help="Make, show, change and delete topics.", no_args_is_help=True, rich_markup_mode=None)
    topic.command(
        "create",
        epilog=examples(
            "penstock topic create orders",
            "penstock topic create orders payments -p 6 -r 3",
            "penstock topic create users -c cleanup.policy=compact",
        ),
    )(create)
    topic.command("list", epilog=examples("penstock topic list", "penstock topic list -b broker:9092 -o json"))(
        list_topics
    )
    topic.command(
        "describe", epilog=examples("penstock topic describe orders", "penstock topic describe orders -a -o json")
    )(describe)
    topic.command(
        "alter",
        epilog=examples(
            "penstock topic alter orders -c retention.ms=86400000",
            "penstock topic alter orders -p 12",
            "penstock topic alter orders -d retention.ms",
        ),
    )(alter)
    topic.command("delete", epilog=examples("penstock topic delete orders", "penstock topic delete orders payments"))(
        delete
    )
    offsets.add_to(topic)
    elect.add_to(topic)
    topic.command(
        "produce",
        epilog=examples(
            "echo '{\"id\": 1}' | penstock topic produce orders", "penstock topic produce orders -i orders.txt"
        ),
    )(produce)
    topic.command(
        "consume",
        epilog=examples("penstock topic consume orders", "penstock topic consume orders --from end -f json"),
    )(consume)
    app.add_typer(topic, name="topic")
