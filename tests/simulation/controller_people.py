"""What people do in a cluster: topics come and go, partitions move, settings change, records are written."""

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
from tests.simulation.controller_brokers import Broker
from tests.simulation.controller_checks import Checks
from tests.simulation.controller_options import Options

TORMENT_MS: Final = 42_000.0
PRODUCE_END_MS: Final = 56_000.0


class Place(Protocol):
    """Where people live."""

    brokers: dict[int, Broker]
    options: Options
    checks: Checks
    leaving: set[int]

    @property
    def time_ms(self) -> float: ...

    @property
    def image(self) -> Image: ...

    def after(self, delay_ms: float, call: Callable[..., None], *arguments: Any) -> None: ...

    def people_ask(self, command: Command[Any], answered: Callable[[Any], None] = ...) -> bool:
        """Whether there was a controller who could look at it; what comes of it may be lost."""
        ...


class People:
    """Deeds, each of which may find nobody who does it.

    While the controller counts on records that are gone, nobody lowers a minimum to one nor creates a topic: whoever
    lost records might be the only one to have those that follow, which is beyond what is promised.
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

        self._world.people_ask(CreateTopics((topic,)), created)

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
            self._world.people_ask(AlterReassignments((Reassignment(ref, target),)))

    def cancel(self) -> None:
        ref = self._any_partition()
        if ref is not None:
            self._world.people_ask(AlterReassignments((Reassignment(ref, None),)))

    def change_topics(self) -> None:
        names = sorted(self._world.image.topics)
        if len(names) > 2:
            self._world.people_ask(DeleteTopics((TopicRef(self._random.choice(names)),)))
        else:
            self.create()

    def minimum(self) -> None:
        names = sorted(self._world.image.topics)
        if names and is_whole(self._world):
            number = str(self._random.randint(1, self._world.options.replication_factor))
            change = ConfigChanges(TOPIC, self._random.choice(names), (("min.insync.replicas", Operation.SET, number),))
            self._world.people_ask(IncrementalAlterConfigs((change,), asked_at=0))

    def producer_ids(self) -> None:
        brokers = self._world.image.brokers
        if brokers:
            broker = brokers[self._random.choice(sorted(brokers))]

            def given(block: ProducerIds) -> None:
                if block.code is ErrorCode.NONE:
                    self._world.checks.block(block.first, block.count)

            self._world.people_ask(AllocateProducerIds(broker.broker_id, broker.epoch), given)

    def decommission(self) -> None:
        world = self._world
        image = world.image
        here = [b for b in sorted(image.brokers) if b not in world.leaving and not image.brokers[b].is_fenced]
        if len(here) - 1 < world.options.replication_factor or world.leaving:
            return
        if len({image.brokers[b].rack for b in here}) > 1:
            return  # without somebody in its rack there may be nowhere to go
        broker_id = self._random.choice(here)
        if world.people_ask(DecommissionBroker(broker_id)):  # whether it is carried out, the image will tell
            world.leaving.add(broker_id)

    def elect(self) -> None:
        self._world.people_ask(ElectLeaders(None))


def is_whole(world: Place) -> bool:
    """Whether everybody who lost records has said so: until then, the controller counts on what is not there."""
    return not any(
        broker.last_epoch < 0
        and (known := world.image.brokers.get(number)) is not None
        and (not broker.is_up or known.epoch != broker.epoch)
        for number, broker in world.brokers.items()
    )
