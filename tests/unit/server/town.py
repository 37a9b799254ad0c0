"""Three whole nodes on virtual time, in one process: killed and started by number, with clients."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from penstock.client.admin.admin import Admin
from penstock.client.client import Client
from penstock.client.cluster import Cluster
from penstock.client.ports import ClientPorts
from penstock.server.node import Node
from penstock.server.settings import NodeSettings
from penstock.simulator.node import Ports
from penstock.simulator.world import World
from tests.simulation.three_servers.world import NODES, PORT, settings_for


class Town:
    """Nodes by number, and a client's ports."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.nodes: dict[int, Node] = {}
        self.settings: dict[int, NodeSettings] = {}
        """The settings with which each node starts next."""
        self.failures: list[str] = []
        self.ports: ClientPorts | None = None

    def add(self, settings: NodeSettings) -> None:
        node_id = settings.node_id
        self.settings[node_id] = settings

        async def live(ports: Ports) -> None:
            node = Node(ports, self.settings[node_id], on_failure=self.failures.append)
            await node.start()
            self.nodes[node_id] = node
            await asyncio.get_running_loop().create_future()

        self.world.add(f"node-{node_id}", live)
        self.world.start(f"node-{node_id}")

    def kill(self, node_id: int) -> None:
        self.world.kill(f"node-{node_id}")
        del self.nodes[node_id]

    def start(self, node_id: int) -> None:
        self.world.start(f"node-{node_id}")

    @property
    def leader(self) -> int | None:
        return next((number for number, node in self.nodes.items() if node.member.controller.is_active), None)

    async def until(self, condition: Callable[[], object], limit_s: float = 20.0) -> float:
        """Waits until a condition is true, and returns the elapsed seconds."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        while not condition():
            assert loop.time() - began < limit_s, "never became true"
            assert not self.failures, self.failures
            await asyncio.sleep(0.01)
        return loop.time() - began

    async def all_serve(self, count: int = 3) -> None:
        def is_so() -> bool:
            return len(self.nodes) == count and all(
                node.health.is_serving
                and len([b for b in node.member.controller.image.brokers.values() if not b.is_fenced]) == self.brokers
                for node in self.nodes.values()
            )

        await self.until(is_so)

    @property
    def brokers(self) -> int:
        return sum(node.settings.membership.is_broker for node in self.nodes.values())

    def admin(self, node_id: int) -> Admin:
        assert self.ports is not None
        return Admin(Cluster(f"node-{node_id}:{PORT}", ports=self.ports, timeout_ms=10_000))


Story = Callable[[Town], Awaitable[None]]


def tell(story: Story, settings: Callable[[int], NodeSettings] = settings_for) -> None:
    """Starts three nodes, then runs the story."""
    ends: list[BaseException | None] = []

    async def main(ports: Ports) -> None:
        town.ports = ClientPorts(ports.network, ports.clock, ports.entropy)
        try:
            await town.all_serve()
            await story(town)
        except BaseException as error:
            ends.append(error)
            raise
        ends.append(None)

    with World(1) as world:
        town = Town(world)
        for node_id in NODES:
            town.add(settings(node_id))
        world.add("client", main, tolerates=(Exception,))
        world.start("client")
        for _ in range(60):
            world.run(2.0)
            if ends:
                break
        assert ends, "the story has no end"
        if ends[0] is not None:
            raise ends[0]


def client_of(town: Town) -> Client:
    return Client([f"node-{node_id}:{PORT}" for node_id in NODES], ports=town.ports, timeout_ms=10_000)


def cluster_of(town: Town, nodes: Sequence[int] = NODES) -> Cluster:
    assert town.ports is not None
    return Cluster([f"node-{node_id}:{PORT}" for node_id in nodes], ports=town.ports, timeout_ms=20_000)
