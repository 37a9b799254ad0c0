"""Drives the raft core on a node: its log, its snapshots, its quorum state, its peers, its timer.

What must stay true: steps come one after the other; effects are carried out in order, and a `Persist` holds up all that
follow it; the log's end is reported only after a round of group commit. Whatever goes wrong with the disk or the rules
ends the replica: it answers nobody any more, and `on_failure` is told. A second life begins from the disk.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import suppress
from typing import Any, Protocol

from penstock.client.errors import ClientError
from penstock.log import truncation, upkeep
from penstock.log.directory import DataDirectory
from penstock.model.errors import ProtocolError, StorageError
from penstock.model.ports import Clock, Entropy
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
    Resigning,
    SnapshotInstalled,
    SnapshotTaken,
    TimePassed,
    Unanswered,
)
from penstock.raft.messages import FetchReply, Reply, Request
from penstock.raft.ports import SnapshotId
from penstock.raft.raft import Raft
from penstock.raft.replica import Inconsistent
from penstock.raft.replicas import Endpoint, ReplicaKey, VoterSet
from penstock.raft.roles import QuorumState
from penstock.raft.settings import QuorumSettings
from penstock.server.metadata_log import open_metadata_log
from penstock.server.quorum_log import QuorumLog, check_fetched
from penstock.server.quorum_snapshots import SnapshotShelf, open_shelf
from penstock.server.quorum_state import load_state, store_state
from penstock.server.settings import CannotStart

logger = logging.getLogger("penstock.quorum")


class Peers(Protocol):
    """How other replicas are asked."""

    async def ask(self, to: int, request: Request) -> Reply:
        """The answer; ClientError, OSError or ProtocolError when there is none."""


class StateMachine(Protocol):
    """What stands on the quorum. Its calls return at once."""

    def leader_known(self, leader_id: int, epoch: int, start_offset: int) -> None:
        """Who leads; if this node does, its epoch begins at `start_offset`."""

    def committed(self, end_offset: int) -> None:
        """Everything before is final."""

    def load(self, snapshot: SnapshotId) -> None:
        """Begin anew with this snapshot."""


class QuorumRunner:
    """One replica: `load`, then `start`, and `advance` after every round of group commit."""

    raft: Raft
    log: QuorumLog
    shelf: SnapshotShelf

    def __init__(
        self,
        directory: DataDirectory,
        clock: Clock,
        entropy: Entropy,
        node_id: int,
        machine: StateMachine,
        *,
        settings: QuorumSettings,
        bootstrap: VoterSet,
        lock: asyncio.Lock,
        on_failure: Callable[[str], None] = lambda _sentence: None,
        on_warning: Callable[[str, str], None] = lambda _kind, _sentence: None,
    ) -> None:
        """`lock` keeps others from work on the log's files, such as upkeep."""
        self._directory = directory
        self._clock = clock
        self._entropy = entropy
        self._machine = machine
        self._settings = settings
        self._bootstrap = bootstrap
        self._lock = lock
        self._on_failure = on_failure
        self._on_warning = on_warning
        self._peers: Peers | None = None
        self._outbox: deque[Effect] = deque()
        self._is_persisting = False
        self._wants_sync = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._asked: dict[asyncio.Future[Reply], None] = {}
        self.key = ReplicaKey(node_id, bytes.fromhex(directory.identity["directory_id"]))
        self.offline_reason: str | None = None

    # --- starting and stopping ------------------------------------------------------------------------------------

    async def load(self) -> None:
        """Opens what the last life left, and ends what it had begun."""
        disk = self._directory.disk
        log = await open_metadata_log(self._directory)
        self.shelf = await open_shelf(disk)
        self.log = QuorumLog(log, self.shelf, self._clock)
        self.shelf.drop_before(log.start_offset)
        if self.shelf.ids:
            newest = self.shelf.ids[-1]
            if newest.end_offset > log.written_end or self.log.epoch_before(newest.end_offset) != newest.epoch:
                await self._begin_log_at(newest)
        if log.start_offset and (not self.shelf.ids or self.shelf.ids[0].end_offset != log.start_offset):
            raise CannotStart(
                f"The metadata log begins at offset {log.start_offset}, and the snapshot before it is missing: "
                "restore the directory `snapshots`, or empty the data directory and add the node as a new voter."
            )
        self.begin_with(self._bootstrap)

    def begin_with(self, voters: VoterSet) -> None:
        """Before `start`: these vote while the log does not say who does."""
        self._bootstrap = voters
        self.raft = Raft(
            self.key,
            self.log,
            self.shelf,
            self._settings,
            self._entropy,
            bootstrap=voters,
            stored=load_state(self._directory.disk),
        )

    def start(self, peers: Peers) -> None:
        """Takes part from now on."""
        self._peers = peers
        self._carry_out(self.raft.start(self._clock.monotonic_ms()))

    async def stop(self) -> None:
        """Resigns if it leads, and is silent from then on."""
        if self._peers is not None and self.offline_reason is None and self.raft.leader is not None:
            self.step(Resigning())
            with suppress(TimeoutError):
                async with asyncio.timeout(self._settings.request_timeout_ms / 1000):
                    await asyncio.gather(*self._tasks, return_exceptions=True)
        self._go_offline("the node stops")
        if self._timer is not None:
            self._timer.cancel()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def endpoint_of(self, node_id: int) -> Endpoint | None:
        """Where a voter listens."""
        for voters in (self.raft.voters, self._bootstrap):
            voter = voters.by_id.get(node_id)
            if voter is not None and voter.endpoints:
                return voter.endpoints[0]
        return None

    # --- what others ask ------------------------------------------------------------------------------------------

    async def ask(self, request: Request) -> Reply:
        """What a peer, or an operator, is answered; maybe later. StorageError when this replica is out."""
        if self.offline_reason is not None:
            raise StorageError(f"the quorum's replica is offline: {self.offline_reason}")
        answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._asked[answer] = None
        try:
            self.step(Asked(answer, request))
            return await answer
        finally:
            del self._asked[answer]

    def append(self, epoch: int, batch: bytearray) -> int:
        """Appends a batch of the state machine; where it ends. NotLeader, or what the log refuses with."""
        try:
            end_offset, effects = self.raft.append(epoch, batch, self._clock.monotonic_ms())
        except StorageError:
            if self.log.log.offline_reason is not None:  # else the disk is full, and nothing was written
                self._fail(self.log.log.offline_reason)
            raise
        self._carry_out(effects)
        return end_offset

    @property
    def end_offset(self) -> int:
        """The end of the log, committed or not."""
        return self.log.end_offset

    def read(self, offset: int, bytes_max: int) -> bytes:
        """Whole batches from an offset on, at least one if there is any."""
        return self.log.read(offset, bytes_max)

    def read_snapshot(self, snapshot: SnapshotId) -> Iterator[bytes]:
        """The batches of a snapshot, in pieces."""
        return self.shelf.batches_of(snapshot)

    async def snapshot(self, end_offset: int, data: Iterable[bytes]) -> None:
        """Writes a snapshot of everything applied before an offset; `data` are its batches."""
        snapshot = SnapshotId(end_offset, self.log.epoch_before(end_offset))
        voters = self.raft.replica.voters.at(end_offset)
        await self.shelf.write(snapshot, voters, data, self._clock.wall_ms())
        async with self._lock:
            newest = self.shelf.ids[-1].end_offset if self.shelf.ids else 0
            if end_offset <= newest:  # the leader's came in between
                self.shelf.discard(snapshot)
                return
            await self.shelf.finish(snapshot)
            self.step(SnapshotTaken(snapshot))

    # --- steps ----------------------------------------------------------------------------------------------------

    def step(self, event: Event) -> None:
        """Tells the core, and does what it wants done."""
        if self.offline_reason is not None:
            return
        try:
            effects = self.raft.step(event, self._clock.monotonic_ms())
        except (Inconsistent, ProtocolError, OSError) as error:
            self._fail(f"{error}")
            return
        except Exception:
            self._fail("a mistake of ours; the lines before this one say more")
            raise
        self._carry_out(effects)

    def advance(self) -> None:
        """After every round of group commit."""
        if self.offline_reason is not None or self._peers is None:
            return
        if self.log.log.offline_reason is not None:
            self._fail(self.log.log.offline_reason)
        elif self._wants_sync:
            self._wants_sync = self.log.synced_end < self.log.end_offset
            self.step(LogSynced())

    def _carry_out(self, effects: list[Effect]) -> None:
        self._outbox.extend(effects)
        self._set_timer()
        self._drain()

    def _drain(self) -> None:
        try:
            while self._outbox and not self._is_persisting and self.offline_reason is None:
                self._do(self._outbox.popleft())
        except Exception as error:  # an effect is lost, and the core believes that it was carried out
            self._fail(f"a mistake of ours ({error!r})")
            raise

    def _do(self, effect: Effect) -> None:
        match effect:
            case Persist(state):
                self._is_persisting = True
                self._begin(self._persist(state))
            case Send(to, number, request):
                self._begin(self._send(to, number, request))
            case Answer(token, reply):
                if not token.done():  # whoever asked may be gone
                    token.set_result(reply)
            case SyncLog():
                self._wants_sync = True
                if self.log.synced_end == self.log.end_offset:
                    asyncio.get_running_loop().call_soon(self.advance)
            case CutLog(end_offset):
                self._begin(self._cut(end_offset))
            case InstallSnapshot(snapshot):
                self._begin(self._install(snapshot))
            case TrimLog(start_offset):
                self._begin(self._trim(start_offset))
            case Committed(high_watermark):
                self.log.log.advance_high_watermark(high_watermark)
                self._machine.committed(high_watermark)
            case LeaderKnown(leader_id, epoch, start_offset):
                self._machine.leader_known(leader_id, epoch, start_offset)
            case LoadSnapshot(snapshot):
                self._machine.load(snapshot)
            case Warn(kind, sentence):
                self._on_warning(kind, sentence)

    def _set_timer(self) -> None:
        wake_at = self.raft.wake_at
        if self._timer is not None:
            if self._timer_at <= wake_at:
                return
            self._timer.cancel()
        self._timer_at = wake_at
        wait_ms = max(0, wake_at - self._clock.monotonic_ms())
        self._timer = asyncio.get_running_loop().call_later(wait_ms / 1000, self._wake)

    def _wake(self) -> None:
        self._timer = None
        if self.offline_reason is None:
            if self._clock.monotonic_ms() >= self.raft.wake_at:
                self.step(TimePassed())
            else:
                self._set_timer()

    # --- the world ------------------------------------------------------------------------------------------------

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        del self._tasks[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(f"{error}")

    async def _persist(self, state: QuorumState) -> None:
        await store_state(self._directory.disk, state, self.log.log.reserve)
        self._is_persisting = False
        self._drain()

    async def _send(self, to: int, number: int, request: Request) -> None:
        assert self._peers is not None
        try:
            reply = await self._peers.ask(to, request)
            if isinstance(reply, FetchReply):
                check_fetched(reply.records)
        except (ClientError, ProtocolError, OSError):
            self.step(Unanswered(number))
        else:
            self.step(Answered(number, reply))

    async def _cut(self, end_offset: int) -> None:
        async with self._lock:
            await self._directory.truncate(self.log.log, end_offset, now_ms=self._clock.wall_ms())
        self.step(LogCut())

    async def _install(self, snapshot: SnapshotId) -> None:
        async with self._lock:
            await self.shelf.finish(snapshot)
            await self._begin_log_at(snapshot)
        self.step(SnapshotInstalled(snapshot))

    async def _begin_log_at(self, snapshot: SnapshotId) -> None:
        log, directory = self.log.log, self._directory
        await truncation.restart_at(log, directory.disk, directory.ledger, snapshot.end_offset)
        self.shelf.drop_before(snapshot.end_offset)

    async def _trim(self, start_offset: int) -> None:
        async with self._lock:
            if start_offset > self.log.start_offset:  # else a snapshot of the leader came in between
                await upkeep.delete_before(self.log.log, self._directory.disk, start_offset)
            self.shelf.drop_before(self.log.start_offset)

    def _fail(self, reason: str) -> None:
        if self.offline_reason is not None:
            return
        self._go_offline(reason)
        sentence = (
            f"This node can take no part in the metadata quorum any more: {reason}. "
            "See to the disk, then start the node again."
        )
        logger.critical(sentence)
        self._on_failure(sentence)

    def _go_offline(self, reason: str) -> None:
        self.offline_reason = self.offline_reason or reason
        for answer in self._asked:
            if not answer.done():
                answer.set_exception(StorageError(f"the quorum's replica is offline: {reason}"))
