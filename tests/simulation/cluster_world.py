"""Worlds of whole clusters: raft cores carry the log of controller cores, whose decisions brokers act on.

Every node of a world of raft cores (`raft_world`) has a seat for a controller, and most have a broker
(`controller_brokers`). The node that leads the quorum decides, once all of its log is committed; the others follow what
is committed, and so do the brokers, each from the replica on its own node. A node that does not lead any more goes back
to what is committed. A controller decides on many records at a time; they are one entry of the log, which is there
whole or not at all. The invariants of the quorum are looked at after every event, those of the controller after every
decision and every entry that is committed.
"""

import zlib
from collections.abc import Callable
from dataclasses import replace
from math import inf
from typing import Any, Final, NamedTuple, TypeVar

from penstock.metadata.cluster_commands import Heartbeat, Tick
from penstock.metadata.commands import RegisterBroker
from penstock.metadata.controller import Controller
from penstock.metadata.declare import MetadataRecord
from penstock.metadata.image import Image
from penstock.metadata.liveness import GAP_MS_MAX
from penstock.metadata.records import FeatureLevelRecord
from penstock.metadata.settings.layers import BrokerSettings
from penstock.metadata.snapshot import records_of
from penstock.metadata.view import ELR_FEATURE
from penstock.model.shard import Command
from penstock.raft.effects import LeaderKnown
from penstock.raft.ports import SnapshotId
from penstock.raft.raft import NotLeader
from tests.simulation.cluster_options import Options
from tests.simulation.controller_brokers import Broker
from tests.simulation.controller_checks import Checks, Silence
from tests.simulation.invariants import broken
from tests.simulation.raft_disk import Entry, Snapshot
from tests.simulation.raft_world import Chance, Machine, Node, World

Reply = TypeVar("Reply")

STRIDE: Final = 1_000
"""Offsets that controller and brokers see: so many to an entry, for the records in it."""


class Batch(NamedTuple):
    """What a controller decided at once."""

    records: tuple[MetadataRecord, ...]


class Pending(NamedTuple):
    """An answer that waits until everything is committed that was known when it was decided."""

    end_offset: int
    entry: Entry | None
    """The last that was appended before the answer was decided."""
    answer: Callable[[Any], None]
    reply: Any


class Seat(Machine):
    """The controller of a node, in one life of the node. It is active while the node leads, from its epoch's start on.

    What must stay true: it decides only when everything before its epoch is committed and applied; what it has decided
    counts for its next decision at once, and for others when it is committed; what it answers is committed; when its
    node does not lead any more, it knows only what is committed.
    """

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        assert isinstance(node, ClusterNode)
        self._house = node
        self._cluster = node.world.cluster
        self.image = Image()
        """What is committed, as far as this node knows."""
        self.controller = Controller(
            node.node_id,
            self._cluster.settings,
            Chance(node.world.streams.stream("seat", f"{node.node_id}-{node.life}")),
        )
        self.led_epoch: int | None = None
        """The epoch that this node leads, as far as the seat was told."""
        self.is_active = False
        self._start_offset = 0
        self._decided_end = 0
        self._decided_last: Entry | None = None
        self._pending: list[Pending] = []
        self._wake_at: float | None = None
        self._began_ms = 0.0
        self._arrivals: dict[tuple[int, int], float] = {}
        self._lost: set[tuple[int, int]] = set()

    # --- what the quorum tells ------------------------------------------------------------------------------------

    def leader_known(self, news: LeaderKnown) -> None:
        self.step_down()
        if news.leader_id == self._house.node_id:
            self.led_epoch, self._start_offset = news.epoch, news.start_offset
            self._begin_if_all_is_committed()

    def apply_up_to(self, high_watermark: int) -> None:
        log, world, images = self._house.disk.log, self._house.world, self._cluster.images
        for offset in range(self.applied, high_watermark):
            entry = log.entry(offset)
            world.checks.applied(self._house, offset, entry)
            if self.image is images[offset]:  # what follows from the same is worked out once for all nodes
                self.image = images[offset + 1]
            elif isinstance(entry.content, Batch):
                self.image = self.image.apply(entry.content.records)
        self.applied = high_watermark
        self._begin_if_all_is_committed()
        if self.is_settled and self.controller.image != self.image:
            broken("ControllerHasTheLog", f"{self._house} decides from another image than is committed")
        if self._pending:
            self._answer_committed()

    def snapshot(self) -> tuple[SnapshotId, Snapshot]:
        raft, log = self._house.raft, self._house.disk.log
        assert raft is not None
        records = "\n".join(sorted(map(repr, records_of(self.image))))
        data = f"{self.applied} {zlib.crc32(records.encode()):08x} ".encode() * (1 + self.applied % 5)
        snapshot = SnapshotId(self.applied, log.epoch_before(self.applied))
        return snapshot, Snapshot(data, raft.replica.voters.at(self.applied))

    def load(self, snapshot: SnapshotId, content: Snapshot) -> None:
        self.applied = snapshot.end_offset
        written = self._cluster.images[snapshot.end_offset]
        self.image = Image().apply(records_of(written))
        if self.image != written:
            broken("SnapshotIsTheImage", f"{self._house} loads another image than was written")

    # --- being active ---------------------------------------------------------------------------------------------

    def _begin_if_all_is_committed(self) -> None:
        if self.led_epoch is not None and not self.is_active and self.applied > self._start_offset:
            self._house.world.after(0.0, self._begin, self.led_epoch)

    @property
    def _leads(self) -> bool:
        """Whether the replica below agrees; the seat is told a little later."""
        raft = self._house.raft
        lives = raft is not None and self._house.machine is self
        return lives and raft is not None and raft.leader is not None and raft.epoch == self.led_epoch

    def _begin(self, epoch: int) -> None:
        if epoch != self.led_epoch or self.is_active or self._house.paused is not None:
            return
        if not self._leads:
            self.step_down()
            return
        self.is_active = True
        self._began_ms = self._house.world.time_ms
        self._arrivals, self._lost = {}, set()
        self._decided_end, self._decided_last = self.applied, None
        self.controller.revert(self.image)
        self.controller.begin(self._house.now)
        self._cluster.counts["controllers"] += 1
        self._house.world.tell(self._house, f"decides from {self.applied} on, in epoch {epoch}")
        if not self.image.features:
            self._record((FeatureLevelRecord(name=ELR_FEATURE, feature_level=1),), None)
        self._wake(0.0)

    def step_down(self) -> None:
        """What was not committed may never be; whoever waits for it asks somebody else."""
        if self.is_active:
            self.controller.revert(self.image)
        self.led_epoch, self.is_active = None, False
        self._pending = []

    def _wake(self, delay_ms: float) -> None:
        at = self._house.world.time_ms + delay_ms
        if self._wake_at is None or at < self._wake_at:
            self._wake_at = at
            self._house.world.after(delay_ms, self._tick, at)

    def _tick(self, at: float) -> None:
        if at == self._wake_at:
            self._wake_at = None
            self.tick()

    def tick(self) -> None:
        if not self.is_active or self._house.paused is not None:
            return
        self.controller.time_passes(self._house.now)
        self.decide(Tick(), lambda _reply: None, is_by_itself=True)

    # --- deciding -------------------------------------------------------------------------------------------------

    def arrives(self, command: Command[Any]) -> None:
        """A request has come to this node, which may not be able to look at it yet."""
        if isinstance(command, Heartbeat) and not (self._house.paused is not None and self._is_late(command)):
            self._arrivals[command.broker_id, command.broker_epoch] = self._house.world.time_ms

    def _is_late(self, command: Heartbeat) -> bool:
        """Whether somebody who had listened would have fenced the broker before this came."""
        return self._silence(command.broker_id, command.broker_epoch) >= self._cluster.session_ms

    def lose(self, broker_id: int, epoch: int) -> None:
        if self.is_active:
            self._lost.add((broker_id, epoch))
            self.controller.lose(broker_id, epoch)

    def decide(self, command: Command[Any], answer: Callable[[Any], None], *, is_by_itself: bool = False) -> None:
        if not self._leads:
            self.step_down()
        if not self.is_active:
            return
        log_end = self._house.disk.log.end_offset * STRIDE
        if isinstance(command, Heartbeat):
            command = replace(command, log_end=log_end)
            self.controller.hear(command, self._house.now)
            self._arrivals[command.broker_id, command.broker_epoch] = self._house.world.time_ms
        elif isinstance(command, RegisterBroker):
            command = replace(command, epoch=log_end)
        decision = self.controller.decide(command, self._house.now)
        if isinstance(command, Heartbeat) and decision.reply.should_shut_down and command.wants_shutdown:
            self._cluster.checks.stops(command.broker_id, self.controller.image)
        if decision.records and not self._record(decision.records, self._silence if is_by_itself else None):
            return
        self._pending.append(Pending(self._decided_end, self._decided_last, answer, decision.reply))
        self._answer_committed()
        if decision.wake_at is not None:
            self._wake(max(0.0, float(decision.wake_at - self._house.now)))

    def _record(self, records: tuple[MetadataRecord, ...], silence: Silence | None) -> bool:
        """Appends and applies; others learn of it when it is committed."""
        assert self.led_epoch is not None
        assert len(records) <= STRIDE
        house = self._house
        before = self.controller.image
        try:
            end_offset = house.append_batch(self.led_epoch, Batch(records))
        except NotLeader:
            self.step_down()
            return False
        for record in records:
            self.controller.apply(record)
        self._decided_end, self._decided_last = end_offset, house.disk.log.entry(end_offset - 1)
        self._cluster.checks.decided(before, self.controller.image, len(records), silence)
        house.go_on_with_effects()
        return True

    def _silence(self, broker_id: int, epoch: int) -> float:
        """On the node's clock, where a leap counts little; nobody can be late before the controller has begun."""
        if (broker_id, epoch) in self._lost:
            return inf
        since_ms = max(self._began_ms, self._arrivals.get((broker_id, epoch), 0.0))
        leaps = sum(at_ms > since_ms for at_ms in self._house.leapt_at_ms)
        return self._house.passed_ms(since_ms) + GAP_MS_MAX * leaps

    def _answer_committed(self) -> None:
        waiting = []
        for each in self._pending:
            if each.end_offset <= self.applied:
                self._cluster.answered(self._house, each)
                each.answer(each.reply)
            else:
                waiting.append(each)
        self._pending = waiting

    @property
    def is_settled(self) -> bool:
        """Whether it is active, and everything that it has decided is committed."""
        return self.is_active and self._decided_end <= self.applied


class ClusterNode(Node):
    """A node with a seat, and maybe with a broker on the same machine."""

    world: "ClusterWorld"
    machine: Machine

    def __init__(self, world: World, node_id: int) -> None:
        super().__init__(world, node_id)
        self.broker: Broker | None = None
        self.leapt_at_ms: list[float] = []
        self._held: list[Callable[[], None]] = []
        self._effects: list[Any] = []

    @property
    def seat(self) -> Seat:
        assert isinstance(self.machine, Seat)
        return self.machine

    def append_batch(self, epoch: int, batch: Batch) -> int:
        """Appends; what follows from it is done by `go_on_with_effects`, after the controller has applied it."""
        if self.raft is None:
            raise NotLeader
        appended = self.raft.append(epoch, batch, self.now)
        self._effects = appended.effects
        if self.world.story is not None:
            self.world.tell(self, f"records {batch.records if len(batch.records) < 4 else len(batch.records)}")
        return appended.end_offset

    def go_on_with_effects(self) -> None:
        effects, self._effects = self._effects, []
        self._carry_out(effects)

    def hold(self, call: Callable[[], None]) -> None:
        """While it is paused, what arrives waits in its sockets."""
        self._held.append(call)

    # --- lives ----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        super().start()
        if self.broker is not None:
            self.broker.start()

    def crash(self) -> None:
        self._held = []
        super().crash()
        if self.broker is not None and self.broker.is_up:
            self.world.cluster.broke(self.broker)
            self.broker.stop(loses=False)

    def wipe(self) -> None:
        super().wipe()
        if self.broker is not None:
            self.broker.replicas = {}
            self.broker.last_epoch = -1

    def leap(self, ahead_ms: int) -> None:
        self.leapt_at_ms.append(self.world.time_ms)
        super().leap(ahead_ms)

    def pause(self) -> None:
        super().pause()
        if self.broker is not None:
            self.broker.is_paused = True

    def resume(self) -> None:
        """First the timer, then what came in meanwhile: the worst order for those who sent heartbeats."""
        if self.paused is None:
            return
        super().resume()
        if self.broker is not None:
            self.broker.is_paused = False
        if self.raft is not None:
            held, self._held = self._held, []
            self.seat._begin_if_all_is_committed()
            self.seat.tick()
            for call in held:
                call()


class Cluster:
    """What brokers and people see of the world, and what must be true of the controllers' decisions."""

    def __init__(self, world: "ClusterWorld", options: Options) -> None:
        self._world = world
        self.streams = world.streams
        self.options = options.brokers
        self._are_probed = options.are_probed
        self.counts = world.counts
        self.settings = BrokerSettings(self.options.settings)
        self.session_ms = float(self.settings.number("broker.session.timeout.ms"))
        self.images: list[Image] = [Image()]
        """What is committed, after so many entries."""
        self.leaving: set[int] = set()
        self.checks = Checks(self)
        self.answers = 0
        self.brokers: dict[int, Broker] = {}
        racks = self.options.racks
        for node in world.nodes.values():
            if node.node_id >= options.layout.first_broker:
                assert isinstance(node, ClusterNode)
                node.broker = Broker(self, node.node_id, racks[node.node_id % len(racks)])
                self.brokers[node.node_id] = node.broker

    # --- the world ------------------------------------------------------------------------------------------------

    @property
    def time_ms(self) -> float:
        return self._world.time_ms

    @property
    def is_calm(self) -> bool:
        return self._world.is_calm

    @property
    def image(self) -> Image:
        """What is committed, whoever knows."""
        return self.images[-1]

    def after(self, delay_ms: float, call: Callable[..., None], *arguments: Any) -> None:
        self._world.after(delay_ms, call, *arguments)

    def tell(self, sentence: str) -> None:
        self._world.tell(None, sentence)

    def _node(self, node_id: int) -> ClusterNode:
        node = self._world.nodes[node_id]
        assert isinstance(node, ClusterNode)
        return node

    # --- the metadata log -----------------------------------------------------------------------------------------

    def committed(self, entry: Entry) -> None:
        """A leader finds it committed; nobody has acted on it yet."""
        before = self.images[-1]
        if isinstance(entry.content, Batch):
            after = before.apply(entry.content.records)
            self.images.append(after)
            self.checks.recorded(before, after)
        else:
            self.images.append(before)

    def answered(self, node: Node, pending: Pending) -> None:
        """Somebody is told that what was asked for is done."""
        self.answers += 1
        end_offset, entry = pending.end_offset, pending.entry
        committed = self._world.checks.committed
        if len(committed) < end_offset or (entry is not None and committed[end_offset - 1] is not entry):
            broken("AnswersAreCommitted", f"{node} answers what is not committed: {pending.reply}")

    # --- the network ----------------------------------------------------------------------------------------------

    def has_power(self, broker: Broker) -> bool:
        return self._world.nodes[broker.broker_id].raft is not None

    def metadata(self, broker: Broker) -> tuple[int, Image]:
        """Nothing before the broker's own registration: what it was in an earlier life, it is no more."""
        seat = self._node(broker.broker_id).seat
        end = seat.applied * STRIDE
        return (end, seat.image) if end > broker.epoch else (broker.metadata_end, broker.image)

    def send(self, source: Broker, target: Broker, call: Callable[..., None], *arguments: Any) -> None:
        for delay_ms in self._world.delays(source.broker_id, target.broker_id)[:1]:
            self.after(delay_ms, call, *arguments)

    def ask(self, source: Broker, command: Command[Reply], answered: Callable[[Reply], None]) -> None:
        """To the node that leads, as far as the broker's own node knows."""
        raft = self._world.nodes[source.broker_id].raft
        if raft is None or raft.leader_id not in self._world.nodes:
            return
        # Whoever lost records and says so late is struck from all lists once more: safe, but more than one at a time.
        is_prompt = isinstance(command, RegisterBroker) and command.previous_epoch < 0
        target = raft.leader_id
        for delay_ms in self._world.delays(source.broker_id, target)[:1]:
            late_ms = min(delay_ms, 2 * self._world.options.delay_ms) if is_prompt else delay_ms
            self.after(late_ms, self._arrive, source, target, command, answered)

    def _arrive(self, source: Broker, target: int, command: Command[Any], answered: Callable[[Any], None]) -> None:
        node = self._node(target)
        if node.raft is None:
            return
        node.seat.arrives(command)

        def answer(reply: Any) -> None:
            if not source.is_paused:
                for delay_ms in self._world.delays(target, source.broker_id)[:1]:
                    self.after(delay_ms, answered, reply)

        if node.paused is not None:
            node.hold(lambda: node.seat.decide(command, answer))
        else:
            node.seat.decide(command, answer)

    def people_ask(self, command: Command[Any], answered: Callable[[Any], None] = lambda _reply: None) -> bool:
        """An operator, whose request reaches whoever is the controller, if anybody is."""
        seat = self.active
        if seat is not None:
            seat.decide(command, answered)
        return seat is not None

    def broke(self, broker: Broker) -> None:
        """The connection to a broker broke; where the controller probes, it finds nobody."""
        if self._are_probed:
            self.after(20.0, self._probe, broker, broker.life, broker.epoch)

    def _probe(self, broker: Broker, life: int, epoch: int) -> None:
        seat = self.active
        if seat is not None and not broker.is_up and broker.life == life + 1:
            self.counts["probes"] += 1
            seat.lose(broker.broker_id, epoch)

    @property
    def active(self) -> Seat | None:
        """The newest controller, if it runs."""
        for node in reversed(self._world.leaders()):
            assert isinstance(node, ClusterNode)
            if node.seat.is_active:
                return None if node.paused is not None else node.seat
        return None

    # --- the end --------------------------------------------------------------------------------------------------

    def end(self) -> None:
        """All is mended: one controller is active, has what is committed, and has nothing left to do."""
        self._world.checks.end()
        seat = self.active
        if seat is None or not seat.is_settled:
            broken("Convergence", "no controller is through with its decisions")
        for node_id in self._world.nodes:
            if self._node(node_id).seat.image != self.image:
                broken("ConsistentCommittedData", f"node {node_id} has another image in the end than was committed")
        self.checks.end(seat.controller)


class ClusterWorld(World):
    """Nodes with seats and brokers."""

    node_type = ClusterNode

    def __init__(self, seed: int, options: Options, *, story: Callable[[str], None] | None = None) -> None:
        super().__init__(seed, options.quorum, machine_factory=Seat, story=story)
        self.cluster = Cluster(self, options)
        self.on_committed = self.cluster.committed
