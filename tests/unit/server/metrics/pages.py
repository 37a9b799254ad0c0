"""The metrics pages of all nodes of a town, parsed and added up."""

from dataclasses import replace

from penstock.client.bootstrap import Address
from penstock.server.node import Node
from penstock.server.settings import NodeSettings
from tests.simulation.three_servers.world import settings_for
from tests.unit.server.metrics.exposition import Told, read
from tests.unit.server.town import Town


def watched(node_id: int) -> NodeSettings:
    return replace(settings_for(node_id), metrics=Address("", 9644))


async def told_by(node: Node) -> Told:
    assert node._gathering is not None
    return read(b"".join(await node._gathering.page()).decode())


async def told(town: Town) -> dict[int, Told]:
    return {node_id: await told_by(node) for node_id, node in sorted(town.nodes.items())}


def together(pages: dict[int, Told], name: str) -> float:
    return sum(page.sum(name) for page in pages.values() if name in page.values)
