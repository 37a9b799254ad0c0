"""All collectors of a node, and the page that they fill together when somebody looks.

Gathering takes turns with everything else the node does. Whoever comes while it is under way gets the same page, so
many who look cost no more than one.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from penstock.client.ports import ClientPorts
from penstock.model.ports import Footprint
from penstock.server.group_lag import LagSurvey
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
from penstock.server.timing import Timing

if TYPE_CHECKING:
    from penstock.server.node import Node

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
"""One per room, in the order of the page."""


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
        """Ends what is under way."""
        if self._under_way is not None:
            self._under_way.cancel()
            await asyncio.gather(self._under_way, return_exceptions=True)
        if self._on_stop is not None:
            await self._on_stop()

    def _ended(self, task: "asyncio.Task[Sequence[bytes]]") -> None:
        self._under_way = None
        if not task.cancelled():
            task.exception()  # whoever waited has it

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


def gathering_of(node: "Node", commits: Timing, footprint: Callable[[], Footprint] | None) -> Gathering:
    """That of a node whose parts are put together; it follows the cluster's images from now on."""
    controller, partitions = node.controller, node.partitions
    in_sync, elections = InSyncNews(controller.node_id), ElectionNews(controller)
    controller.subscribe(in_sync.learn)
    controller.subscribe(elections.learn)

    def most() -> int:
        return controller.settings.number("metrics.partitions.max")

    ports = ClientPorts(node.network, node.clock, node.entropy)
    survey = LagSurvey(node.groups, controller, ports, lambda: node.address, most)
    return Gathering(
        (
            ProcessCollector(node.cluster_id, controller.node_id, node.stalls, node.clock, footprint),
            DoorCollector(node.doors, node.pool, node.large_pool),
            TopicCollector(partitions.traffic, most),
            ReplicaCollector(partitions, node.directory, controller, in_sync, most),
            LogCollector(node.directory, node.data_path, commits, most),
            QuorumCollector(node.quorum, controller, node.clock),
            ControllerCollector(controller, partitions, elections, most),
            GroupCollector(survey, node.clock),
        ),
        survey.stop,
    )
