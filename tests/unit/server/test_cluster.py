"""Three whole nodes on virtual time: elections, registration, and requests forwarded to the controller."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from penstock.client.admin.configs import ConfigKind
from penstock.client.bootstrap import Address
from penstock.client.errors import Refused
from penstock.metadata.image import Image
from penstock.metadata.runtime import NotController
from penstock.model.errors import ErrorCode
from penstock.server.connections.codec_worker import CodecWorker
from penstock.server.connections.serving import Call, Client
from penstock.server.node import Node
from penstock.server.settings import Membership, NodeSettings
from penstock.wire.api import Api
from penstock.wire.messages import broker_registration as registering
from penstock.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from penstock.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse
from tests.simulation.three_servers.world import CONTROLLER_PORT, NODES, settings_for
from tests.unit.server.town import Town, tell

SESSION_S = 3.0


def test_a_topic_made_through_any_node_is_known_to_that_node_at_once_and_to_all_soon() -> None:
    async def story(town: Town) -> None:
        for node_id in NODES:
            await town.admin(node_id).create_topic(f"t{node_id}", 6, 3)
            assert f"t{node_id}" in town.nodes[node_id].member.controller.image.topics
        took = await town.until(
            lambda: all(len(node.member.controller.image.topics) == 3 for node in town.nodes.values())
        )
        assert took < 0.2
        image = town.nodes[1].member.controller.image
        assert [node.member.controller.image.topics["t1"] for node in town.nodes.values()] == [image.topics["t1"]] * 3
        leaders = [placed.leader for placed in image.topics["t1"].partitions.values()]
        assert sorted(leaders) == [1, 1, 2, 2, 3, 3]
        for node_id, node in town.nodes.items():
            led = [index for index in range(6) if node.broker.partitions.named("t1", index) is not None]
            assert led == [index for index, leader in enumerate(leaders) if leader == node_id]
        await town.admin(1).delete_topic("t2")
        assert "t2" not in town.nodes[1].member.controller.image.topics
        with pytest.raises(Refused, match="TOPIC_ALREADY_EXISTS"):
            await town.admin(2).create_topic("t1", 1, 1)

    tell(story)


def test_a_broker_passes_large_requests_on_with_the_help_of_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    for name in ("encode_request", "decode_response"):
        monkeypatch.setattr(CodecWorker, name, noted(getattr(CodecWorker, name), name, done))

    async def story(town: Town) -> None:
        broker = next(node for node_id, node in town.nodes.items() if node_id != town.leader)
        client = Client(routes=broker.dispatch.routes, number=1)
        call = Call(Api.DELETE_TOPICS, 6, 7, "me", "127.0.0.1:1", "", client)
        for count, used in ((100, []), (3_000, ["encode_request", "decode_response"])):
            names = [DeleteTopicState(name=f"nothing-{n}", topic_id=bytes(16)) for n in range(count)]
            request = DeleteTopicsRequest(topics=names, timeout_ms=10_000)
            response = cast("DeleteTopicsResponse", await broker.channel.forward_envelope(request, call))
            assert [each.name for each in response.responses] == [each.name for each in names]
            assert done == used

    tell(story)


def noted(original: Callable[..., Awaitable[Any]], name: str, done: list[str]) -> Callable[..., Awaitable[Any]]:
    async def work(*arguments: Any) -> Any:
        done.append(name)
        return await original(*arguments)

    return work


def test_a_killed_broker_is_fenced_long_before_its_session_is_over() -> None:
    """Its connection ends, the controller connects to its address, and the port is closed."""

    async def story(town: Town) -> None:
        leader = town.leader
        victim = next(node_id for node_id in NODES if node_id != leader)
        town.kill(victim)
        assert leader is not None
        took = await town.until(lambda: town.nodes[leader].member.controller.image.brokers[victim].is_fenced)
        assert took < SESSION_S / 5

    tell(story)


def test_a_broker_that_falls_silent_is_fenced_when_its_session_is_over() -> None:
    async def story(town: Town) -> None:
        leader = town.leader
        assert leader is not None
        victim = next(node_id for node_id in NODES if node_id != leader)
        town.world.pause(f"node-{victim}")
        took = await town.until(lambda: town.nodes[leader].member.controller.image.brokers[victim].is_fenced)
        assert SESSION_S - 1 < took < SESSION_S + 1
        town.world.resume(f"node-{victim}")
        await town.until(lambda: not town.nodes[leader].member.controller.image.brokers[victim].is_fenced)

    tell(story)


def test_another_controller_decides_soon_after_the_leader_is_killed() -> None:
    async def story(town: Town) -> None:
        leader = town.leader
        assert leader is not None
        rest = [node_id for node_id in NODES if node_id != leader]
        town.kill(leader)
        loop = asyncio.get_running_loop()
        began = loop.time()
        await town.admin(rest[0]).create_topic("t", 2, 2)
        assert loop.time() - began < SESSION_S
        town.start(leader)
        await town.until(lambda: leader in town.nodes and "t" in town.nodes[leader].member.controller.image.topics)
        await town.all_serve()

    tell(story)


def test_a_broker_that_died_with_its_controller_is_fenced_by_the_next_one_at_once() -> None:
    async def story(town: Town) -> None:
        leader = town.leader
        assert leader is not None
        town.kill(leader)
        await town.until(lambda: town.leader is not None)
        nodes = town.nodes.values()
        took = await town.until(lambda: all(node.member.controller.image.brokers[leader].is_fenced for node in nodes))
        assert took < SESSION_S / 5

    tell(story)


def test_a_controller_that_stands_still_costs_no_live_broker_its_place() -> None:
    async def story(town: Town) -> None:
        leader = town.leader
        assert leader is not None
        rest = [node_id for node_id in NODES if node_id != leader]
        fenced: list[int] = []

        def watch(node: Node) -> None:
            def look(_changes: object, image: Image) -> None:
                fenced.extend(node_id for node_id in rest if image.brokers[node_id].is_fenced)

            node.member.controller.subscribe(look)

        for node_id in rest:
            watch(town.nodes[node_id])
        town.world.pause(f"node-{leader}")
        await town.until(lambda: any(town.nodes[node_id].member.controller.is_active for node_id in rest))
        await asyncio.sleep(3 * SESSION_S)
        assert all(town.nodes[node_id].member.controller.image.brokers[leader].is_fenced for node_id in rest)
        assert not fenced
        town.world.resume(f"node-{leader}")
        await town.all_serve()

    tell(story)


def test_a_node_that_becomes_the_controller_while_it_asks_for_one_needs_no_envelope() -> None:
    async def story(town: Town) -> None:
        assert town.leader is not None
        envelope = EnvelopeRequest(request_data=b"", request_principal=None, client_host_address=bytes(4))
        with pytest.raises(NotController, match="itself"):
            await town.nodes[town.leader].channel.ask(envelope, EnvelopeResponse)

    tell(story)


def test_what_was_answered_is_there_when_all_nodes_have_lost_power() -> None:
    async def story(town: Town) -> None:
        await town.admin(2).create_topic("kept", 3, 3)
        for node_id in NODES:
            town.world.cut_power(f"node-{node_id}")
        town.nodes.clear()
        for node_id in NODES:
            town.start(node_id)
        await town.all_serve()
        assert all("kept" in node.member.controller.image.topics for node in town.nodes.values())

    tell(story)


def test_a_broker_joins_by_the_address_of_one_controller_and_takes_the_cluster_from_a_snapshot() -> None:
    async def story(town: Town) -> None:
        made = 0
        while not all(node.member.quorum.log.start_offset > 0 for node in town.nodes.values()):
            assert made < 200, "nobody takes snapshots"
            await town.admin(1 + made % 3).create_topic(f"t{made}", 1, 1)
            made += 1
        joining = replace(
            settings_for(4),
            membership=Membership(is_controller=False, bootstrap_servers=(Address("node-2", CONTROLLER_PORT),)),
        )
        town.add(joining)
        await town.all_serve(4)
        node = town.nodes[4]
        assert len(node.member.controller.image.topics) == made
        assert node.member.quorum.log.start_offset > 0, "it has not begun with a snapshot"
        await town.admin(4).create_topic("by-the-new-one", 1, 1)
        assert 4 not in node.member.quorum.raft.voters.by_id

    tell(story)


def test_a_node_that_only_is_a_controller_votes_and_decides_and_has_no_topics() -> None:
    def settings(node_id: int) -> NodeSettings:
        plain = settings_for(node_id)
        return replace(plain, membership=replace(plain.membership, is_broker=node_id == 3))

    async def story(town: Town) -> None:
        await town.admin(3).create_topic("t", 3, 1)
        assert sorted(town.nodes[3].member.controller.image.brokers) == [3]
        for node_id in (1, 2):
            await town.until(lambda: "t" in town.nodes[node_id].member.controller.image.topics)  # noqa: B023 - awaited at once
            assert list(town.nodes[node_id].storage.directory.logs) == ["__cluster_metadata-0"]

    tell(story, settings)


def test_settings_of_a_broker_are_changed_through_that_broker_wherever_the_controller_is() -> None:
    async def story(town: Town) -> None:
        changes: dict[str, Any] = {"broker.decommission": "true"}
        for node_id in NODES:
            await town.admin(node_id).alter_configs(ConfigKind.BROKER, str(node_id), changes)
        image = town.nodes[1].member.controller.image
        await town.until(lambda: image is not town.nodes[1].member.controller.image)
        found = await town.admin(2).describe_configs(ConfigKind.BROKER, "2")
        assert found["broker.decommission"].value == "true"

    tell(story)


def test_every_voter_has_told_its_directory_and_every_controller_is_registered() -> None:
    async def story(town: Town) -> None:
        def are_known() -> bool:
            node = town.nodes[1]
            voters = node.member.quorum.raft.voters.by_id
            keys = [voters[node_id].key for node_id in NODES]
            controllers = sorted(node.member.controller.image.controllers)
            return keys == [town.nodes[node_id].member.quorum.key for node_id in NODES] and controllers == [1, 2, 3]

        await town.until(are_known)
        description = await town.admin(3).describe_quorum()
        assert description.leader_id == town.leader
        assert [voter.node_id for voter in description.voters] == [1, 2, 3]
        assert not description.observers

    tell(story)


def test_a_node_hands_over_what_it_leads_before_it_stops() -> None:
    async def story(town: Town) -> None:
        await town.admin(1).create_topic("t", 6, 3)
        leader = town.leader
        assert leader is not None
        other = next(node_id for node_id in NODES if node_id != leader)
        await town.nodes[leader].stop()
        del town.nodes[leader]
        assert await town.until(lambda: town.nodes[other].member.controller.image.brokers[leader].is_fenced) < 0.5
        image = town.nodes[other].member.controller.image
        assert leader not in [placed.leader for placed in image.topics["t"].partitions.values()]
        assert await town.until(lambda: town.leader is not None) < 1.0

    tell(story)


def test_nodes_that_stop_together_do_not_wait_for_somebody_to_take_over() -> None:
    async def story(town: Town) -> None:
        await town.admin(1).create_topic("t", 6, 3)
        loop = asyncio.get_running_loop()
        began = loop.time()
        await asyncio.gather(*(node.stop() for node in town.nodes.values()))
        assert loop.time() - began < SESSION_S + 1

    tell(story, lambda node_id: replace(settings_for(node_id), stop_ms=60_000))


def test_another_node_under_the_number_of_a_live_one_is_kept_out() -> None:
    async def story(town: Town) -> None:
        response = await town.nodes[3].channel.ask(
            registering.BrokerRegistrationRequest(
                broker_id=2,
                cluster_id="simulated",
                incarnation_id=bytes(16),
                listeners=[],
                features=[],
                rack=None,
                log_dirs=[bytes(range(16))],
            ),
            registering.BrokerRegistrationResponse,
        )
        assert response.error_code is ErrorCode.DUPLICATE_BROKER_REGISTRATION

    tell(story)


def test_a_broker_of_another_cluster_is_not_let_in() -> None:
    async def story(town: Town) -> None:
        stranger = replace(
            settings_for(7),
            cluster_id="another",
            membership=Membership(is_controller=False, bootstrap_servers=(Address("node-1", CONTROLLER_PORT),)),
        )
        town.add(stranger)
        await asyncio.sleep(3.0)
        assert 7 not in town.nodes[1].member.controller.image.brokers

    tell(story)
