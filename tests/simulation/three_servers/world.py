"""Worlds of whole servers by seed: three real nodes, each broker and controller, and two operators.

The operators create and delete topics through any node that answers, while the nemesis kills, power-cuts, pauses and
partitions the nodes. Invariants: one active controller per epoch; at one offset of the metadata log all nodes have the
same cluster; whatever was acknowledged to an operator lasts, in all lives of all nodes. When the faults end, all nodes
are unfenced, agree, and go on.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from random import Random
from typing import Final, NamedTuple, NoReturn

from penstock.client.bootstrap import Address
from penstock.client.cluster import Cluster
from penstock.client.errors import ClientError
from penstock.client.ports import ClientPorts
from penstock.metadata.image import Image
from penstock.metadata.settings.layers import BrokerSettings
from penstock.model.errors import ErrorCode, ProtocolError
from penstock.server.node import Node
from penstock.server.settings import (
    SUPPORTED_FEATURES,
    CannotStart,
    ListenerSettings,
    Membership,
    NodeSettings,
)
from penstock.simulator.nemesis import Nemesis
from penstock.simulator.node import Ports
from penstock.simulator.options import FaultOptions, draw_options
from penstock.simulator.randomness import Streams
from penstock.simulator.world import World
from penstock.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from penstock.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from penstock.wire.types import ZERO_UUID

LOGGER: Final = logging.getLogger("penstock")
PORT: Final = 9092
CONTROLLER_PORT: Final = 9093
NODES: Final = (1, 2, 3)
TORMENT_S: Final = 10.0
END_S: Final = 20.0
FAULTS: Final = "kills, cuts and the like"
"""The name under which they are counted."""
LOOK_S: Final = 0.1
HASTE: Final = 0.25
SNAPSHOT_BYTES: Final = 4_000
REQUEST_MS: Final = 1_500
ONCE: Final = 1
"""A time-out that leaves no time for a retry."""
OPERATORS: Final = ("operator-1", "operator-2")


class Broken(AssertionError):
    """An invariant does not hold."""


@dataclass
class Book:
    """What was observed and acknowledged in all lives of all nodes."""

    leaders: dict[int, int] = field(default_factory=dict)
    images: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By offset: a hash of the cluster, and the node that had it first."""
    there: dict[str, None] = field(default_factory=dict)
    """Topics whose creation was acknowledged."""
    gone: dict[str, None] = field(default_factory=dict)
    """Topics whose deletion was acknowledged; names are used once."""
    answers: Counter[str] = field(default_factory=Counter)
    breaches: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def breach(self, what: str) -> NoReturn:
        self.breaches.append(what)
        raise Broken(what)

    def leads(self, node_id: int, epoch: int) -> None:
        if self.leaders.setdefault(epoch, node_id) != node_id:
            self.breach(f"epoch {epoch} has two active controllers, {self.leaders[epoch]} and {node_id}")

    def has(self, node_id: int, offset: int, image: Image) -> None:
        found = digest(image)
        first, other = self.images.setdefault(offset, (found, node_id))
        if first != found:
            self.breach(f"at offset {offset} nodes {other} and {node_id} have different clusters")


def digest(image: Image) -> int:
    """A hash of the cluster: topics, their partitions, brokers."""
    topics = tuple(
        (name, topic.topic_id, tuple(topic.partitions.values())) for name, topic in sorted(image.topics.items())
    )
    brokers = tuple((broker.broker_id, broker.epoch, broker.is_fenced) for _, broker in sorted(image.brokers.items()))
    return hash((topics, brokers, image.next_producer_id))


class Server:
    """A node, in all its lives."""

    def __init__(self, node_id: int, book: Book, settings: NodeSettings) -> None:
        self.node_id = node_id
        self._book = book
        self._settings = settings
        self.node: Node | None = None

    async def live(self, ports: Ports) -> None:
        failed: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def fail(sentence: str) -> None:
            if not failed.done():
                failed.set_result(sentence)

        node = Node(ports, self._settings, on_failure=fail)
        await node.start()
        self._look_at_damage(node.storage.directory.findings.damage)
        controller = node.member.controller
        controller.subscribe(lambda _changes, image: self._book.has(self.node_id, controller.position, image))
        self.node = node
        self._book.failures.append(f"node {self.node_id}: {await failed}")
        await node.stop()

    def _look_at_damage(self, damage: list[str]) -> None:
        if damage:
            self._book.breach(f"what was promised is damaged: {damage}")

    def look(self) -> None:
        """Notes the active controller."""
        node = self.node
        controller = None if node is None else node.member.controller
        if controller is not None and controller.is_active and controller.runtime.leading is not None:
            self._book.leads(self.node_id, controller.runtime.leading.epoch)


class Operator:
    """Creates topics, and deletes some of them again.

    Each request is sent once: one without a response may be carried out much later, and nothing is expected of it.
    """

    def __init__(self, name: str, book: Book, random: Random) -> None:
        self._name = name
        self._book = book
        self._random = random
        self.is_working = True
        self.is_done = False

    async def run(self, ports: Ports) -> None:
        bootstrap = [f"node-{node_id}:{PORT}" for node_id in NODES]
        self._random.shuffle(bootstrap)
        options = ClientPorts(ports.network, ports.clock, ports.entropy)
        cluster = Cluster(bootstrap, ports=options, request_timeout_ms=2_000, connect_timeout_ms=500)
        number = 0
        while self.is_working:
            number += 1
            name = f"{self._name}.{number}"
            if await self._make(cluster, name) and self._random.random() < 0.4:
                await self._delete(cluster, name)
            await asyncio.sleep(self._random.uniform(0.02, 0.3))
        await cluster.close()
        self.is_done = True

    async def _make(self, cluster: Cluster, name: str) -> bool:
        partitions, replicas = self._random.choice((1, 2, 6)), self._random.choice((1, 2, 3))
        topic = CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=replicas, assignments=(), configs=()
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=REQUEST_MS)
        try:
            response = await cluster.ask_controller(request, CreateTopicsResponse, _no_codes, timeout_ms=ONCE)
        except ClientError:
            self._book.answers["no answer"] += 1
            return False
        code = response.topics[0].error_code
        if code is not ErrorCode.NONE:
            self._book.answers[code.name] += 1
            await self._look_around(cluster)
            return False
        self._book.there[name] = None
        self._book.answers["made"] += 1
        return True

    async def _delete(self, cluster: Cluster, name: str) -> None:
        del self._book.there[name]  # unknown from now on, until there is a response
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name, topic_id=ZERO_UUID)], timeout_ms=REQUEST_MS)
        try:
            response = await cluster.ask_controller(request, DeleteTopicsResponse, _no_codes, timeout_ms=ONCE)
        except ClientError:
            return
        if response.responses[0].error_code is ErrorCode.NONE:
            self._book.gone[name] = None
            self._book.answers["deleted"] += 1

    async def _look_around(self, cluster: Cluster) -> None:
        with suppress(ClientError):
            await cluster.refresh(timeout_ms=ONCE)


def _no_codes(_response: object) -> tuple[()]:
    return ()


class Run(NamedTuple):
    """The result of a world."""

    made: int
    deleted: int
    epochs: int
    faults: int
    snapshots: int
    offset: int
    events: int
    trace_hash: str

    @property
    def counts(self) -> dict[str, int]:
        """The number of faults, by kind."""
        return {FAULTS: self.faults}


def settings_for(node_id: int) -> NodeSettings:
    voters = tuple((each, Address(f"node-{each}", CONTROLLER_PORT)) for each in NODES)
    return NodeSettings(
        "simulated",
        node_id=node_id,
        listeners=(ListenerSettings(host="", port=PORT, advertised=Address(f"node-{node_id}", PORT)),),
        allow_plaintext_beyond_loopback=True,
        stop_ms=5_000,
        features=SUPPORTED_FEATURES,
        ledger_bytes=4_096,
        reserve_bytes=1_000,
        membership=Membership(listener=ListenerSettings("CONTROLLER", "", CONTROLLER_PORT), voters=voters),
        broker=BrokerSettings(
            {
                "metadata.log.max.record.bytes.between.snapshots": str(SNAPSHOT_BYTES),
            }
        ),
    )


def options_for(seed: int) -> FaultOptions:
    options = draw_options(Streams(seed).stream("options"))
    # A disk that fails takes its node out for good: after two of those there is no majority.
    options.disk_write_error = options.disk_sync_error = options.disk_read_error = 0.0
    options.down_s_max = min(options.down_s_max, 3.0)
    options.pause_s_max = min(options.pause_s_max, 4.0)
    options.partition_s_mean = min(options.partition_s_mean, 3.0)
    # A connection counts as dead after five seconds: messages that are later would outlast the calm.
    options.straggler_s_max = min(options.straggler_s_max, 3.0)
    for kind in ("partition", "reset", "clog", "blackhole", "kill", "power_cut", "pause", "clock"):
        name = f"{kind}_every_s"
        setattr(options, name, getattr(options, name) * HASTE)  # the world is short
    options.delay_s_mean = min(options.delay_s_mean, 0.01)
    options.loss = min(options.loss, 0.05)
    return options


class Theatre:
    """One world from its beginning to its end."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.book = Book()
        self.servers = {node_id: Server(node_id, self.book, settings_for(node_id)) for node_id in NODES}
        self.names = [f"node-{node_id}" for node_id in NODES]
        for node_id, name in zip(NODES, self.names, strict=True):
            world.add(name, self.servers[node_id].live, tolerates=(OSError, CannotStart, ProtocolError))
        self.operators = [Operator(name, self.book, world.streams.stream(name)) for name in OPERATORS]
        for name, operator in zip(OPERATORS, self.operators, strict=True):
            world.add(name, operator.run)
        self.nemesis = Nemesis(world, self.names, list(OPERATORS))

    def play(self) -> Run:
        world, book = self.world, self.book
        for name in (*self.names, *OPERATORS):
            world.start(name)
        self._run(1.0)
        self.nemesis.torment()
        self._run(TORMENT_S - 1.0)
        self.nemesis.calm()
        world.network.settings.loss = world.network.settings.straggler = 0.0
        world.options.slow_sync = 0.0
        made_before = book.answers["made"]
        self._run(5.0)
        for operator in self.operators:
            operator.is_working = False
        self._run(END_S - TORMENT_S - 5.0)
        events, trace_hash = world.loop.events, world.trace_hash
        offset, snapshots = self._check_end(made_before)
        return Run(
            book.answers["made"],
            book.answers["deleted"],
            len(book.leaders),
            self.nemesis.faults,
            snapshots,
            offset,
            events,
            trace_hash,
        )

    def _run(self, seconds: float) -> None:
        end_s = self.world.loop.time() + seconds
        while self.world.loop.time() < end_s:
            self.world.run(min(LOOK_S, max(0.001, end_s - self.world.loop.time())))
            for server in self.servers.values():
                server.look()
            if self.book.breaches:
                raise Broken(self.book.breaches[0])

    def _check_end(self, made_before: int) -> tuple[int, int]:
        book = self.book
        if book.failures:
            raise Broken(f"a node went out: {book.failures}")
        images = {}
        snapshots = 0
        for node_id, server in self.servers.items():
            node = server.node
            if node is None or not node.health.is_serving:
                raise Broken(f"node {node_id} does not serve in the end")
            fenced = [each.broker_id for each in node.member.controller.image.brokers.values() if each.is_fenced]
            if fenced or len(node.member.controller.image.brokers) != len(NODES):
                raise Broken(
                    f"node {node_id} knows {list(node.member.controller.image.brokers)} and takes {fenced} for fenced"
                )
            images[node_id] = digest(node.member.controller.image)
            snapshots += len(node.member.quorum.shelf.ids)
            names = node.member.controller.image.topics
            if lost := [name for name in book.there if name not in names]:
                raise Broken(f"{lost[:5]} were made and are not known to node {node_id}")
            if back := [name for name in book.gone if name in names]:
                raise Broken(f"{back[:5]} were deleted and are known to node {node_id}")
            self._check_logs(node)
        if len(dict.fromkeys(images.values())) != 1:
            raise Broken(f"nodes do not agree in the end: {images}")
        if not all(operator.is_done for operator in self.operators):
            raise Broken("an operator still waits for an answer, long after all was mended")
        if book.answers["made"] < made_before + 5:
            raise Broken(f"only {book.answers['made'] - made_before} topics were made after all was mended")
        assert node is not None
        return node.member.controller.position, snapshots

    def _check_logs(self, node: Node) -> None:
        """Checks that a node has the logs of its replicas, and leads as in the image."""
        image, node_id = node.member.controller.image, node.settings.node_id
        for name, topic in image.topics.items():
            for index, placed in topic.partitions.items():
                has_log = f"{name}-{index}" in node.storage.directory.logs
                if has_log != (node_id in placed.replicas):
                    raise Broken(f"node {node_id}: {name}-{index} lies on {placed.replicas}, but has_log={has_log}")
                leads = node.broker.partitions.named(name, index) is not None
                if leads != (placed.leader == node_id):
                    raise Broken(f"node {node_id}: {name}-{index} is led by {placed.leader}, but leads={leads}")


def run_seed(seed: int, story: list[str] | None = None) -> Run:
    """Runs one world of twenty virtual seconds."""
    with silence(), World(seed, options_for(seed), keeps_trace=story is not None) as world:
        if story is not None:
            world.trace.kept = story
        return Theatre(world).play()


@contextmanager
def silence() -> Iterator[None]:
    """Silences the nodes' log messages about injected faults for the duration of a world."""
    before = LOGGER.level
    LOGGER.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        LOGGER.setLevel(before)
