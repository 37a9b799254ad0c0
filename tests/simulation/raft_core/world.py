"""Worlds of raft cores: plain steppers on a heap, without sockets and without asyncio.

Messages are lost, duplicated, delayed and reordered; links are cut in one direction or both; machines lose power and
unsynced data, pause, have clocks that drift, come back with an empty disk; voters are added and removed. After every
event the invariants are checked (`raft_core.checks`). In the last part of a world all faults are healed, and then it
must converge. Time is in milliseconds.
"""

import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, ClassVar, Final, NamedTuple

from penstock.model.errors import ErrorCode
from penstock.model.ports import Entropy
from penstock.model.report import Report
from penstock.model.signal import Signal
from penstock.raft.effects import (
    Answer,
    Committed,
    CutLog,
    Effect,
    InstallSnapshot,
    LeaderKnown,
    LoadSnapshot,
    Persist,
    Send,
    SyncLog,
    TrimLog,
    Warn,
)
from penstock.raft.events import (
    Answered,
    Asked,
    Event,
    LogCut,
    LogSynced,
    SnapshotInstalled,
    SnapshotTaken,
    TimePassed,
    Unanswered,
)
from penstock.raft.messages import AddVoter, Reply, Request, UpdateVoter, Vote, VoteReply
from penstock.raft.ports import LeaderChange, SnapshotId
from penstock.raft.raft import NotLeader, Raft
from penstock.raft.replicas import ReplicaKey, Voter, VoterSet
from penstock.raft.roles import Role
from penstock.server.loop.driver import Driver
from penstock.simulator.randomness import Streams
from tests.simulation.kit.heap_port import HeapPort, Work, raise_again
from tests.simulation.kit.timeline import Timeline
from tests.simulation.raft_core.checks import Checks
from tests.simulation.raft_core.disk import Disk, Entry, Snapshot
from tests.simulation.raft_core.options import Options

_MASK: Final = (1 << 64) - 1


class Chance:
    """The Entropy port of one node."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def token(self, size_bytes: int) -> bytes:
        return self._random.randbytes(size_bytes)

    def below(self, end: int) -> int:
        return int(self._random.random() * end)


class WatchedRaft(Raft):
    """Records its role changes."""

    moves: set[tuple[Role, Role]]

    def _take_role(self, role: Role) -> None:
        self.moves.add((self.role, role))
        super()._take_role(role)


class Letter(NamedTuple):
    """The sender, its life, the number and the content of a request: the token with which it is answered."""

    source: int
    life: int
    number: int
    request: Request


class Machine:
    """The state machine of a node: a digest of all entries. A controller replaces it in other worlds."""

    def __init__(self, node: "Node") -> None:
        self._node = node
        self.applied = 0
        self.digest = 0

    def leader_known(self, news: LeaderKnown) -> None:
        """The leader has changed, perhaps to this node; this machine ignores it."""

    def apply_up_to(self, high_watermark: int) -> None:
        node = self._node
        log, checks = node.disk.log, node.world.checks
        for offset in range(self.applied, high_watermark):
            entry = log.entry(offset)
            checks.applied(node, offset, entry)
            self.digest = self.digest_after(offset, entry)
        self.applied = high_watermark

    def digest_after(self, offset: int, entry: Entry) -> int:
        value = entry.content if isinstance(entry.content, int) else -1
        return (self.digest * 1_000_003 ^ (offset << 32) ^ value) & _MASK

    def snapshot(self) -> tuple[SnapshotId, Snapshot]:
        raft, log = self._node.raft, self._node.disk.log
        assert raft is not None
        data = f"{self.applied} {self.digest:016x}".encode() * (1 + self.applied % 5)
        snapshot = SnapshotId(self.applied, log.epoch_before(self.applied))
        return snapshot, Snapshot(data, raft.replica.voters.at(self.applied))

    def load(self, snapshot: SnapshotId, content: Snapshot) -> None:
        applied, digest = content.data.split()[:2]
        self.applied = int(applied)
        self.digest = int(digest[:16], 16)
        assert self.applied == snapshot.end_offset


class CheckedRaft:
    """A replica whose steps are checked before their effects are carried out."""

    def __init__(self, node: "Node", raft: Raft) -> None:
        self._node = node
        self._raft = raft

    @property
    def wake_at(self) -> int:
        return self._raft.wake_at

    def step(self, event: Event, now: int) -> list[Effect]:
        return self.looked_at(self._raft.step(event, now))

    def looked_at(self, effects: list[Effect]) -> list[Effect]:
        self._node.world.checks.after_step(self._node, effects)
        return effects


class Node:
    """A machine with a disk, and in each of its lives a replica on it."""

    core_type: ClassVar[type[CheckedRaft]] = CheckedRaft

    def __init__(self, world: "World", node_id: int) -> None:
        self.world = world
        self.node_id = node_id
        self.random = world.streams.stream("node", str(node_id))
        self.disk = Disk(self._new_directory_id())
        self.raft: WatchedRaft | None = None
        self.machine = Machine(self)
        self.life = 0
        self.role: Role | None = None
        self.epoch = 0
        self.epoch_told = 0
        self.high_watermark = 0
        self.paused: list[Event] | None = None
        self._port = HeapPort(self)
        self._core: CheckedRaft | None = None
        self._driver: Driver[Event, Effect, int, Work] | None = None
        self._persisting: Persist | None = None
        self._is_syncing = self._wants_sync = False
        self._rebuilding: CutLog | InstallSnapshot | None = None
        self._snapshot_under_way = False
        self._clock_base = 0
        self._clock_rate = 1.0
        self._born_at = 0.0

    def __str__(self) -> str:
        return f"node {self.node_id}"

    def _new_directory_id(self) -> bytes:
        return self.random.randbytes(16)

    @property
    def key(self) -> ReplicaKey:
        return ReplicaKey(self.node_id, self.disk.directory_id)

    @property
    def now(self) -> int:
        return int(self._clock_base + (self.world.time_ms - self._born_at) * self._clock_rate)

    @property
    def now_ms(self) -> int:
        return self.now

    @property
    def is_paused(self) -> bool:
        return self.paused is not None

    def world_ms(self, at_ms: int) -> float:
        return self._born_at + (at_ms - self._clock_base) / self._clock_rate + 0.001

    def passed_ms(self, since_ms: float) -> float:
        """How much of the node's own time has passed, not counting jumps of its clock."""
        return (self.world.time_ms - since_ms) * self._clock_rate

    # --- lives ----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        assert self.raft is None
        world = self.world
        drift = world.options.clock_drift
        self._born_at = world.time_ms
        self._clock_base = self.random.randrange(1_000_000)
        self._clock_rate = self.random.uniform(1 - drift, 1 + drift)
        self.disk.recover()
        self.machine = world.machine_factory(self)
        self.raft = WatchedRaft(
            self.key,
            self.disk.log,
            self.disk.shelf,
            world.options.settings,
            world.entropy_factory(self.random, self.node_id),
            bootstrap=world.bootstrap,
            stored=self.disk.state,
        )
        self.raft.moves = world.moves
        world.checks.started(self)
        world.tell(self, "starts")
        core = self._core = self.core_type(self, self.raft)
        self._port = HeapPort(self)
        self._driver = Driver(
            core,
            self._port,
            {
                Persist: self._persist,
                Send: self._send,
                Answer: self._answer,
                SyncLog: self._sync_log,
                Committed: self._commit,
                LeaderKnown: self._know_leader,
                CutLog: self._cut,
                InstallSnapshot: self._install,
                TrimLog: self._trim,
                LoadSnapshot: self._load,
                Warn: self._report,
                Report: self._report,
            },
            time_passed=TimePassed(),
            on_broken=raise_again,
            barriers=(Persist,),
        )
        self._driver.absorb(core.looked_at(self.raft.start(self.now)))
        world.checks.after_loss()

    def crash(self) -> None:
        """Cuts the power: unsynced data is lost; an operation in progress is done or not."""
        assert self.raft is not None
        assert self._driver is not None
        self._driver.close()
        self.raft = self._core = self._driver = None
        self.life += 1
        random, disk = self.random, self.disk
        if self._persisting is not None and random.random() < 0.5:
            disk.state = self._persisting.state
        match self._rebuilding:
            case CutLog(end_offset) if random.random() < 0.5:
                disk.log.cut(end_offset)
                disk.log.synced_end = disk.log.end_offset
            case InstallSnapshot(snapshot) if random.random() < 0.5:
                disk.put_alone(snapshot, self._received(snapshot))
        disk.log.lose_power(random)
        disk.shelf.received = b""
        self._persisting = self._rebuilding = self.paused = None
        self._is_syncing = self._wants_sync = self._snapshot_under_way = False
        self.world.checks.after_loss()
        self.world.tell(self, f"loses power; its log is left with {disk.log.start_offset} to {disk.log.end_offset}")

    def wipe(self) -> None:
        """Replaces the disk with an empty one, and so the node with a new replica."""
        if self.raft is not None:
            self.crash()
        self.world.checks.wiped.add(self.key)
        self.disk = Disk(self._new_directory_id())
        self.epoch_told = 0
        self.world.checks.after_loss()
        self.world.tell(self, "loses its disk")

    def leap(self, ahead_ms: int) -> None:
        """Moves the clock forward, as after a suspended machine."""
        self._clock_base += ahead_ms
        self._port.look()

    def pause(self) -> None:
        if self.paused is None:
            self.paused = []
            self.world.tell(self, "is paused")

    def resume(self) -> None:
        held, self.paused = self.paused, None
        if held is not None:
            self.world.tell(self, "goes on")
            for event in held:
                self.take(event)
            self._port.look()

    # --- steps ----------------------------------------------------------------------------------------------------

    def take(self, event: Event) -> None:
        if self._driver is None:
            return
        if self.paused is not None:
            self.paused.append(event)
            return
        self._driver.post(event)

    def append(self, value: Any) -> None:
        """Appends as the state machine, if this node leads."""
        raft = self.raft
        if raft is not None and raft.leader is not None and self.paused is None:
            end_offset = self.append_now(raft.epoch, value)
            self.world.tell(self, f"appends {value} up to {end_offset}")

    def append_now(self, epoch: int, value: Any) -> int:
        """Appends, or raises NotLeader; the effects are carried out once no others are in progress."""
        raft, core = self.raft, self._core
        if raft is None or core is None or self._driver is None:
            raise NotLeader

        def append() -> tuple[int, list[Effect]]:
            end_offset, effects = raft.append(epoch, value, self.now)
            return end_offset, core.looked_at(effects)

        return self._driver.call(append)

    def _persist(self, effect: Persist) -> Work:
        self._persisting = effect
        return self._disk_ms(), self._persisted

    def _persisted(self) -> None:
        assert self._persisting is not None
        self.disk.state = self._persisting.state
        self._persisting = None

    def _disk_ms(self) -> float:
        random, options = self.random, self.world.options
        if self.world.is_calm:
            return options.sync_ms
        if options.slow_sync and random.random() < options.slow_sync:
            return random.uniform(0.0, 1_000.0)
        return random.random() * 2 * options.sync_ms

    def _rebuild_ms(self) -> float:
        """Truncating or replacing a log takes many syncs, and sometimes longer than the time-outs."""
        if self.world.is_calm or self.random.random() < 0.8:
            return self._disk_ms()
        return self.random.uniform(0.0, 2.0) * self.world.options.settings.fetch_timeout_ms

    def _sync_log(self, _effect: SyncLog) -> None:
        if self._is_syncing:
            self._wants_sync = True
        else:
            self._sync()

    def _commit(self, effect: Committed) -> None:
        self.machine.apply_up_to(effect.high_watermark)
        self._maybe_snapshot()

    def _know_leader(self, effect: LeaderKnown) -> None:
        self.machine.leader_known(effect)

    def _trim(self, effect: TrimLog) -> None:
        self.disk.log.trim(effect.start_offset)
        self.disk.shelf.drop_before(effect.start_offset)

    def _load(self, effect: LoadSnapshot) -> None:
        self.machine.load(effect.snapshot, self.disk.shelf.snapshots[effect.snapshot])

    def _report(self, effect: Warn | Report) -> None:
        if self.world.story is not None:
            self.world.tell(self, f"warns: {effect.sentence}" if isinstance(effect, Warn) else str(effect))

    def _send(self, effect: Send) -> None:
        self.epoch_told = max(self.epoch_told, effect.request.epoch)  # type: ignore[union-attr]
        letter = Letter(self.node_id, self.life, effect.number, effect.request)
        self.world.send(self.node_id, effect.to, letter)

    def _answer(self, effect: Answer) -> None:
        letter, reply = effect
        self.epoch_told = max(self.epoch_told, reply.epoch)
        if not isinstance(letter, Letter):
            letter(reply)
            return
        if type(reply) is VoteReply and reply.is_granted and not letter.request.is_pre_vote:  # type: ignore[union-attr]
            vote: Vote = letter.request  # type: ignore[assignment]
            self.world.checks.voted(self.key, vote.epoch, vote.candidate)
            self.world.vote_granted(self)
        self.world.answer(self.node_id, letter, reply)

    # --- the disk -------------------------------------------------------------------------------------------------

    def _sync(self) -> None:
        log = self.disk.log
        self._is_syncing, self._wants_sync = True, False
        self.world.after(self._disk_ms(), self._synced, self.life, log.end_offset, log.cuts)

    def _synced(self, life: int, end_offset: int, cuts: int) -> None:
        if life != self.life:
            return
        log = self.disk.log
        if cuts == log.cuts:
            log.synced_end = max(log.synced_end, end_offset)
        self._is_syncing = False
        if self._wants_sync:
            self._sync()
        self.take(LogSynced())

    def _cut(self, effect: CutLog) -> Work:
        self._rebuilding = effect

        def cut() -> None:
            self._rebuilding = None
            self.disk.log.cut(effect.end_offset)
            self.disk.log.synced_end = self.disk.log.end_offset
            self.take(LogCut())

        return self._rebuild_ms(), cut

    def _install(self, effect: InstallSnapshot) -> Work:
        self._rebuilding = effect

        def install() -> None:
            self._rebuilding = None
            self.disk.install(effect.snapshot, self._received(effect.snapshot))
            self.take(SnapshotInstalled(effect.snapshot))

        return self._rebuild_ms(), install

    def _received(self, snapshot: SnapshotId) -> Snapshot:
        """The received snapshot, with its voters, which the simulated bytes do not contain."""
        content = Snapshot(self.disk.shelf.received, self.world.checks.snapshots[snapshot].voters)
        self.world.checks.snapshot(self, snapshot, content)
        return content

    def _maybe_snapshot(self) -> None:
        every, ids = self.world.options.snapshot_every, self.disk.shelf.ids
        last = ids[-1].end_offset if ids else 0
        if every and not self._snapshot_under_way and self.machine.applied - last >= every:
            self.take_snapshot()

    def take_snapshot(self) -> None:
        self._snapshot_under_way = True
        snapshot, content = self.machine.snapshot()
        self.world.checks.snapshot(self, snapshot, content)
        self.world.after(self._disk_ms(), self._snapshot_taken, self.life, snapshot, content)

    def _snapshot_taken(self, life: int, snapshot: SnapshotId, content: Snapshot) -> None:
        if life != self.life:
            return
        self._snapshot_under_way = False
        ids = self.disk.shelf.ids
        if not ids or ids[-1].end_offset < snapshot.end_offset:  # the leader's may have arrived meanwhile
            self.disk.shelf.put(snapshot, content)
            self.world.tell(self, f"takes a snapshot up to {snapshot.end_offset}")
            self.take(SnapshotTaken(snapshot))


class World(Timeline):
    """Time, the network, and the nodes."""

    EVENTS_MAX: ClassVar[int] = 200_000
    node_type: ClassVar[type[Node]] = Node

    def __init__(
        self,
        seed: int,
        options: Options,
        *,
        machine_factory: Callable[[Node], Machine] = Machine,
        entropy_factory: Callable[[Random, int], Entropy] = lambda random, _node_id: Chance(random),
        story: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__()
        self.streams = Streams(seed)
        self.options = options
        self.machine_factory = machine_factory
        self.entropy_factory = entropy_factory
        self.story = story
        self.counts: Counter[str] = Counter()
        self.moves: set[tuple[Role, Role]] = set()
        self.cut_links: Counter[tuple[int, int]] = Counter()
        self.is_calm = False
        self.vote_granted: Signal[[Node]] = Signal()
        """Emitted when a node is about to answer that it has granted its vote."""
        self.committed: Signal[[Entry]] = Signal()
        """Emitted for every entry, in order, when a leader has committed it, before any node applies it."""
        self._network = self.streams.stream("network")
        self.checks = Checks(self)
        count = options.voters + options.spares
        self.nodes = {node_id: self.node_type(self, node_id) for node_id in range(1, count + 1)}
        self.bootstrap = VoterSet(Voter(self.nodes[node_id].key) for node_id in range(1, options.voters + 1))

    def tell(self, node: "Node | None", what: str) -> None:
        if self.story is not None:
            self.story(f"{self.time_ms / 1000:8.3f} {node or 'world'} {what}")

    # --- the network ----------------------------------------------------------------------------------------------

    def send(self, source: int, to: int, letter: Letter) -> None:
        if self.story is not None:
            self.tell(self.nodes[source], f"to {to}: {show(letter.request)}")
        for delay_ms in self.delays(source, to):
            self.after(delay_ms, self._deliver, to, letter)

    def _deliver(self, to: int, letter: Letter) -> None:
        target = self.nodes[to]
        if target.raft is None:
            if self._network.random() < 0.7:  # a connection reset, if the machine is only starting
                self.after(self.options.delay_ms, self._unanswered, letter)
            return
        target.take(Asked(letter, letter.request))

    def _unanswered(self, letter: Letter) -> None:
        node = self.nodes[letter.source]
        if node.life == letter.life:
            node.take(Unanswered(letter.number))

    def answer(self, source: int, letter: Letter, reply: Reply) -> None:
        if self.story is not None:
            self.tell(self.nodes[source], f"to {letter.source}: {show(reply)}")
        for delay_ms in self.delays(source, letter.source):
            self.after(delay_ms, self._deliver_answer, letter, reply)

    def _deliver_answer(self, letter: Letter, reply: Reply) -> None:
        node = self.nodes[letter.source]
        if node.life == letter.life:
            node.take(Answered(letter.number, reply))

    def delays(self, source: int, to: int) -> Sequence[float]:
        """The delays after which copies of a message arrive; empty if it is lost."""
        if self.cut_links and self.cut_links[source, to]:
            return ()
        options, random = self.options, self._network.random
        mean_ms = options.delay_ms
        if self.is_calm:
            return (mean_ms,)
        if options.loss and random() < options.loss:
            return ()
        delay_ms = mean_ms * (0.5 + random())
        if options.straggling and random() < options.straggling:
            delay_ms += 5_000.0 * random()
        if options.duplication and random() < options.duplication:
            return delay_ms, delay_ms + 20 * mean_ms * random()
        return (delay_ms,)

    # --- operators ------------------------------------------------------------------------------------------------

    def leaders(self) -> list[Node]:
        """All nodes that believe they lead, the newest last."""
        found = [node for node in self.nodes.values() if node.raft is not None and node.raft.leader is not None]
        return sorted(found, key=lambda node: node.epoch)

    def ask(self, node: Node, request: Request, then: Callable[[Any], None] = lambda _reply: None) -> None:
        """Sends an operator's request to a node, without delay."""
        self.tell(node, f"is asked: {show(request)}")
        node.take(Asked(then, request))


def show(message: Any) -> str:
    """A message in readable form, without default values."""
    parts = []
    is_change = isinstance(message, AddVoter | UpdateVoter)
    for name, value in message._asdict().items():
        if value is None or value in (-1, "", ErrorCode.NONE, False) or (name in _DULL and not is_change):
            continue
        parts.append(name if value is True else f"{name} {show_value(value)}")
    return f"{type(message).__name__} {', '.join(parts)}".rstrip()


_DULL = ("max_wait_ms", "bytes_max", "candidate", "voter", "replica", "start_offset", "size_bytes")


def show_value(value: Any) -> str:
    match value:
        case (int(base), tuple(entries)) if entries and isinstance(entries[0], Entry):
            return f"from {base}: " + " ".join(show_entry(entry) for entry in entries)
        case ReplicaKey(node_id):
            return str(node_id)
        case Voter(key):
            return str(key.node_id)
        case ErrorCode():
            return value.name
        case SnapshotId(end_offset, epoch):
            return f"{end_offset}-{epoch}"
        case bytes():
            return f"of {len(value)} bytes"
        case tuple() if value and isinstance(value[0], ReplicaKey):
            return " ".join(str(key.node_id) for key in value)
        case tuple():
            return "/".join(map(str, value))
    return str(value)


def show_entry(entry: Entry) -> str:
    match entry.content:
        case LeaderChange(leader_id):
            what = f"leader={leader_id}"
        case VoterSet():
            what = "voters=" + ",".join(map(str, entry.content.ids))
        case _:
            what = str(entry.content)
    return f"[{entry.epoch} {what}]"


def trace_of(world: World) -> int:
    """A hash that is equal for two runs of one seed, and differs between seeds."""
    return zlib.crc32(repr((world.trace_hash, world.checks.committed)).encode())
