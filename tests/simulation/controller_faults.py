"""What goes wrong in a world of controller cores, and what people do there."""

from collections.abc import Callable
from random import Random
from typing import Final, NamedTuple

from penstock.metadata.cluster_commands import (
    AlterReassignments,
    DecommissionBroker,
    ElectLeaders,
    PartitionRef,
    Reassignment,
)
from penstock.metadata.commands import (
    AllocateProducerIds,
    ConfigChanges,
    CreateTopics,
    DeleteTopics,
    IncrementalAlterConfigs,
    NewTopic,
    Operation,
    ProducerIds,
    TopicRef,
)
from penstock.metadata.image import TOPIC
from penstock.model.errors import ErrorCode
from tests.simulation.controller_options import Options, draw_options
from tests.simulation.controller_world import Broker, World

TORMENT_MS: Final = 42_000.0
END_MS: Final = 60_000.0
PRODUCE_END_MS: Final = 56_000.0


class Run(NamedTuple):
    """What happened in a world."""

    seed: int
    events: int
    batches: int
    acknowledged: int
    counts: dict[str, int]
    trace_hash: int


class Misfortune:
    """Lets faults happen until it is told to calm down."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random: Random = world.streams.stream("faults")
        self._people: Random = world.streams.stream("people")
        self._values = 0
        self._topics = 0
        self._deeds: dict[str, Callable[[], None]] = {
            "crash": self._crash,
            "loss": self._loss,
            "pause": self._pause,
            "cut off": self._cut_off,
            "stall": self._stall,
            "failover": self._world.elect_controller,
            "shutdown": self._shutdown,
            "reassign": self._reassign,
            "cancel": self._cancel,
            "topics": self._change_topics,
            "minimum": self._minimum,
            "producer ids": self._producer_ids,
            "join": self._join,
            "decommission": self._decommission,
            "lost peer": self._lost_peer,
            "elect": self._elect,
        }

    def begin(self) -> None:
        world = self._world
        world.elect_controller()
        for broker_id in range(1, world.options.brokers + 1):
            world.brokers[broker_id].start()
        world.after(3_000.0, self._create)
        world.after(4_000.0, self._produce)
        if world.options.faults:
            world.after(5_000.0, self._strike)

    def calm(self) -> None:
        """Everything is mended."""
        world = self._world
        world.is_calm = True
        world.options = world.options._replace(delay_ms=1.0)
        world.tell("calms down")
        world.go_on()
        for broker_id, broker in world.brokers.items():
            broker.is_cut_off = broker.is_paused = False
            if broker_id <= world.options.brokers or broker.life or broker_id in world.log.image.brokers:
                broker.start()

    # --- people ---------------------------------------------------------------------------------------------------

    def _create(self) -> None:
        options = self._world.options
        self._topics += 1
        topic = NewTopic(
            f"topic-{self._topics}",
            options.partitions,
            options.replication_factor,
            configs=(("min.insync.replicas", str(min(options.in_sync_min, options.replication_factor))),),
        )

        def created(reply: object) -> None:
            assert isinstance(reply, tuple)
            if reply[0].code is not ErrorCode.NONE and self._world.time_ms < TORMENT_MS:
                self._world.after(1_000.0, self._create)

        self._world.people_ask(CreateTopics((topic,)), created)

    def _produce(self) -> None:
        world = self._world
        for broker in world.brokers.values():
            for where, replica in broker.replicas.items():
                if replica.leader == broker.broker_id and self._people.random() < 0.5:
                    self._values += 1
                    broker.produce(where, self._values)
        if world.time_ms < PRODUCE_END_MS:
            world.after(2 * self._people.random() * world.options.produce_every_ms, self._produce)

    def _any_partition(self) -> PartitionRef | None:
        names = sorted(self._world.log.image.topics)
        if not names:
            return None
        name = self._random.choice(names)
        return PartitionRef(name, self._random.randrange(len(self._world.log.image.topics[name].partitions)))

    def _reassign(self) -> None:
        ref = self._any_partition()
        brokers = sorted(set(self._world.log.image.brokers) - self._world.leaving)
        factor = self._world.options.replication_factor
        if ref is not None and len(brokers) >= factor:
            target = tuple(self._random.sample(brokers, factor))
            self._world.people_ask(AlterReassignments((Reassignment(ref, target),)))

    def _cancel(self) -> None:
        ref = self._any_partition()
        if ref is not None:
            self._world.people_ask(AlterReassignments((Reassignment(ref, None),)))

    def _change_topics(self) -> None:
        names = sorted(self._world.log.image.topics)
        if len(names) > 2:
            self._world.people_ask(DeleteTopics((TopicRef(self._random.choice(names)),)))
        else:
            self._create()

    def _minimum(self) -> None:
        names = sorted(self._world.log.image.topics)
        if names:
            number = str(self._random.randint(1, self._world.options.replication_factor))
            change = ConfigChanges(TOPIC, self._random.choice(names), (("min.insync.replicas", Operation.SET, number),))
            self._world.people_ask(IncrementalAlterConfigs((change,), asked_at=0))

    def _producer_ids(self) -> None:
        brokers = self._world.log.image.brokers
        if brokers:
            broker = brokers[self._random.choice(sorted(brokers))]

            def given(block: ProducerIds) -> None:
                if block.code is ErrorCode.NONE:
                    self._world.checks.block(block.first, block.count)

            self._world.people_ask(AllocateProducerIds(broker.broker_id, broker.epoch), given)

    def _join(self) -> None:
        for broker in self._world.brokers.values():
            if broker.broker_id > self._world.options.brokers and not broker.is_up and broker.life == 0:
                broker.start()
                return

    def _decommission(self) -> None:
        world = self._world
        image = world.log.image
        here = [b for b in sorted(image.brokers) if b not in world.leaving and not image.brokers[b].is_fenced]
        if len(here) - 1 < world.options.replication_factor or world.leaving:
            return
        if len({image.brokers[b].rack for b in here}) > 1:
            return  # without somebody in its rack there may be nowhere to go
        broker_id = self._random.choice(here)
        self._world.people_ask(DecommissionBroker(broker_id), lambda _reply: world.leaving.add(broker_id))

    def _elect(self) -> None:
        self._world.people_ask(ElectLeaders(None))

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

    def _any_broker(self) -> Broker:
        brokers = [broker for broker in self._world.brokers.values() if broker.life or broker.is_up]
        return self._random.choice(brokers)

    def _crash(self) -> None:
        broker = self._any_broker()
        broker.stop(loses=False)
        self._world.after(self._random.choice((100.0, 1_000.0, 8_000.0)), broker.start)

    def _loss(self) -> None:
        """Only one broker lacks records at a time: what is promised covers no more (KIP-966, with two in sync)."""
        world = self._world
        broker = self._any_broker()
        image = world.log.image
        are_safe = all(
            set(partition.isr) == set(partition.replicas)
            and len(partition.isr) >= 2
            and not partition.adding_replicas
            and int(image.config(TOPIC, topic.name)["min.insync.replicas"]) >= 2
            for topic in image.topics.values()
            for partition in topic.partitions.values()
        )
        are_known = all(
            world.brokers[number].is_up and world.brokers[number].epoch == registered.epoch
            for number, registered in image.brokers.items()
        )
        if are_safe and are_known and broker.is_up:
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

    def _stall(self) -> None:
        self._world.stall()
        self._world.after(self._random.choice((500.0, 4_000.0, 9_000.0)), self._world.go_on)

    def _shutdown(self) -> None:
        broker = self._any_broker()
        if broker.is_up and broker.epoch >= 0:
            broker.wants_shutdown = True

    def _lost_peer(self) -> None:
        """Its process is gone, and a probe says so."""
        broker = self._any_broker()
        broker.lost_epoch = broker.epoch
        broker.stop(loses=False)
        if self._world.active is not None:
            self._world.active.lose(broker.broker_id, broker.lost_epoch)
        self._world.after(2_000.0, broker.start)


def run_seed(seed: int, *, story: list[str] | None = None, options: Options | None = None) -> Run:
    """A world from its beginning to its end. `Broken`, or any other exception, if it is not as it should be."""
    world = World(seed, options or draw_options(seed), story)
    misfortune = Misfortune(world)
    misfortune.begin()
    world.run_until(TORMENT_MS)
    misfortune.calm()
    world.run_until(END_MS)
    world.checks.end()
    return Run(
        seed,
        world.events,
        world.checks.batches,
        sum(map(len, world.checks.acknowledged.values())),
        dict(world.counts),
        world.trace,
    )
