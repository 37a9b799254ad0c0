"""`penstock broker …`: lists brokers; shows and changes their settings, log directories and log levels."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.broker import log_dirs
from penstock.cli.connection.connecting import (
    TIMEOUT_S,
    BootstrapOption,
    TimeoutOption,
    find,
    parse_pairs,
    run_with_client,
)
from penstock.cli.connection.destructive import YesOption, announce, decides_on_deletion
from penstock.cli.errors import Failed
from penstock.cli.help import examples
from penstock.cli.output import Output, OutputOption, show
from penstock.cli.setting_gaps import effect_of, gaps_of, table_rows, warn_of_gaps

if TYPE_CHECKING:
    from penstock.client.admin.configs import ConfigEntry
    from penstock.client.client import Client
    from penstock.model.setting_gap import SettingGap

IdArgument = Annotated[int, typer.Argument(metavar="ID", min=0, help="The id of a broker.")]
UnsetOption = Annotated[
    list[str] | None, typer.Option("-d", "--delete-config", metavar="K", help="Back to the default; repeatable.")
]


def list_brokers(
    output: OutputOption = Output.TABLE, bootstrap: BootstrapOption = None, timeout: TimeoutOption = TIMEOUT_S
) -> None:
    """List brokers, and what each leads and stores."""

    async def work(client: "Client") -> list[dict[str, Any]]:
        found = await client.admin.describe_cluster()
        parts = [each for topic in await client.admin.list_topics(with_internal=True) for each in topic.partitions]
        return [
            {
                "broker": each.node_id,
                "address": str(each.address),
                "rack": each.rack,
                "state": "fenced" if each in found.fenced else "up",
                "leads": sum(part.leader == each.node_id for part in parts),
                "replicas": sum(each.node_id in part.replicas for part in parts),
            }
            for each in sorted((*found.brokers, *found.fenced), key=lambda broker: broker.node_id)
        ]

    show(run_with_client(bootstrap, timeout, work), output)


def config(
    broker: Annotated[
        int | None, typer.Argument(metavar="[ID]", min=0, help="Without one: what is set for all brokers.")
    ] = None,
    changes: Annotated[
        list[str] | None, typer.Option("-c", "--config", metavar="K=V", help="Change a setting; repeatable.")
    ] = None,
    unset: UnsetOption = None,
    show_all: Annotated[bool, typer.Option("-a", "--all", help="Show settings that nobody has set, too.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only ask whether it would work.")] = False,
    yes: YesOption = False,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = TIMEOUT_S,
) -> None:
    """Show or change settings of a broker, or of all."""
    from penstock.client.admin.configs import ConfigKind

    wanted = {**parse_pairs(changes, "-c"), **dict.fromkeys(unset or ())}
    name = "" if broker is None else str(broker)
    whose = "of all brokers" if broker is None else f"of broker {broker}"
    place = find(bootstrap)
    if decides_on_deletion(wanted) and not dry_run:
        announce(place, yes=yes)

    async def work(client: "Client") -> "tuple[dict[str, ConfigEntry], Mapping[str, SettingGap]]":
        await _require(client, broker)
        if wanted:
            await client.admin.alter_configs(ConfigKind.BROKER, name, wanted, validate_only=dry_run)
            await warn_of_gaps(client, wanted)
            return {}, {}
        return await client.admin.describe_configs(ConfigKind.BROKER, name), await gaps_of(client)

    found, gaps = run_with_client(place, timeout, work)
    if wanted:
        typer.echo(f"{', '.join(wanted)} {whose} {'could be changed' if dry_run else 'changed'}.")
        return
    rows = [
        {
            "setting": each.name,
            "value": "(secret)" if each.is_sensitive else each.value,
            "source": each.source.name.lower(),
            "read_only": each.is_read_only,
            "effect": effect_of(gaps, each.name, each.value),
        }
        for each in found.values()
        if show_all or not each.is_default
    ]
    shown = rows if output is Output.JSON else table_rows(rows)
    show(shown, output, f"No setting {whose} has been set; -a shows the defaults.")


def log_level(
    broker: IdArgument,
    changes: Annotated[
        list[str] | None,
        typer.Option("-c", "--config", metavar="LOGGER=LEVEL", help="Change the level of a logger; repeatable."),
    ] = None,
    unset: UnsetOption = None,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = TIMEOUT_S,
) -> None:
    """Show or change the levels of a broker's loggers.

    The levels are TRACE, DEBUG, INFO, WARN, ERROR and FATAL. They last until the broker restarts.
    """
    from penstock.client.admin.configs import ConfigKind

    wanted = {**parse_pairs(changes, "-c"), **dict.fromkeys(unset or ())}
    kind: ConfigKind = ConfigKind.BROKER_LOGGER

    async def work(client: "Client") -> "dict[str, ConfigEntry]":
        await _require(client, broker)
        known = await client.admin.describe_configs(kind, str(broker))
        if unknown := [name for name in wanted if name not in known]:
            raise Failed(f"broker {broker} has no logger {unknown[0]}: `penstock broker log-level {broker}` lists them")
        if not wanted:
            return known
        await client.admin.alter_configs(kind, str(broker), wanted)
        return await client.admin.describe_configs(kind, str(broker))

    found = run_with_client(bootstrap, timeout, work)
    show(
        [{"logger": each.name, "level": each.value} for each in found.values() if not wanted or each.name in wanted],
        output,
    )


async def _require(client: "Client", broker: int | None) -> None:
    known = sorted(client.cluster.view.brokers)
    if broker is not None and broker not in known:
        raise Failed(f"broker {broker} is not there; those that are: {', '.join(map(str, known))}")


def add_to(app: typer.Typer) -> None:
    """Registers the commands."""
    group = typer.Typer(help="Show brokers; change their settings.", no_args_is_help=True, rich_markup_mode=None)
    group.command("list", epilog=examples("penstock broker list", "penstock broker list -b broker:9092 -o json"))(
        list_brokers
    )
    group.command(
        "config",
        epilog=examples(
            "penstock broker config 1 --all",
            "penstock broker config -c log.retention.ms=86400000",
            "penstock broker config 1 -d log.cleaner.threads",
        ),
    )(config)
    group.command(
        "logdirs", epilog=examples("penstock broker logdirs", "penstock broker logdirs 1 --partitions -o json")
    )(log_dirs.log_dirs)
    group.command(
        "log-level",
        epilog=examples("penstock broker log-level 1", "penstock broker log-level 1 -c penstock.server=DEBUG"),
    )(log_level)
    app.add_typer(group, name="broker")
