"""Nodes have connection slots of their own: clients that take all other slots do not stop replication."""

import asyncio
from contextlib import suppress
from dataclasses import replace

import pytest

from penstock.model.limits import DEFAULT_LIMITS, Limits
from penstock.server.node import Node
from penstock.server.settings import ListenerSettings, NodeSettings
from penstock.simulator.node import Ports
from penstock.simulator.world import World
from penstock.wire.headers import request_frame
from penstock.wire.messages.api_versions import ApiVersionsRequest
from penstock.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from penstock.wire.messages.fetch import FetchRequest, ReplicaState
from penstock.wire.messages.metadata import MetadataRequest
from tests.simulation.three_servers.world import NODES, PORT, settings_for
from tests.unit.server.replicated_topic import ends, make_topic, placed, publish
from tests.unit.server.shell import Peer, told
from tests.unit.server.town import Town, cluster_of, tell

FEW = Limits(connections_max=3, probation_connections_max=4)
PING = bytes(request_frame(ApiVersionsRequest(client_software_name="c", client_software_version="1"), 3, 1, "c"))
METADATA = bytes(request_frame(MetadataRequest(topics=()), 12, 2, "c"))


def fetch(broker_id: int, epoch: int, wait_ms: int = 0) -> bytes:
    state = ReplicaState(replica_id=broker_id, replica_epoch=epoch)
    request = FetchRequest(replica_state=state, max_wait_ms=wait_ms, min_bytes=1, topics=())
    return bytes(request_frame(request, 17, 3, "replica"))


class Place:
    """A node, and connections to it."""

    def __init__(self, node: Node, ports: Ports) -> None:
        self.node = node
        self.ports = ports

    @property
    def epoch(self) -> int:
        """The broker epoch of the node, which only the node itself receives."""
        return self.node.member.controller.image.brokers[0].epoch

    async def connect(self) -> Peer:
        host, _, port = self.node.address.rpartition(":")
        return Peer(await self.ports.network.connect(host, int(port)))

    async def fill(self, count: int = 3) -> list[Peer]:
        """Connects clients that take all slots for clients."""
        peers = [await self.connect() for _ in range(count)]
        for peer in peers:
            await peer.send(PING)
            assert await peer.receive() is not None
        return peers


def running(story, limits: Limits = FEW) -> None:  # type: ignore[no-untyped-def]
    ended: list[bool] = []

    async def main(ports: Ports) -> None:
        node = Node(ports, NodeSettings("test", listeners=(ListenerSettings(port=0),), limits=limits))
        await node.start()
        await story(Place(node, ports))
        await node.stop()
        assert len(node.listeners.doors["PLAINTEXT"][0]) == 0
        ended.append(True)

    with World(1) as world:
        world.add("a", main)
        world.start("a")
        for _ in range(20):
            world.run(5.0)
            if ended:
                return
        raise AssertionError("the story has no end")


def test_a_follower_is_let_in_when_clients_have_taken_all_connections() -> None:
    async def story(place: Place) -> None:
        await place.fill()
        follower = await place.connect()
        await follower.send(PING)
        assert await follower.receive() is not None
        for _ in range(3):
            await follower.send(fetch(0, place.epoch))
            assert await follower.receive() is not None
        await asyncio.sleep(10)
        await follower.send(METADATA)
        assert await follower.receive() is not None, "it may ask anything from then on"
        assert place.node.listeners.doors["PLAINTEXT"][0].refused == 0

    running(story)


@pytest.mark.parametrize("request_", [METADATA, fetch(0, 77), fetch(-1, -1), fetch(5, 1)])
def test_a_client_beyond_the_limit_is_closed_at_its_first_request(
    request_: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(place: Place) -> None:
        await place.fill()
        client = await place.connect()
        await client.send(PING)
        assert await client.receive() is not None
        await client.send(request_)
        with suppress(ConnectionError):
            await client.receive()
            assert await client.receive() is None
        await asyncio.sleep(0.1)
        assert place.node.listeners.doors["PLAINTEXT"][0].refused == 1
        assert len(place.node.listeners.doors["PLAINTEXT"][0]) == 3

    running(story)
    (sentence,) = told(caplog)
    assert "Refused a connection" in sentence
    assert "3 are open; close some, or raise connections_max" in sentence


def test_a_connection_that_says_nothing_is_closed_soon() -> None:
    async def story(place: Place) -> None:
        await place.fill()
        client = await place.connect()
        began_s = asyncio.get_running_loop().time()
        assert await client.receive() is None
        assert 1.0 < asyncio.get_running_loop().time() - began_s < 4.0

    running(story)


def test_the_oldest_on_probation_makes_room() -> None:
    async def story(place: Place) -> None:
        await place.fill()
        silent = [await place.connect() for _ in range(4)]
        await asyncio.sleep(0.01)
        follower = await place.connect()
        await follower.send(fetch(0, place.epoch))
        assert await follower.receive() is not None
        assert await silent[0].receive() is None
        await asyncio.sleep(0.01)
        assert len(place.node.listeners.doors["PLAINTEXT"][0]) == 3 + 3 + 1

    running(story)


def test_a_follower_takes_no_slot_of_clients() -> None:
    async def story(place: Place) -> None:
        followers = [await place.connect() for _ in range(3)]
        for follower in followers:
            await follower.send(fetch(0, place.epoch))
            assert await follower.receive() is not None
        clients = await place.fill()
        await clients[0].send(METADATA)
        assert await clients[0].receive() is not None
        for peer in (*followers, *clients):
            peer.close()
        await asyncio.sleep(1)
        clients = await place.fill()
        assert len(place.node.listeners.doors["PLAINTEXT"][0]) == 3

    running(story)


def test_slots_of_nodes_are_bounded_too() -> None:
    async def story(place: Place) -> None:
        followers = [await place.connect() for _ in range(2)]
        for follower in followers:
            await follower.send(fetch(0, place.epoch))
            assert await follower.receive() is not None
        await place.fill()
        beyond = await place.connect()
        await beyond.send(fetch(0, place.epoch))
        assert await beyond.receive() is None
        followers[0].close()
        await asyncio.sleep(0.1)
        again = await place.connect()
        await again.send(fetch(0, place.epoch))
        assert await again.receive() is not None

    running(story, replace(FEW, peer_connections_max=2))


def test_large_frames_wait_until_it_is_known_who_sends_them() -> None:
    async def story(place: Place) -> None:
        await place.fill()
        client = await place.connect()
        await client.send((200_000).to_bytes(4, "big") + fetch(0, place.epoch)[4:])
        assert await client.receive() is None

    running(story)


def test_a_flood_of_clients_does_not_keep_a_follower_from_coming_back() -> None:
    """Clients used to take every free slot at once, and a returning follower was never in sync again."""

    def settings(node_id: int) -> NodeSettings:
        return replace(settings_for(node_id), limits=replace(DEFAULT_LIMITS, connections_max=12))

    async def story(town: Town) -> None:
        await make_topic(town)
        cluster = cluster_of(town)
        await publish(cluster, 10)
        leader = placed(town).leader
        assert town.ports is not None
        network = town.ports.network

        async def flood(node_id: int) -> None:
            while True:
                with suppress(OSError, EOFError):
                    peer = Peer(await network.connect(f"node-{node_id}", PORT))
                    await peer.send(PING)
                    while await peer.receive() is not None:
                        pass
                await asyncio.sleep(0.005)

        flooding = [asyncio.create_task(flood(node_id)) for node_id in NODES for _ in range(30)]
        await asyncio.sleep(1)
        assert all(len(node.listeners.doors["PLAINTEXT"][0]) >= 12 for node in town.nodes.values())
        follower = next(node_id for node_id in NODES if node_id != leader)
        town.kill(follower)
        await town.until(lambda: follower not in placed(town).isr)
        town.start(follower)
        took = await town.until(lambda: follower in town.nodes and sorted(placed(town).isr) == list(NODES))
        assert took < 15
        for task in flooding:
            task.cancel()
        await asyncio.gather(*flooding, return_exceptions=True)
        await asyncio.sleep(1)
        assert ends(town) == [10, 10, 10]
        await cluster.close()

    tell(story, settings)


def test_a_broker_shows_itself_to_controllers_by_its_epoch() -> None:
    async def story(town: Town) -> None:
        controller = next(node for node in town.nodes.values() if node.member.controller.is_active)
        listener = controller.listeners.controllers
        assert listener is not None
        assert len(listener._peers) >= 2, "the other nodes"
        assert town.ports is not None
        port = controller.controller_address.rpartition(":")[2]
        client = Peer(await town.ports.network.connect(f"node-{controller.settings.node_id}", int(port)))
        before = len(listener._peers)
        heartbeat = BrokerHeartbeatRequest(
            broker_id=1, broker_epoch=12345, current_metadata_offset=0, want_fence=False, want_shut_down=False
        )
        await client.send(bytes(request_frame(heartbeat, 1, 1, "c")))
        assert await client.receive() is not None
        assert len(listener._peers) == before
        client.close()

    tell(story)
