"""`penstock cluster info`: which cluster this is, and how large."""

from typing import TYPE_CHECKING, Any

import typer

from penstock.cli.cluster.location import AnyDirOption, find_at, run_at
from penstock.cli.connection.connecting import TIMEOUT_S, BootstrapOption, TimeoutOption
from penstock.cli.output import Output, OutputOption, show_json
from penstock.cli.sandbox_place import HOME

if TYPE_CHECKING:
    from penstock.client.client import Client


def info(
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    directory: AnyDirOption = HOME,
    timeout: TimeoutOption = TIMEOUT_S,
) -> None:
    """Show which cluster commands find, and its size."""
    place = find_at(bootstrap, directory)

    async def work(client: "Client") -> dict[str, Any]:
        found = await client.admin.describe_cluster()
        topics = await client.admin.list_topics(with_internal=True)
        parts = [part for topic in topics for part in topic.partitions]
        return {
            "cluster_id": found.cluster_id,
            "bootstrap": place.bootstrap,
            "source": place.source,
            "brokers": [each.node_id for each in found.brokers],
            "fenced": [each.node_id for each in found.fenced],
            "topics": sum(not topic.is_internal for topic in topics),
            "internal_topics": sum(topic.is_internal for topic in topics),
            "partitions": len(parts),
            "replicas": sum(len(part.replicas) for part in parts),
            "without_leader": sum(part.leader < 0 for part in parts),
        }

    found = run_at(place, timeout, work)
    if output is Output.JSON:
        show_json(found)
        return
    width = max(map(len, found))
    for name, value in found.items():
        shown = ", ".join(map(str, value)) or "-" if isinstance(value, list) else value
        typer.echo(f"{name.replace('_', ' '):<{width}}  {shown}")
