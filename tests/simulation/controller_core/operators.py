"""Operators and producers of a cluster: they change topics, move partitions, change settings, write records."""

from collections.abc import Callable
from random import Random
from typing import Any, Final, Protocol

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
from penstock.metadata.image import TOPIC, Image
from penstock.model.errors import ErrorCode
from penstock.model.shard import Command
from tests.simulation.controller_core.brokers import Broker
from tests.simulation.controller_core.checks import Checks
from tests.simulation.controller_core.options import Options

TORMENT_MS: Final = 42_000.0
PRODUCE_END_MS: Final = 56_000.0


class Place(Protocol):
    """The world as operators and producers see it."""

    brokers: dict[int, Broker]
    options: Options
    checks: Checks
    leaving: set[int]

    @property
    def time_ms(self) -> float: ...

    @property
    def image(self) -> Image: ...

    def after(self, delay_ms: float, call: Callable[..., None], *arguments: Any) -> None: ...

    def operators_ask(self, command: Command[Any], answered: Callable[[Any], None] = ...) -> bool:
        """Whether there was a controller to handle the request; its outcome may be lost."""
        ...


class Operators:
    """Actions of operators and producers, each of which may find no controller.

    While the controller counts on lost records, no operator lowers a minimum to one or creates a topic: a broker that
    lost records might be the only one to hold those that follow, which is more than is guaranteed.
    """

    def __init__(self, world: Place, random: Random, writes: Random) -> None:
        self._world = world
        self._random = random
        self._writes = writes
        self._values = 0
        self._topics = 0

    def create(self) -> None:
        if not is_whole(self._world):
            return
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
                self._world.after(1_000.0, self.create)

        self._world.operators_ask(CreateTopics((topic,)), created)

    def produce(self) -> None:
        world = self._world
        for broker in world.brokers.values():
            for where, replica in broker.replicas.items():
                if replica.leader == broker.broker_id and self._writes.random() < 0.5:
                    self._values += 1
                    broker.produce(where, self._values)
        if world.time_ms < PRODUCE_END_MS:
            world.after(2 * self._writes.random() * world.options.produce_every_ms, self.produce)

    def _any_partition(self) -> PartitionRef | None:
        names = sorted(self._world.image.topics)
        if not names:
            return None
        name = self._random.choice(names)
        return PartitionRef(name, self._random.randrange(len(self._world.image.topics[name].partitions)))

    def reassign(self) -> None:
        ref = self._any_partition()
        brokers = sorted(set(self._world.image.brokers) - self._world.leaving)
        factor = self._world.options.replication_factor
        if ref is not None and len(brokers) >= factor:
            target = tuple(self._random.sample(brokers, factor))
            self._world.operators_ask(AlterReassignments((Reassignment(ref, target),)))

    def cancel(self) -> None:
        ref = self._any_partition()
        if ref is not None:
            self._world.operators_ask(AlterReassignments((Reassignment(ref, None),)))

    def change_topics(self) -> None:
        names = sorted(self._world.image.topics)
        if len(names) > 2:
            self._world.operators_ask(DeleteTopics((TopicRef(self._random.choice(names)),)))
        else:
            self.create()

    def minimum(self) -> None:
        names = sorted(self._world.image.topics)
        if names and is_whole(self._world):
            number = str(self._random.randint(1, self._world.options.replication_factor))
            change = ConfigChanges(TOPIC, self._random.choice(names), (("min.insync.replicas", Operation.SET, number),))
            self._world.operators_ask(IncrementalAlterConfigs((change,), asked_at=0))

    def producer_ids(self) -> None:
        brokers = self._world.image.brokers
        if brokers:
            broker = brokers[self._random.choice(sorted(brokers))]

            def given(block: ProducerIds) -> None:
                if block.code is ErrorCode.NONE:
                    self._world.checks.block(block.first, block.count)

            self._world.operators_ask(AllocateProducerIds(broker.broker_id, broker.epoch), given)

    def decommission(self) -> None:
        world = self._world
        image = world.image
        here = [b for b in sorted(image.brokers) if b not in world.leaving and not image.brokers[b].is_fenced]
        if len(here) - 1 < world.options.replication_factor or world.leaving:
            return
        if len({image.brokers[b].rack for b in here}) > 1:
            return  # without a broker in its rack there may be nowhere to move to
        broker_id = self._random.choice(here)
        if world.operators_ask(DecommissionBroker(broker_id)):  # the image shows whether it is carried out
            world.leaving.add(broker_id)

    def elect(self) -> None:
        self._world.operators_ask(ElectLeaders(None))


def is_whole(world: Place) -> bool:
    """Whether every broker that lost records has registered so: until then, the controller counts on lost records."""
    return not any(
        broker.last_epoch < 0
        and (known := world.image.brokers.get(number)) is not None
        and (not broker.is_up or known.epoch != broker.epoch)
        for number, broker in world.brokers.items()
    )
