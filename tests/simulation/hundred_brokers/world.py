"""A world of a hundred brokers and more: a quorum of real raft cores, a real controller core, lightweight brokers.

Voters and brokers are raft cores (`raft_core.world`), brokers as observers; so the load that a hundred followers of the
metadata log put on its leader is real. The active controller decides one command at a time, and each takes as long in
virtual time as on a real machine (COMMAND_MS, RECORD_MS): commands queue up. Partitions are not simulated record by
record: a follower that is unfenced has caught up a little later, a moved replica has arrived when its bytes have, and
then its leader proposes it, as many at a time as a real one. Time is in milliseconds; CPU is that of the cores alone,
without the world around them and without the sockets of a server.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from time import process_time
from typing import Any, Final, NamedTuple, TypeVar

from penstock.metadata.cluster_commands import AlterPartition, Heartbeat, NewIsr, Tick
from penstock.metadata.commands import RegisterBroker
from penstock.metadata.controller import Controller
from penstock.metadata.declare import MetadataRecord
from penstock.metadata.frames import encode_record
from penstock.metadata.image import Image, Partition
from penstock.metadata.records import (
    BrokerEndpoint,
    BrokerFeature,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
)
from penstock.metadata.settings.layers import BrokerSettings
from penstock.metadata.view import ELR_FEATURE
from penstock.model.errors import ErrorCode
from penstock.model.shard import Command
from penstock.raft.effects import Effect, LeaderKnown
from penstock.raft.events import Asked, Event
from penstock.raft.raft import NotLeader
from penstock.raft.settings import QuorumSettings
from penstock.replication.settings import CHANGES_PER_REQUEST_MAX, RESEND_MS
from tests.simulation.raft_core.disk import Entry
from tests.simulation.raft_core.options import CALM
from tests.simulation.raft_core.world import Chance, CheckedRaft, Machine, Node, World

Reply = TypeVar("Reply")
Where = tuple[bytes, int]
"""A partition: id of its topic, number."""

VOTERS: Final = 3
STRIDE: Final = 10_000
"""Offsets per entry as controller and brokers see them, for the records in it."""
COMMAND_MS: Final = 0.05
RECORD_MS: Final = 0.1
"""The time that a controller needs for a command, and for each record of it: rather more than was measured."""
CATCH_UP_MS: Final = 300.0
"""From being unfenced until a follower has caught up: as if little was written meanwhile."""
GATHER_MS: Final = 20.0
"""How long a leader gathers changes before it proposes them."""
RESTART_MS: Final = 2_000.0
IMAGES_KEPT: Final = 500
PROBE_MS: Final = 20.0
RAFT: Final = "raft "
"""The prefix of names of work that the quorum does, and not the controller."""
HEARING: Final = "hearing"
TAKING_OVER: Final = "taking over"
FEATURE: Final = BrokerFeature(name=ELR_FEATURE, min_supported_version=0, max_supported_version=1)


@dataclass(slots=True)
class Spent:
    """The cost of one kind of work."""

    times: int = 0
    cpu_s: float = 0.0
    longest_s: float = 0.0


class Meter:
    """CPU of the cores, by kind of work; records and bytes of the metadata log."""

    def __init__(self) -> None:
        self.spent: dict[str, Spent] = {}
        self.records = 0
        self.record_bytes = 0

    def add(self, kind: str, cpu_s: float) -> None:
        spent = self.spent.setdefault(kind, Spent())
        spent.times += 1
        spent.cpu_s += cpu_s
        spent.longest_s = max(spent.longest_s, cpu_s)

    def of(self, is_wanted: Callable[[str], bool]) -> Spent:
        """Several kinds together."""
        found = [spent for kind, spent in self.spent.items() if is_wanted(kind)]
        longest_s = max((each.longest_s for each in found), default=0.0)
        return Spent(sum(each.times for each in found), sum(each.cpu_s for each in found), longest_s)

    def longest(self, is_wanted: Callable[[str], bool]) -> str:
        """The kind with the longest single piece."""
        kinds = [kind for kind in self.spent if is_wanted(kind)]
        return max(kinds, key=lambda kind: self.spent[kind].longest_s, default="")


@dataclass(slots=True, eq=False)
class Batch:
    """The records of one decision of a controller."""

    records: tuple[MetadataRecord, ...]
    image: Image | None
    """The image after it, computed once for all nodes; it is dropped once the batch is committed."""


class Asking(NamedTuple):
    """A command in the queue of a controller."""

    command: Command[Any]
    answer: Callable[[Any], None]


class Pending(NamedTuple):
    """A response that waits until everything known at its decision is committed."""

    end_offset: int
    answer: Callable[[Any], None]
    reply: Any


class Seat(Machine):
    """The controller of a voter in one life of its node; for brokers only the applied offset."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        assert isinstance(node, BigNode)
        self._raft_node = node
        self._cluster = node.world.cluster
        chance = Chance(node.world.streams.stream("seat", f"{node.node_id}-{node.life}"))
        self.controller = Controller(node.node_id, self._cluster.settings, chance)
        self.led_epoch: int | None = None
        self.is_active = False
        self._start_offset = 0
        self._decided_end = 0
        self._queue: deque[Asking] = deque()
        self._pending: deque[Pending] = deque()
        self._is_busy = False
        self._ticks_at: float | None = None

    @property
    def image(self) -> Image:
        """The committed state, as far as this node knows."""
        return self._cluster.images[self.applied]

    # --- events of the quorum -------------------------------------------------------------------------------------

    def leader_known(self, news: LeaderKnown) -> None:
        self.led_epoch, self.is_active = None, False
        self._queue.clear()
        self._pending.clear()
        if news.leader_id == self._raft_node.node_id:
            self.led_epoch, self._start_offset = news.epoch, news.start_offset
            self._begin_if_all_is_committed()

    def apply_up_to(self, high_watermark: int) -> None:
        self.applied = high_watermark
        self._begin_if_all_is_committed()
        while self._pending and self._pending[0].end_offset <= high_watermark:
            pending = self._pending.popleft()
            pending.answer(pending.reply)

    def _begin_if_all_is_committed(self) -> None:
        if self.led_epoch is not None and not self.is_active and self.applied > self._start_offset:
            self._raft_node.world.after(0.0, self._begin, self.led_epoch)

    def _begin(self, epoch: int) -> None:
        if epoch != self.led_epoch or self.is_active or self._raft_node.machine is not self:
            return
        self.is_active = True
        self._decided_end = self.applied
        began = process_time()
        self.controller.revert(self.image)
        self.controller.begin(self._raft_node.now)
        assert self.controller.index.image is self.image
        self._cluster.meter.add(TAKING_OVER, process_time() - began)
        if not self.image.features:
            self._record((FeatureLevelRecord(name=ELR_FEATURE, feature_level=1),))
        self._tick_in(0.0)

    # --- decisions ------------------------------------------------------------------------------------------------

    def submit(self, command: Command[Any], answer: Callable[[Any], None]) -> None:
        """Queues a request; a heartbeat counts as a sign of life at once."""
        if not self.is_active:
            return
        if isinstance(command, Heartbeat):
            command = replace(command, log_end=self._raft_node.disk.log.end_offset * STRIDE)
            began = process_time()
            self.controller.hear(command, self._raft_node.now)
            self._cluster.meter.add(HEARING, process_time() - began)
        self._queue.append(Asking(command, answer))
        self._cluster.queue_most = max(self._cluster.queue_most, len(self._queue))
        self._go_on()

    def _go_on(self) -> None:
        if self._is_busy or not self._queue or not self.is_active:
            return
        command, answer = self._queue.popleft()
        self._is_busy = True
        records = self._decide(command, answer)
        self._raft_node.world.after(COMMAND_MS + RECORD_MS * records, self._is_free)

    def _is_free(self) -> None:
        self._is_busy = False
        self._go_on()

    def _tick_in(self, delay_ms: float) -> None:
        at = self._raft_node.world.time_ms + delay_ms
        if self._ticks_at is None or at < self._ticks_at:
            self._ticks_at = at
            self._raft_node.world.after(delay_ms, self._tick, at)

    def _tick(self, at: float) -> None:
        if at == self._ticks_at and self.is_active:
            self._ticks_at = None
            self._queue.append(Asking(Tick(), lambda _reply: None))
            self._go_on()

    def _decide(self, command: Command[Any], answer: Callable[[Any], None]) -> int:
        """Decides, encodes and applies, as a server does; returns the number of records."""
        if isinstance(command, RegisterBroker):
            command = replace(command, epoch=self._raft_node.disk.log.end_offset * STRIDE)
        now = self._raft_node.now
        began = process_time()
        if isinstance(command, Tick):
            self.controller.time_passes(now)
        decision = self.controller.decide(command, now)
        spent_s = process_time() - began
        if decision.records:
            spent = self._record(decision.records)
            if spent is None:
                return 0
            spent_s += spent
        self._cluster.meter.add(type(command).__name__, spent_s)
        self._pending.append(Pending(self._decided_end, answer, decision.reply))
        self.apply_up_to(self.applied)
        for change in decision.changes:
            self._tick_in(max(0.0, float(change.at_ms - now)))
        return len(decision.records)

    def _record(self, records: tuple[MetadataRecord, ...]) -> float | None:
        """Appends records; returns CPU seconds, or None if this node no longer leads."""
        assert len(records) < STRIDE
        meter = self._cluster.meter
        began = process_time()
        for record in records:
            meter.record_bytes += len(encode_record(record))
            self.controller.apply(record)
        assert self.controller.index.image is self.controller.image
        spent_s = process_time() - began
        meter.records += len(records)
        assert self.led_epoch is not None
        try:
            self._decided_end = self._raft_node.append_batch(self.led_epoch, Batch(records, self.controller.image))
        except NotLeader:
            self.is_active = False
            return None
        return spent_s


class MeteredRaft(CheckedRaft):
    """Meters the CPU of the quorum's leader."""

    def step(self, event: Event, now: int) -> list[Effect]:
        node, leads = self._node, self._raft.leader is not None
        began = process_time()
        effects = self._raft.step(event, now)
        if leads:
            assert isinstance(node, BigNode)
            what = type(event.request if isinstance(event, Asked) else event).__name__
            node.world.cluster.meter.add(f"{RAFT}{what}", process_time() - began)
        return self.looked_at(effects)


class BigNode(Node):
    """A machine with a replica of the metadata log, and maybe with a broker."""

    world: "BigWorld"
    core_type = MeteredRaft

    def __init__(self, world: World, node_id: int) -> None:
        super().__init__(world, node_id)
        self.broker: Broker | None = None

    @property
    def seat(self) -> Seat:
        assert isinstance(self.machine, Seat)
        return self.machine

    def start(self) -> None:
        super().start()
        if self.broker is not None:
            self.broker.start()

    def crash(self) -> None:
        super().crash()
        if self.broker is not None:
            self.broker.stop()

    def append_batch(self, epoch: int, batch: Batch) -> int:
        began = process_time()
        end_offset = self.append_now(epoch, batch)  # effects wait for the end of a step, if one runs
        self.world.cluster.meter.add(f"{RAFT}append", process_time() - began)
        return end_offset


class Broker:
    """A broker: it registers, sends heartbeats, proposes ISR changes, hands over leadership and stops."""

    def __init__(self, cluster: "Cluster", node: BigNode, rack: str) -> None:
        self._cluster = cluster
        self._node = node
        self.broker_id = node.node_id
        self.rack = rack
        self._random = cluster.world.streams.stream("broker", str(node.node_id))
        self.is_up = False
        self.wants_shutdown = False
        self.life = 0
        self.epoch = -1
        self._last_epoch = -1
        self.held: dict[Where, None] = {}
        """The partitions that it holds, in the order in which they came: two runs must be the same."""
        self.copied_ms = 0.0
        """The time until which arriving replicas use all its copy bandwidth."""
        self._wanted: dict[Where, None] = {}
        self._proposed: dict[Where, None] = {}
        self._number = 0

    # --- lives ----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self.is_up, self.wants_shutdown, self.epoch = True, False, -1
        self._wanted, self._proposed = {}, {}
        self._cluster.look_at(self.held)
        self._register(self.life, self._random.randbytes(16))

    def stop(self) -> None:
        if self.is_up:
            self.is_up = False
            self.life += 1
            self._last_epoch = max(self._last_epoch, self.epoch)
            self._cluster.look_at(self.held)

    def _register(self, life: int, incarnation_id: bytes) -> None:
        if life != self.life or not self.is_up or self.epoch >= 0:
            return
        command = RegisterBroker(
            self.broker_id,
            incarnation_id,
            0,  # the controller fills in the offset of the record
            (BrokerEndpoint(name="PLAINTEXT", host=f"broker-{self.broker_id}", port=9092, security_protocol=0),),
            (FEATURE,),
            self.rack,
            (b"d" * 12 + self.broker_id.to_bytes(4, "big"),),
            is_fenced=True,
            previous_epoch=self._last_epoch,
        )

        def answered(reply: Any) -> None:
            if life == self.life and reply.code is ErrorCode.NONE and self.epoch < 0:
                self.epoch = reply.epoch
                self._cluster.after(1.0, self._beat, life)

        self._cluster.ask(self._node, command, answered)
        self._cluster.after(300.0 + 300.0 * self._random.random(), self._register, life, incarnation_id)

    def _beat(self, life: int) -> None:
        if life != self.life or not self.is_up:
            return
        self._cluster.after(self._cluster.heartbeat_ms * (0.9 + 0.2 * self._random.random()), self._beat, life)
        end = self._node.seat.applied * STRIDE
        command = Heartbeat(self.broker_id, self.epoch, end - 1, log_end=0, wants_shutdown=self.wants_shutdown)

        def answered(reply: Any) -> None:
            if life == self.life and reply.should_shut_down and self.wants_shutdown:
                self._node.crash()
                self._cluster.after(RESTART_MS, self._node.start)

        self._cluster.ask(self._node, command, answered)

    # --- leader ---------------------------------------------------------------------------------------------------

    def propose(self, where: Where) -> None:
        """Notes that a follower of a partition that it leads has caught up."""
        if not self._wanted and not self._proposed:
            self._cluster.after(GATHER_MS, self._alter, self.life)
        self._wanted[where] = None

    def _alter(self, life: int) -> None:
        if life != self.life or self._proposed or not self._wanted or self.epoch < 0:
            return
        self._proposed = dict.fromkeys(list(self._wanted)[:CHANGES_PER_REQUEST_MAX])
        for where in self._proposed:
            del self._wanted[where]
        changes = tuple(filter(None, map(self._new_isr, self._proposed)))
        self._number += 1
        number = self._number
        self._cluster.ask(
            self._node, AlterPartition(self.broker_id, self.epoch, changes), lambda _: self._altered(life, number)
        )
        self._cluster.after(float(RESEND_MS), self._altered, life, number)

    def _altered(self, life: int, number: int) -> None:
        """A response came, or the time-out: changes that are not in the metadata log are proposed again."""
        if life == self.life and number == self._number and self._proposed:
            again, self._proposed = self._proposed, {}
            self._cluster.after(float(RESEND_MS), self._cluster.look_at, list(again))
            if self._wanted:
                self._alter(life)

    def _new_isr(self, where: Where) -> NewIsr | None:
        cluster = self._cluster
        partition = cluster.partition(where)
        arrived = cluster.arrived.get(where, set())
        if partition is None or partition.leader != self.broker_id:
            return None
        isr = [each for each in partition.replicas if each in partition.isr or each in arrived]
        epochs = cluster.image.brokers
        isr = [each for each in isr if epochs[each].is_active]
        pairs = tuple((each, epochs[each].epoch) for each in isr)
        return NewIsr(*where, partition.leader_epoch, partition.partition_epoch, pairs)


class Cluster:
    """The brokers, the committed images, and the state of partitions."""

    def __init__(self, world: "BigWorld", racks: int, settings: dict[str, str], partition_bytes: int) -> None:
        self.world = world
        self.settings = BrokerSettings(settings)
        self.heartbeat_ms = float(self.settings.number("broker.heartbeat.interval.ms"))
        self._copy_ms = 1_000.0 * partition_bytes / self.settings.number("reassignment.bytes.per.second.max")
        self.meter = Meter()
        self.end = 0
        """The number of committed entries."""
        self.images: dict[int, Image] = {0: Image()}
        """The committed image after each number of entries: the newest ones."""
        self.queue_most = 0
        self.fenced_alive = 0
        """How often a running broker was fenced."""
        self.unled: set[Where] = set()
        """Partitions whose leader does not run, or that have none."""
        self.lacking: set[Where] = set()
        """Partitions with fewer than all replicas in sync, or with a move in progress."""
        self.arrived: dict[Where, set[int]] = {}
        """Replicas that hold everything their leader has, and are not in the ISR yet."""
        self._coming: set[tuple[Where, int]] = set()
        self.brokers: dict[int, Broker] = {}
        for node in world.nodes.values():
            assert isinstance(node, BigNode)
            if node.node_id > VOTERS:
                node.broker = Broker(self, node, f"rack-{node.node_id % racks}")
                self.brokers[node.node_id] = node.broker

    @property
    def image(self) -> Image:
        return self.images[self.end]

    def after(self, delay_ms: float, call: Callable[..., None], *arguments: Any) -> None:
        self.world.after(delay_ms, call, *arguments)

    def partition(self, where: Where) -> Partition | None:
        topic = self.image.topic_by_id(where[0])
        return None if topic is None else topic.partitions.get(where[1])

    @property
    def active(self) -> Seat | None:
        """The active controller, if there is one."""
        for node in reversed(self.world.leaders()):
            assert isinstance(node, BigNode)
            if node.seat.is_active:
                return node.seat
        return None

    # --- the network ----------------------------------------------------------------------------------------------

    def ask(self, source: BigNode, command: Command[Any], answered: Callable[[Any], None]) -> None:
        """Sends a request to the leader, as far as the broker's own node knows."""
        raft = source.raft
        if raft is None or raft.leader_id not in self.world.nodes:
            return
        target = raft.leader_id
        (delay_ms,) = self.world.delays(source.node_id, target)

        def answer(reply: Any) -> None:
            (back_ms,) = self.world.delays(target, source.node_id)
            self.after(back_ms, answered, reply)

        def arrive() -> None:
            node = self.world.nodes[target]
            assert isinstance(node, BigNode)
            if node.raft is not None:
                node.seat.submit(command, answer)

        self.after(delay_ms, arrive)

    def kill(self, broker: Broker, *, is_noticed: bool) -> None:
        """Kills a broker: its connections break, or with `is_noticed` false its power is cut and it falls silent."""
        epoch = broker.epoch
        self.world.nodes[broker.broker_id].crash()
        if is_noticed:
            self.after(PROBE_MS, self._lose, broker.broker_id, epoch)

    def _lose(self, broker_id: int, epoch: int) -> None:
        if self.active is not None:
            self.active.controller.lose(broker_id, epoch)

    # --- committed metadata ---------------------------------------------------------------------------------------

    def committed(self, entry: Entry) -> None:
        before = after = self.image
        batch = entry.content
        if isinstance(batch, Batch):
            assert batch.image is not None
            after, batch.image = batch.image, None
        self.end += 1
        self.images[self.end] = after
        self.images.pop(self.end - IMAGES_KEPT, None)
        if isinstance(batch, Batch):
            self._take_in(batch.records, before, after)

    def _take_in(self, records: tuple[MetadataRecord, ...], before: Image, after: Image) -> None:
        changed = []
        for record in records:
            if isinstance(record, PartitionRecord | PartitionChangeRecord):
                where = (record.topic_id, record.partition_id)
                changed.append(where)
                self._follow(where, before)
        self.look_at(changed)
        if after.brokers is not before.brokers:
            for broker_id, broker in after.brokers.items():
                was = before.brokers.get(broker_id)
                if broker.is_active and (was is None or not was.is_active):
                    self.look_at(self.brokers[broker_id].held)
                if broker.is_fenced and was is not None and was.is_active and self.brokers[broker_id].is_up:
                    self.fenced_alive += 1

    def _follow(self, where: Where, before: Image) -> None:
        """Updates the holders of a partition."""
        topic = before.topic_by_id(where[0])
        old = topic.partitions.get(where[1]) if topic is not None else None
        partition = self.partition(where)
        assert partition is not None
        for each in set(old.replicas if old is not None else ()) - set(partition.replicas):
            self.brokers[each].held.pop(where, None)
        for each in partition.replicas:
            self.brokers[each].held[where] = None
        arrived = self.arrived.get(where)
        if arrived is not None:
            left = {each for each in arrived if each in partition.replicas and each not in partition.isr}
            if left:
                self.arrived[where] = left
            else:
                del self.arrived[where]

    def look_at(self, places: Iterable[Where]) -> None:
        """Notes the state of partitions, and lets unfenced followers catch up."""
        brokers, known = self.brokers, self.image.brokers
        for where in places:
            partition = self.partition(where)
            assert partition is not None
            is_led = partition.leader >= 0 and brokers[partition.leader].is_up
            (self.unled.discard if is_led else self.unled.add)(where)
            lags = [each for each in partition.replicas if each not in partition.isr]
            is_whole = not lags and not partition.removing_replicas and not partition.adding_replicas
            (self.lacking.discard if is_whole else self.lacking.add)(where)
            for each in lags if is_led else ():
                if brokers[each].is_up and known[each].is_active and (where, each) not in self._coming:
                    self._coming.add((where, each))
                    self.after(self._catch_up_ms(brokers[each], partition), self._arrive, where, each)

    def _catch_up_ms(self, broker: Broker, partition: Partition) -> float:
        if broker.broker_id not in partition.adding_replicas:
            return CATCH_UP_MS
        broker.copied_ms = max(broker.copied_ms, self.world.time_ms) + self._copy_ms
        return broker.copied_ms - self.world.time_ms

    def _arrive(self, where: Where, broker_id: int) -> None:
        self._coming.discard((where, broker_id))
        partition = self.partition(where)
        if partition is None or broker_id in partition.isr or broker_id not in partition.replicas:
            return
        if not self.brokers[broker_id].is_up or partition.leader < 0:
            return  # examined again when there is a leader, or when the broker is unfenced again
        self.arrived.setdefault(where, set()).add(broker_id)
        self.brokers[partition.leader].propose(where)


class BigWorld(World):
    """Three voters, and any number of brokers."""

    node_type = BigNode

    def __init__(
        self,
        seed: int,
        *,
        brokers: int,
        racks: int,
        settings: dict[str, str] | None = None,
        partition_bytes: int = 10 << 20,
    ) -> None:
        quorum = CALM._replace(
            voters=VOTERS, spares=brokers, delay_ms=0.5, sync_ms=1.0, settings=QuorumSettings(fetch_bytes_max=250)
        )
        super().__init__(seed, quorum, machine_factory=Seat)
        self.cluster = Cluster(self, racks, settings or {}, partition_bytes)
        self.on_committed = self.cluster.committed
        self.events_before = 0
        self.counts: Counter[str] = Counter()
        for node in self.nodes.values():
            self.after(100.0 * self._network.random(), node.start)

    @property
    def events_in_all(self) -> int:
        return self.events_before + self.events

    def until(self, condition: Callable[[], bool], what: str, virtual_s_max: float = 600.0) -> float:
        """Runs until the condition holds; returns virtual seconds."""
        began_ms, deadline_ms = self.time_ms, self.time_ms + 1_000 * virtual_s_max
        while not condition():
            assert self.time_ms < deadline_ms, f"after {virtual_s_max:.0f} virtual seconds it is not so that {what}"
            self.events_before, self.events = self.events_in_all, 0
            self.run(min(deadline_ms, self.time_ms + 100.0), stop=condition)
        return (self.time_ms - began_ms) / 1_000

    def pass_s(self, seconds: float) -> None:
        end_ms = self.time_ms + 1_000 * seconds
        self.until(lambda: self.time_ms >= end_ms - 1e-6, "time passes", seconds + 1)
