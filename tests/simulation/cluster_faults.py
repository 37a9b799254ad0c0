"""What goes wrong in a world of a whole cluster: all that goes wrong with its quorum, and records that brokers lose."""

import zlib
from collections.abc import Callable
from typing import Final, NamedTuple

from tests.simulation.cluster_options import LOSS, Options, draw_options
from tests.simulation.cluster_world import ClusterWorld
from tests.simulation.controller_faults import END_MS, PATIENCE_MS, may_lose_records
from tests.simulation.controller_people import People
from tests.simulation.invariants import has_converged
from tests.simulation.raft_faults import Misfortune as QuorumMisfortune
from tests.simulation.raft_world import Node, trace_of

TORMENT_MS: Final = 38_000.0


class Run(NamedTuple):
    """What happened in a world."""

    seed: int
    events: int
    committed: int
    epochs: int
    controllers: int
    answers: int
    acknowledged: int
    """Records of partitions, by their leaders."""
    counts: dict[str, int]
    trace_hash: int


class Misfortune(QuorumMisfortune):
    """Lets faults happen until it is told to calm down, and people do what they do."""

    _world: ClusterWorld

    def __init__(self, world: ClusterWorld, options: Options) -> None:
        super().__init__(world)
        self._options = options
        self._deeds_random = world.streams.stream("deeds")
        self._public = People(world.cluster, self._deeds_random, world.streams.stream("writes"))
        self._deeds: dict[str, Callable[[], None]] = {
            "shutdown": self._shutdown,
            "reassign": self._public.reassign,
            "cancel": self._public.cancel,
            "topics": self._public.change_topics,
            "minimum": self._public.minimum,
            "producer ids": self._public.producer_ids,
            "decommission": self._public.decommission,
            "elect": self._public.elect,
            LOSS: self._loss,
        }

    def begin(self) -> None:
        super().begin()
        world = self._world
        world.after(3_000.0, self._create)
        world.after(4_000.0, self._public.produce)
        if self._options.deeds:
            world.after(5_000.0, self._do_something)

    def calm(self) -> None:
        super().calm()
        self._world.cluster.options = self._world.cluster.options._replace(delay_ms=1.0)
        for broker in self._world.cluster.brokers.values():
            broker.start()

    def _append(self) -> None:
        """Nobody but the controller appends."""

    def _start(self, node: Node) -> None:
        layout = self._options.layout
        is_last = node.node_id == layout.voters + layout.spares and len(self._world.cluster.brokers) > 3
        if is_last and self._world.time_ms < self._options.joins_at_ms:
            self._world.at(self._options.joins_at_ms, self._start, node)
        else:
            super()._start(node)

    # --- people ---------------------------------------------------------------------------------------------------

    def _create(self) -> None:
        """Until there is a topic."""
        cluster = self._world.cluster
        if cluster.image.topics:
            return
        self._public.create()
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
        """A machine goes down, and of its partitions' logs an end is gone; its metadata log was synced."""
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
        """A broker that loses its disk loses all its records."""
        return self._may_lose_records() and super()._wipe()

    def _may_lose_records(self) -> bool:
        """Nor while anything is decided that is not committed yet."""
        seat = self._world.cluster.active
        return seat is not None and seat.is_settled and may_lose_records(self._world.cluster)


def run_seed(seed: int, *, options: Options | None = None, story: list[str] | None = None) -> Run:
    """A whole world; raises what goes wrong in it."""
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
