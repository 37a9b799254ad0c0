"""A node: the composition root that puts ports, logs, partitions and listeners together."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from types import ModuleType
from typing import Protocol

from penstock.log.directory import DataDirectory, open_directory
from penstock.log.log import Log
from penstock.log.settings import DEFAULT_SETTINGS, LogSettings
from penstock.model.ports import Clock, Disk, Entropy, Network, Workers
from penstock.replication.fetch_sessions import FetchSessions
from penstock.server.adoption import Adoption
from penstock.server.advertised import endpoints
from penstock.server.complaints import Complaints
from penstock.server.connection import Service
from penstock.server.controller_runner import ControllerRunner
from penstock.server.dispatch import Dispatch
from penstock.server.group_commit import GroupCommit
from penstock.server.handlers import (
    api_versions,
    configs,
    delete_records,
    describe_cluster,
    describe_configs,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    fetch,
    find_coordinator,
    init_producer_id,
    list_offsets,
    metadata,
    offset_for_leader_epoch,
    produce,
    topics,
)
from penstock.server.input_pool import InputPool
from penstock.server.listener import ConnectionListener
from penstock.server.metadata_answer import TopicPieces
from penstock.server.partition import Partition
from penstock.server.partitions import Partitions
from penstock.server.producer_ids import ProducerIds
from penstock.server.settings import CannotStart, NodeSettings, check_listener
from penstock.server.stall import StallMeter
from penstock.server.upkeep_loop import Upkeep

logger = logging.getLogger("penstock.node")

HANDLERS: Sequence[ModuleType] = (
    api_versions,
    configs,
    delete_records,
    describe_cluster,
    describe_configs,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    fetch,
    find_coordinator,
    init_producer_id,
    list_offsets,
    metadata,
    offset_for_leader_epoch,
    produce,
    topics,
)
"""Everything that a node serves."""


class Ports(Protocol):
    """The world that a node lives in."""

    @property
    def clock(self) -> Clock:
        """What time it is."""

    @property
    def entropy(self) -> Entropy:
        """Randomness."""

    @property
    def disk(self) -> Disk:
        """Where its data is."""

    @property
    def network(self) -> Network:
        """How it is reached."""

    @property
    def workers(self) -> Workers:
        """Where blocking calls go."""


class Node:
    """One broker in one process."""

    directory: DataDirectory
    listener: ConnectionListener
    controller: ControllerRunner
    adoption: Adoption
    upkeep: Upkeep
    producer_ids: ProducerIds

    def __init__(
        self,
        ports: Ports,
        settings: NodeSettings,
        handlers: Sequence[ModuleType] = HANDLERS,
        on_failure: Callable[[str], None] = lambda _sentence: None,
    ) -> None:
        """`on_failure` is told why the node cannot go on and should be stopped."""
        self.clock = ports.clock
        self.entropy = ports.entropy
        self.disk = ports.disk
        self.network = ports.network
        self.workers = ports.workers
        self.settings = settings
        self.dispatch = Dispatch(handlers)
        self.partitions = Partitions()
        self.pool = InputPool(settings.limits.input_pool_bytes_max, settings.limits.frame_lent_bytes)
        self.stalls = StallMeter(settings.stall_ms_max)
        self.fetch_sessions = FetchSessions(self.entropy)
        self.topic_pieces = TopicPieces()
        self.complaints = Complaints()
        self.data_path = settings.data_path
        self._on_failure = on_failure
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def address(self) -> str:
        """Host and port that it really listens on."""
        return self.listener.address

    async def start(self) -> None:
        """Opens the data directory, adopts what the cluster says, and listens."""
        settings = self.settings
        check_listener(settings)
        self.directory = await open_directory(
            self.disk,
            cluster_id=settings.cluster_id,
            node_id=settings.node_id,
            entropy=self.entropy,
            now_ms=self.clock.wall_ms(),
            ledger_bytes=settings.ledger_bytes,
            reserve_bytes=settings.reserve_bytes,
        )
        for found in self.directory.findings.damage:
            logger.warning("Damage in the data directory: %s", found)
        self.controller = ControllerRunner(
            self.directory, self.clock, self.entropy, settings.node_id, settings.broker, self._on_failure
        )
        self.producer_ids = ProducerIds(self.controller)
        self.upkeep = Upkeep(self.directory, self.partitions, self.clock, settings.upkeep, on_trouble=_tell_trouble)
        self.adoption = Adoption(self.controller, self.directory, self.partitions, self.upkeep.lock)
        self._rounds = GroupCommit(self.directory, self._on_round)
        self._commit = self._watch(self._rounds.run(), "group commit")
        self._watch(self.stalls.run(), "stall meter")
        await self.controller.load()
        await self.adoption.start()
        self._watch(self.adoption.run(), "adoption")
        self._watch(self.upkeep.run(), "upkeep")
        try:
            place = await self.network.listen(settings.listen_host, settings.listen_port)
        except OSError as error:
            await self._close()
            raise CannotStart(
                f"Cannot listen on {settings.listen_host}:{settings.listen_port}: {error}; "
                "stop whoever listens there, or choose another port: penstock dev --port, or listeners in its file."
            ) from error
        await self.controller.register(endpoints(settings.broker, place.address), settings.features)
        service = Service(self, self.dispatch, settings.limits, self.pool, self.complaints)
        self.listener = ConnectionListener(place, service, self.clock)
        self.listener.start()
        logger.info("Listening on %s.", self.address)

    async def stop(self) -> None:
        """Answers what is under way, and closes the data directory so that nothing need be scanned next time."""
        await self.listener.stop(self.settings.stop_ms)
        await self._close()
        logger.info("Stopped.")

    async def _close(self) -> None:
        async with self.upkeep.lock:  # so that nobody is stopped in the middle of work on a log
            self._rounds.stop()
            await asyncio.gather(self._commit, return_exceptions=True)
            for task in self._tasks:
                task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.directory.close()

    async def add_topic(
        self, name: str, topic_id: bytes, partitions: int, settings: LogSettings = DEFAULT_SETTINGS, epoch: int = 0
    ) -> list[Partition]:
        """Leads the partitions of a topic from now on; their logs are made if they are not there."""
        added = []
        for index in range(partitions):
            log = self.directory.logs.get(f"{name}-{index}")
            if log is None:
                log = await self.directory.create(name, topic_id.hex(), index, settings)
            await self.directory.begin_epoch(log, epoch)
            partition = Partition(name, topic_id, index, log, max(epoch, log.epochs.latest))
            self.partitions.add(partition)
            partition.advance()
            added.append(partition)
        return added

    def _on_round(self, covered: Sequence[Log]) -> None:
        for log in covered:
            partition = self.partitions.of_log(log.identity.number)
            if partition is not None:
                partition.advance()
        self.controller.advance()

    def _watch(self, work: Coroutine[None, None, None], name: str) -> "asyncio.Task[None]":
        """Runs something for as long as the node lives; its failure is told at once."""
        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(lambda done: _tell(done, name))
        self._tasks.append(task)
        return task


def _tell_trouble(log: Log, error: Exception) -> None:
    logger.warning("Upkeep of %s did not succeed: %s", log.path, error)


def _tell(task: "asyncio.Task[None]", name: str) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.critical("The %s failed by a mistake of ours: restart the node.", name, exc_info=error)
