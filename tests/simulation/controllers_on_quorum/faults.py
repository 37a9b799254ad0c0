"""Faults in a world of a whole cluster: all faults of its quorum, and records that brokers lose."""

import zlib
from collections.abc import Callable
from typing import Final, NamedTuple

from tests.simulation.controller_core.faults import END_MS, PATIENCE_MS, may_lose_records
from tests.simulation.controller_core.operators import Operators
from tests.simulation.controllers_on_quorum.options import LOSS, Options, draw_options
from tests.simulation.controllers_on_quorum.world import ClusterWorld
from tests.simulation.kit.invariants import has_converged
from tests.simulation.raft_core.faults import Misfortune as QuorumMisfortune
from tests.simulation.raft_core.world import Node, trace_of

TORMENT_MS: Final = 38_000.0


class Run(NamedTuple):
    """The result of a world."""

    seed: int
    events: int
    committed: int
    epochs: int
    controllers: int
    answers: int
    acknowledged: int
    """Records of partitions, acknowledged by their leaders."""
    counts: dict[str, int]
    trace_hash: int


class Misfortune(QuorumMisfortune):
    """Injects faults until `calm`, and runs operators and producers."""

    _world: ClusterWorld

    def __init__(self, world: ClusterWorld, options: Options) -> None:
        super().__init__(world)
        self._options = options
        self._deeds_random = world.streams.stream("deeds")
        self._operators = Operators(world.cluster, self._deeds_random, world.streams.stream("writes"))
        self._deeds: dict[str, Callable[[], None]] = {
            "shutdown": self._shutdown,
            "reassign": self._operators.reassign,
            "cancel": self._operators.cancel,
            "topics": self._operators.change_topics,
            "minimum": self._operators.minimum,
            "producer ids": self._operators.producer_ids,
            "decommission": self._operators.decommission,
            "elect": self._operators.elect,
            LOSS: self._loss,
        }

    def begin(self) -> None:
        super().begin()
        world = self._world
        world.after(3_000.0, self._create)
        world.after(4_000.0, self._operators.produce)
        if self._options.deeds:
            world.after(5_000.0, self._do_something)

    def calm(self) -> None:
        super().calm()
        self._world.cluster.options = self._world.cluster.options._replace(delay_ms=1.0)
        for broker in self._world.cluster.brokers.values():
            broker.start()

    def _append(self) -> None:
        """Does nothing: only the controller appends."""

    def _start(self, node: Node) -> None:
        layout = self._options.layout
        is_last = node.node_id == layout.voters + layout.spares and len(self._world.cluster.brokers) > 3
        if is_last and self._world.time_ms < self._options.joins_at_ms:
            self._world.at(self._options.joins_at_ms, self._start, node)
        else:
            super()._start(node)

    # --- operators ------------------------------------------------------------------------------------------------

    def _create(self) -> None:
        """Creates a topic, and retries until there is one."""
        cluster = self._world.cluster
        if cluster.image.topics:
            return
        self._operators.create()
        self._world.after(2_000.0, self._create)

    def _do_something(self) -> None:
        world = self._world
        if world.is_calm:
            return
        world.after(2 * self._deeds_random.random() * self._options.deed_every_ms, self._do_something)
        deed = self._deeds_random.choice(self._options.deeds)
        world.counts[deed] += 1
        self._deeds[deed]()

    def _shutdown(self) -> None:
        broker = self._deeds_random.choice(list(self._world.cluster.brokers.values()))
        if broker.is_up and broker.epoch >= 0:
            broker.wants_shutdown = True

    # --- faults ---------------------------------------------------------------------------------------------------

    def _loss(self) -> None:
        """A machine goes down and loses the ends of its partitions' logs; its metadata log was synced."""
        cluster = self._world.cluster
        broker = self._deeds_random.choice(list(cluster.brokers.values()))
        node = self._world.nodes[broker.broker_id]
        if broker.is_up and self._may_lose_records():
            self._world.counts["really lost"] += 1
            cluster.broke(broker)
            broker.stop(loses=True)
            node.crash()
            self._world.after(4_000.0 * self._deeds_random.random(), self._start, node)

    def _wipe(self) -> bool:
        """Wipes a disk if brokers may lose records: a broker without its disk loses all of them."""
        return self._may_lose_records() and super()._wipe()

    def _may_lose_records(self) -> bool:
        """Whether a broker may lose records; not while any decision is uncommitted."""
        active = self._world.cluster.active
        return active is not None and active.is_settled and may_lose_records(self._world.cluster)


def run_seed(seed: int, *, options: Options | None = None, story: list[str] | None = None) -> Run:
    """Runs a whole world; raises the first failure."""
    drawn = options if options is not None else draw_options(seed)
    world = ClusterWorld(seed, drawn, story=story.append if story is not None else None)
    misfortune = Misfortune(world, drawn)
    misfortune.begin()
    world.run(TORMENT_MS)
    misfortune.calm()
    world.run(END_MS)
    cluster = world.cluster
    while not has_converged(cluster.end) and world.time_ms < PATIENCE_MS:
        world.run(world.time_ms + 2_000.0)
    cluster.end()
    return Run(
        seed,
        world.events,
        len(world.checks.committed),
        len(world.checks.leaders),
        world.counts["controllers"],
        cluster.answers,
        sum(map(len, cluster.checks.acknowledged.values())),
        dict(world.counts),
        zlib.crc32(repr((trace_of(world), cluster.checks.acknowledged)).encode()),
    )
