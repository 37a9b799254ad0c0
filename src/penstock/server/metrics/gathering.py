"""Runs all collectors of a node, which fill the metrics page on request.

Gathering takes turns with everything else the node does. Requests that arrive while it is under way get the same page,
so concurrent scrapes cost no more than one.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from penstock.client.ports import ClientPorts
from penstock.model.ports import Footprint
from penstock.server.broker import Broker
from penstock.server.connections.listeners import Listeners
from penstock.server.groups.group_lag import LagSurvey
from penstock.server.loop.stall import StallMeter
from penstock.server.metrics.collector import Collector
from penstock.server.metrics.controller import ControllerCollector, ElectionNews
from penstock.server.metrics.doors import DoorCollector
from penstock.server.metrics.groups import GroupCollector
from penstock.server.metrics.logs import LogCollector
from penstock.server.metrics.page import Page
from penstock.server.metrics.process import ProcessCollector
from penstock.server.metrics.quorum import QuorumCollector
from penstock.server.metrics.replicas import InSyncNews, ReplicaCollector
from penstock.server.metrics.topics import TopicCollector
from penstock.server.ports import Ports
from penstock.server.quorum_member import QuorumMember
from penstock.server.settings import NodeSettings
from penstock.server.storage import Storage

COLLECTORS: Sequence[type[Collector]] = (
    ProcessCollector,
    DoorCollector,
    TopicCollector,
    ReplicaCollector,
    LogCollector,
    QuorumCollector,
    ControllerCollector,
    GroupCollector,
)
"""One per area, in the order of the page."""


class Gathering:
    """See the module."""

    def __init__(self, collectors: Sequence[Collector], on_stop: Callable[[], Awaitable[None]] | None = None) -> None:
        self._collectors = collectors
        self._on_stop = on_stop
        self._under_way: asyncio.Task[Sequence[bytes]] | None = None

    async def page(self) -> Sequence[bytes]:
        """The page in pieces."""
        task = self._under_way
        if task is None:
            task = self._under_way = asyncio.get_running_loop().create_task(self._gather())
            task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    async def stop(self) -> None:
        """Cancels a gathering that is under way."""
        if self._under_way is not None:
            self._under_way.cancel()
            await asyncio.gather(self._under_way, return_exceptions=True)
        if self._on_stop is not None:
            await self._on_stop()

    def _ended(self, task: "asyncio.Task[Sequence[bytes]]") -> None:
        self._under_way = None
        if not task.cancelled():
            task.exception()  # marked as retrieved: the waiting requests raise it

    async def _gather(self) -> Sequence[bytes]:
        page = Page()
        for collector in self._collectors:
            await collector.prepare()
            for _ in collector.collect(page):
                await asyncio.sleep(0)
        pieces = []
        for piece in page.pieces():
            pieces.append(piece)
            await asyncio.sleep(0)
        return pieces


def gathering_of(
    storage: Storage,
    member: QuorumMember,
    broker: Broker,
    listeners: Listeners,
    ports: Ports,
    settings: NodeSettings,
    stalls: StallMeter,
    footprint: Callable[[], Footprint] | None,
) -> Gathering:
    """Constructs the gathering of a node; its counters follow new images from now on."""
    controller, partitions, directory = member.controller, broker.partitions, storage.directory
    in_sync, elections = InSyncNews(controller.node_id), ElectionNews(controller)
    controller.subscribe(in_sync.learn)
    controller.subscribe(elections.learn)

    def most() -> int:
        return controller.settings.number("metrics.partitions.max")

    client_ports = ClientPorts(ports.network, ports.clock, ports.entropy)
    between = settings.inter_broker_listener
    own_address = listeners.client_addresses.get(between, listeners.address)
    survey = LagSurvey(broker.groups, controller, client_ports, between, own_address, most)
    return Gathering(
        (
            ProcessCollector(settings.cluster_id, controller.node_id, stalls, ports.clock, footprint),
            DoorCollector(listeners.doors, listeners.pool, listeners.large_pool),
            TopicCollector(partitions.traffic, most),
            ReplicaCollector(partitions, directory, controller, in_sync, most),
            LogCollector(directory, settings.data_path, storage.rounds.timing, most),
            QuorumCollector(member.quorum, controller, ports.clock),
            ControllerCollector(controller, partitions, elections, most),
            GroupCollector(survey, ports.clock),
        ),
        survey.stop,
    )
