"""Faults in a world of controller cores, and its operators."""

from collections.abc import Callable
from random import Random
from typing import Final, NamedTuple

from penstock.metadata.image import TOPIC
from tests.simulation.controller_core.brokers import Broker
from tests.simulation.controller_core.operators import TORMENT_MS, Operators, Place
from tests.simulation.controller_core.options import Options, draw_options
from tests.simulation.controller_core.world import World
from tests.simulation.kit.invariants import has_converged

END_MS: Final = 60_000.0
FULL_WORLDS: Final = 0.3
"""The share of worlds in which disks fill up."""
PATIENCE_MS: Final = 90_000.0
"""The time limit to converge: slow moves, or followers that fall behind repeatedly, take longer."""


class Run(NamedTuple):
    """The result of a world."""

    seed: int
    events: int
    batches: int
    acknowledged: int
    counts: dict[str, int]
    trace_hash: int


class Misfortune:
    """Injects faults until `calm`."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random: Random = world.streams.stream("faults")
        self._disks: Random = world.streams.stream("full disks")
        self._operators = Operators(world, self._random, world.streams.stream("people"))
        self._deeds: dict[str, Callable[[], None]] = {
            "crash": self._crash,
            "loss": self._loss,
            "pause": self._pause,
            "cut off": self._cut_off,
            "stall": self._stall,
            "brink": self._brink,
            "failover": self._world.elect_controller,
            "shutdown": self._shutdown,
            "reassign": self._operators.reassign,
            "cancel": self._operators.cancel,
            "topics": self._operators.change_topics,
            "minimum": self._operators.minimum,
            "producer ids": self._operators.producer_ids,
            "join": self._join,
            "decommission": self._operators.decommission,
            "lost peer": self._lost_peer,
            "elect": self._operators.elect,
        }

    def begin(self) -> None:
        world = self._world
        world.elect_controller()
        for broker_id in range(1, world.options.brokers + 1):
            world.brokers[broker_id].start()
        world.after(3_000.0, self._operators.create)
        world.after(4_000.0, self._operators.produce)
        if world.options.faults:
            world.after(5_000.0, self._strike)
        if self._disks.random() < FULL_WORLDS:
            world.after(5_000.0, self._fill)

    def calm(self) -> None:
        """Heals all faults."""
        world = self._world
        world.is_calm = True
        world.options = world.options._replace(delay_ms=1.0)
        world.tell("calms down")
        world.go_on()
        for broker_id, broker in world.brokers.items():
            broker.is_cut_off = broker.is_paused = broker.is_full = False
            if broker_id <= world.options.brokers or broker.life or broker_id in world.image.brokers:
                broker.start()

    # --- faults ---------------------------------------------------------------------------------------------------

    def _strike(self) -> None:
        world = self._world
        if world.is_calm:
            return
        world.after(2 * self._random.random() * world.options.fault_every_ms, self._strike)
        fault = self._random.choice(world.options.faults)
        world.counts[fault] += 1
        world.tell(f"fault: {fault}")
        self._deeds[fault]()

    def _join(self) -> None:
        for broker in self._world.brokers.values():
            if broker.broker_id > self._world.options.brokers and not broker.is_up and broker.life == 0:
                broker.start()
                return

    def _any_broker(self) -> Broker:
        brokers = [broker for broker in self._world.brokers.values() if broker.life or broker.is_up]
        return self._random.choice(brokers)

    def _crash(self) -> None:
        broker = self._any_broker()
        broker.stop(loses=False)
        self._world.after(self._random.choice((100.0, 1_000.0, 8_000.0)), broker.start)

    def _loss(self) -> None:
        world = self._world
        broker = self._any_broker()
        if broker.is_up and may_lose_records(world):
            broker.stop(loses=True)
            world.counts["really lost"] += 1
            world.after(self._random.choice((100.0, 4_000.0)), broker.start)

    def _pause(self) -> None:
        broker = self._any_broker()
        broker.is_paused = True
        self._world.after(self._random.choice((500.0, 5_000.0)), self._resume, broker)

    def _resume(self, broker: Broker) -> None:
        broker.is_paused = False

    def _cut_off(self) -> None:
        broker = self._any_broker()
        broker.is_cut_off = True
        self._world.after(self._random.choice((1_000.0, 6_000.0)), self._mend, broker)

    def _mend(self, broker: Broker) -> None:
        broker.is_cut_off = False

    def _fill(self) -> None:
        """Fills or frees a disk. It has its own stream and schedule, so that worlds without it stay unchanged."""
        world = self._world
        if world.is_calm:
            return
        broker = self._disks.choice(list(world.brokers.values()))
        broker.is_full = not broker.is_full
        world.counts["full disk"] += broker.is_full
        world.tell(f"the disk of broker {broker.broker_id} {'is full' if broker.is_full else 'has room'}")
        world.after(self._disks.choice((100.0, 1_000.0, 3_000.0)), self._fill)

    def _stall(self) -> None:
        self._world.stall()
        self._world.after(self._random.choice((500.0, 4_000.0, 9_000.0)), self._world.go_on)

    def _brink(self) -> None:
        """Cuts off a broker until its session has almost expired; the controller stalls when it is reachable again."""
        world, broker = self._world, self._any_broker()
        broker.is_cut_off = True
        nearly_ms = world.session_ms - 250.0 * self._random.random()
        world.after(nearly_ms, world.stall)
        world.after(nearly_ms, self._mend, broker)
        world.after(nearly_ms + 1_500.0, world.go_on)

    def _shutdown(self) -> None:
        broker = self._any_broker()
        if broker.is_up and broker.epoch >= 0:
            broker.wants_shutdown = True

    def _lost_peer(self) -> None:
        """Stops a broker's process, and lets a probe report that."""
        broker = self._any_broker()
        broker.lost_epoch = broker.epoch
        broker.stop(loses=False)
        if self._world.active is not None:
            self._world.active.lose(broker.broker_id, broker.lost_epoch)
        self._world.after(2_000.0, broker.start)


def may_lose_records(world: Place) -> bool:
    """Whether a broker may lose records: only one lacks some at a time, as KIP-966 covers (with two in sync)."""
    image = world.image
    are_safe = all(
        set(partition.isr) == set(partition.replicas)
        and len(partition.isr) >= 2
        and not partition.adding_replicas
        and int(image.config(TOPIC, topic.name)["min.insync.replicas"]) >= 2
        for topic in image.topics.values()
        for partition in topic.partitions.values()
    )
    return are_safe and all(
        world.brokers[number].is_up and world.brokers[number].epoch == registered.epoch
        for number, registered in image.brokers.items()
    )


def run_seed(seed: int, *, story: list[str] | None = None, options: Options | None = None) -> Run:
    """Runs a world; raises `Broken` or another exception on failure."""
    world = World(seed, options or draw_options(seed), story)
    misfortune = Misfortune(world)
    misfortune.begin()
    world.run(TORMENT_MS)
    misfortune.calm()
    world.run(END_MS)
    while not has_converged(lambda: world.checks.end(world.active)) and world.time_ms < PATIENCE_MS:
        world.run(world.time_ms + 2_000.0)
    world.checks.end(world.active)
    return Run(
        seed,
        world.events,
        world.checks.batches,
        sum(map(len, world.checks.acknowledged.values())),
        dict(world.counts),
        world.trace,
    )
