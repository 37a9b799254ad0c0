"""The invariants of the controller, checked after every batch of the metadata log and every commit of a partition.

Names are those of the specifications where there are any (KIP-966, reliability of partitions). `Broken.name` names the
invariant. A check of a batch covers what it changed; the index and a snapshot are checked against the whole image at
the end.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol, TypeAlias

from penstock.metadata.changes import changes_between
from penstock.metadata.controller import Controller
from penstock.metadata.draft import applied
from penstock.metadata.image import Image, Partition, Topic
from penstock.metadata.index import PartitionIndex
from penstock.metadata.snapshot import records_of
from penstock.metadata.view import RECORDS_PER_COMMAND_MAX, RECORDS_PER_STEP_MAX, TopicRules, is_draining
from tests.simulation.controller_core.options import Options
from tests.simulation.controller_core.replicas import Where, in_sync_min_of
from tests.simulation.kit.invariants import broken

if TYPE_CHECKING:
    from tests.simulation.controller_core.brokers import Broker

Silence: TypeAlias = Callable[[int, int], float]
"""For how many milliseconds a broker has been silent in one of its epochs."""
SLACK_MS = 400.0
"""The tolerated delay of heartbeats, in transit and until the controller's next check."""


class Watched(Protocol):
    """The world under test."""

    brokers: "dict[int, Broker]"
    options: Options
    leaving: set[int]
    session_ms: float

    @property
    def image(self) -> Image:
        """The image that counts as decided."""
        ...


class Checks:
    """The state so far, against which later events are checked."""

    def __init__(self, world: Watched) -> None:
        self._world = world
        self.acknowledged: dict[Where, list[int]] = {}
        """Values in the order of their offsets, as leaders committed them."""
        self.producer_ids: dict[int, int] = {}
        self.batches = 0
        self.moves_most = 0

    # --- the metadata log -----------------------------------------------------------------------------------------

    def decided(self, old: Image, new: Image, size: int, silence: Silence | None) -> None:
        """Checks a decision; `silence` gives the silence of brokers if the controller decided by itself."""
        if size > (RECORDS_PER_COMMAND_MAX if silence is None else RECORDS_PER_STEP_MAX + 1):
            broken("BoundedPieces", f"a decision has {size} records")
        if silence is None:
            return
        for broker_id, broker in new.brokers.items():
            was = old.brokers.get(broker_id)
            if was is not None and was.epoch == broker.epoch and broker.is_fenced and not was.is_fenced:
                self._fenced(broker_id, silence(broker_id, broker.epoch))
        self._moves(old, new)

    def recorded(self, old: Image, new: Image) -> None:
        """Checks a batch in the log, on which its followers will act."""
        self.batches += 1
        changes = changes_between(old, new)
        for topic in changes.topics_created:
            for number, partition in topic.partitions.items():
                self._partition(new, topic, number, None, partition)
        for change in changes.topics_changed:
            for number, before, after in change.partitions:
                self._partition(new, change.new, number, before, after)
        for broker_id, was, now in changes.brokers:
            if was is not None and now is not None and now.epoch < was.epoch:
                broken("MonotonicBrokerEpoch", f"broker {broker_id} went from {was.epoch} to {now.epoch}")
            if now is not None and (was is None or was.epoch != now.epoch):
                self._returned(new, broker_id)
        if changes.brokers or changes.configs:
            self._everywhere(new)

    def _partition(self, image: Image, topic: Topic, number: int, old: Partition | None, new: Partition) -> None:
        name = f"{topic.name}-{number}"
        if old is not None:
            cleared = old._replace(eligible_leader_replicas=(), last_known_elr=())
            if new.partition_epoch <= old.partition_epoch and new != cleared:
                broken("MonotonicPartitionEpoch", f"{name}: {old} became {new}")
            if new.leader_epoch < old.leader_epoch or (
                new.leader != old.leader and new.leader_epoch == old.leader_epoch
            ):
                broken("MonotonicLeaderEpoch", f"{name}: {old} became {new}")
            if not set(old.replicas) <= set(new.replicas) and new.leader_epoch == old.leader_epoch:
                broken("ReplicasLeaveWithAnEpoch", f"{name}: {old} became {new}")
        self._lists(image, topic, name, new)
        if old is None or new.isr != old.isr:
            self._fitness(image, name, new)
        had = () if old is None else (*old.isr, *old.eligible_leader_replicas)
        for each in (*new.isr, *new.eligible_leader_replicas):
            if each not in had and self._runs(image, each):
                self._complete(topic.topic_id, number, each, "LeaderCandidateCompleteness")
        is_new = old is None or (new.leader, new.leader_epoch) != (old.leader, old.leader_epoch)
        if new.leader != -1 and is_new and self._runs(image, new.leader):
            self._complete(topic.topic_id, number, new.leader, "LeaderCompleteness")

    def _lists(self, image: Image, topic: Topic, name: str, now: Partition) -> None:
        isr, eligible, replicas = set(now.isr), set(now.eligible_leader_replicas), set(now.replicas)
        in_sync_min = min(in_sync_min_of(image, topic.name), len(replicas))
        if now.leader != -1 and (now.leader not in isr or not _is_there(image, now.leader)):
            broken("LeaderInIsr", f"{name}: {now}")
        if not isr | eligible <= replicas or isr & eligible or len(isr) != len(now.isr):
            broken("ValidControllerIsrAndElr", f"{name}: {now}")
        if eligible and len(isr) >= in_sync_min:
            broken("ValidControllerIsrAndElr", f"{name} has {in_sync_min} in sync and others eligible: {now}")
        if len(replicas) != len(now.replicas) or not set(now.adding_replicas) <= replicas:
            broken("ValidReplicas", f"{name}: {now}")
        for each in now.isr:
            if not _is_there(image, each):
                broken("ValidControllerState", f"{name}: broker {each} is fenced and in sync: {now}")

    def _fitness(self, image: Image, name: str, now: Partition) -> None:
        """A new ISR excludes brokers that cannot write, as long as another member can."""
        can_write = {image.brokers[each].can_write for each in now.isr if each in image.brokers}
        if can_write == {True, False}:
            broken("WritersFirst", f"{name}: {now}")

    def _everywhere(self, image: Image) -> None:
        for topic in image.topics.values():
            for number, partition in topic.partitions.items():
                self._lists(image, topic, f"{topic.name}-{number}", partition)

    def _fenced(self, broker_id: int, silent_ms: float) -> None:
        """R34: no broker is fenced whose heartbeats arrived, even if the controller was stalled."""
        if silent_ms < self._world.session_ms - SLACK_MS:
            broken("LiveBrokersStay", f"broker {broker_id} was heard {silent_ms:.0f} ms ago and is fenced")

    def steady(self, image: Image, now_ms: float, since_ms: float, heard_ms: Mapping[tuple[int, int], float]) -> None:
        """A controller that has run for long without a stall has fenced every broker that was silent for as long."""
        long_ms = 2 * self._world.session_ms
        for broker_id, broker in image.brokers.items() if now_ms - since_ms > long_ms else ():
            if not broker.is_fenced and now_ms - heard_ms.get((broker_id, broker.epoch), since_ms) > long_ms:
                broken("SilentBrokersGo", f"broker {broker_id} is silent for more than {long_ms:.0f} ms and not fenced")

    def _runs(self, image: Image, broker_id: int) -> bool:
        """Whether the broker is in the life that the controller knows; otherwise it leads nothing."""
        broker, known = self._world.brokers[broker_id], image.brokers.get(broker_id)
        return broker.is_up and known is not None and broker.epoch == known.epoch

    def _returned(self, image: Image, broker_id: int) -> None:
        """R08, R10: the controller does not count on a broker for what it lost in its last life."""
        for topic in image.topics.values():
            for number, partition in topic.partitions.items():
                if broker_id in (*partition.isr, *partition.eligible_leader_replicas):
                    self._complete(topic.topic_id, number, broker_id, "LeaderCandidateCompleteness")

    def _moves(self, old: Image, new: Image) -> None:
        """Moves begun by the controller itself respect the limit of replicas in transit to a broker."""
        before, after = _arriving(old), _arriving(new)
        for broker_id, count in after.items():
            self.moves_most = max(self.moves_most, count)
            if count > before.get(broker_id, 0) and count > self._world.options.moves_max:
                broken("MovesBounded", f"{count} replicas are on their way to broker {broker_id}")

    def stops(self, broker_id: int, image: Image) -> None:
        """A broker may stop: every live broker knows by now that it leads nothing."""
        if image.brokers[broker_id].is_fenced:
            return
        for other in self._world.brokers.values():
            known = image.brokers.get(other.broker_id)
            if known is None or not known.is_active or known.epoch != other.epoch or not other.is_up:
                continue
            for topic in other.image.topics.values():
                if any(partition.leader == broker_id for partition in topic.partitions.values()):
                    broken("StopsLeadingNothing", f"broker {other.broker_id} sends clients to {broker_id}, which stops")

    def block(self, first: int, count: int) -> None:
        for number in range(first, first + count, 500):
            if number in self.producer_ids:
                broken("ProducerIdsOnce", f"producer id {number} was given twice")
            self.producer_ids[number] = first

    # --- partitions -----------------------------------------------------------------------------------------------

    def committed(self, where: Where, offset: int, value: int) -> None:
        """A leader commits a record: every replica in the ISR has it, and no other record ever had that offset."""
        values = self.acknowledged.setdefault(where, [])
        if offset < len(values):
            if values[offset] != value:
                broken("ConsistentRead", f"offset {offset} was {values[offset]} and is {value}")
            return
        values.append(value)
        topic = self._world.image.topic_by_id(where[0])
        for each in topic.partitions[where[1]].isr if topic is not None else ():
            if self._runs(self._world.image, each):
                self._complete(*where, each, "StrongIsr")

    def _complete(self, topic_id: bytes, number: int, broker_id: int, name: str) -> None:
        values = self.acknowledged.get((topic_id, number), [])
        replica = self._world.brokers[broker_id].replicas.get((topic_id, number))
        held = [] if replica is None else [entry.value for entry in replica.log[: len(values)]]
        if held != values:
            broken(name, f"broker {broker_id} has {len(held)} of {len(values)} committed records of partition {number}")

    # --- the end --------------------------------------------------------------------------------------------------

    def end(self, controller: Controller | None) -> None:
        """Checks convergence, with all faults healed and enough time passed."""
        world = self._world
        image = world.image
        assert controller is not None, "no controller leads"
        index = controller.index
        for broker_id in sorted(world.brokers):
            found = image.brokers.get(broker_id)
            if found is not None and found.is_fenced:
                broken("Convergence", f"broker {broker_id} is still fenced")
        if index.leaderless_count or index.has_trouble or index.moving_count:
            offline, moving = list(index.leaderless), list(index.moving)
            broken("Convergence", f"offline {offline}, moving {moving}, troubled {list(index.troubled())}")
        for broker_id in world.leaving:
            if is_draining(image, broker_id) and index.replicas_on(broker_id):
                broken("Convergence", f"broker {broker_id} still has {index.replicas_on(broker_id)} replicas")
        for topic in image.topics.values():
            for number, partition in topic.partitions.items():
                if sorted(partition.isr) != sorted(partition.replicas):
                    broken("Convergence", f"{topic.name}-{number} is not in sync: {partition}")
                if partition.leader != partition.replicas[0]:
                    broken("Convergence", f"{topic.name}-{number} is led astray: {partition}")
                self._complete(topic.topic_id, number, partition.leader, "Durability")
        self._derived(image, controller)

    def _derived(self, image: Image, controller: Controller) -> None:
        index, fresh = controller.index, PartitionIndex()
        fresh.follow(image, TopicRules(image, controller.settings))
        for one, other in ((index.led, fresh.led), (index.held, fresh.held), (index.preferred, fresh.preferred)):
            if {k: v for k, v in one.items() if v} != {k: v for k, v in other.items() if v}:
                broken("IndexFollows", f"{one} is not {other}")
        if applied(Image(), records_of(image)) != image:
            broken("SnapshotIsTheImage", "a snapshot gives another image")


def _is_there(image: Image, broker_id: int) -> bool:
    broker = image.brokers.get(broker_id)
    return broker is not None and not broker.is_fenced


def _arriving(image: Image) -> dict[int, int]:
    counts: dict[int, int] = {}
    for topic in image.topics.values():
        for partition in topic.partitions.values():
            for each in partition.adding_replicas:
                counts[each] = counts.get(each, 0) + 1
    return counts
