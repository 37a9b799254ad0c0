"""`penstock broker logdirs`: the log directories of brokers, and what is in them."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.connection.completion import complete_topics
from penstock.cli.connection.connecting import TIMEOUT_S, BootstrapOption, TimeoutOption, run_with_client
from penstock.cli.errors import Failed
from penstock.cli.output import Output, OutputOption, Quantity, show

if TYPE_CHECKING:
    from penstock.client.admin.brokers import LogDir
    from penstock.client.client import Client


def log_dirs(
    brokers: Annotated[list[int] | None, typer.Argument(metavar="[ID]...", help="Without any: all.")] = None,
    topics: Annotated[
        list[str] | None,
        typer.Option("-t", "--topic", help="Only this topic; repeatable.", autocompletion=complete_topics),
    ] = None,
    partitions: Annotated[bool, typer.Option("--partitions", help="A line for every replica.")] = False,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = TIMEOUT_S,
) -> None:
    """Show log directories: their room, and the replicas there."""

    async def work(client: "Client") -> "dict[int, list[LogDir]]":
        known = sorted(client.cluster.view.brokers)
        if unknown := [each for each in brokers or () if each not in known]:
            raise Failed(f"broker {unknown[0]} is not there; those that are: {', '.join(map(str, known))}")
        for topic in topics or ():
            await client.admin.describe_topic(topic)
        return await client.admin.log_dirs(brokers or None)

    found = run_with_client(bootstrap, timeout, work)
    rows = replica_rows(found, topics) if partitions else directory_rows(found, topics)
    if output is Output.TABLE:
        rows = [{name: _shown(name, value) for name, value in row.items()} for row in rows]
    show(rows, output, "There are no replicas.")


def directory_rows(found: "dict[int, list[LogDir]]", topics: list[str] | None) -> list[dict[str, Any]]:
    """A row per log directory."""
    rows = []
    for broker, places in found.items():
        for place in places:
            sizes = [size for each, size in place.replicas.items() if not topics or each.topic in topics]
            rows.append(
                {
                    "broker": broker,
                    "path": place.path,
                    "state": "ok" if not place.error else place.error.name,
                    "replicas": len(sizes),
                    "bytes": sum(sizes),
                    "free_bytes": place.usable_bytes if place.usable_bytes >= 0 else None,
                    "disk_bytes": place.total_bytes if place.total_bytes >= 0 else None,
                }
            )
    return rows


def replica_rows(found: "dict[int, list[LogDir]]", topics: list[str] | None) -> list[dict[str, Any]]:
    """A row per replica."""
    return [
        {"topic": each.topic, "partition": each.partition, "broker": broker, "bytes": size, "path": place.path}
        for broker, places in found.items()
        for place in places
        for each, size in sorted(place.replicas.items())
        if not topics or each.topic in topics
    ]


def _shown(name: str, value: Any) -> Any:
    from penstock.cli.progress import bytes_text

    return Quantity(bytes_text(value)) if name.endswith("bytes") and value is not None else value
