"""The raft core on a node: carries out its effects on the log, the snapshots, the quorum state and the peers.

Invariants: a `Persist` delays all effects that follow it; the log end is reported only after a round of group commit.
A disk error or a violated invariant of the core ends the replica: it answers no more requests and calls `on_failure`.
After a restart it begins from the disk.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Protocol

from penstock.client.errors import ClientError
from penstock.log import truncation, upkeep
from penstock.log.directory import DataDirectory
from penstock.model.errors import ProtocolError, StorageError
from penstock.model.ports import Clock, Entropy
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
from penstock.raft.settings import QuorumSettings
from penstock.server.loop.driver import Driver
from penstock.server.loop.loop_port import LoopPort, Work
from penstock.server.loop.reporting import tell_by
from penstock.server.quorum.metadata_log import open_metadata_log
from penstock.server.quorum.quorum_log import QuorumLog, check_fetched
from penstock.server.quorum.quorum_snapshots import SnapshotShelf, open_shelf
from penstock.server.quorum.quorum_state import load_state, store_state
from penstock.server.settings import CannotStart

logger = logging.getLogger("penstock.quorum")


class Peers(Protocol):
    """Requests to other replicas."""

    async def ask(self, to: int, request: Request) -> Reply:
        """Sends a request and returns the reply; raises ClientError, OSError or ProtocolError if there is none."""


class QuorumRunner:
    """One replica. Call `load`, then `start`, and `advance` after every round of group commit."""

    raft: Raft
    log: QuorumLog
    shelf: SnapshotShelf

    def __init__(
        self,
        directory: DataDirectory,
        clock: Clock,
        entropy: Entropy,
        node_id: int,
        *,
        settings: QuorumSettings,
        bootstrap: VoterSet,
        lock: asyncio.Lock,
        on_failure: Callable[[str], None] = lambda _sentence: None,
        on_warning: Callable[[str, str], None] = lambda _kind, _sentence: None,
    ) -> None:
        """`lock` excludes other work on the log's files, such as upkeep."""
        self._directory = directory
        self._clock = clock
        self._entropy = entropy
        self._settings = settings
        self._bootstrap = bootstrap
        self._lock = lock
        self._on_failure = on_failure
        self._on_warning = on_warning
        self._peers: Peers | None = None
        self._port = LoopPort(clock)
        self._driver: Driver[Event, Effect, int, Work] | None = None
        self._wants_sync = False
        self._asked: dict[asyncio.Future[Reply], None] = {}
        self.key = ReplicaKey(node_id, bytes.fromhex(directory.identity["directory_id"]))
        self.offline_reason: str | None = None
        self.leader_known: Signal[[int, int, int]] = Signal()
        """Emitted with the leader, its epoch and, if this node leads, the start offset of the epoch."""
        self.committed: Signal[[int]] = Signal()
        """Emitted with the high watermark."""
        self.snapshot_found: Signal[[SnapshotId]] = Signal()
        """Emitted when readers of the log must start again from this snapshot."""

    # --- starting and stopping ------------------------------------------------------------------------------------

    async def load(self) -> None:
        """Opens the log and the snapshots, and completes a snapshot installation that was interrupted."""
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
        """Sets the voters to use while the log has no voter set. Call it before `start`."""
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
        """Joins the quorum."""
        self._peers = peers
        self._driver = Driver(
            self.raft,
            self._port,
            {
                Persist: self._persist,
                Send: self._send,
                Answer: self._answer,
                SyncLog: self._sync,
                CutLog: self._cut,
                InstallSnapshot: self._install,
                TrimLog: self._trim,
                Committed: self._commit,
                LeaderKnown: self._lead,
                LoadSnapshot: self._load,
                Warn: self._warn,
                Report: tell_by(logger),
            },
            time_passed=TimePassed(),
            on_broken=self._broke,
            barriers=(Persist,),
        )
        self._driver.absorb(self.raft.start(self._clock.monotonic_ms()))

    async def stop(self) -> None:
        """Resigns if this node leads, and goes offline."""
        if self._driver is not None and self.offline_reason is None and self.raft.leader is not None:
            self._driver.post(Resigning())
            with suppress(TimeoutError):
                async with asyncio.timeout(self._settings.request_timeout_ms / 1000):
                    await self._port.finished()
        self._go_offline("the node stops")
        await self._port.stop()

    def endpoint_of(self, node_id: int) -> Endpoint | None:
        """The endpoint of a voter."""
        for voters in (self.raft.voters, self._bootstrap):
            voter = voters.by_id.get(node_id)
            if voter is not None and voter.endpoints:
                return voter.endpoints[0]
        return None

    # --- requests -------------------------------------------------------------------------------------------------

    async def ask(self, request: Request) -> Reply:
        """Answers a request of a peer or an operator, maybe later; raises StorageError if this replica is offline."""
        if self.offline_reason is not None:
            raise StorageError(f"the quorum's replica is offline: {self.offline_reason}")
        answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._asked[answer] = None
        try:
            self._post(Asked(answer, request))
            return await answer
        finally:
            del self._asked[answer]

    def append(self, epoch: int, batch: bytearray) -> int:
        """Appends a batch of the state machine; returns its end offset. Raises NotLeader, or the error of the log."""
        try:
            end_offset, effects = self.raft.append(epoch, batch, self._clock.monotonic_ms())
        except StorageError:
            if self.log.log.offline_reason is not None:  # otherwise the disk is full, and nothing was written
                self._fail(self.log.log.offline_reason)
            raise
        if self._driver is not None:
            self._driver.absorb(effects)
        return end_offset

    @property
    def end_offset(self) -> int:
        """The end of the log, committed or not."""
        return self.log.end_offset

    def read(self, offset: int, bytes_max: int) -> bytes:
        """Reads whole batches from an offset on, at least one if there is any."""
        return self.log.read(offset, bytes_max)

    def read_snapshot(self, snapshot: SnapshotId) -> Iterator[bytes]:
        """Reads the batches of a snapshot, in pieces."""
        return self.shelf.batches_of(snapshot)

    async def snapshot(self, end_offset: int, data: Iterable[bytes]) -> None:
        """Writes a snapshot of everything applied before an offset; `data` are its batches."""
        snapshot = SnapshotId(end_offset, self.log.epoch_before(end_offset))
        voters = self.raft.replica.voters.at(end_offset)
        await self.shelf.write(snapshot, voters, data, self._clock.wall_ms())
        async with self._lock:
            newest = self.shelf.ids[-1].end_offset if self.shelf.ids else 0
            if end_offset <= newest:  # a leader's snapshot was installed meanwhile
                self.shelf.discard(snapshot)
                return
            await self.shelf.finish(snapshot)
            self._post(SnapshotTaken(snapshot))

    # --- events ---------------------------------------------------------------------------------------------------

    def _post(self, event: Event) -> None:
        if self._driver is not None:
            self._driver.post(event)

    def advance(self) -> None:
        """Reports the new log end to the core after a round of group commit."""
        if self.offline_reason is not None or self._driver is None:
            return
        if self.log.log.offline_reason is not None:
            self._fail(self.log.log.offline_reason)
        elif self._wants_sync:
            self._wants_sync = self.log.synced_end < self.log.end_offset
            self._post(LogSynced())

    # --- effects --------------------------------------------------------------------------------------------------

    async def _persist(self, effect: Persist) -> None:
        await store_state(self._directory.disk, effect.state, self.log.log.reserve)

    async def _send(self, effect: Send) -> None:
        assert self._peers is not None
        try:
            reply = await self._peers.ask(effect.to, effect.request)
            if isinstance(reply, FetchReply):
                check_fetched(reply.records)
        except (ClientError, ProtocolError, OSError):
            self._post(Unanswered(effect.number))
        else:
            self._post(Answered(effect.number, reply))

    def _answer(self, effect: Answer) -> None:
        if not effect.token.done():  # the caller may have given up
            effect.token.set_result(effect.reply)

    def _sync(self, _effect: SyncLog) -> None:
        self._wants_sync = True
        if self.log.synced_end == self.log.end_offset:
            asyncio.get_running_loop().call_soon(self.advance)

    async def _cut(self, effect: CutLog) -> None:
        async with self._lock:
            await self._directory.truncate(self.log.log, effect.end_offset, now_ms=self._clock.wall_ms())
        self._post(LogCut())

    async def _install(self, effect: InstallSnapshot) -> None:
        async with self._lock:
            await self.shelf.finish(effect.snapshot)
            await self._begin_log_at(effect.snapshot)
        self._post(SnapshotInstalled(effect.snapshot))

    async def _begin_log_at(self, snapshot: SnapshotId) -> None:
        log, directory = self.log.log, self._directory
        await truncation.restart_at(log, directory.disk, directory.ledger, snapshot.end_offset)
        self.shelf.drop_before(snapshot.end_offset)

    async def _trim(self, effect: TrimLog) -> None:
        async with self._lock:
            if effect.start_offset > self.log.start_offset:  # otherwise a leader's snapshot was installed meanwhile
                await upkeep.delete_before(self.log.log, self._directory.disk, effect.start_offset)
            self.shelf.drop_before(self.log.start_offset)

    def _commit(self, effect: Committed) -> None:
        self.log.log.advance_high_watermark(effect.high_watermark)
        self.committed(effect.high_watermark)

    def _lead(self, effect: LeaderKnown) -> None:
        self.leader_known(effect.leader_id, effect.epoch, effect.start_offset)

    def _load(self, effect: LoadSnapshot) -> None:
        self.snapshot_found(effect.snapshot)

    def _warn(self, effect: Warn) -> None:
        self._on_warning(effect.kind, effect.sentence)

    # --- failures -------------------------------------------------------------------------------------------------

    def _broke(self, error: BaseException) -> None:
        """Fails the replica after a step or an effect raised: the state of the core no longer matches the disk."""
        if isinstance(error, (Inconsistent, ProtocolError, OSError)):
            self._fail(f"{error}")
        else:
            logger.critical("The metadata quorum failed by a mistake of ours: %r.", error, exc_info=error)
            self._fail(f"a mistake of ours ({error!r})")

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
        if self._driver is not None:
            self._driver.close()
        for answer in self._asked:
            if not answer.done():
                answer.set_exception(StorageError(f"the quorum's replica is offline: {reason}"))
