"""The broker of a node: it registers with the cluster, replicates and leads partitions, and coordinates groups.

Before it is unfenced, the broker reports possible data loss (the previous broker epoch in its registration) and damaged
logs (`failed_logs`), so that the controller does not elect it where it lacks acknowledged records.
"""

from collections.abc import Sequence
from functools import partial

from penstock.client.ports import ClientPorts
from penstock.log.boot import DAMAGED, NONE, UNREGISTERED, UNREPORTED
from penstock.log.log import Log
from penstock.metadata.commands import but_for_unsynced
from penstock.metadata.image import TOPIC
from penstock.metadata.names import METADATA_TOPIC
from penstock.metadata.records import BrokerEndpoint
from penstock.model import group_events
from penstock.replication.fetch_sessions import FetchSessions
from penstock.server.controller.controller_channel import ControllerChannel
from penstock.server.controller.leaders import Leaders
from penstock.server.controller.producer_ids import ProducerIds
from penstock.server.controller.topic_creation import create_missing
from penstock.server.groups.group_coordinator import GroupCoordinator
from penstock.server.groups.group_events import GroupEventLog
from penstock.server.loop.deadlines import Deadlines
from penstock.server.membership.broker_epoch import NO_EPOCH, load_epoch, store_epoch
from penstock.server.membership.broker_grace import BrokerGrace
from penstock.server.membership.disk_space import DiskSpaceWatch
from penstock.server.membership.lease import Lease
from penstock.server.membership.membership import Membership
from penstock.server.partitions.opening import WorkerOpener
from penstock.server.partitions.partitions import Partitions
from penstock.server.partitions.sequence_gaps import SequenceGaps
from penstock.server.partitions.topic_arrivals import TopicArrivals
from penstock.server.partitions.upkeep_loop import Upkeep
from penstock.server.ports import Ports
from penstock.server.quorum_member import QuorumMember
from penstock.server.replicas.data_loss_reports import DataLossReports
from penstock.server.replicas.failed_logs import FailedLogs
from penstock.server.replicas.log_reconciler import LogReconciler
from penstock.server.replicas.replica_messages import ReplicaMessages
from penstock.server.replicas.replica_runner import ReplicaRunner
from penstock.server.replicas.topic_configs import TopicConfigs
from penstock.server.settings import NodeSettings
from penstock.server.storage import Storage
from penstock.server.supervisor import Supervisor


class Broker:
    """Every node has one; on a node that is only a controller it never joins and leads nothing."""

    def __init__(
        self,
        storage: Storage,
        member: QuorumMember,
        channel: ControllerChannel,
        ports: Ports,
        settings: NodeSettings,
        supervisor: Supervisor,
        arrivals: TopicArrivals,
        endpoints: Sequence[BrokerEndpoint],
    ) -> None:
        """`endpoints` are the addresses of all listeners for clients and brokers."""
        controller, directory, clock = member.controller, storage.directory, ports.clock
        self._storage = storage
        self._member = member
        self._settings = settings
        self._clock = clock
        self._supervisor = supervisor
        self.lease = Lease(controller, clock)
        self.partitions = Partitions(Leaders(controller).elsewhere)
        self.upkeep = Upkeep(directory, self.partitions, clock, storage.lock, settings.upkeep)
        self.broker_grace = BrokerGrace(clock)
        self.sequence_gaps = SequenceGaps()
        self.deadlines = Deadlines()
        self.fetch_sessions = FetchSessions(ports.entropy)
        self.opener = WorkerOpener(ports.workers)
        self.producer_ids = ProducerIds(controller, channel)
        self._topic_configs = TopicConfigs(controller)
        client_ports = ClientPorts(ports.network, clock, ports.entropy)
        self._messages = ReplicaMessages(
            client_ports, channel, controller, self.broker_grace, settings.inter_broker_listener
        )
        self.replicas = ReplicaRunner(
            controller,
            clock,
            directory,
            self.partitions,
            self._topic_configs,
            self.upkeep,
            self._messages,
            supervisor.fail,
        )
        self._loss_reports = DataLossReports(controller)
        events = GroupEventLog(
            controller,
            clock,
            self.partitions,
            partial(create_missing, controller, channel, arrivals, [group_events.TOPIC]),
        )
        self.groups = GroupCoordinator(controller, clock, ports.entropy, self.partitions, self.lease, events)
        self.replicas.led.connect(self._loss_reports.led)
        self.replicas.led.connect(self.groups.led)
        self.reconciler = LogReconciler(
            controller, directory, self.replicas, self._topic_configs, arrivals, storage.lock
        )
        self.membership = Membership(
            controller,
            channel,
            self.lease,
            cluster_id=settings.cluster_id,
            directory_id=bytes.fromhex(directory.identity["directory_id"]),
            listeners=endpoints,
            features=settings.features,
            rack=settings.broker.text("broker.rack"),
            clock=clock,
            begin_life=self._begin_life,
            on_failure=supervisor.fail,
        )
        self._loss_reports.reported.connect(self._begin_to_note_reported)

    # --- joining --------------------------------------------------------------------------------------------------

    async def join(self) -> None:
        """Registers with the cluster, reconciles the logs on disk with the image, and returns when unfenced."""
        controller, directory, membership = self._member.controller, self._storage.directory, self.membership
        if self._member.quorum.raft.voters.ids == (self._settings.node_id,):
            await controller.until(lambda: controller.is_active)
        await controller.until(lambda: self._member.has_caught_up)
        await membership.register(self._previous_epoch())
        await membership.caught_up()
        boot = directory.pool.boot
        if boot.loss in (UNREGISTERED, DAMAGED):
            await boot.note(UNREPORTED)
        unreported = self._replicated() if boot.is_kept and boot.loss == UNREPORTED else []
        self._loss_reports.begin(directory.logs.values(), self._unsynced(), unreported)
        await self._begin_life(membership.epoch)
        await self.reconciler.start()
        failed = FailedLogs(directory, controller, membership, self.replicas, self._messages, self.reconciler)
        controller.forget_deleted()
        self._supervisor.watch(self.reconciler.run(), "log reconciler")
        room = DiskSpaceWatch(directory, membership, self._clock)
        await failed.report()  # before this broker may be elected where its log is damaged
        await membership.let_in()
        self._supervisor.watch(membership.run(), "heartbeats")
        self._supervisor.watch(room.run(), "watch of the disk")
        self._supervisor.watch(failed.run(), "watch of failed logs")

    async def _begin_life(self, epoch: int) -> None:
        directory = self._storage.directory
        await store_epoch(directory.disk, epoch, directory.pool.reserve)
        await self.replicas.begin(epoch)

    # --- possible losses of the previous run ----------------------------------------------------------------------

    def _previous_epoch(self) -> int:
        """The previous broker epoch if that run lost nothing: its records were synced, or the page cache survived.

        If all doubtful topics set `durability` themselves, the controller can see which they are, and only they are
        distrusted (`but_for_unsynced`). If it is a default, which may differ between nodes, every log is distrusted.
        A single damaged log is reported separately (`failed_logs`).
        """
        directory = self._storage.directory
        before = load_epoch(directory.disk)
        if before == NO_EPOCH or directory.findings.doubt or directory.pool.boot.loss == DAMAGED:
            return NO_EPOCH
        unsynced = {log.identity.topic for log in self._unsynced()}
        if not unsynced:
            return before
        image = self._member.controller.image
        says_so = all("durability" in image.config(TOPIC, each) for each in unsynced)
        return but_for_unsynced(before) if says_so else NO_EPOCH

    def _unsynced(self) -> list[Log]:
        """Logs that may have lost acknowledged records: appends did not wait for syncs, and the page cache is gone."""
        if self._storage.directory.pool.boot.is_kept:
            return []
        return self._replicated()

    def _replicated(self) -> list[Log]:
        """Logs that acknowledge records before they are synced."""
        logs = self._storage.directory.logs.values()
        topics = dict.fromkeys(log.identity.topic for log in logs if log.identity.topic != METADATA_TOPIC)
        doubtful = {topic for topic in topics if not self._topic_configs.config_of(topic).log.waits_for_sync}
        return [log for log in logs if log.identity.topic in doubtful]

    def _begin_to_note_reported(self) -> None:
        self._supervisor.watch(self.note_reported(), "record of losses")

    async def note_reported(self) -> None:
        """Records on disk that all losses are reported, if they are."""
        boot = self._storage.directory.pool.boot
        if self._loss_reports.has_reported and boot.loss == UNREPORTED:
            await boot.note(NONE)

    @property
    def has_told_losses(self) -> bool:
        """Whether every possible loss of the previous run is reported; the next run could not detect it."""
        is_registered = self.membership.epoch >= 0
        return is_registered or self._storage.has_lost_nothing or not self._settings.membership.is_broker

    # --- running --------------------------------------------------------------------------------------------------

    def on_round(self, covered: Sequence[Log]) -> None:
        """Advances the partitions of logs that a round of group commit has covered."""
        for log in covered:
            partition = self.partitions.of_log(log.identity.number)
            if partition is not None:
                partition.advance()
        self.replicas.synced(covered)
