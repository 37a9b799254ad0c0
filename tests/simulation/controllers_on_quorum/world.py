"""Worlds of whole clusters: raft cores carry the log of controller cores, whose decisions brokers act on.

Every node of a world of raft cores (`raft_core.world`) has a controller, the deployed one, and most have a broker
(`controller_core.brokers`). The node that leads the quorum decides, once all of its log is committed; the others follow
the committed entries, and so do the brokers, each from the replica on its own node. A node that no longer leads reverts
to the committed state. A controller may decide on many records at a time; they are one entry of the log, which is
present whole or not at all. The invariants of the quorum are checked after every event, those of the controller after
every decision and every committed entry.
"""

import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf
from typing import Any, ClassVar, Final, NamedTuple, NoReturn, TypeVar

from penstock.metadata import events
from penstock.metadata.changes import Changes, changes_between
from penstock.metadata.cluster_commands import Heard, Heartbeat
from penstock.metadata.commands import RegisterBroker
from penstock.metadata.declare import MetadataRecord
from penstock.metadata.draft import applied
from penstock.metadata.image import Image
from penstock.metadata.liveness import GAP_MS_MAX
from penstock.metadata.runtime import Appended, ControllerRuntime, LeadershipLost, Leading
from penstock.metadata.settings.layers import BrokerSettings
from penstock.metadata.snapshot import records_of
from penstock.metadata.view import ELR_FEATURE, Pieces
from penstock.model.report import Report
from penstock.model.shard import Command
from penstock.raft.effects import LeaderKnown
from penstock.raft.ports import SnapshotId
from penstock.raft.raft import NotLeader
from penstock.server.loop.driver import Driver
from tests.simulation.controller_core.brokers import Broker
from tests.simulation.controller_core.checks import Checks
from tests.simulation.controllers_on_quorum.options import Options
from tests.simulation.kit.heap_port import HeapPort, Work, raise_again
from tests.simulation.kit.invariants import broken
from tests.simulation.raft_core.disk import Entry, Snapshot
from tests.simulation.raft_core.world import Chance, Machine, Node, World

Reply = TypeVar("Reply")

STRIDE: Final = 1_000
"""Offsets per entry as controller and brokers see them, for the records in it."""


class Batch(NamedTuple):
    """The records of one decision of a controller."""

    records: tuple[MetadataRecord, ...]


class Pending(NamedTuple):
    """A request that waits for its response, and the last decision when it came."""

    end_offset: int
    entry: Entry | None
    answer: Callable[[Any], None]


class LedLog:
    """The metadata log of a node, as its controller appends to it. Decisions are checked when they are appended."""

    def __init__(self, machine: "ControllerMachine") -> None:
        self._machine = machine

    @property
    def end_offset(self) -> int:
        return self._machine.log_end

    def is_led(self, epoch: int) -> bool:
        return self._machine.is_led(epoch)

    def encode(self, records: Sequence[MetadataRecord]) -> Pieces[None]:
        """Does nothing: entries of this log are not encoded."""
        yield

    def append(self, epoch: int, records: Sequence[MetadataRecord], encoded: object = None) -> Appended:
        del encoded
        return Appended(self._machine.append(epoch, tuple(records)), len(records))


class ControllerMachine(Machine):
    """The controller of a node, in one life of the node: the deployed one, on the heap of the world.

    Invariants: it decides only when everything before its epoch is committed and applied; its decisions count for its
    next decision at once, and for others when they are committed; a response is sent once its decision is committed;
    when its node no longer leads, it has only the committed state.
    """

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        assert isinstance(node, ClusterNode)
        self._raft_node = node
        self._cluster = node.world.cluster
        chance = Chance(node.world.streams.stream("seat", f"{node.node_id}-{node.life}"))
        features = ((ELR_FEATURE, 1),)
        self.runtime = ControllerRuntime(
            node.node_id,
            self._cluster.settings,
            chance,
            LedLog(self),
            features,
            self._cluster.apply_all,
            self._cluster.compare,
        )
        self.port = HeapPort(node)
        self._driver: Driver[events.Event, events.Effect, int, Work] = Driver(
            self.runtime,
            self.port,
            {
                events.ReadLog: self._read,
                events.ReadSnapshot: self._read_snapshot,
                events.Publish: self._publish,
                events.Answer: self._answer,
                events.Refuse: self._refuse,
                events.TakeTurn: self._take_turn,
                events.RoleChanged: self._change_role,
                events.Mistaken: self._fail,
                events.GoOffline: self._go_offline,
                Report: self._tell,
            },
            time_passed=events.TimePassed(),
            on_broken=raise_again,
        )
        self._event: events.Event | None = None
        self._decided_end = 0
        self._decided_last: Entry | None = None
        self._pending: dict[int, Pending] = {}
        self._tickets = 0
        self._term: Leading | None = None
        self._began_ms = 0.0
        self._arrivals: dict[tuple[int, int], float] = {}
        self._lost: set[tuple[int, int]] = set()

    @property
    def image(self) -> Image:
        """The committed state, as far as this node knows."""
        return self.runtime.image

    @property
    def applied(self) -> int:
        return self.runtime.position

    @applied.setter
    def applied(self, _end_offset: int) -> None:
        """Ignored: the runtime owns the position."""

    @property
    def is_active(self) -> bool:
        return self.runtime.is_active

    @property
    def is_settled(self) -> bool:
        """Whether it is active, and all its decisions are committed."""
        return self.runtime.is_settled

    def _post(self, event: events.Event) -> None:
        self._driver.post(event)

    # --- events of the quorum -------------------------------------------------------------------------------------

    def leader_known(self, news: LeaderKnown) -> None:
        self._post(events.LeaderKnown(news.leader_id, news.epoch, news.start_offset))

    def apply_up_to(self, high_watermark: int) -> None:
        own_from = self.applied if self.is_active else high_watermark
        for offset in range(own_from, high_watermark):  # its own decisions are not read again
            self._raft_node.world.checks.applied(self._raft_node, offset, self._raft_node.disk.log.entry(offset))
        self._post(events.Committed(high_watermark))
        if self.is_settled and self.runtime.controller.image != self.image:
            broken("ControllerHasTheLog", f"{self._raft_node} decides from another image than is committed")

    def snapshot(self) -> tuple[SnapshotId, Snapshot]:
        raft, log = self._raft_node.raft, self._raft_node.disk.log
        assert raft is not None
        records = "\n".join(sorted(map(repr, records_of(self.image))))
        data = f"{self.applied} {zlib.crc32(records.encode()):08x} ".encode() * (1 + self.applied % 5)
        snapshot = SnapshotId(self.applied, log.epoch_before(self.applied))
        return snapshot, Snapshot(data, raft.replica.voters.at(self.applied))

    def load(self, snapshot: SnapshotId, content: Snapshot) -> None:
        self._post(events.SnapshotFound(snapshot))
        if self.image != self._cluster.images[snapshot.end_offset]:
            broken("SnapshotIsTheImage", f"{self._raft_node} loads another image than was written")

    def _read(self, effect: events.ReadLog) -> None:
        for offset in range(effect.offset, effect.end_offset):
            entry = self._raft_node.disk.log.entry(offset)
            self._raft_node.world.checks.applied(self._raft_node, offset, entry)
            records = entry.content.records if isinstance(entry.content, Batch) else ()
            end_offset = offset + 1 if offset + 1 == effect.end_offset else None
            self._post(events.LogRead(effect.number, records, end_offset, len(records)))

    def _read_snapshot(self, effect: events.ReadSnapshot) -> None:
        end_offset = effect.snapshot.end_offset
        self._post(events.LogRead(effect.number, self._cluster.records_up_to(end_offset), end_offset))

    def _tell(self, report: Report) -> None:
        if self._raft_node.world.story is not None:
            self._raft_node.world.tell(self._raft_node, str(report))

    def _publish(self, effect: events.Publish) -> None:
        """Does nothing: brokers read the image when they need it."""

    # --- the active controller ------------------------------------------------------------------------------------

    def is_led(self, epoch: int) -> bool:
        """Whether the replica below leads the epoch."""
        raft = self._raft_node.raft
        return raft is not None and self._raft_node.machine is self and raft.leader is not None and raft.epoch == epoch

    def _change_role(self, effect: events.RoleChanged) -> None:
        if effect.is_active:
            self._look_at_term()
            self._cluster.counts["controllers"] += 1
            self._raft_node.world.tell(self._raft_node, f"decides from {self.applied} on, in epoch {effect.epoch}")

    def _look_at_term(self) -> None:
        """Starts measuring the silence of brokers when the controller becomes active."""
        if self.is_active and self.runtime.leading is not self._term:
            self._term = self.runtime.leading
            self._began_ms = self._raft_node.world.time_ms
            self._arrivals, self._lost = {}, set()
            self._decided_end, self._decided_last = self.applied, None

    def _fail(self, effect: events.Mistaken) -> NoReturn:
        raise effect.error

    def _go_offline(self, effect: events.GoOffline) -> NoReturn:
        broken("InconsistentRecord", f"{self._raft_node}: {effect.reason}")

    # --- decisions ------------------------------------------------------------------------------------------------

    @property
    def log_end(self) -> int:
        return self._raft_node.disk.log.end_offset * STRIDE

    def arrives(self, command: Command[Any]) -> None:
        """Notes a heartbeat at this node, which may not be able to process it yet."""
        if isinstance(command, Heartbeat) and not (self._raft_node.paused is not None and self._is_late(command)):
            self._arrivals[command.broker_id, command.broker_epoch] = self._raft_node.world.time_ms

    def _is_late(self, command: Heartbeat) -> bool:
        """Whether a controller without a pause would have fenced the broker before this heartbeat."""
        return self._silence(command.broker_id, command.broker_epoch) >= self._cluster.session_ms

    def lose(self, broker_id: int, epoch: int) -> None:
        if self.is_active:
            self._look_at_term()
            self._lost.add((broker_id, epoch))
            self._post(events.BrokerLost(broker_id, epoch))

    def decide(self, command: Command[Any], answer: Callable[[Any], None]) -> None:
        self._look_at_term()
        if isinstance(command, RegisterBroker):
            command = replace(command, epoch=self.log_end)
            self._look_at_former_life(command)
        elif isinstance(command, Heartbeat):
            command = replace(command, log_end=self.log_end)
            if self.is_active:
                self._arrivals[command.broker_id, command.broker_epoch] = self._raft_node.world.time_ms
            if not command.wants_shutdown:
                self._hear(command, answer)
                return
            answer = self._told_to_stop(command.broker_id, answer)
        self._tickets += 1
        ticket = self._tickets
        self._pending[ticket] = Pending(0, None, answer)
        self._event = events.Asked(ticket, command)
        self._post(self._event)
        self._event = None
        if ticket in self._pending:
            self._pending[ticket] = Pending(self._decided_end, self._decided_last, answer)

    def _look_at_former_life(self, command: RegisterBroker) -> None:
        """A registration with the directory of a former process replaces that one, which is fenced at once."""
        known = self.runtime.controller.image.brokers.get(command.broker_id)
        if known is not None and known.log_dirs == command.log_dirs and known.incarnation_id != command.incarnation_id:
            self._lost.add((known.broker_id, known.epoch))

    def _hear(self, command: Heartbeat, answer: Callable[[Any], None]) -> None:
        """Answers a heartbeat at once, from the committed state."""
        self._event = events.Asked(0, command)
        heard = self._driver.call(lambda: self.runtime.heartbeat(command, self._raft_node.now))
        self._event = None
        if isinstance(heard, Heard):
            answer(heard)

    def _told_to_stop(self, broker_id: int, answer: Callable[[Any], None]) -> Callable[[Any], None]:
        def told(heard: Heard) -> None:
            if heard.should_shut_down:
                self._cluster.checks.stops(broker_id, self.runtime.controller.image)
            answer(heard)

        return told

    def append(self, epoch: int, records: tuple[MetadataRecord, ...]) -> int:
        """Appends a decision; others learn of it when it is committed."""
        assert len(records) <= STRIDE
        self._look_at_term()
        before = self.runtime.controller.image
        silence = None if isinstance(self._event, events.Asked) else self._silence
        end_offset = self._raft_node.append_batch(epoch, Batch(records))
        self._decided_end, self._decided_last = end_offset, self._raft_node.disk.log.entry(end_offset - 1)
        self._cluster.checks.decided(before, self._cluster.apply_all(before, records), len(records), silence)
        return end_offset

    def _silence(self, broker_id: int, epoch: int) -> float:
        """A broker's silence on the node's clock, where a jump counts little, at most since the controller began."""
        if (broker_id, epoch) in self._lost:
            return inf
        since_ms = max(self._began_ms, self._arrivals.get((broker_id, epoch), 0.0))
        leaps = sum(at_ms > since_ms for at_ms in self._raft_node.leapt_at_ms)
        return self._raft_node.passed_ms(since_ms) + GAP_MS_MAX * leaps

    def _take_turn(self, _effect: events.TakeTurn) -> Work:
        return 0.0, lambda: self._post(events.TurnCame())

    def _refuse(self, effect: events.Refuse) -> None:
        """Drops the request; the sender retries, perhaps at another node."""
        del self._pending[effect.ticket]

    def _answer(self, effect: events.Answer) -> None:
        pending = self._pending.pop(effect.ticket)
        end_offset, entry = pending.end_offset, pending.entry
        if not end_offset:  # it was decided just now
            end_offset, entry = self._decided_end, self._decided_last
        self._cluster.answered(self._raft_node, end_offset, entry, effect.reply)
        pending.answer(effect.reply)


class ClusterNode(Node):
    """A node with a controller, and maybe with a broker on the same machine."""

    world: "ClusterWorld"
    machine: Machine

    def __init__(self, world: World, node_id: int) -> None:
        super().__init__(world, node_id)
        self.broker: Broker | None = None
        self.leapt_at_ms: list[float] = []
        self._held: list[Callable[[], None]] = []

    @property
    def controller(self) -> ControllerMachine:
        assert isinstance(self.machine, ControllerMachine)
        return self.machine

    def append_batch(self, epoch: int, batch: Batch) -> int:
        """Appends a decision of the controller."""
        try:
            end_offset = self.append_now(epoch, batch)
        except NotLeader:
            raise LeadershipLost from None
        if self.world.story is not None:
            self.world.tell(self, f"records {batch.records if len(batch.records) < 4 else len(batch.records)}")
        return end_offset

    def hold(self, call: Callable[[], None]) -> None:
        """Queues an arrived request while the node is paused, as its sockets would."""
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
        if self.raft is not None:
            self.controller.port.look()

    def pause(self) -> None:
        super().pause()
        if self.broker is not None:
            self.broker.is_paused = True

    def resume(self) -> None:
        """Fires the timer first, then handles what arrived meanwhile: the worst order for heartbeats."""
        if self.paused is None:
            return
        super().resume()
        if self.broker is not None:
            self.broker.is_paused = False
        if self.raft is not None:
            held, self._held = self._held, []
            self.controller.port.look()
            for call in held:
                call()


class Cluster:
    """The world as brokers and operators see it, and the invariants of the controllers' decisions."""

    def __init__(self, world: "ClusterWorld", options: Options) -> None:
        self._world = world
        self.streams = world.streams
        self.options = options.brokers
        self._are_probed = options.are_probed
        self.counts = world.counts
        self.settings = BrokerSettings(self.options.settings)
        self.session_ms = float(self.settings.number("broker.session.timeout.ms"))
        self.images: list[Image] = [Image()]
        """The committed image after each number of entries."""
        self._applied: dict[tuple[int, int], tuple[Image, Image, Sequence[MetadataRecord]]] = {}
        self._compared: dict[tuple[int, int], tuple[Changes, Image, Image]] = {}
        self._snapshots: dict[int, tuple[MetadataRecord, ...]] = {}
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
        """The committed image, as of the newest entry."""
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
        """Applies an entry that a leader has committed; no node has acted on it yet."""
        before = self.images[-1]
        if isinstance(entry.content, Batch):
            after = self.apply_all(before, entry.content.records)
            self.images.append(after)
            self.checks.recorded(before, after)
        else:
            self.images.append(before)

    def answered(self, node: Node, end_offset: int, entry: Entry | None, reply: object) -> None:
        """Checks a response: the decision behind it, up to an entry of the log, must be committed."""
        self.answers += 1
        committed = self._world.checks.committed
        if len(committed) < end_offset or (entry is not None and committed[end_offset - 1] is not entry):
            broken("AnswersAreCommitted", f"{node} answers what is not committed: {reply}")

    def compare(self, old: Image, new: Image) -> Changes:
        """Computes the changes between two images once for all nodes."""
        known = self._compared.get((id(old), id(new)))
        if known is None:
            known = self._compared[id(old), id(new)] = (changes_between(old, new), old, new)
        return known[0]

    def apply_all(self, image: Image, records: Sequence[MetadataRecord]) -> Image:
        """Applies the same records to the same image once for all nodes."""
        nothing = self.images[0]
        if not image.brokers and not image.features and image == nothing:
            image = nothing  # every life of a node begins with an empty image of its own
        known = self._applied.get((id(image), id(records)))
        if known is None:
            known = self._applied[id(image), id(records)] = (applied(image, records), image, records)
        return known[0]

    def records_up_to(self, end_offset: int) -> tuple[MetadataRecord, ...]:
        """The records of a snapshot. Applied to an empty image they give an image equal to the committed one.

        Then nodes that load the snapshot continue with the committed image itself, so that `apply_all` finds what other
        nodes have computed.
        """
        known = self._snapshots.get(end_offset)
        if known is None:
            image, nothing = self.images[end_offset], self.images[0]
            known = self._snapshots[end_offset] = tuple(records_of(image))
            if applied(nothing, known) == image:
                self._applied[id(nothing), id(known)] = (image, nothing, known)
        return known

    # --- the network ----------------------------------------------------------------------------------------------

    def has_power(self, broker: Broker) -> bool:
        return self._world.nodes[broker.broker_id].raft is not None

    def metadata(self, broker: Broker) -> tuple[int, Image]:
        """The node's metadata, but nothing before the broker's own registration: a former life's roles are void."""
        controller = self._node(broker.broker_id).controller
        end = controller.applied * STRIDE
        return (end, controller.image) if end > broker.epoch else (broker.metadata_end, broker.image)

    def send(self, source: Broker, target: Broker, call: Callable[..., None], *arguments: Any) -> None:
        for delay_ms in self._world.delays(source.broker_id, target.broker_id)[:1]:
            self.after(delay_ms, call, *arguments)

    def ask(self, source: Broker, command: Command[Reply], answered: Callable[[Reply], None]) -> None:
        """Sends a request to the leader, as far as the broker's own node knows."""
        raft = self._world.nodes[source.broker_id].raft
        if raft is None or raft.leader_id not in self._world.nodes:
            return
        # Not delayed: a late registration after a loss removes the broker from every ISR and ELR again, which is safe,
        # but then more than one broker lacks records at a time.
        is_prompt = isinstance(command, RegisterBroker) and command.previous_epoch < 0
        target = raft.leader_id
        for delay_ms in self._world.delays(source.broker_id, target)[:1]:
            late_ms = min(delay_ms, 2 * self._world.options.delay_ms) if is_prompt else delay_ms
            self.after(late_ms, self._arrive, source, target, command, answered)

    def _arrive(self, source: Broker, target: int, command: Command[Any], answered: Callable[[Any], None]) -> None:
        node = self._node(target)
        if node.raft is None:
            return
        node.controller.arrives(command)

        def answer(reply: Any) -> None:
            if not source.is_paused:
                for delay_ms in self._world.delays(target, source.broker_id)[:1]:
                    self.after(delay_ms, answered, reply)

        if node.paused is not None:
            node.hold(lambda: node.controller.decide(command, answer))
        else:
            node.controller.decide(command, answer)

    def operators_ask(self, command: Command[Any], answered: Callable[[Any], None] = lambda _reply: None) -> bool:
        """Sends an operator's request to the active controller, if there is one."""
        active = self.active
        if active is not None:
            active.decide(command, answered)
        return active is not None

    def broke(self, broker: Broker) -> None:
        """Reports a broken connection to a broker; if the controller probes, it finds the broker gone."""
        if self._are_probed:
            self.after(20.0, self._probe, broker, broker.life, broker.epoch)

    def _probe(self, broker: Broker, life: int, epoch: int) -> None:
        active = self.active
        if active is not None and not broker.is_up and broker.life == life + 1:
            self.counts["probes"] += 1
            active.lose(broker.broker_id, epoch)

    @property
    def active(self) -> ControllerMachine | None:
        """The newest controller, if it runs."""
        for node in reversed(self._world.leaders()):
            assert isinstance(node, ClusterNode)
            if node.controller.is_active:
                return None if node.paused is not None else node.controller
        return None

    # --- the end --------------------------------------------------------------------------------------------------

    def end(self) -> None:
        """With all faults healed: one controller is active, has the committed state, and has nothing left to do."""
        self._world.checks.end()
        active = self.active
        if active is None or not active.is_settled:
            broken("Convergence", "no controller is through with its decisions")
        for node_id in self._world.nodes:
            if self._node(node_id).controller.image != self.image:
                broken("ConsistentCommittedData", f"node {node_id} has another image in the end than was committed")
        self.checks.end(active.runtime.controller)


class ClusterWorld(World):
    """Nodes with controllers and brokers."""

    node_type: ClassVar[type[Node]] = ClusterNode

    def __init__(self, seed: int, options: Options, *, story: Callable[[str], None] | None = None) -> None:
        super().__init__(seed, options.quorum, machine_factory=ControllerMachine, story=story)
        self.cluster = Cluster(self, options)
        self.committed.connect(self.cluster.committed)
