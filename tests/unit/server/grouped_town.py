"""A town that coordinates consumer groups on a topic with six partitions."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

from penstock.client.cluster import Cluster
from penstock.metadata.settings.layers import BrokerSettings
from penstock.model.errors import ErrorCode
from penstock.server.groups.group_shard import DrivenShard
from penstock.server.node import Node
from penstock.server.settings import NodeSettings
from tests.simulation.three_servers.world import settings_for
from tests.unit.server.town import Town, cluster_of, tell

TOPIC: Final = "orders"
PARTITIONS: Final = 6
SHARDS: Final = 4
NONE: Final = ErrorCode.NONE
SETTINGS: Final = {
    "offsets.topic.num.partitions": str(SHARDS),
    "group.initial.rebalance.delay.ms": "100",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.assignment.interval.ms": "0",
    "min.insync.replicas": "2",
}


def settings_of(node_id: int) -> NodeSettings:
    settings = settings_for(node_id)
    return replace(settings, broker=BrokerSettings({**settings.broker.static, **SETTINGS}))


def run(story: Callable[[Town, Cluster], Awaitable[None]]) -> None:
    async def whole(town: Town) -> None:
        cluster = cluster_of(town)
        await town.admin(1).create_topic(TOPIC, PARTITIONS, 3)
        try:
            await story(town, cluster)
        finally:
            await cluster.close()

    tell(whole, settings_of)


async def coordinator_of(town: Town, cluster: Cluster, group_id: str) -> tuple[Node, DrivenShard]:
    node = town.nodes[await cluster.coordinator(group_id)]
    shard, code = node.broker.groups.place(group_id)
    assert shard is not None, code
    return node, shard
