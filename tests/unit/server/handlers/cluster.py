"""A stand that has a controller: a cluster of one node on a lossy disk, on virtual time. And requests for it."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
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
from penstock.server.adoption import Adoption
from penstock.server.complaints import Complaints
from penstock.server.controller_channel import ControllerChannel
from penstock.server.controller_runner import ControllerRunner
from penstock.server.departures import Departures
from penstock.server.dispatch import Dispatch
from penstock.server.group_commit import GroupCommit
from penstock.server.handlers.metadata import metadata
from penstock.server.membership import Membership
from penstock.server.metadata_answer import TopicPieces
from penstock.server.node import BROKER_ONLY, CONTROLLER_HANDLERS
from penstock.server.partitions import Partitions
from penstock.server.predecessors import Predecessors
from penstock.server.producer_ids import ProducerIds
from penstock.server.quorum_peers import QuorumPeers
from penstock.server.quorum_runner import QuorumRunner
from penstock.server.replica_messages import ReplicaMessages
from penstock.server.replica_runner import ReplicaRunner
from penstock.server.serving import Call
from penstock.server.settings import Feature
from penstock.server.topic_settings import Wardrobe
from penstock.server.upkeep_loop import Upkeep
from penstock.simulator.entropy import SimulatedEntropy
from penstock.simulator.loop import new_loop
from penstock.wire.api import Api
from penstock.wire.codec import decode, encode
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.unit.server.handlers.stand import Stand, finish, read_answer

T = TypeVar("T")

NODE = 1
LOCAL = "192.168.7.7:9092"
LISTENERS = (BrokerEndpoint(name="PLAINTEXT", host="localhost", port=9092, security_protocol=0),)
FEATURES = (Feature("metadata.version", 1, 29, 29), Feature("group.version", 0, 1, 0))
ONE_REPLICA = {f"{prefix}.replication.factor": "1" for prefix in ("offsets.topic", "transaction.state.log")}


class Cluster(Stand):
    """One life of the node: from `start` to `stop` or `crash`."""

    def __init__(self, disk: LossyDisk, settings: dict[str, str] | None = None, seed: int = 1) -> None:
        super().__init__(disk)
        self.entropy = SimulatedEntropy(Random(seed))
        self.static = BrokerSettings({**ONE_REPLICA, **(settings or {})})
        self.sentences: list[str] = []
        self.complaints = Complaints()
        self.local = LOCAL
        self.cluster_id = "c"
        self._tasks: list[asyncio.Task[None]] = []

    async def load(self) -> None:
        """Up to where the metadata log is read."""
        self.directory = await open_directory(
            self.disk, cluster_id="c", node_id=NODE, entropy=self.entropy, now_ms=self.clock.wall_ms()
        )
        self.partitions = Partitions()
        self.upkeep = Upkeep(self.directory, self.partitions, self.clock)
        self.controller = ControllerRunner(self.clock, self.entropy, NODE, self.static, FEATURES, self.on_failure)
        directory_id = bytes.fromhex(self.directory.identity["directory_id"])
        self.quorum = QuorumRunner(
            self.directory,
            self.clock,
            self.entropy,
            NODE,
            self.controller,
            settings=QuorumSettings(),
            bootstrap=VoterSet([Voter(ReplicaKey(NODE, directory_id))]),
            lock=self.upkeep.lock,
            on_failure=self.on_failure,
            on_warning=self.complaints.say,
        )
        self.controller.quorum = self.quorum
        await self.quorum.load()
        self.rounds = GroupCommit(self.directory, self.on_round)
        self.committing = self._run(self.rounds.run())
        ports = ClientPorts(cast("Any", None), self.clock, self.entropy)
        peers = QuorumPeers(ports, "c", 1_000, self.quorum.endpoint_of)
        routes = Dispatch(CONTROLLER_HANDLERS, leaves_out=BROKER_ONLY).routes
        self.channel = ControllerChannel(cast("Any", self), ports, self.controller, self.quorum, routes)
        self.quorum.start(peers)
        await self.controller.until(lambda: self.controller.is_active)

    async def start(self) -> None:
        """As a node does."""
        await self.load()
        self.predecessors = Predecessors()
        self.fetch_sessions = FetchSessions(self.entropy)
        wardrobe = Wardrobe(self.controller)
        ports = ClientPorts(cast("Any", None), self.clock, self.entropy)
        self.departures = Departures(self.clock)
        messages = ReplicaMessages(ports, self.channel, self.controller, self.departures)
        self.replicas = ReplicaRunner(
            self.controller, self.clock, self.directory, self.partitions, wardrobe, self.upkeep, messages
        )
        self.adoption = Adoption(self.controller, self.directory, self.replicas, wardrobe, self.upkeep.lock)
        self.topic_pieces = TopicPieces()
        self.producer_ids = cast("Any", ProducerIds(self.controller, self.channel))
        membership = Membership(
            self.controller,
            self.channel,
            cluster_id="c",
            directory_id=bytes.fromhex(self.directory.identity["directory_id"]),
            listeners=LISTENERS,
            features=FEATURES,
            rack=None,
            clock=self.clock,
            on_failure=self.on_failure,
        )
        await membership.register(-1)
        await membership.caught_up()
        await self.replicas.begin(membership.epoch)
        await self.adoption.start()
        self._run(self.adoption.run())
        self._run(membership.run())

    def on_failure(self, sentence: str) -> None:
        self.sentences.append(sentence)
        self.controller.fail(self.quorum.offline_reason or sentence)

    def probe(self, broker_id: int, broker_epoch: int) -> None:
        """Nobody else is here."""

    def on_round(self, covered: Any) -> None:
        super().on_round(covered)
        if hasattr(self, "replicas"):
            self.replicas.synced(covered)
        self.quorum.advance()

    def _run(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        self._tasks.append(asyncio.get_running_loop().create_task(work))
        return self._tasks[-1]

    async def stop(self) -> None:
        """Cleanly."""
        await self.quorum.stop()
        self.rounds.stop()
        await self.committing
        await self.crash()
        await self.directory.close()

    async def crash(self) -> None:
        """Nothing runs any more; what is on the disk is the disk's affair."""
        if hasattr(self, "replicas"):
            await self.replicas.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.quorum.stop()

    def call(self, api: int, version: int, correlation_id: int = 7, *, request_bytes: int = 0) -> Call:
        node = cast("Any", self)
        return Call(
            node, Api(api), version, correlation_id, "me", "10.0.0.9:1", self.local, request_bytes=request_bytes
        )

    async def create(self, *topics: NewTopic | str) -> list[CreatedTopic]:
        """Topics past all handlers, ready to be written."""
        wanted = tuple(NewTopic(topic) if isinstance(topic, str) else topic for topic in topics)
        results = await self.controller.ask(CreateTopics(wanted))
        assert not any(result.code for result in results), results
        await self.adoption.settled([topic.name for topic in wanted])
        return list(results)

    async def metadata(self, *names: str | None, version: int = 13, **options: Any) -> MetadataResponse:
        """By name; None for all topics."""
        topics = None if names == (None,) else [MetadataRequestTopic(name=name) for name in names]
        return await self.ask_metadata(MetadataRequest(topics=topics, **options), version)

    async def ask_metadata(self, request: MetadataRequest, version: int) -> MetadataResponse:
        asked = decode(MetadataRequest, version, encode(request, version))
        answer = await finish(await metadata(asked, self.call(3, version)))
        return cast("MetadataResponse", read_answer(answer, 3, version))

    @property
    def topic_logs(self) -> dict[str, Log]:
        return {name: log for name, log in self.directory.logs.items() if not name.startswith("__cluster")}


def a_disk(sync_s: float = 0.0, seed: int = 1, **faults: Any) -> LossyDisk:
    async def delay(_operation: str, _path: str) -> None:
        await asyncio.sleep(sync_s)

    return LossyDisk(MemoryDisk(), Random(seed), Faults(**faults), delay=delay if sync_s else None)


def on_virtual_time(story: Callable[[], Awaitable[T]]) -> T:
    """Tells a story of several lives."""
    loop = new_loop()
    try:
        return loop.run_until_complete(story())
    finally:
        loop.close()


def clustered(
    story: Callable[[Cluster], Awaitable[T]], *, sync_s: float = 0.0, settings: dict[str, str] | None = None
) -> T:
    """Tells a story of one life, which ends cleanly."""

    async def main() -> T:
        cluster = Cluster(a_disk(sync_s), settings)
        await cluster.start()
        try:
            return await story(cluster)
        finally:
            await cluster.stop()

    return on_virtual_time(main)
