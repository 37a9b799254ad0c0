"""The worlds of `replicating_servers` with durability=replicated: acknowledged data is in page caches, not on disks.

kills     No machine loses power; wherever `replicating_servers` cuts the power, the process is killed instead. Nothing
          may be lost, and after any kills, all nodes at once included, all partitions accept writes in the end.
single    Power is cut as long as all other replicas have everything (`min.insync.replicas` - 1 lossy crashes); else the
          process is killed. The same must hold.
wide      As `single`, and in the end all machines lose power at once, which is more than is tolerated. Partitions that
          may have lost records have no leader, and brokers report so, until an operator elects a leader uncleanly; all
          lost records are after the offset that the new leader reports. Everything written afterwards is there.
"""

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from penstock.client.admin.admin import Admin
from penstock.client.cluster import Cluster
from penstock.client.errors import ClientError
from penstock.client.metadata import TopicPartition
from penstock.client.ports import ClientPorts
from penstock.metadata.image import NO_LEADER, Image, Partition
from penstock.records.header import BatchView
from penstock.records.rows import rows
from penstock.server.node import Node
from penstock.simulator.node import Ports
from penstock.simulator.world import World
from tests.simulation.replicating_servers.world import (
    PARTITIONS,
    READERS,
    TOPIC,
    WRITERS,
    Acknowledged,
    Run,
    Theatre,
    read_batches,
)
from tests.simulation.three_servers.world import NODES, PORT, Broken, options_for, silence

KILLS: Final = "kills"
SINGLE: Final = "single"
WIDE: Final = "wide"
POWER_CUTS: Final = "power cuts"
LOST: Final = "records lost and reported"
OPERATOR: Final = "operator"
SETTLE_S: Final = 4.0
"""The time after a power cut of all nodes until every replica that can lead does."""
REPORT: Final = re.compile(rf"Records of {TOPIC}-(\d+) may be lost: .*from offset (\d+) on")
UNLED: Final = re.compile(rf"Records of {TOPIC}-(\d+) may be lost, and nobody leads it")


class CarefulWorld(World):
    """Cuts the power only as far as tolerated, and kills the process otherwise."""

    may_lose: Callable[[str], bool] = staticmethod(lambda _name: False)

    def cut_power(self, name: str) -> None:
        if self.may_lose(name):
            super().cut_power(name)
        else:
            self.kill(name)


class Reports(logging.Handler):
    """Collects the brokers' log messages about losses."""

    def __init__(self) -> None:
        super().__init__()
        self.unled: set[int] = set()
        self.lost_from: dict[int, int] = {}
        """By partition: the lowest offset from which on records may be lost."""

    def emit(self, record: logging.LogRecord) -> None:
        line = record.getMessage()
        if found := UNLED.match(line):
            self.unled.add(int(found[1]))
        if found := REPORT.match(line):
            index, offset = int(found[1]), int(found[2])
            self.lost_from[index] = min(offset, self.lost_from.get(index, offset))


class PageCacheTheatre(Theatre):
    """See the module."""

    def __init__(self, world: CarefulWorld, crashes: str, reports: Reports) -> None:
        super().__init__(world, "replicated")
        self._crashes = crashes
        self._reports = reports
        self._cut: dict[int, Node | None] = {}
        """Nodes that lost power and may still lack records, with their life before."""
        self.power_cuts = 0
        world.may_lose = self._may_lose
        self._is_dark = False
        self._acknowledged_before: list[list[Acknowledged]] | None = None
        """By writer, as of the power cut of all machines."""
        self._unled: list[int] = []
        self.lost = 0
        """Acknowledged records that are lost, all of them reported."""

    # --- which machines may lose power ------------------------------------------------------------------------------

    def _may_lose(self, name: str) -> bool:
        victim = next(node_id for node_id, each in self.names.items() if each == name)
        if self._crashes == KILLS or self._is_dark:
            return self._is_dark
        if not all(self._is_whole(node_id) for node_id in NODES if node_id != victim):
            return False
        self._cut[victim] = self.servers[victim].node
        self.power_cuts += 1
        return True

    def _is_whole(self, node_id: int) -> bool:
        """Whether this node certainly holds everything that it ever acknowledged."""
        node, is_up = self.servers[node_id].node, self.world.nodes[self.names[node_id]].life is not None
        if node_id in self._cut:
            if node is None or node is self._cut[node_id] or not is_up or not self._is_in_sync(node_id, node):
                return False
            del self._cut[node_id]
        if node is None or node.storage.directory.pool.boot.has_failed:
            return False
        return node.storage.directory.pool.boot.is_kept or self._is_in_sync(node_id, node)

    def _is_in_sync(self, node_id: int, node: Node) -> bool:
        image = self._newest_image()
        broker = image.brokers.get(node_id)
        if broker is None or node.broker.membership.epoch != broker.epoch:
            return False
        partitions = _partitions_of(image)
        return len(partitions) == PARTITIONS and all(node_id in placed.isr for placed in partitions.values())

    def _newest_image(self) -> Image:
        nodes = [server.node for server in self.servers.values() if server.node is not None]
        return max((node.member.controller for node in nodes), key=lambda controller: controller.position).image

    # --- all machines lose power ------------------------------------------------------------------------------------

    def _black_out(self) -> None:
        if self._crashes != WIDE:
            super()._black_out()
            return
        self._is_dark = True
        for name in (*WRITERS, *READERS):  # they would fail on lost records; others write afterwards
            self.world.kill(name)
        super()._black_out()

    def _run(self, seconds: float) -> None:
        if not self._is_dark:
            super()._run(seconds)
            return
        self._is_dark = False
        self._shown = {index: {} for index in range(PARTITIONS)}
        self._seen.clear()
        self._acknowledged_before = [list(writer.acknowledged) for writer in self.writers]
        super()._run(SETTLE_S)
        self._check_reports()
        if self._unled:
            self.world.add(OPERATOR, self._elect)
            self.world.start(OPERATOR)
        for name in WRITERS:
            self.world.start(name)
        super()._run(seconds)

    def _check_reports(self) -> None:
        partitions = _partitions_of(self._newest_image())
        self._unled = [index for index, placed in partitions.items() if placed.leader == NO_LEADER]
        for index in self._unled:
            placed = partitions[index]
            if placed.isr or placed.eligible_leader_replicas or not placed.last_known_elr:
                raise Broken(f"Convergence: nobody leads {index}, and nobody has lost anything: {placed}")
            if index not in self._reports.unled:
                raise Broken(f"Reported: nobody leads {index}, and nobody says that records may be lost")

    async def _elect(self, ports: Ports) -> None:
        options = ClientPorts(ports.network, ports.clock, ports.entropy)
        bootstrap = [f"node-{node_id}:{PORT}" for node_id in NODES]
        cluster = Cluster(bootstrap, ports=options, request_timeout_ms=2_000, connect_timeout_ms=500)
        places = [TopicPartition(TOPIC, index) for index in self._unled]
        for _ in range(5):
            try:
                await Admin(cluster).elect_leaders(places, is_unclean=True)
                break
            except ClientError:
                continue
        await cluster.close()

    # --- the end ----------------------------------------------------------------------------------------------------

    def _check_end(self) -> int:
        if self._acknowledged_before is None:
            return super()._check_end()
        node = self.servers[NODES[0]].node
        assert node is not None
        for index in range(PARTITIONS):
            self._check_losses(index, node, self._acknowledged_before)
        for writer, before in zip(self.writers, self._acknowledged_before, strict=True):
            del writer.acknowledged[: len(before)]
        for index, reader in enumerate(self.readers):
            reader.offset = node.storage.directory.logs[f"{TOPIC}-{index}"].high_watermark
        return super()._check_end()

    def _check_losses(self, index: int, node: Node, acknowledged: list[list[Acknowledged]]) -> None:
        log = node.storage.directory.logs[f"{TOPIC}-{index}"]
        there = {
            record.offset: record.value
            for batch in read_batches(log, 0, log.written_end)
            for record in rows(BatchView(bytes(batch.whole)), 1 << 20)
        }
        lost = [
            each.offset
            for before in acknowledged
            for each in before
            if each.partition == index and there.get(each.offset) != each.value
        ]
        self.lost += len(lost)
        if lost and min(lost) < self._reports.lost_from.get(index, 1 << 62):
            said = self._reports.lost_from.get(index)
            raise Broken(f"Reported: {index} lost records from offset {min(lost)} on, but was said to from {said} on")


def _partitions_of(image: Image) -> dict[int, Partition]:
    topic = image.topics.get(TOPIC)
    return {} if topic is None else dict(topic.partitions)


@contextmanager
def _reading(reports: Reports) -> Iterator[None]:
    losses = logging.getLogger("penstock.losses")
    before, propagates = losses.level, losses.propagate
    losses.setLevel(logging.ERROR)
    losses.propagate = False
    losses.addHandler(reports)
    try:
        yield
    finally:
        losses.removeHandler(reports)
        losses.setLevel(before)
        losses.propagate = propagates


def run_seed(seed: int, crashes: str = KILLS, *, story: list[str] | None = None) -> Run:
    """Runs one world of twenty virtual seconds."""
    reports = Reports()
    with (
        silence(),
        _reading(reports),
        CarefulWorld(seed, options_for(seed), keeps_trace=story is not None) as world,
    ):
        if story is not None:
            world.trace.kept = story
        theatre = PageCacheTheatre(world, crashes, reports)
        run = theatre.play()
        return run._replace(counts={**run.counts, POWER_CUTS: theatre.power_cuts, LOST: theatre.lost})
