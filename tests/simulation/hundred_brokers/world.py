"""A world of a hundred brokers and more: a quorum of real raft cores, the deployed controller, lightweight brokers.

Voters and brokers are raft cores (`raft_core.world`), brokers as observers; so the load that a hundred followers of the
metadata log put on its leader is real. The active controller decides one command at a time, and each takes as long in
virtual time as on a real machine (COMMAND_MS, RECORD_MS): commands queue up. Partitions are not simulated record by
record: a follower that is unfenced has caught up a little later, a moved replica has arrived when its bytes have, and
then its leader proposes it, as many at a time as a real one. Time is in milliseconds; CPU is that of the cores alone,
without the world around them and without the sockets of a server.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import process_time
from typing import Any, Final, NoReturn, TypeVar

from penstock.metadata import events
from penstock.metadata.cluster_commands import AlterPartition, Heard, Heartbeat, NewIsr, Tick
from penstock.metadata.commands import RegisterBroker
from penstock.metadata.declare import MetadataRecord
from penstock.metadata.draft import applied
from penstock.metadata.frames import encode_record
from penstock.metadata.image import Image, Partition
from penstock.metadata.records import (
    BrokerEndpoint,
    BrokerFeature,
    PartitionChangeRecord,
    PartitionRecord,
)
from penstock.metadata.runtime import ENCODED_AT_ONCE, Appended, ControllerRuntime, LeadershipLost
from penstock.metadata.settings.layers import BrokerSettings
from penstock.metadata.view import ELR_FEATURE, Pieces
from penstock.model.errors import ErrorCode
from penstock.model.report import Report
from penstock.model.shard import Command
from penstock.raft.effects import Effect, LeaderKnown
from penstock.raft.events import Asked, Event
from penstock.raft.raft import NotLeader
from penstock.raft.settings import QuorumSettings
from penstock.replication.settings import CHANGES_PER_REQUEST_MAX, RESEND_MS
from penstock.server.loop.driver import Driver
from tests.simulation.kit.heap_port import HeapPort, HeapTimer, Work, raise_again
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
TAKING_OVER: Final = "taking over"
PUBLISHING: Final = "publishing"
"""What the active controller does when its decisions are committed."""
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

    def add(self, kind: str, cpu_s: float, times: int = 1) -> None:
        spent = self.spent.setdefault(kind, Spent())
        spent.times += times
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


class SeatPort(HeapPort[int]):
    """The port of a controller that takes its time: timers that are due wait behind the commands before them."""

    def __init__(self, node: Node, serve: Callable[[Callable[[], None]], None]) -> None:
        super().__init__(node)
        self._serve = serve

    def _fire(self, timer: HeapTimer) -> None:
        if timer.callback is not None:
            self._serve(partial(super()._fire, timer))


class LedLog:
    """The metadata log of a node, as its controller appends to it."""

    def __init__(self, seat: "Seat") -> None:
        self._seat = seat

    @property
    def end_offset(self) -> int:
        return self._seat.log_end

    def is_led(self, epoch: int) -> bool:
        return self._seat.is_led(epoch)

    def encode(self, records: Sequence[MetadataRecord]) -> Pieces[int]:
        """Encodes the records in pieces, and returns their size."""
        size_bytes = 0
        for at in range(0, len(records), ENCODED_AT_ONCE):
            size_bytes += sum(len(encode_record(record)) for record in records[at : at + ENCODED_AT_ONCE])
            yield
        return size_bytes

    def append(self, epoch: int, records: Sequence[MetadataRecord], encoded: int | None = None) -> Appended:
        size_bytes = sum(len(encode_record(record)) for record in records) if encoded is None else encoded
        return Appended(self._seat.append(epoch, tuple(records), size_bytes), size_bytes)


class MeteredController:
    """The deployed controller; the CPU of its steps is metered while it is active."""

    def __init__(self, runtime: ControllerRuntime, meter: Callable[[str, float, bool], None]) -> None:
        self._runtime = runtime
        self._meter = meter
        self._large = ""
        """The last command that was carried out in pieces."""

    @property
    def wake_at(self) -> int | None:
        return self._runtime.wake_at

    def step(self, event: events.Event, now: int) -> list[events.Effect]:
        was_active = self._runtime.is_active
        began = process_time()
        effects = self._runtime.step(event, now)
        spent_s = process_time() - began
        if was_active or self._runtime.is_active:
            self._meter(self._kind(event, is_new=not was_active), spent_s, isinstance(event, events.TurnCame))
        return effects

    def _kind(self, event: events.Event, *, is_new: bool) -> str:
        match event:
            case events.Asked():
                self._large = type(event.command).__name__
                return self._large
            case events.TurnCame():
                return self._large
            case events.TimePassed():
                return Tick.__name__
        return TAKING_OVER if is_new else PUBLISHING


class Follower(Machine):
    """The metadata of a broker: only how far it is applied."""

    def apply_up_to(self, high_watermark: int) -> None:
        self.applied = high_watermark


class Seat(Machine):
    """The controller of a voter in one life of its node: the deployed one, which takes its time.

    Requests, timers and turns wait in one queue, as on the event loop of a server.
    """

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        assert isinstance(node, BigNode)
        self._raft_node = node
        self._cluster = node.world.cluster
        chance = Chance(node.world.streams.stream("seat", f"{node.node_id}-{node.life}"))
        self.runtime = ControllerRuntime(
            node.node_id, self._cluster.settings, chance, LedLog(self), ((ELR_FEATURE, 1),), self._cluster.apply_all
        )
        self._driver: Driver[events.Event, events.Effect, int, Work] = Driver(
            MeteredController(self.runtime, self._spend),
            SeatPort(node, self._serve),
            {
                events.ReadLog: self._read,
                events.ReadSnapshot: self._fail,
                events.Publish: self._publish,
                events.Answer: self._answer,
                events.Refuse: self._refuse,
                events.TakeTurn: self._take_turn,
                events.RoleChanged: self._publish,
                events.Mistaken: self._fail,
                events.GoOffline: self._fail,
                Report: self._publish,
            },
            time_passed=events.TimePassed(),
            on_broken=raise_again,
        )
        self._life = node.life
        self._queue: deque[Callable[[], None]] = deque()
        self._is_busy = False
        self._records = 0
        """Records appended since the controller was busy the last time."""
        self._raft_s = 0.0
        """CPU of the quorum within the current step."""
        self._waiting: dict[int, Callable[[Any], None]] = {}
        self._tickets = 0

    @property
    def is_active(self) -> bool:
        return self.runtime.is_active

    @property
    def applied(self) -> int:
        return self.runtime.position

    @applied.setter
    def applied(self, _end_offset: int) -> None:
        """Ignored: the runtime owns the position."""

    # --- events of the quorum -------------------------------------------------------------------------------------

    def leader_known(self, news: LeaderKnown) -> None:
        self._driver.post(events.LeaderKnown(news.leader_id, news.epoch, news.start_offset))

    def apply_up_to(self, high_watermark: int) -> None:
        self._driver.post(events.Committed(high_watermark))

    # --- the log --------------------------------------------------------------------------------------------------

    @property
    def log_end(self) -> int:
        return self._raft_node.disk.log.end_offset * STRIDE

    def is_led(self, epoch: int) -> bool:
        raft = self._raft_node.raft
        return raft is not None and self._raft_node.machine is self and raft.leader is not None and raft.epoch == epoch

    def append(self, epoch: int, records: tuple[MetadataRecord, ...], size_bytes: int) -> int:
        assert len(records) < STRIDE
        meter, began = self._cluster.meter, process_time()
        end_offset = self._raft_node.append_batch(epoch, Batch(records))
        self._raft_s += process_time() - began
        self._records += len(records)
        meter.records += len(records)
        meter.record_bytes += size_bytes
        return end_offset

    def _read(self, effect: events.ReadLog) -> None:
        for offset in range(effect.offset, effect.end_offset):
            batch = self._raft_node.disk.log.entry(offset).content
            records = batch.records if isinstance(batch, Batch) else ()
            end_offset = offset + 1 if offset + 1 == effect.end_offset else None
            self._driver.post(events.LogRead(effect.number, records, end_offset, len(records)))

    # --- commands -------------------------------------------------------------------------------------------------

    def submit(self, command: Command[Any], answer: Callable[[Any], None]) -> None:
        """Queues a request."""
        if self.is_active:
            self._serve(partial(self._ask, command, answer))

    def lose(self, broker_id: int, epoch: int) -> None:
        """Notes that a probe found no process of a broker."""
        self._driver.post(events.BrokerLost(broker_id, epoch))

    def _ask(self, command: Command[Any], answer: Callable[[Any], None]) -> None:
        if isinstance(command, RegisterBroker):
            command = replace(command, epoch=self.log_end)
        elif isinstance(command, Heartbeat):
            command = replace(command, log_end=self.log_end)
            if not command.wants_shutdown:
                self._hear(command, answer)
                return
        self._tickets += 1
        self._waiting[self._tickets] = answer
        self._driver.post(events.Asked(self._tickets, command))

    def _hear(self, command: Heartbeat, answer: Callable[[Any], None]) -> None:
        """Answers a heartbeat at once, from the committed state, as a server does."""
        if not self.is_active:
            return
        began = process_time()
        heard = self._driver.call(lambda: self.runtime.heartbeat(command, self._raft_node.now))
        self._spend(Heartbeat.__name__, process_time() - began)
        if isinstance(heard, Heard):
            answer(heard)

    def _spend(self, kind: str, cpu_s: float, goes_on: bool = False) -> None:
        """Meters a step without what the quorum has spent in it."""
        raft_s, self._raft_s = self._raft_s, 0.0
        self._cluster.meter.add(kind, cpu_s - raft_s, times=0 if goes_on else 1)

    def _serve(self, work: Callable[[], None]) -> None:
        """Does a piece of work after those before it; each takes virtual time."""
        self._queue.append(work)
        self._cluster.queue_most = max(self._cluster.queue_most, len(self._queue))
        self._go_on()

    def _go_on(self) -> None:
        if self._is_busy or not self._queue or self._raft_node.life != self._life:
            return
        self._is_busy = True
        self._queue.popleft()()
        records, self._records = self._records, 0
        self._raft_node.world.after(COMMAND_MS + RECORD_MS * records, self._is_free)

    def _is_free(self) -> None:
        self._is_busy = False
        self._go_on()

    # --- effects --------------------------------------------------------------------------------------------------

    def _publish(self, _effect: object) -> None:
        """Does nothing: brokers look at the committed image."""

    def _take_turn(self, _effect: events.TakeTurn) -> None:
        self._serve(partial(self._driver.post, events.TurnCame()))

    def _answer(self, effect: events.Answer) -> None:
        self._waiting.pop(effect.ticket)(effect.reply)

    def _refuse(self, effect: events.Refuse) -> None:
        """Drops the request; a broker sends it again."""
        del self._waiting[effect.ticket]

    def _fail(self, effect: object) -> NoReturn:
        raise AssertionError(f"{self._raft_node}: {effect}")


def machine_of(node: Node) -> Machine:
    return Seat(node) if node.node_id <= VOTERS else Follower(node)


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
        """Appends a decision of the controller; effects wait for the end of a step, if one runs."""
        began = process_time()
        try:
            end_offset = self.append_now(epoch, batch)
        except NotLeader:
            raise LeadershipLost from None
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
        end = self._node.machine.applied * STRIDE
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
        self.image = Image()
        """The committed image."""
        self._applied: dict[int, tuple[Sequence[MetadataRecord], Image]] = {}
        """The newest batches of records, by identity, and the image after each."""
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

    def apply_all(self, image: Image, records: Sequence[MetadataRecord]) -> Image:
        """Applies a batch once for all nodes: its place in the log is the same everywhere."""
        if not records:
            return image
        known = self._applied.get(id(records))
        if known is None:
            known = self._applied[id(records)] = (records, applied(image, records))
            if len(self._applied) > IMAGES_KEPT:
                del self._applied[next(iter(self._applied))]
        return known[1]

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
            self.active.lose(broker_id, epoch)

    # --- committed metadata ---------------------------------------------------------------------------------------

    def committed(self, entry: Entry) -> None:
        before = after = self.image
        batch = entry.content
        if isinstance(batch, Batch):
            self.image = after = self.apply_all(before, batch.records)
        self.end += 1
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
        super().__init__(seed, quorum, machine_factory=machine_of)
        self.cluster = Cluster(self, racks, settings or {}, partition_bytes)
        self.committed.connect(self.cluster.committed)
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
