"""A node with a controller: a cluster of one node on a lossy disk, on virtual time. Requests for it."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from random import Random
from typing import Any, TypeVar, cast

from penstock.client.ports import ClientPorts
from penstock.host.faults import Faults
from penstock.host.lossy import LossyDisk
from penstock.host.memory import MemoryDisk
from penstock.log.directory import open_directory
from penstock.log.log import Log
from penstock.metadata.commands import CreatedTopic, CreateTopics, NewTopic
from penstock.metadata.records import BrokerEndpoint
from penstock.metadata.settings.layers import BrokerSettings
from penstock.raft.replicas import ReplicaKey, Voter, VoterSet
from penstock.raft.settings import QuorumSettings
from penstock.replication.fetch_sessions import FetchSessions
from penstock.server.connections.advertised import AdvertisedBrokers
from penstock.server.connections.client_warnings import ClientWarnings
from penstock.server.connections.dispatch import Dispatch
from penstock.server.connections.serving import Call, Client
from penstock.server.controller.controller_channel import ControllerChannel
from penstock.server.controller.controller_runner import ControllerRunner
from penstock.server.controller.probes import Probes
from penstock.server.controller.producer_ids import ProducerIds
from penstock.server.handlers.cluster.api_versions import ApiVersionsHandler
from penstock.server.handlers.cluster.assigned_replicas import AssignedReplicasHandler
from penstock.server.handlers.cluster.brokers import BrokersHandler
from penstock.server.handlers.cluster.describe_cluster import DescribeClusterHandler
from penstock.server.handlers.cluster.envelope import EnvelopeHandler
from penstock.server.handlers.cluster.features import FeaturesHandler
from penstock.server.handlers.cluster.quorum import QuorumHandler
from penstock.server.handlers.cluster.quorum_admin import QuorumAdminHandler
from penstock.server.handlers.tables import BROKER_ONLY
from penstock.server.handlers.topics.configs import ConfigsHandler
from penstock.server.handlers.topics.describe_configs import DescribeConfigsHandler
from penstock.server.handlers.topics.describe_topic_partitions import DescribeTopicPartitionsHandler
from penstock.server.handlers.topics.metadata import MetadataHandler
from penstock.server.handlers.topics.metadata_answer import TopicPieces
from penstock.server.handlers.topics.movements import MovementsHandler
from penstock.server.handlers.topics.topics import TopicsHandler
from penstock.server.loop.deadlines import Deadlines
from penstock.server.membership.broker_grace import BrokerGrace
from penstock.server.membership.lease import Lease
from penstock.server.membership.membership import Membership
from penstock.server.partitions.group_commit import GroupCommit
from penstock.server.partitions.partitions import Partitions
from penstock.server.partitions.sequence_gaps import SequenceGaps
from penstock.server.partitions.topic_arrivals import TopicArrivals
from penstock.server.partitions.upkeep_loop import Upkeep
from penstock.server.quorum.quorum_peers import QuorumPeers
from penstock.server.quorum.quorum_runner import QuorumRunner
from penstock.server.replicas.log_reconciler import LogReconciler
from penstock.server.replicas.replica_messages import ReplicaMessages
from penstock.server.replicas.replica_runner import ReplicaRunner
from penstock.server.replicas.topic_configs import TopicConfigs
from penstock.server.settings import Feature, ListenerSettings
from penstock.simulator.entropy import SimulatedEntropy
from penstock.simulator.loop import new_loop
from penstock.wire.api import Api
from penstock.wire.codec import decode, encode
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.unit.server.handlers.bare_node import BareNode, finish, read_answer

T = TypeVar("T")

NODE = 1
LOCAL = "192.168.7.7:9092"
LISTENERS = (BrokerEndpoint(name="PLAINTEXT", host="localhost", port=9092, security_protocol=0),)
FEATURES = (Feature("metadata.version", 1, 29, 29), Feature("group.version", 0, 1, 0))
ONE_REPLICA = {f"{prefix}.replication.factor": "1" for prefix in ("offsets.topic", "transaction.state.log")}


class Cluster(BareNode):
    """One life of a node: from `start` to `stop` or `crash`."""

    def __init__(self, disk: LossyDisk, settings: dict[str, str] | None = None, seed: int = 1) -> None:
        super().__init__(disk)
        self.entropy = SimulatedEntropy(Random(seed))
        self.static = BrokerSettings({**ONE_REPLICA, **(settings or {})})
        self.sentences: list[str] = []
        self.client_warnings = ClientWarnings()
        self.local = LOCAL
        self.advertised = AdvertisedBrokers(NODE, (ListenerSettings(),))
        self.cluster_id = "c"
        self._tasks: list[asyncio.Task[None]] = []

    async def load(self) -> None:
        """Starts the node as far as the loaded metadata log."""
        self.directory = await open_directory(
            self.disk, cluster_id="c", node_id=NODE, entropy=self.entropy, now_ms=self.clock.wall_ms()
        )
        self.partitions = Partitions()
        self.upkeep = Upkeep(self.directory, self.partitions, self.clock, asyncio.Lock())
        directory_id = bytes.fromhex(self.directory.identity["directory_id"])
        self.quorum = QuorumRunner(
            self.directory,
            self.clock,
            self.entropy,
            NODE,
            settings=QuorumSettings(),
            bootstrap=VoterSet([Voter(ReplicaKey(NODE, directory_id))]),
            lock=self.upkeep.lock,
            on_failure=self.on_failure,
            on_warning=self.client_warnings.say,
        )
        self.controller = ControllerRunner(
            self.clock, self.entropy, NODE, self.static, self.quorum, FEATURES, self.on_failure
        )
        await self.quorum.load()
        self.rounds = GroupCommit(self.directory)
        self.rounds.covered.connect(self.on_round)
        self.committing = self._run(self.rounds.run())
        ports = ClientPorts(cast("Any", None), self.clock, self.entropy)
        peers = QuorumPeers(ports, "c", 1_000, self.quorum.endpoint_of)
        self.arrivals = TopicArrivals()
        routes = Dispatch(self._controller_handlers(), leaves_out=BROKER_ONLY).routes
        self.channel = ControllerChannel(ports, self.controller, self.quorum, self.codec, routes)
        self.quorum.start(peers)
        await self.controller.until(lambda: self.controller.is_active)

    async def start(self) -> None:
        """Starts all parts, as a node does."""
        await self.load()
        self.sequence_gaps = SequenceGaps()
        self.deadlines = Deadlines()
        self.fetch_sessions = FetchSessions(self.entropy)
        topic_configs = TopicConfigs(self.controller)
        ports = ClientPorts(cast("Any", None), self.clock, self.entropy)
        self.broker_grace = BrokerGrace(self.clock)
        messages = ReplicaMessages(ports, self.channel, self.controller, self.broker_grace, self.listener)
        self.replicas = ReplicaRunner(
            self.controller,
            self.clock,
            self.directory,
            self.partitions,
            topic_configs,
            self.upkeep,
            messages,
            self.on_failure,
        )
        self.reconciler = LogReconciler(
            self.controller, self.directory, self.replicas, topic_configs, self.arrivals, self.upkeep.lock
        )
        self.topic_pieces = TopicPieces()
        self.producer_ids = cast("Any", ProducerIds(self.controller, self.channel))
        self.configs = ConfigsHandler(self.controller, self.channel)
        self.describing_partitions = DescribeTopicPartitionsHandler(self.controller)
        self.describing_metadata = MetadataHandler(
            self.controller,
            self.channel,
            self.arrivals,
            self.broker_grace,
            self.advertised,
            self.topic_pieces,
            self.cluster_id,
        )
        membership = Membership(
            self.controller,
            self.channel,
            Lease(self.controller, self.clock),
            cluster_id="c",
            directory_id=bytes.fromhex(self.directory.identity["directory_id"]),
            listeners=LISTENERS,
            features=FEATURES,
            rack=None,
            clock=self.clock,
            begin_life=self.replicas.begin,
            on_failure=self.on_failure,
        )
        await membership.register(-1)
        await membership.caught_up()
        await self.replicas.begin(membership.epoch)
        await self.reconciler.start()
        self._run(self.reconciler.run())
        self._run(membership.run())

    def _controller_handlers(self) -> Sequence[object]:
        controller, quorum, cluster_id = self.controller, self.quorum, self.cluster_id
        self.topics = TopicsHandler(controller, self.arrivals)
        self.describing_configs = DescribeConfigsHandler(controller, self.clock, self.client_warnings)
        self.describing_cluster = DescribeClusterHandler(controller, quorum, self.advertised, cluster_id)
        self.quorum_requests = QuorumHandler(quorum, cluster_id, self.client_warnings)
        self.quorum_admin = QuorumAdminHandler(quorum, cluster_id, self.client_warnings, self.clock)
        return (
            ApiVersionsHandler(FEATURES, controller),
            AssignedReplicasHandler(controller),
            BrokersHandler(controller, Probes(controller, cast("Any", None)), cluster_id),
            ConfigsHandler(controller, None),
            self.describing_cluster,
            self.describing_configs,
            EnvelopeHandler(controller, self.codec),
            FeaturesHandler(controller),
            MovementsHandler(controller),
            self.quorum_requests,
            self.quorum_admin,
            self.topics,
        )

    def on_failure(self, sentence: str) -> None:
        self.sentences.append(sentence)
        self.controller.fail(self.quorum.offline_reason or sentence)

    def on_round(self, covered: Any) -> None:
        super().on_round(covered)
        if hasattr(self, "replicas"):
            self.replicas.synced(covered)
        self.quorum.advance()

    def _run(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        self._tasks.append(asyncio.get_running_loop().create_task(work))
        return self._tasks[-1]

    async def stop(self) -> None:
        """Shuts down cleanly."""
        await self.quorum.stop()
        self.rounds.stop()
        await self.committing
        await self.crash()
        await self.directory.close()

    async def crash(self) -> None:
        """Stops all tasks; the disk decides which data survives."""
        if hasattr(self, "replicas"):
            await self.replicas.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.quorum.stop()

    def call(self, api: int, version: int, correlation_id: int = 7, *, request_bytes: int = 0) -> Call:
        client = Client(listener=self.listener)
        return Call(Api(api), version, correlation_id, "me", "10.0.0.9:1", self.local, client, request_bytes)

    async def create(self, *topics: NewTopic | str) -> list[CreatedTopic]:
        """Creates topics without the handlers, and waits until they can be written."""
        wanted = tuple(NewTopic(topic) if isinstance(topic, str) else topic for topic in topics)
        results = await self.controller.ask(CreateTopics(wanted))
        assert not any(result.code for result in results), results
        await self.arrivals.settled([topic.name for topic in wanted])
        return list(results)

    async def metadata(self, *names: str | None, version: int = 13, **options: Any) -> MetadataResponse:
        """Requests metadata by topic name; None requests all topics."""
        topics = None if names == (None,) else [MetadataRequestTopic(name=name) for name in names]
        return await self.ask_metadata(MetadataRequest(topics=topics, **options), version)

    async def ask_metadata(self, request: MetadataRequest, version: int) -> MetadataResponse:
        asked = decode(MetadataRequest, version, encode(request, version))
        answer = await finish(await self.describing_metadata.metadata(asked, self.call(3, version)))
        return cast("MetadataResponse", read_answer(answer, 3, version))

    @property
    def topic_logs(self) -> dict[str, Log]:
        return {name: log for name, log in self.directory.logs.items() if not name.startswith("__cluster")}


def a_disk(sync_s: float = 0.0, seed: int = 1, **faults: Any) -> LossyDisk:
    async def delay(_operation: str, _path: str) -> None:
        await asyncio.sleep(sync_s)

    return LossyDisk(MemoryDisk(), Random(seed), Faults(**faults), delay=delay if sync_s else None)


def on_virtual_time(story: Callable[[], Awaitable[T]]) -> T:
    """Runs a story of several lives on virtual time."""
    loop = new_loop()
    try:
        return loop.run_until_complete(story())
    finally:
        loop.close()


def clustered(
    story: Callable[[Cluster], Awaitable[T]], *, sync_s: float = 0.0, settings: dict[str, str] | None = None
) -> T:
    """Runs a story of one life, which ends cleanly."""

    async def main() -> T:
        cluster = Cluster(a_disk(sync_s), settings)
        await cluster.start()
        try:
            return await story(cluster)
        finally:
            await cluster.stop()

    return on_virtual_time(main)
