"""Operators' requests to three whole nodes on virtual time: health checks, and reassignment."""

import asyncio
from dataclasses import replace

import pytest

from penstock.cli.cluster.state import survey
from penstock.cli.reassign.watch import standings
from penstock.client.admin.features import Levels
from penstock.client.errors import Refused
from penstock.client.metadata import TopicPartition
from penstock.model.errors import ErrorCode
from penstock.server.settings import SUPPORTED_FEATURES, Feature, NodeSettings
from tests.simulation.three_servers.world import NODES, settings_for
from tests.unit.server.checkups import complaints
from tests.unit.server.replicated_topic import TOPIC, make_topic, placed, publish
from tests.unit.server.town import Town, client_of, cluster_of, tell


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
            await asyncio.sleep(10)  # a leader without followers resigns
            assert "no majority" in complaints(await survey(client))["controller"]
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


# --- features ---------------------------------------------------------------------------------------------------------

OLD = (Feature("metadata.version", 7, 28, 28),)
NEW = (Feature("metadata.version", 7, 29, 29), Feature("eligible.leader.replicas.version", 0, 1, 1))


def an_old_node(node_id: int) -> NodeSettings:
    return replace(settings_for(node_id), features=OLD)


async def restart_with(town: Town, node_id: int, features: tuple[Feature, ...]) -> None:
    town.kill(node_id)
    town.settings[node_id] = replace(town.settings[node_id], features=features)
    town.start(node_id)
    await town.until(lambda: node_id in town.nodes)


def test_a_level_is_raised_when_every_node_knows_it_and_not_before() -> None:
    async def story(town: Town) -> None:
        async with client_of(town) as client:
            for node_id in NODES:
                found = await client.admin.describe_features()
                assert found.in_force == {"metadata.version": 28}
                assert found.common("metadata.version") == Levels(7, 28)
                with pytest.raises(Refused, match=r"(Broker|Controller) \d supports 7-28; upgrade it first"):
                    await client.admin.raise_features({"metadata.version": 29})
                await restart_with(town, node_id, NEW)
                await town.all_serve()
            await town.until(
                lambda: all(
                    controller.features[0].max_supported_version == 29
                    for controller in town.nodes[1].member.controller.image.controllers.values()
                )
            )
            levels = {"metadata.version": 29, "eligible.leader.replicas.version": 1}
            await client.admin.raise_features(levels, validate_only=True)
            assert (await client.admin.describe_features()).in_force == {"metadata.version": 28}
            await client.admin.raise_features(levels)
            found = await client.admin.describe_features()
            assert (found.in_force, sorted(found.nodes), found.silent) == (levels, [1, 2, 3], {})
            with pytest.raises(Refused, match="to lower it, ask for a downgrade"):
                await client.admin.raise_features({"metadata.version": 28})
            await client.admin.lower_features({"eligible.leader.replicas.version": 0})
            await town.until(lambda: town.nodes[1].member.controller.image.features == {"metadata.version": 29})

    tell(story, an_old_node)


def test_a_node_that_does_not_know_what_is_in_force_says_what_it_lacks() -> None:
    async def story(town: Town) -> None:
        await restart_with(town, 2, OLD)
        async with asyncio.timeout(20):
            while not town.failures:
                await asyncio.sleep(0.01)
        (said,) = town.failures
        assert "upgrade this node" in said
        assert "metadata.version is at level 29, and 7-28 are known here" in said
        assert "eligible.leader.replicas.version is at level 1, and not known here" in said
        assert "group.version is at level 1, and not known here" in said
        town.kill(2)
        async with client_of(town) as client:
            await asyncio.sleep(1)
            found = await client.admin.describe_features()
            assert (sorted(found.nodes), sorted(found.silent)) == ([1, 3], [2])
        town.failures.clear()
        town.settings[2] = replace(town.settings[2], features=SUPPORTED_FEATURES)
        town.start(2)
        await town.all_serve()

    tell(story)
