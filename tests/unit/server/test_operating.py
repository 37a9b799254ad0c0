"""What operators ask of three whole nodes on virtual time: how they are, and to move what they have."""

import asyncio

from penstock.cli.cluster_checkups import health_findings
from penstock.cli.cluster_state import ClusterState, survey
from penstock.cli.reassign_watch import standings
from penstock.client.client import Client
from penstock.client.errors import Refused
from penstock.client.metadata import TopicPartition
from penstock.model.errors import ErrorCode
from tests.simulation.servers_world import NODES, PORT
from tests.unit.server.test_cluster import Town, tell
from tests.unit.server.test_replication import TOPIC, cluster_of, make_topic, placed, publish


def client_of(town: Town) -> Client:
    return Client([f"node-{node_id}:{PORT}" for node_id in NODES], ports=town.ports, timeout_ms=10_000)


def complaints(state: ClusterState) -> dict[str, str]:
    return {each.check: each.found for each in health_findings(state) if not each.is_well and each.check != "disk"}


def test_a_killed_broker_is_seen_and_so_is_that_it_came_back() -> None:
    async def story(town: Town) -> None:
        await make_topic(town)
        async with client_of(town) as client:
            state = await survey(client)
            assert complaints(state) == {}
            assert sorted(state.log_dirs) == list(NODES)
            town.kill(2)
            await town.until(lambda: placed(town).isr == (1, 3))
            found = complaints(await survey(client))
            assert "broker 2 is down, and fenced" in found["broker"]
            assert f"1 partition is behind on broker 2: {TOPIC}[0]" in found["replicas"]
            town.kill(3)
            await asyncio.sleep(10)  # a leader that nobody hears resigns
            assert "no controller is active" in complaints(await survey(client))["controller"]
            for node_id in (2, 3):
                town.start(node_id)
            await town.until(lambda: len(placed(town).isr) == 3)
            assert complaints(await survey(client)) == {}

    tell(story)


def test_partitions_move_where_they_are_sent_and_nowhere_else() -> None:
    async def story(town: Town) -> None:
        await make_topic(town, (1, 2))
        cluster = cluster_of(town)
        await publish(cluster, 50)
        partition, unknown = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 9)
        async with client_of(town) as client:
            done = await client.admin.alter_reassignments({partition: (2, 3), unknown: (1,)})
            assert done[partition] is None
            refused = done[unknown]
            assert isinstance(refused, Refused)
            assert refused.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            for each in await standings(client):
                assert (each.moving.target, each.moving.adding, each.moving.removing) == ((2, 3), (3,), (1,))
                assert each.size_bytes > 0
            await town.until(lambda: placed(town).replicas == (2, 3))
            assert await client.admin.list_reassignments() == []
            assert await standings(client) == []
        await cluster.close()

    tell(story)
