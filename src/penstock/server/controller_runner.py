"""The cluster on one node: what stands on the metadata quorum, and decides while this node leads it.

Every node applies what is committed; `image` is the cluster as far as that, and no answer ever shows what could still
be taken back. While this node leads and has applied everything, its controller is active: a command is decided, its
records are appended as one batch (all or none) and applied at once, and the reply waits until everything applied when
it was decided is committed. Lost leadership takes the controller back to `image`, and fails whoever waits. What is
committed is applied in pieces, so that a large log or snapshot holds nobody up.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final, NamedTuple, Protocol, TypeAlias, TypeVar

from penstock.metadata.changes import Changes, changes_between
from penstock.metadata.cluster_commands import Heard, Heartbeat, Tick
from penstock.metadata.commands import RegisterBroker
from penstock.metadata.controller import Controller
from penstock.metadata.declare import MetadataRecord
from penstock.metadata.draft import InconsistentRecord
from penstock.metadata.image import BROKER, Image
from penstock.metadata.index import PartitionIndex
from penstock.metadata.liveness import WAKE_MS
from penstock.metadata.records import FeatureLevelRecord, RemoveTopicRecord
from penstock.metadata.settings.layers import BrokerSettings
from penstock.model.errors import ErrorCode, ProtocolError, StorageError
from penstock.model.ports import Clock, Entropy
from penstock.model.shard import Command, Decision
from penstock.raft.ports import SnapshotId
from penstock.raft.raft import NotLeader, Raft
from penstock.server.metadata_log import (
    ENCODED_AT_ONCE,
    batch_in_pieces,
    batch_of,
    records_in,
    snapshot_batches,
    whole_batches,
)
from penstock.server.pacing import pacer
from penstock.server.pieces import in_turns
from penstock.server.settings import Feature
from penstock.server.waiters import OffsetWaiters

logger = logging.getLogger("penstock.controller")

Reply = TypeVar("Reply")
Subscriber: TypeAlias = Callable[[Changes, Image], None]

PIECE_BYTES: Final = 256 * 1024
"""What is read at once."""
APPLIED_AT_ONCE: Final = 1_000
"""Records that are applied without a turn for other tasks."""
DONE: Final = object()


class NotController(ProtocolError):
    """This node does not lead the metadata quorum, or leads it no longer: somebody else is to be asked."""

    code = ErrorCode.NOT_CONTROLLER


class Replicated(Protocol):
    """The metadata log on this node, whoever leads it."""

    offline_reason: str | None

    @property
    def raft(self) -> Raft:
        """Who leads, and which epoch it is."""

    @property
    def end_offset(self) -> int:
        """The end of the log, committed or not."""

    def read(self, offset: int, bytes_max: int) -> bytes:
        """Whole batches from an offset on, at least one if there is any."""

    def read_snapshot(self, snapshot: SnapshotId) -> Iterator[bytes]:
        """The batches of a snapshot, in pieces."""

    def append(self, epoch: int, batch: bytearray) -> int:
        """Appends a batch; where it ends. NotLeader, or what the log refuses with."""


class Leading(NamedTuple):
    """An epoch that this node leads, and where it begins."""

    epoch: int
    start_offset: int


class ControllerRunner:
    """See the module. Made, then given its `quorum`; `ask` while `is_active`."""

    quorum: Replicated

    def __init__(
        self,
        clock: Clock,
        entropy: Entropy,
        node_id: int,
        settings: BrokerSettings,
        features: Sequence[Feature] = (),
        on_offline: Callable[[str], None] = lambda _sentence: None,
    ) -> None:
        """`features` are what a cluster that has none yet begins with; `on_offline` is told why it cannot go on."""
        self._clock = clock
        self._entropy = entropy
        self._features = features
        self._on_offline = on_offline
        self._static = settings
        self._controller = Controller(node_id, settings, entropy)
        self._committed = OffsetWaiters()
        self._unpublished: deque[tuple[int, Image]] = deque()
        self._subscribers: list[Subscriber] = []
        self._deleted: dict[bytes, None] | None = {}
        """Ids of topics whose deletion was applied, for as long as somebody may ask."""
        self._leading: Leading | None = None
        self._loading: Iterator[bytes] | None = None
        self._applying: Iterator[None] | None = None
        self._final_end = 0
        """Everything before it is committed."""
        self._is_going_on = False
        self._timer: asyncio.TimerHandle | None = None
        self._changed: asyncio.Future[None] | None = None
        self.node_id = node_id
        self.incarnation_id = entropy.token(16)
        """Of this life of the node."""
        self.image = Image()
        """The cluster as far as it is committed and applied here."""
        self.position = 0
        """Everything before it is in `image`."""
        self.bytes_since_snapshot = 0
        self.settings = settings
        """The settings of this node under the dynamic ones of `image`."""
        self.is_active = False
        """Whether this node decides for the cluster."""
        self.offline_reason: str | None = None
        self.on_active: Callable[[], None] = _nothing
        """Called when this node begins to decide."""

    def subscribe(self, subscriber: Subscriber) -> None:
        """Calls back with every later image and what it changed, in order, before any reply that rests on it leaves."""
        self._subscribers.append(subscriber)

    def was_deleted(self, topic_id: bytes) -> bool:
        """Whether what was applied in this life told of a topic with this id, and of its deletion."""
        return self._deleted is not None and topic_id in self._deleted

    def forget_deleted(self) -> None:
        """Whoever follows the image from here on sees deletions as they come."""
        self._deleted = None

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Waits until something is true; it is looked at after every change of the image, the leader or the role."""
        while not is_so():
            self.check_online()
            if self._changed is None:
                self._changed = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._changed)

    def _tell_changed(self) -> None:
        if self._changed is not None:
            self._changed.set_result(None)
            self._changed = None

    # --- what the quorum tells ------------------------------------------------------------------------------------

    def leader_known(self, leader_id: int, epoch: int, start_offset: int) -> None:
        """Who leads; if this node does, its epoch begins at `start_offset`."""
        self._step_down()
        if leader_id == self.node_id:
            self._leading = Leading(epoch, start_offset)
        self._tell_changed()

    def committed(self, end_offset: int) -> None:
        """Everything before is final."""
        self._final_end = end_offset
        if self.is_active:
            self.position = end_offset
            self._publish_own(end_offset)
            self._committed.reached(end_offset)
        elif not self._is_going_on:
            self._go_on()

    def load(self, snapshot: SnapshotId) -> None:
        """Begin anew with this snapshot; until it is loaded, `image` stays what it is."""
        self._loading = self._load(snapshot)
        self._applying = None
        if not self._is_going_on:
            self._go_on()

    # --- applying what is committed -------------------------------------------------------------------------------

    def _go_on(self) -> None:
        """A piece; what is left comes after the others had their turn."""
        self._is_going_on = False
        if self.offline_reason is not None:
            return
        try:
            if self._loading is not None:
                if next(self._loading, None) is None:
                    self._loading = None
            elif self._applying is not None or self.position < self._final_end:
                self._applying = self._applying or self._apply_read()
                if next(self._applying, DONE) is DONE:
                    self._applying = None
        except (ProtocolError, InconsistentRecord) as error:
            self.fail(f"the metadata log cannot be read: {error}; restore it from a backup")
            self._on_offline(f"This node cannot follow the cluster any more: {self.offline_reason}.")
            return
        except Exception as error:  # who listens to images may have missed one
            self.fail(f"a mistake of ours ({error!r})")
            self._on_offline(f"This node cannot follow the cluster any more: {self.offline_reason}; start it again.")
            raise
        if self._loading is not None or self._applying is not None or self.position < self._final_end:
            self._is_going_on = True
            asyncio.get_running_loop().call_soon(self._go_on)
        else:
            self._begin_if_leading()

    def _load(self, snapshot: SnapshotId) -> Iterator[bytes]:
        fresh = Controller(self.node_id, self._static, self._entropy)
        for piece in self.quorum.read_snapshot(snapshot):
            for batch in whole_batches(piece):
                for record in records_in(batch):
                    fresh.apply(record)
            yield piece
        self._controller = fresh
        self.position = snapshot.end_offset
        self.bytes_since_snapshot = 0
        self._publish(fresh.image)

    def _apply_read(self) -> Iterator[None]:
        """Applies what one read gives, in pieces. Images are published with whole batches only."""
        data = self.quorum.read(self.position, PIECE_BYTES)
        count, position = 0, self.position
        for batch in whole_batches(data):
            if batch.base_offset >= self._final_end:
                break
            for record in records_in(batch):
                if count and count % APPLIED_AT_ONCE == 0:
                    yield
                count += 1
                self._apply(record)
            position = batch.last_offset + 1
            self.bytes_since_snapshot += batch.size_bytes
        if count > APPLIED_AT_ONCE:
            yield
        self.position = position
        self._publish(self._controller.image)

    def _apply(self, record: MetadataRecord) -> None:
        self._controller.apply(record)
        if self._deleted is not None and isinstance(record, RemoveTopicRecord):
            self._deleted[record.topic_id] = None

    def _publish_own(self, end_offset: int) -> None:
        newest: Image | None = None
        while self._unpublished and self._unpublished[0][0] <= end_offset:
            newest = self._unpublished.popleft()[1]
        if newest is not None:
            self._publish(newest)

    def _publish(self, newest: Image) -> None:
        changes = changes_between(self.image, newest)
        self.image = newest
        if changes.has_new_broker_settings:
            own = newest.config(BROKER, str(self.node_id))
            self.settings = self.settings.with_dynamic(newest.config(BROKER, ""), own)
        if self._deleted is not None:
            self._deleted |= dict.fromkeys(topic.topic_id for topic in changes.topics_deleted)
        for subscriber in self._subscribers:
            subscriber(changes, newest)
        self._tell_changed()

    def snapshot_records(self) -> tuple[int, Iterator[bytes]]:
        """The cluster as it is now, as batches, and the end of the log that it stands for."""
        self.bytes_since_snapshot = 0
        return self.position, snapshot_batches(self.image, self._clock.wall_ms())

    # --- being active ---------------------------------------------------------------------------------------------

    def _begin_if_leading(self) -> None:
        """Active is who leads and has applied everything: its own epoch's first record, too, is committed then."""
        if self._leading is None or self.is_active or self.position <= self._leading.start_offset:
            return
        self.is_active = True
        self._controller.begin(self._clock.monotonic_ms())
        logger.info("Active controller of epoch %d.", self._leading.epoch)
        try:
            self._begin_features()
        except ProtocolError as error:
            logger.warning("The features of the cluster could not be recorded: %s.", error)
        self._tick()
        self._tell_changed()
        self.on_active()

    def _begin_features(self) -> None:
        finalized = [FeatureLevelRecord(name=f.name, feature_level=f.finalized) for f in self._features if f.finalized]
        if finalized and not self._controller.image.features and not self._controller.image.brokers:
            self._record(finalized)

    def _step_down(self) -> None:
        self._leading = None
        if not self.is_active:
            return
        self.is_active = False
        if self._timer is not None:
            self._timer.cancel()
        self._unpublished.clear()
        self._controller.revert(self.image)
        self._committed.fail(NotController("this node leads the metadata quorum no longer; ask the new leader"))
        self._tell_changed()
        if self.position < self._final_end and not self._is_going_on:
            self._go_on()

    def _tick(self) -> None:
        """What an active controller does by itself, at least every WAKE_MS."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        if not self.is_active:
            return
        if not self._still_leads():
            self._step_down()
            return
        now = self._clock.monotonic_ms()
        wake_at: int | None = None
        try:
            self._controller.time_passes(now)
            self._hear_myself()
            decision = self._controller.decide(Tick(), now)
            if decision.records:
                self._record(decision.records)
            wake_at = decision.wake_at
        except NotController:
            return
        except ProtocolError as error:  # a full disk, for example: it is tried again
            logger.warning("What the controller does by itself did not succeed: %s.", error)
        except Exception:
            # Without its timer an active controller would fence nobody and elect nobody. Ending the node would not
            # help: the next controller has the same image.
            logger.critical(
                "A mistake of ours in what the controller does by itself; it is tried again.", exc_info=True
            )
        wait_ms = WAKE_MS if wake_at is None else min(max(0, wake_at - now), WAKE_MS)
        self._timer = asyncio.get_running_loop().call_later(wait_ms / 1000, self._tick)

    def _still_leads(self) -> bool:
        """A leader that hears from no majority resigns, and tells nobody."""
        raft = self.quorum.raft
        return self._leading is not None and raft.leader is not None and raft.epoch == self._leading.epoch

    async def heartbeat(self, command: Heartbeat) -> Heard:
        """Heard at once, and answered at once by what is committed (R34).

        A broker sends the next one when it has the answer: were that to wait for a slow disk, live brokers would be
        fenced. Only who wants to stop must be able to rely on the answer, and waits.
        """
        self._hear(command)
        if command.wants_shutdown:
            return await self.ask(command)
        decision = self._carry_out(command)
        broker = self.image.brokers.get(command.broker_id)
        return replace(decision.reply, is_fenced=decision.reply.is_fenced or broker is None or broker.is_fenced)

    def _hear_myself(self) -> None:
        """The broker of the same process lives as long as this runs, however long its registration takes to commit."""
        broker = self._controller.image.brokers.get(self.node_id)
        if broker is not None and broker.incarnation_id == self.incarnation_id:
            self._hear(Heartbeat(self.node_id, broker.epoch, self.position - 1, self.end_offset))

    def _hear(self, command: Heartbeat) -> None:
        if self.is_active:
            self._controller.hear(command, self._clock.monotonic_ms())

    def lose(self, broker_id: int, broker_epoch: int) -> None:
        """A probe found nobody where the broker was."""
        if self.is_active:
            self._controller.lose(broker_id, broker_epoch)
            asyncio.get_running_loop().call_soon(self._tick)

    # --- asking ---------------------------------------------------------------------------------------------------

    @property
    def index(self) -> PartitionIndex:
        """Partitions by what is to be done about them; for as long as nothing is awaited."""
        return self._controller.index

    @property
    def end_offset(self) -> int:
        """The end of the metadata log here."""
        return self.quorum.end_offset

    async def ask(self, command: Command[Reply]) -> Reply:
        """Has a command decided and carried out; NotController where this node does not decide.

        A ProtocolError says that nothing has changed; only when leadership or the log was lost meanwhile, nobody can
        say. Who stops waiting does not stop the command.
        """
        decision = await self._carry_out_in_pieces(command)
        await self._until_committed()
        return decision.reply

    async def ask_in_turn(self, commands: Iterable[Command[Reply]]) -> "list[Reply | ProtocolError]":
        """Has commands decided one after the other, and returns when all of them are committed.

        Each is a decision by itself, with turns for others between them; one that is refused does not stop the next.
        """
        replies: list[Reply | ProtocolError] = []
        for number, command in enumerate(commands):
            if number:
                await pacer().turn()
            try:
                replies.append((await self._carry_out_in_pieces(command)).reply)
            except NotController:
                raise
            except ProtocolError as error:
                replies.append(error)
        await self._until_committed()
        return replies

    async def _until_committed(self) -> None:
        if self._unpublished:
            await self._committed.wait_for(self._unpublished[-1][0])

    async def _carry_out_in_pieces(self, command: Command[Reply]) -> "Decision[MetadataRecord, Reply]":
        """Like `_carry_out`. A large command is decided and encoded in pieces, with turns for other tasks between them.

        Other commands may be carried out meanwhile. If one of them changes what the large command rests on, that one
        is decided anew. Its records are one batch, appended and applied at once. A small command has no turn in it.
        """
        while True:
            self._check_active()
            pieces = self._controller.decide_in_pieces(command)
            if pieces is None:
                return self._carry_out(command)
            leading, image, settings = self._leading, self._controller.image, self._controller.settings
            decision = await in_turns(pieces)
            if len(decision.records) > ENCODED_AT_ONCE:
                batch = await batch_in_pieces(decision.records, self._clock.wall_ms())
            else:
                batch = None
            self._check_active()
            if self._leading is leading and self._controller.rests_on(command, image, settings):
                return self._conclude(decision, batch)

    def _carry_out(self, command: Command[Reply]) -> "Decision[MetadataRecord, Reply]":
        """Decides, appends and applies; it may yet be taken back."""
        self._check_active()
        return self._conclude(self._decide(command))

    def _check_active(self) -> None:
        self.check_online()
        if not self.is_active or not self._still_leads():
            raise NotController("this node does not lead the metadata quorum; ask the one that does")

    def _conclude(
        self, decision: "Decision[MetadataRecord, Reply]", batch: bytearray | None = None
    ) -> "Decision[MetadataRecord, Reply]":
        if decision.records:
            self._record(decision.records, batch)
        if decision.wake_at is not None:
            asyncio.get_running_loop().call_soon(self._tick)
        return decision

    def _decide(self, command: Command[Reply]) -> "Decision[MetadataRecord, Reply]":
        if isinstance(command, RegisterBroker):
            self._forget_former_life(command)
        return self._controller.decide(command, self._clock.monotonic_ms())

    def _forget_former_life(self, command: RegisterBroker) -> None:
        """A data directory has one process at a time: who registers with the same one is what became of the other."""
        known = self._controller.image.brokers.get(command.broker_id)
        if known is not None and known.log_dirs == command.log_dirs and known.incarnation_id != command.incarnation_id:
            self._controller.lose(known.broker_id, known.epoch)

    def _record(self, records: Sequence[MetadataRecord], batch: bytearray | None = None) -> None:
        """Appends and applies; `batch` is what the records are encoded as, if they are."""
        assert self._leading is not None
        # A record that does not fit must not get into the log: no start would get past it.
        image = self._controller.image.apply(records)
        if batch is None:
            batch = batch_of(records, self._clock.wall_ms())
        size_bytes = len(batch)
        try:
            end_offset = self.quorum.append(self._leading.epoch, batch)
        except NotLeader:
            self._step_down()
            raise NotController("this node leads the metadata quorum no longer; ask the new leader") from None
        self._controller.advance(image)
        self.bytes_since_snapshot += size_bytes
        self._unpublished.append((end_offset, image))

    # --- failing --------------------------------------------------------------------------------------------------

    def check_online(self) -> None:
        """StorageError when nothing can be changed or learned here any more."""
        if self.offline_reason is not None:
            raise StorageError(f"the controller is offline: {self.offline_reason}")

    def fail(self, reason: str) -> None:
        """The log or the quorum failed: nothing can be changed or learned here until the node is started again."""
        if self.offline_reason is not None:
            return
        self.offline_reason = reason
        self.is_active = False
        self._leading = None
        if self._timer is not None:
            self._timer.cancel()
        self._unpublished.clear()
        self._committed.fail(StorageError(f"the controller is offline: {reason}"))
        self._tell_changed()


def _nothing() -> None:
    """Nobody wants to know."""
