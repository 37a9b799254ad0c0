"""The controller on a node: carries out the effects of its runtime, and publishes images of the cluster.

Invariant: all subscribers receive an image, in order, before any reply that depends on it is sent. If a subscriber
fails, the node stops, because the subscriber may have missed an image.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar, cast

from penstock.metadata.changes import Changes
from penstock.metadata.cluster_commands import Heard, Heartbeat
from penstock.metadata.declare import MetadataRecord
from penstock.metadata.events import (
    Answer,
    Asked,
    AskedInTurn,
    BrokerLost,
    Committed,
    Effect,
    Event,
    GoOffline,
    LeaderKnown,
    Mistaken,
    Publish,
    ReadLog,
    ReadSnapshot,
    Refuse,
    RoleChanged,
    SnapshotFound,
    TakeTurn,
    TimePassed,
    TurnCame,
)
from penstock.metadata.image import Image
from penstock.metadata.index import PartitionIndex
from penstock.metadata.runtime import Appended, ControllerRuntime, LeadershipLost, NotController
from penstock.metadata.settings.layers import BrokerSettings
from penstock.metadata.view import Pieces
from penstock.model.errors import ProtocolError, StorageError
from penstock.model.ports import Clock, Entropy
from penstock.model.report import Report
from penstock.model.shard import Command
from penstock.model.signal import Signal
from penstock.raft.ports import SnapshotId
from penstock.raft.raft import NotLeader, Raft
from penstock.server.controller.metadata_reader import MetadataReader
from penstock.server.loop.driver import Driver
from penstock.server.loop.loop_port import LoopPort, Work
from penstock.server.loop.pacing import pacer
from penstock.server.loop.reporting import tell_by
from penstock.server.quorum.metadata_log import batch_in_pieces, batch_of, snapshot_batches
from penstock.server.settings import Feature

logger = logging.getLogger("penstock.controller")

Reply = TypeVar("Reply")
Subscriber: TypeAlias = Callable[[Changes, Image], None]


class Replicated(Protocol):
    """The metadata log on this node, as leader or as follower."""

    leader_known: Signal[[int, int, int]]
    committed: Signal[[int]]
    snapshot_found: Signal[[SnapshotId]]

    @property
    def raft(self) -> Raft:
        """The raft core, with the leader and the epoch."""

    @property
    def end_offset(self) -> int:
        """The end of the log, committed or not."""

    def read(self, offset: int, bytes_max: int) -> bytes:
        """Reads whole batches from an offset on, at least one if there is any."""

    def read_snapshot(self, snapshot: SnapshotId) -> Iterator[bytes]:
        """Reads the batches of a snapshot, in pieces."""

    def append(self, epoch: int, batch: bytearray) -> int:
        """Appends a batch and returns its end offset; raises NotLeader, or the error of the log."""


class LedLog:
    """The metadata log as the runtime appends to it."""

    __slots__ = ("_clock", "_quorum")

    def __init__(self, quorum: Replicated, clock: Clock) -> None:
        self._quorum = quorum
        self._clock = clock

    @property
    def end_offset(self) -> int:
        """The end of the log, committed or not."""
        return self._quorum.end_offset

    def is_led(self, epoch: int) -> bool:
        """Whether this node leads in this epoch."""
        raft = self._quorum.raft
        return raft.leader is not None and raft.epoch == epoch

    def encode(self, records: Sequence[MetadataRecord]) -> Pieces[bytearray]:
        """Encodes records as one batch, in pieces."""
        return batch_in_pieces(records, self._clock.wall_ms())

    def append(self, epoch: int, records: Sequence[MetadataRecord], encoded: bytearray | None = None) -> Appended:
        """Appends records as one batch."""
        batch = batch_of(records, self._clock.wall_ms()) if encoded is None else encoded
        size_bytes = len(batch)
        try:
            return Appended(self._quorum.append(epoch, batch), size_bytes)
        except NotLeader:
            raise LeadershipLost from None


class ControllerRunner:
    """See the module; `ask` while `is_active`."""

    def __init__(
        self,
        clock: Clock,
        entropy: Entropy,
        node_id: int,
        settings: BrokerSettings,
        quorum: Replicated,
        features: Sequence[Feature] = (),
        on_offline: Callable[[str], None] = lambda _sentence: None,
    ) -> None:
        """`features` are the initial features of a new cluster; `on_offline` receives the reason for going offline."""
        self._clock = clock
        self._quorum = quorum
        self._on_offline = on_offline
        self._subscribers: list[Subscriber] = []
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._tickets = 0
        self._changed: asyncio.Future[None] | None = None
        finalized = [(each.name, each.finalized) for each in features if each.finalized]
        self.runtime = ControllerRuntime(node_id, settings, entropy, LedLog(quorum, clock), finalized)
        reader = MetadataReader(quorum, self._post)
        self._driver: Driver[Event, Effect, int, Work] = Driver(
            self.runtime,
            LoopPort(clock),
            {
                Publish: self._publish,
                Answer: self._answer,
                Refuse: self._refuse,
                ReadLog: reader.read,
                ReadSnapshot: reader.load,
                TakeTurn: self._take_turn,
                RoleChanged: self._change_role,
                Mistaken: self._say_mistake,
                GoOffline: self._go_offline,
                Report: tell_by(logger),
            },
            time_passed=TimePassed(),
            on_broken=self._broke,
        )
        quorum.leader_known.connect(self._learn_leader)
        quorum.committed.connect(self._commit)
        quorum.snapshot_found.connect(self._load)
        self.node_id = node_id
        self.incarnation_id = self.runtime.incarnation_id
        """Id of this run of the node process."""
        self.image = Image()
        """The cluster state that is committed and applied here."""
        self.activated: Signal[[]] = Signal()
        """Emitted when this node becomes the active controller."""

    @property
    def position(self) -> int:
        """The offset up to which the metadata log is applied to `image`."""
        return self.runtime.position

    @property
    def settings(self) -> BrokerSettings:
        """The settings of this node, overridden by the dynamic settings of `image`."""
        return self.runtime.settings

    @property
    def is_active(self) -> bool:
        """Whether this node is the active controller."""
        return self.runtime.is_active

    @property
    def offline_reason(self) -> str | None:
        """Why the controller is offline: it can neither change nor follow the metadata; None if it is online."""
        return self.runtime.offline_reason

    @property
    def is_only_voter(self) -> bool:
        """Whether this node is the whole quorum."""
        return self._quorum.raft.voters.ids == (self.node_id,)

    @property
    def is_alone(self) -> bool:
        """Whether this node is the whole cluster: the active controller, the only voter, and no other broker."""
        others = [broker_id for broker_id in self.image.brokers if broker_id != self.node_id]
        return self.is_active and self.is_only_voter and not others

    @property
    def index(self) -> PartitionIndex:
        """Partitions by the work they need; valid until the next await."""
        return self.runtime.controller.index

    @property
    def end_offset(self) -> int:
        """The end of the metadata log here."""
        return self._quorum.end_offset

    # --- following ------------------------------------------------------------------------------------------------

    def subscribe(self, subscriber: Subscriber) -> None:
        """Registers a callback for each later image and its changes, in order, before any reply that depends on it."""
        self._subscribers.append(subscriber)

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Waits until `is_so()` is true; it is checked after every change of the image, the leader or the role."""
        while not is_so():
            self.check_online()
            if self._changed is None:
                self._changed = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._changed)

    def _tell_changed(self) -> None:
        if self._changed is not None:
            self._changed.set_result(None)
            self._changed = None

    def was_deleted(self, topic_id: bytes) -> bool:
        """Whether the metadata applied since the start contained a topic with this id and its deletion."""
        return self.runtime.was_deleted(topic_id)

    def forget_deleted(self) -> None:
        """Drops the ids of deleted topics: from here on deletions are in the changes of each image."""
        self.runtime.forget_deleted()

    @property
    def bytes_since_snapshot(self) -> int:
        """Bytes written or applied since the last snapshot."""
        return self.runtime.bytes_since_snapshot

    def snapshot_records(self) -> tuple[int, Iterator[bytes]]:
        """The current image as batches, and the end offset of the log that it covers."""
        self.runtime.bytes_since_snapshot = 0
        return self.position, snapshot_batches(self.image, self._clock.wall_ms())

    # --- events ---------------------------------------------------------------------------------------------------

    def _learn_leader(self, leader_id: int, epoch: int, start_offset: int) -> None:
        self._post(LeaderKnown(leader_id, epoch, start_offset))

    def _commit(self, end_offset: int) -> None:
        self._post(Committed(end_offset))

    def _load(self, snapshot: SnapshotId) -> None:
        self._post(SnapshotFound(snapshot))

    def lose(self, broker_id: int, broker_epoch: int) -> None:
        """Reports that a probe found nothing listening at the broker's address."""
        self._post(BrokerLost(broker_id, broker_epoch))

    def _post(self, event: Event) -> None:
        self._driver.post(event)

    # --- commands -------------------------------------------------------------------------------------------------

    async def ask(self, command: Command[Reply]) -> Reply:
        """Decides and carries out a command; raises NotController if this node is not the active controller.

        After a ProtocolError nothing has changed, unless leadership or the log was lost meanwhile: then the outcome is
        unknown. Cancelling the wait does not cancel the command.
        """
        ask, answered = self._new_ask(command)
        self._post(ask)
        return cast("Reply", await self._answered(ask, answered))

    async def ask_in_turn(self, commands: Iterable[Command[Reply]]) -> "list[Reply | ProtocolError]":
        """Decides commands one after the other, and returns when all of them are committed.

        Each command is a separate decision, with turns for other work in between; a refused one does not stop the next.
        """
        asks = [self._new_ask(command) for command in commands]
        self._post(AskedInTurn([ask for ask, _ in asks]))
        replies: list[Reply | ProtocolError] = []
        try:
            for ask, answered in asks:
                try:
                    replies.append(await self._answered(ask, answered))
                except NotController:
                    raise
                except ProtocolError as error:
                    replies.append(error)
        finally:
            for ask, answered in asks:
                self._waiting.pop(ask.ticket, None)
                answered.cancel()
        return replies

    async def heartbeat(self, command: Heartbeat) -> Heard:
        """Answers a heartbeat at once from the committed state; only controlled shutdown waits for the commit."""
        if command.wants_shutdown:
            return await self.ask(command)
        heard = self._driver.call(lambda: self.runtime.heartbeat(command, self._clock.monotonic_ms()))
        if isinstance(heard, ProtocolError):
            raise heard
        return heard

    def _new_ask(self, command: Command[Any]) -> "tuple[Asked, asyncio.Future[Any]]":
        self.check_online()
        self._tickets += 1
        answered = self._waiting[self._tickets] = asyncio.get_running_loop().create_future()
        return Asked(self._tickets, command), answered

    async def _answered(self, ask: Asked, answered: "asyncio.Future[Any]") -> Any:
        try:
            return await answered
        finally:
            self._waiting.pop(ask.ticket, None)

    # --- effects --------------------------------------------------------------------------------------------------

    def _publish(self, effect: Publish) -> None:
        self.image = effect.image
        for subscriber in self._subscribers:
            subscriber(effect.changes, effect.image)
        self._tell_changed()

    def _answer(self, effect: Answer) -> None:
        answered = self._waiting.pop(effect.ticket, None)
        if answered is not None and not answered.done():
            answered.set_result(effect.reply)

    def _refuse(self, effect: Refuse) -> None:
        answered = self._waiting.pop(effect.ticket, None)
        if answered is not None and not answered.done():
            answered.set_exception(effect.error)

    async def _take_turn(self, _effect: TakeTurn) -> None:
        await pacer().turn()
        self._post(TurnCame())

    def _change_role(self, effect: RoleChanged) -> None:
        self._tell_changed()
        if effect.is_active:
            self.activated()

    def _say_mistake(self, effect: Mistaken) -> None:
        if isinstance(effect.error, ProtocolError):
            logger.warning("What the controller does by itself did not succeed: %s.", effect.error)
        else:
            logger.critical(
                "A mistake of ours in what the controller does by itself; it is tried again.", exc_info=effect.error
            )

    def _go_offline(self, effect: GoOffline) -> None:
        self._tell_changed()
        self._on_offline(f"This node cannot follow the cluster any more: {effect.reason}.")

    # --- failures -------------------------------------------------------------------------------------------------

    def check_online(self) -> None:
        """Raises StorageError if the controller is offline."""
        self.runtime.check_online()

    def fail(self, reason: str) -> None:
        """Takes the controller offline until the node restarts, because the log or the quorum failed."""
        self._driver.absorb(self.runtime.fail(reason))
        self._tell_changed()

    def _broke(self, error: BaseException) -> None:
        logger.critical("The controller failed by a mistake of ours: %r.", error, exc_info=error)
        self.runtime.fail(f"a mistake of ours ({error!r})")
        waiting, self._waiting = self._waiting, {}
        for answered in waiting.values():
            if not answered.done():
                answered.set_exception(StorageError(f"the controller is offline: {self.offline_reason}"))
        self._tell_changed()
        self._on_offline(f"This node cannot follow the cluster any more: {self.offline_reason}; start it again.")
