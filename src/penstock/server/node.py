"""A node: the composition root that puts ports, logs, partitions and listeners together."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from types import ModuleType
from typing import Final, Protocol

from penstock.client.bootstrap import Address
from penstock.client.ports import ClientPorts
from penstock.log.boot import DAMAGED, NONE, UNREGISTERED, UNREPORTED
from penstock.log.directory import DataDirectory, open_directory
from penstock.log.log import Log
from penstock.log.settings import DEFAULT_SETTINGS, LogSettings
from penstock.metadata.commands import but_for_unsynced
from penstock.metadata.image import TOPIC
from penstock.metadata.image import Partition as Placed
from penstock.metadata.names import METADATA_TOPIC
from penstock.model import group_events
from penstock.model.errors import ProtocolError
from penstock.model.ports import Clock, Disk, Entropy, Footprint, Listener, Network, Workers
from penstock.raft.replicas import Endpoint, ReplicaKey
from penstock.replication.fetch_sessions import FetchSessions
from penstock.replication.ports import Key
from penstock.server.adoption import Adoption
from penstock.server.advertised import endpoints, parse_address
from penstock.server.broker_epoch import NO_EPOCH, load_epoch, store_epoch
from penstock.server.catching_up import catch_up
from penstock.server.codec_worker import CodecWorker
from penstock.server.complaints import Complaints
from penstock.server.connection import Service
from penstock.server.controller_channel import ControllerChannel
from penstock.server.controller_runner import ControllerRunner
from penstock.server.departures import Departures
from penstock.server.dispatch import Dispatch
from penstock.server.failed_logs import FailedLogs
from penstock.server.group_commit import GroupCommit
from penstock.server.group_coordinator import GroupCoordinator
from penstock.server.handlers import (
    acls,
    api_versions,
    assigned_replicas,
    brokers,
    classic_groups,
    configs,
    consumer_groups,
    delete_records,
    describe_cluster,
    describe_configs,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    envelope,
    features,
    fetch,
    find_coordinator,
    group_admin,
    group_offsets,
    init_producer_id,
    list_offsets,
    metadata,
    movements,
    offset_for_leader_epoch,
    produce,
    quorum,
    quorum_admin,
    topics,
)
from penstock.server.http_listener import HttpListener
from penstock.server.input_pool import InputPool
from penstock.server.introduction import introduce_controller, introduce_voter
from penstock.server.listener import ConnectionListener
from penstock.server.losses import Losses
from penstock.server.membership import Membership
from penstock.server.metadata_answer import TopicPieces
from penstock.server.metrics.gathering import Gathering, gathering_of
from penstock.server.opening import WorkerOpener
from penstock.server.pacing import begin_pacing
from penstock.server.pages import pages_of
from penstock.server.partition import Partition
from penstock.server.partitions import Leader, Partitions
from penstock.server.predecessors import Predecessors
from penstock.server.probes import Probes
from penstock.server.producer_ids import ProducerIds
from penstock.server.quorum_peers import QuorumPeers
from penstock.server.quorum_runner import QuorumRunner
from penstock.server.replica_messages import ReplicaMessages
from penstock.server.replica_runner import ReplicaRunner
from penstock.server.room import RoomWatch
from penstock.server.serving import Call
from penstock.server.settings import (
    CannotStart,
    NodeSettings,
    check_listener,
    first_voters,
    is_loopback,
    quorum_settings,
)
from penstock.server.stall import StallMeter
from penstock.server.topic_creation import create_missing
from penstock.server.topic_settings import Wardrobe
from penstock.server.upkeep_loop import Upkeep
from penstock.wire.api import ALSO_ON_CONTROLLERS, CONTROLLER_ONLY, Api
from penstock.wire.declare import Request, Response

logger = logging.getLogger("penstock.node")

HANDLERS: Sequence[ModuleType] = (
    acls,
    api_versions,
    brokers,
    classic_groups,
    configs,
    consumer_groups,
    delete_records,
    describe_cluster,
    describe_configs,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    features,
    fetch,
    find_coordinator,
    group_admin,
    group_offsets,
    init_producer_id,
    list_offsets,
    metadata,
    movements,
    offset_for_leader_epoch,
    produce,
    quorum_admin,
    topics,
)
"""Everything that a broker serves, besides what only controllers do."""

CONTROLLER_HANDLERS: Sequence[ModuleType] = (
    api_versions,
    assigned_replicas,
    brokers,
    configs,
    describe_cluster,
    describe_configs,
    envelope,
    features,
    movements,
    quorum,
    quorum_admin,
    topics,
)
"""Everything that a controller serves, besides what only brokers do."""

BROKER_ONLY: Final = frozenset(Api) - CONTROLLER_ONLY - ALSO_ON_CONTROLLERS
CONTROLLER_STOP_MS: Final = 500
PATIENT_TIMES: Final = 4
"""A snapshot waits for this node's logs until so many times what it is written after has come together."""
INTRODUCTION_S: Final = 0.2


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
    """One node in one process: a broker, a controller, or both.

    `start` opens everything; `ready` tells when it serves, which in a cluster takes a quorum.
    """

    directory: DataDirectory
    listener: ConnectionListener
    controller: ControllerRunner
    quorum: QuorumRunner
    channel: ControllerChannel
    adoption: Adoption
    replicas: ReplicaRunner
    groups: GroupCoordinator
    upkeep: Upkeep
    producer_ids: ProducerIds

    def __init__(
        self,
        ports: Ports,
        settings: NodeSettings,
        handlers: Sequence[ModuleType] = HANDLERS,
        on_failure: Callable[[str], None] = lambda _sentence: None,
        footprint: Callable[[], Footprint] | None = None,
    ) -> None:
        """`on_failure` is told why the node cannot go on and should be stopped; `footprint` looks at the process."""
        self.clock = ports.clock
        self.entropy = ports.entropy
        self.disk = ports.disk
        self.network = ports.network
        self.workers = ports.workers
        self.settings = settings
        self.cluster_id = settings.cluster_id
        self.dispatch = Dispatch(handlers, leaves_out=CONTROLLER_ONLY)
        self.controller_dispatch = Dispatch(CONTROLLER_HANDLERS, leaves_out=BROKER_ONLY)
        self.partitions = Partitions()
        self.partitions.leader_elsewhere = self._leader_elsewhere
        self.pool = InputPool(settings.limits.input_pool_bytes_max, settings.limits.frame_lent_bytes)
        self.large_pool = InputPool(settings.limits.large_input_pool_bytes_max, settings.limits.frame_lent_bytes)
        self.codec = CodecWorker(ports.workers, settings.limits)
        self.stalls = StallMeter(settings.stall_ms_max)
        self.predecessors = Predecessors()
        self.fetch_sessions = FetchSessions(self.entropy)
        self.topic_pieces = TopicPieces()
        self.opener = WorkerOpener(ports.workers)
        self.departures = Departures(ports.clock)
        self.complaints = Complaints()
        self.data_path = settings.data_path
        self._on_failure = on_failure
        self._footprint = footprint
        self._gathering: Gathering | None = None
        self._http: HttpListener | None = None
        self.doors: dict[str, tuple[ConnectionListener, Dispatch]] = {}
        """Listeners by whom they are for, and what they serve."""
        self._membership: Membership | None = None
        self._controller_listener: ConnectionListener | None = None
        self._listeners: list[ConnectionListener] = []
        """All that are open."""
        self._tasks: list[asyncio.Task[None]] = []
        self._joining: asyncio.Task[None] | None = None
        self._snapshot: asyncio.Task[None] | None = None
        self._snapshot_at_ms = ports.clock.monotonic_ms()
        self.is_serving = False
        """Whether it has joined its cluster."""
        self.is_stopping = False
        self._has_failed = False

    @property
    def metrics_address(self) -> str:
        """Host and port where metrics are shown; empty where they are not."""
        return "" if self._http is None else self._http.address

    @property
    def address(self) -> str:
        """Host and port that clients reach; those of the controller where there is no broker."""
        return self.listener.address if self.settings.membership.is_broker else self.controller_address

    @property
    def controller_address(self) -> str:
        """Host and port where other nodes reach the metadata quorum; empty where they do not."""
        return "" if self._controller_listener is None else self._controller_listener.address

    # --- starting -------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Opens the data directory and the doors, and joins the cluster; a node that is alone is ready then."""
        settings = self.settings
        check_listener(settings)
        begin_pacing()
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
        self._put_together()
        self._rounds = GroupCommit(self.directory, self._on_round)
        self._commit = self._watch(self._rounds.run(), "group commit")
        self._watch(self.stalls.run(), "stall meter", is_vital=False)
        try:
            await self._open()
            self._joining = asyncio.get_running_loop().create_task(self._join())
            self._joining.add_done_callback(lambda done: self._ended(done, "joining"))
            if settings.membership.is_alone:
                await self.ready()
        except BaseException:
            await self._close()
            raise

    def _put_together(self) -> None:
        settings = self.settings
        self.upkeep = Upkeep(self.directory, self.partitions, self.clock, settings.upkeep, on_trouble=_tell_trouble)
        self.controller = ControllerRunner(
            self.clock, self.entropy, settings.node_id, settings.broker, settings.features, self._fail
        )
        key = ReplicaKey(settings.node_id, bytes.fromhex(self.directory.identity["directory_id"]))
        self.quorum = QuorumRunner(
            self.directory,
            self.clock,
            self.entropy,
            settings.node_id,
            self.controller,
            settings=quorum_settings(settings.broker),
            bootstrap=first_voters(settings, key),
            lock=self.upkeep.lock,
            on_failure=self._fail,
            on_warning=self.complaints.say,
        )
        self.controller.quorum = self.quorum
        ports = ClientPorts(self.network, self.clock, self.entropy)
        self._peers = QuorumPeers(
            ports,
            settings.cluster_id,
            quorum_settings(settings.broker).request_timeout_ms,
            self.quorum.endpoint_of,
        )
        self.channel = ControllerChannel(self, ports, self.controller, self.quorum, self.controller_dispatch.routes)
        self.producer_ids = ProducerIds(self.controller, self.channel)
        self._probes = Probes(self.controller, self.network)
        self.controller.on_active = self._probes.begin_all
        self._wardrobe = Wardrobe(self.controller)
        self._messages = ReplicaMessages(ports, self.channel, self.controller, self.departures)
        self.replicas = ReplicaRunner(
            self.controller, self.clock, self.directory, self.partitions, self._wardrobe, self.upkeep, self._messages
        )
        self._losses = Losses(self.controller)
        self.groups = GroupCoordinator(self.controller, self.clock, self.entropy, self.partitions)
        self.replicas.on_led = self._on_led
        self.replicas.on_broken = self._fail
        self.adoption = Adoption(self.controller, self.directory, self.replicas, self._wardrobe, self.upkeep.lock)
        self.controller.subscribe(lambda _changes, _image: self._snapshot_if_due())

    async def _open(self) -> None:
        """The doors: clients find nobody behind theirs before the broker is let in."""
        settings, membership = self.settings, self.settings.membership
        if membership.is_broker:
            place = await self._listen(settings.listen_host, settings.listen_port, "penstock dev --port, or listeners")
            service = Service(
                self,
                self.dispatch,
                settings.limits,
                self.pool,
                self.large_pool,
                self.complaints,
                self.codec,
                self._forward_to_controller,
            )
            self.listener = ConnectionListener(place, service, self.clock)
            self.listener.on_broken = self._fail
            self._listeners.append(self.listener)
            self.doors["clients"] = self.listener, self.dispatch
        if membership.listener is not None and membership.is_controller:
            place = await self._listen(membership.listener.host, membership.listener.port, "listeners")
            service = Service(
                self, self.controller_dispatch, settings.limits, self.pool, self.large_pool, self.complaints, self.codec
            )
            self._controller_listener = ConnectionListener(place, service, self.clock)
            self._controller_listener.on_broken = self._fail
            self._listeners.append(self._controller_listener)
            self.doors["controllers"] = self._controller_listener, self.controller_dispatch
        await self.quorum.load()
        if settings.metrics is not None:
            await self._open_metrics(settings.metrics)

    async def _open_metrics(self, address: Address) -> None:
        """Shown from now on, while the node is joining its cluster, too."""
        place = await self._listen(address.host, address.port, "penstock dev --metrics-port, or metrics.listener")
        self._gathering = gathering_of(self, self._rounds.timing, self._footprint)
        self._http = HttpListener(
            place,
            pages_of(self, self._gathering),
            self.settings.limits,
            self.complaints,
            is_on_loopback=is_loopback(address.host),
        )
        self._http.start()

    async def _listen(self, host: str, port: int, where: str) -> Listener:
        try:
            return await self.network.listen(host, port)
        except OSError as error:
            raise CannotStart(
                f"Cannot listen on {host}:{port}: {error}; "
                f"stop whoever listens there, or choose another port: {where} in its file."
            ) from error

    async def _begin_quorum(self) -> None:
        """Where nobody has said who votes, the bootstrap servers are asked."""
        if not self.quorum.raft.voters.ids:
            self.quorum.begin_with(await self._peers.find_voters(self.settings.membership.bootstrap_servers))
        self.quorum.start(self._peers)
        if self._controller_listener is not None:
            self._controller_listener.start()

    async def _join(self) -> None:
        try:
            await self._begin_quorum()
            await self.controller.until(lambda: self.quorum.raft.leader_id >= 0)
            if self.settings.membership.is_broker:
                await self._join_as_broker()
            self.is_serving = True
        except (CannotStart, ProtocolError) as error:
            if self.settings.membership.is_alone:  # told by `start`
                raise CannotStart(str(error)) from error
            self._fail(f"This node cannot join its cluster: {error}")
            return
        self._watch(self.upkeep.run(), "upkeep")
        if self._controller_listener is not None:
            self._watch(self._introduce(), "introduction")

    async def _join_as_broker(self) -> None:
        settings = self.settings
        if self.quorum.raft.voters.ids == (settings.node_id,):
            await self.controller.until(lambda: self.controller.is_active)
        self._membership = membership = Membership(
            self.controller,
            self.channel,
            cluster_id=settings.cluster_id,
            directory_id=bytes.fromhex(self.directory.identity["directory_id"]),
            listeners=endpoints(settings.broker, self.listener.address),
            features=settings.features,
            rack=settings.broker.text("broker.rack"),
            clock=self.clock,
            on_failure=self._fail,
        )
        await self.controller.until(self._knows_the_present)
        await membership.register(self._previous_epoch())
        await membership.caught_up()
        boot = self.directory.pool.boot
        if boot.loss in (UNREGISTERED, DAMAGED):
            await boot.note(UNREPORTED)
        unreported = self._replicated() if boot.is_kept and boot.loss == UNREPORTED else []
        self._losses.on_reported = lambda: self._watch(self._note_reported(), "record of losses")
        self._losses.begin(self.directory.logs.values(), self._unsynced(), unreported)
        await self._begin_life(membership.epoch)
        membership.on_new_epoch = self._begin_life
        membership.on_leased = self.groups.leased
        self.groups.lease = lambda: membership.leased_until_ms
        self.groups.events.make = lambda: create_missing(
            self.controller, self.channel, self.adoption, [group_events.TOPIC]
        )
        await self.adoption.start()
        failed = FailedLogs(self.directory, self.controller, membership, self.replicas, self._messages, self.adoption)
        self.controller.forget_deleted()
        self._watch(self.adoption.run(), "adoption")
        room = RoomWatch(self.directory, membership, self.clock)
        await failed.report()  # before this broker may be elected where its log is damaged
        await membership.let_in()
        self._watch(membership.run(), "heartbeats")
        self._watch(room.run(), "watch of the disk")
        self._watch(failed.run(), "watch of failed logs")
        self.listener.start()
        logger.info("Listening on %s.", self.address)

    async def _note_reported(self) -> None:
        boot = self.directory.pool.boot
        if self._losses.has_reported and boot.loss == UNREPORTED:
            await boot.note(NONE)

    async def _begin_life(self, epoch: int) -> None:
        await store_epoch(self.directory.disk, epoch, self.directory.pool.reserve)
        await self.replicas.begin(epoch)

    def _knows_the_present(self) -> bool:
        """Whether the image holds what was committed when this node last heard of the leader."""
        return 0 < self.quorum.raft.high_watermark <= self.controller.position

    def _previous_epoch(self) -> int:
        """The epoch of the last life, if that has lost nothing: all that was acknowledged was synced, or all was.

        Where topics themselves say that they need no syncs, only they are doubtful, as the controller can see; where
        that is a default, which may be another one on each node, everything is. A single damaged log is
        reported by itself (`failed_logs`).
        """
        before = load_epoch(self.directory.disk)
        if before == NO_EPOCH or self.directory.findings.doubt or self.directory.pool.boot.loss == DAMAGED:
            return NO_EPOCH
        unsynced = {log.identity.topic for log in self._unsynced()}
        if not unsynced:
            return before
        says_so = all("durability" in self.controller.image.config(TOPIC, each) for each in unsynced)
        return but_for_unsynced(before) if says_so else NO_EPOCH

    def _unsynced(self) -> list[Log]:
        """Logs that may have lost what the last life acknowledged: it did not wait for syncs, and its cache is gone."""
        if self.directory.pool.boot.is_kept:
            return []
        return self._replicated()

    def _replicated(self) -> list[Log]:
        """Logs that acknowledge what is not synced."""
        logs = self.directory.logs.values()
        topics = dict.fromkeys(log.identity.topic for log in logs if log.identity.topic != METADATA_TOPIC)
        doubtful = {topic for topic in topics if not self._wardrobe.dress_of(topic).log.waits_for_sync}
        return [log for log in logs if log.identity.topic in doubtful]

    async def ready(self) -> None:
        """Returns when the node serves; CannotStart when it never will."""
        assert self._joining is not None, "start first"
        await asyncio.shield(self._joining)
        if not self.is_serving:
            raise CannotStart("The node could not join its cluster; what it logged says why.")

    # --- the quorum -----------------------------------------------------------------------------------------------

    async def _introduce(self) -> None:
        """Tells the quorum, once, where and in which directory this voter is, and the cluster what it can do."""
        listener = self.settings.membership.listener
        assert listener is not None
        place = parse_address(self.controller_address)
        endpoint = self.quorum.endpoint_of(self.settings.node_id) or Endpoint(listener.name, place.host, place.port)
        while not await introduce_voter(self.channel, self.quorum, self.cluster_id, endpoint):
            await asyncio.sleep(INTRODUCTION_S)
        while not await introduce_controller(
            self.channel, self.settings.node_id, self.controller.incarnation_id, endpoint, self.settings.features
        ):
            await asyncio.sleep(INTRODUCTION_S)

    def _snapshot_if_due(self) -> None:
        controller, settings = self.controller, self.controller.settings
        limit_bytes = settings.number("metadata.log.max.record.bytes.between.snapshots")
        interval_ms = settings.number("metadata.log.max.snapshot.interval.ms")
        age_ms = self.clock.monotonic_ms() - self._snapshot_at_ms
        is_due = controller.bytes_since_snapshot >= limit_bytes or 0 < interval_ms <= age_ms
        if is_due and self.is_serving and self._snapshot is None:
            self._snapshot = asyncio.get_running_loop().create_task(self._take_snapshot(limit_bytes))

    async def _take_snapshot(self, limit_bytes: int) -> None:
        """Once what the image no longer mentions is gone from this disk: later nobody could tell that it was deleted.

        Where topics come and go without end, that is not waited for: a log that is left over is reported, and kept.
        """
        try:
            if self.adoption.is_settled or self.controller.bytes_since_snapshot >= PATIENT_TIMES * limit_bytes:
                self._snapshot_at_ms = self.clock.monotonic_ms()
                end_offset, data = self.controller.snapshot_records()
                await self.quorum.snapshot(end_offset, data)
        except (ProtocolError, OSError) as error:
            logger.warning("A snapshot of the metadata could not be written, and is tried again later: %s.", error)
        finally:
            self._snapshot = None

    def probe(self, broker_id: int, broker_epoch: int) -> None:
        """Looks whether a broker is still there: the connection of its heartbeats has ended."""
        self._probes.begin(broker_id, broker_epoch)

    @property
    def is_in_touch(self) -> bool:
        """Whether the cluster has heard of this broker lately; else others may lead what it believes to lead."""
        return self._membership is not None and self._membership.is_in_touch

    # --- serving --------------------------------------------------------------------------------------------------

    async def _forward_to_controller(self, request: Request, call: Call) -> Response:
        """What only the active controller can answer; changes made elsewhere are known here before the client knows."""
        is_here = self.controller.is_active
        response = await self.channel.forward(request, call)
        if not is_here:
            await catch_up(request, response, self.controller, self.adoption)
        return response

    def _leader_elsewhere(self, topic: str | bytes, index: int) -> Leader | None:
        image = self.controller.image
        found = image.topics.get(topic) if isinstance(topic, str) else image.topic_by_id(topic)
        placed = None if found is None else found.partitions.get(index)
        broker = None if placed is None else image.brokers.get(placed.leader)
        if placed is None or broker is None or broker.broker_id == self.settings.node_id or not broker.listeners:
            return None
        endpoint = broker.listeners[0]
        return Leader(broker.broker_id, placed.leader_epoch, endpoint.host, endpoint.port, broker.rack)

    def _fail(self, sentence: str) -> None:
        self.controller.fail(self.quorum.offline_reason or sentence)
        if not self._has_failed:
            self._has_failed = True
            self._on_failure(sentence)

    # --- stopping -------------------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Hands over what others can do, answers what is under way, and closes the data directory cleanly."""
        self.is_stopping = True
        if self._membership is not None and self.is_serving and self.controller.offline_reason is None:
            await self._membership.leave(self.settings.stop_ms)
        await self.groups.stop()
        if self.settings.membership.is_broker:
            await self.listener.stop(self.settings.stop_ms)
            self._listeners.remove(self.listener)
        await self._close()
        logger.info("Stopped.")

    async def _close(self) -> None:
        if self._joining is not None:
            self._joining.cancel()
            await asyncio.gather(self._joining, return_exceptions=True)
        if self._http is not None and self._gathering is not None:
            await self._http.stop()
            await self._gathering.stop()
        await self.groups.stop()
        await self._probes.stop()
        await self.quorum.stop()
        for listener in self._listeners:
            await listener.stop(CONTROLLER_STOP_MS)
        async with self.upkeep.lock:  # so that nobody is stopped in the middle of work on a log
            self._rounds.stop()
            await asyncio.gather(self._commit, return_exceptions=True)
            tasks = [*self._tasks, *filter(None, [self._snapshot])]
            for task in tasks:
                task.cancel()
            await self.replicas.stop()
            await self.upkeep.stop()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._peers.close()
        await self.channel.close()
        await self._note_reported()
        await self.directory.close(leaves_marker=self._has_told_losses)

    @property
    def _has_told_losses(self) -> bool:
        """Whether the cluster knows what the life before may have lost, which the next life will not know of."""
        is_registered = self._membership is not None and self._membership.epoch >= 0
        has_lost_nothing = self.directory.pool.boot.is_kept and not self.directory.findings.doubt
        return is_registered or has_lost_nothing or not self.settings.membership.is_broker

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

    def _on_led(self, key: Key, log: Log, placed: Placed, start_offset: int) -> None:
        self._losses.led(key, log, placed, start_offset)
        self.groups.led(key, log, placed, start_offset)

    def _on_round(self, covered: Sequence[Log]) -> None:
        for log in covered:
            partition = self.partitions.of_log(log.identity.number)
            if partition is not None:
                partition.advance()
        self.replicas.synced(covered)
        self.quorum.advance()

    def _watch(self, work: Coroutine[None, None, None], name: str, *, is_vital: bool = True) -> "asyncio.Task[None]":
        """Runs something for as long as the node lives. The node does not outlive what is vital."""
        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(lambda done: self._ended(done, name, is_vital=is_vital))
        self._tasks.append(task)
        return task

    def _ended(self, task: "asyncio.Task[None]", name: str, *, is_vital: bool = True) -> None:
        """Ends the node if a task died of an exception that nobody expected.

        Without group commit, for example, the node would keep its leaderships and acknowledge nothing; other brokers
        can take over only once it is gone.
        """
        if task.cancelled() or (error := task.exception()) is None or isinstance(error, CannotStart):
            return
        if self._has_failed:  # others fail because of the first, which is reported
            return
        logger.critical("The %s failed by a mistake of ours: %r.", name, error, exc_info=error)
        if is_vital and not self.is_stopping:
            self._fail(f"The {name} failed by a mistake of ours ({error!r}): start the node again, and report this.")


def _tell_trouble(log: Log, error: Exception) -> None:
    logger.warning("Upkeep of %s did not succeed: %s", log.path, error)
