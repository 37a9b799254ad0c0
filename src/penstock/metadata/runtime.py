"""The controller of one node on the metadata log: follows committed records, and decides while this node leads.

Every node applies committed records; `image` is the resulting cluster state, and no reply ever shows state that could
still be undone. While this node leads and has applied everything, its controller is active: a command is decided, its
records are appended as one batch (all or none) and applied at once, and the reply waits until everything applied when
it was decided is committed. When leadership is lost, the controller reverts to `image` and refuses waiting requests.

It shares its types and the reply queue with the shards of groups, but not their lifecycle: a controller runs on every
node, starts from snapshots, and reverts to the committed image; a shard loads when it is elected and is discarded.

Long work (a large command, several commands in turn) is a generator: other work runs after each piece.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, assert_never

from penstock.metadata.changes import Changes, changes_between
from penstock.metadata.cluster_commands import Heard, Heartbeat, Tick
from penstock.metadata.commands import RegisterBroker
from penstock.metadata.controller import Controller
from penstock.metadata.declare import MetadataRecord
from penstock.metadata.draft import InconsistentRecord, applied
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
    LogRead,
    Mistaken,
    Publish,
    ReadFailed,
    ReadLog,
    ReadSnapshot,
    Refuse,
    RoleChanged,
    SnapshotFound,
    TakeTurn,
    TimePassed,
    TurnCame,
)
from penstock.metadata.image import BROKER, Image
from penstock.metadata.liveness import WAKE_MS, WakeAt
from penstock.metadata.records import RemoveTopicRecord
from penstock.metadata.reports import CONTROLLER_ACTIVE, CONTROLLER_INACTIVE, reports_of
from penstock.metadata.settings.layers import BrokerSettings
from penstock.metadata.view import Pieces
from penstock.model.errors import ErrorCode, ProtocolError, StorageError
from penstock.model.ports import Entropy
from penstock.model.replies import ReplyQueue
from penstock.model.shard import ASKER, Command, Decision

Decided: TypeAlias = Decision[MetadataRecord, Any]
Work: TypeAlias = Generator[None, None, None]

NOBODY: Final = -1
"""Ticket of commands that the controller issues itself."""
ENCODED_AT_ONCE: Final = 500
"""Number of records that are encoded without yielding."""


class NotController(ProtocolError):
    """This node does not lead the metadata quorum, or no longer; the request must be sent to another node."""

    code = ErrorCode.NOT_CONTROLLER


class LeadershipLost(Exception):
    """The log accepts no more appends from this node."""


class Appended(NamedTuple):
    """End offset and size of an appended batch."""

    end_offset: int
    size_bytes: int


class MetadataLog(Protocol):
    """The metadata log on this node, as leader or follower."""

    @property
    def end_offset(self) -> int:
        """The end of the log, committed or not."""

    def is_led(self, epoch: int) -> bool:
        """Whether this node leads in this epoch. A leader without a majority resigns without notice."""

    def encode(self, records: Sequence[MetadataRecord]) -> Pieces[Any]:
        """Encodes the records for `append`, in pieces."""

    def append(self, epoch: int, records: Sequence[MetadataRecord], encoded: Any = None) -> Appended:
        """Appends records as one batch. Raises LeadershipLost, or a ProtocolError if nothing was written."""


class Leading(NamedTuple):
    """An epoch that this node leads, and its start offset."""

    epoch: int
    start_offset: int


class ControllerRuntime:
    """See the module."""

    def __init__(
        self,
        node_id: int,
        settings: BrokerSettings,
        entropy: Entropy,
        log: MetadataLog,
        features: Iterable[tuple[str, int]] = (),
        apply_all: Callable[[Image, Sequence[MetadataRecord]], Image] = applied,
        compare: Callable[[Image, Image], Changes] = changes_between,
    ) -> None:
        """`features` are the initial feature levels of a new cluster.

        Worlds of many nodes pass other functions, which compute equal results only once.
        """
        self._log = log
        self._entropy = entropy
        self._static = settings
        self._features = tuple(features)
        self._apply_all = apply_all
        self._compare = compare
        self._replies: ReplyQueue[Any, Effect] = ReplyQueue()
        self._unpublished: deque[tuple[int, Image]] = deque()
        self._deleted: dict[bytes, None] | None = {}
        """Ids of topics whose deletion was applied, until `forget_deleted`."""
        self._final_end = 0
        """Everything before this offset is committed."""
        self._read_number = 0
        self._is_reading = False
        self._fresh: Controller | None = None
        """Controller into which a snapshot is being read."""
        self._work: deque[Work] = deque()
        self._tick_at: int | None = None
        self._now = 0
        self._effects: list[Effect] = []
        self.node_id = node_id
        self.incarnation_id = entropy.token(16)
        """Identifies this run of the node."""
        self.controller = self._new_controller()
        self.image = Image()
        """Cluster state that is committed and applied on this node."""
        self.position = 0
        """Everything before this offset is in `image`."""
        self.bytes_since_snapshot = 0
        self.settings = settings
        """The settings of this node, with the dynamic settings of `image` applied."""
        self.leading: Leading | None = None
        self.is_active = False
        """Whether this node is the active controller."""
        self.offline_reason: str | None = None

    def _new_controller(self) -> Controller:
        return Controller(self.node_id, self._static, self._entropy, features=self._features)

    # --- events ---------------------------------------------------------------------------------------------------

    def step(self, event: Event, now: int) -> list[Effect]:
        """Processes an event and returns the effects to carry out."""
        self._now = now
        match event:
            case Committed():
                self._commit(event.end_offset)
            case Asked():
                self._begin(self._carry_out_in_pieces(event))
            case AskedInTurn():
                self._begin(self._carry_out_in_turn(event.asks))
            case TurnCame():
                if self._work:
                    self._begin(self._work.popleft())
            case TimePassed():
                self._tick()
            case LogRead():
                self._take_in(event)
            case LeaderKnown():
                self._learn_leader(event)
            case BrokerLost():
                if self.is_active:
                    self.controller.lose(event.broker_id, event.broker_epoch)
                    self._tick_at = now
            case SnapshotFound():
                self._fresh = self._new_controller()
                self._effects.append(ReadSnapshot(self._next_read(), event.snapshot))
            case ReadFailed():
                if event.number == self._read_number and self._is_reading:
                    self._give_up(f"the metadata log cannot be read: {event.reason}", "restore it from a backup")
            case _:
                assert_never(event)
        return self._wanted()

    @property
    def is_settled(self) -> bool:
        """Whether the controller is active and all its decisions are committed."""
        return self.is_active and not self._unpublished

    @property
    def wake_at(self) -> int | None:
        """Time at which TimePassed is due; None if the controller is not active."""
        return self._tick_at if self.is_active else None

    def _wanted(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects

    # --- following ------------------------------------------------------------------------------------------------

    def _learn_leader(self, event: LeaderKnown) -> None:
        self._step_down()
        if self.offline_reason is None and event.leader_id == self.node_id:
            self.leading = Leading(event.epoch, event.start_offset)
        self._effects.append(RoleChanged(is_active=False, epoch=event.epoch))

    def _commit(self, end_offset: int) -> None:
        self._final_end = end_offset
        if self.is_active:
            self.position = end_offset
            self._publish_own()
            self._leave()
        else:
            self._follow()

    def _follow(self) -> None:
        if self._is_reading or self.offline_reason is not None:
            return
        if self.position < self._final_end:
            self._effects.append(ReadLog(self._next_read(), self.position, self._final_end))
        else:
            self._begin_if_leading()

    def _next_read(self) -> int:
        self._is_reading = True
        self._read_number += 1
        return self._read_number

    def _take_in(self, event: LogRead) -> None:
        if event.number != self._read_number or not self._is_reading:
            return
        reading = self.controller if self._fresh is None else self._fresh
        try:
            if event.records:  # an entry of the quorum itself has none: the image stays the same object
                reading.advance(self._apply_all(reading.image, event.records))
        except InconsistentRecord as error:
            self._give_up(f"the metadata log cannot be read: {error}", "restore it from a backup")
            return
        if self._deleted is not None:
            removed = (record for record in event.records if isinstance(record, RemoveTopicRecord))
            self._deleted |= dict.fromkeys(record.topic_id for record in removed)
        self.bytes_since_snapshot += event.size_bytes
        if event.end_offset is None:
            return
        self._is_reading = False
        if self._fresh is not None:
            self.controller, self._fresh, self.bytes_since_snapshot = self._fresh, None, 0
        elif event.end_offset <= self.position:
            self._give_up(f"the metadata log ends at {event.end_offset}, though more is committed", "restore it")
            return
        self.position = event.end_offset
        self._publish(self.controller.image)
        self._follow()

    def _publish_own(self) -> None:
        newest: Image | None = None
        while self._unpublished and self._unpublished[0][0] <= self.position:
            newest = self._unpublished.popleft()[1]
        if newest is not None:
            before = self.image
            changes = self._publish(newest)
            self._effects += reports_of(changes, before, newest)

    def _publish(self, newest: Image) -> Changes:
        changes = self._compare(self.image, newest)
        self.image = newest
        if changes.has_new_broker_settings:
            own = newest.config(BROKER, str(self.node_id))
            self.settings = self.settings.with_dynamic(newest.config(BROKER, ""), own)
        if self._deleted is not None:
            self._deleted |= dict.fromkeys(topic.topic_id for topic in changes.topics_deleted)
        self._effects.append(Publish(changes, newest))
        return changes

    def was_deleted(self, topic_id: bytes) -> bool:
        """Whether the deletion of this topic was applied since the node started."""
        return self._deleted is not None and topic_id in self._deleted

    def forget_deleted(self) -> None:
        """Drops the ids of deleted topics; from now on, the changes of each image report deletions."""
        self._deleted = None

    # --- active role ----------------------------------------------------------------------------------------------

    def _begin_if_leading(self) -> None:
        """Activates a leader that has applied everything, so that its own epoch's first record is committed too."""
        if self.leading is None or self.is_active or self.position <= self.leading.start_offset:
            return
        self.is_active = True
        try:
            self._conclude(NOBODY, self.controller.begin(self._now))
        except NotController:
            return
        except ProtocolError as error:
            self._effects.append(Mistaken(error))
        self._effects.append(CONTROLLER_ACTIVE(epoch=self.leading.epoch, position=self.position))
        self._tick()
        if self.is_active:
            self._effects.append(RoleChanged(is_active=True, epoch=self.leading.epoch))

    def _step_down(self) -> None:
        leading, self.leading = self.leading, None
        if not self.is_active:
            return
        assert leading is not None
        self.is_active = False
        self._unpublished.clear()
        self.controller.revert(self.image)
        error = NotController("this node leads the metadata quorum no longer; ask the new leader")
        tickets = self._replies.clear()
        self._effects += [Refuse(ticket, error) for ticket in tickets]
        self._effects.append(CONTROLLER_INACTIVE(epoch=leading.epoch, waiting=len(tickets)))
        self._effects.append(RoleChanged(is_active=False, epoch=leading.epoch))
        self._follow()

    def _tick(self) -> None:
        """Performs the active controller's own work, at least every WAKE_MS."""
        if not self.is_active or not self._still_leads():
            return
        self._tick_at = self._now + WAKE_MS
        try:
            self.controller.time_passes(self._now)
            self._hear_myself()
            self._conclude(NOBODY, self.controller.decide(Tick(), self._now))
        except NotController:
            return
        except Exception as error:
            # A full disk, or a bug. Without its timer an active controller would fence no broker and elect no leader.
            # Stopping the node would not help: the next controller has the same image.
            self._effects.append(Mistaken(error))

    def _hear_myself(self) -> None:
        """Keeps this process's own broker alive, however long its registration takes to commit."""
        broker = self.controller.image.brokers.get(self.node_id)
        if broker is not None and broker.incarnation_id == self.incarnation_id:
            heartbeat = Heartbeat(self.node_id, broker.epoch, self.position - 1, self._log.end_offset)
            self.controller.hear(heartbeat, self._now)

    def _still_leads(self) -> bool:
        if self.leading is None or not self._log.is_led(self.leading.epoch):
            self._step_down()
            return False
        return True

    # --- deciding -------------------------------------------------------------------------------------------------

    def heartbeat(self, command: Heartbeat, now: int) -> tuple[Heard | ProtocolError, list[Effect]]:
        """Records a heartbeat and replies at once from committed state (R34). A shutdown request must wait instead.

        A broker sends the next heartbeat after the reply. If the reply waited for a slow disk, live brokers would be
        fenced.
        """
        self._now = now
        try:
            self._check_active()
            self.controller.hear(command, now)
            decision = self.controller.decide(command, now)
            self._conclude(NOBODY, decision)
        except ProtocolError as error:
            return error, self._wanted()
        broker = self.image.brokers.get(command.broker_id)
        is_fenced = decision.reply.is_fenced or broker is None or broker.is_fenced
        return replace(decision.reply, is_fenced=is_fenced), self._wanted()

    def _begin(self, work: Work) -> None:
        """Runs one piece of the work; the rest follows after other work."""
        if next(work, self) is not self:
            self._work.append(work)
            self._effects.append(TakeTurn())

    def _carry_out_in_turn(self, asks: Sequence[Asked]) -> Work:
        for ask in asks:
            self._replies.open(ask.ticket)
        for number, ask in enumerate(asks):
            if number:
                yield
            yield from self._carry_out_in_pieces(ask)

    def _carry_out_in_pieces(self, ask: Asked) -> Work:
        """Carries out a command: a large one in pieces, a small one without yielding."""
        self._replies.open(ask.ticket)
        try:
            yield from self._carry_out(ask.ticket, ask.command)
        except Exception as error:
            if self._replies.withdraw(ask.ticket):
                self._effects.append(Refuse(ask.ticket, error))

    def _carry_out(self, ticket: int, command: Command[Any]) -> Work:
        """Decides and appends a command; other commands may be carried out between its pieces.

        If one of them changes state that a large command depends on, the large one is decided again. Its records are
        one batch, appended and applied at once.
        """
        while True:
            self._check_active()
            if isinstance(command, Heartbeat):
                self.controller.hear(command, self._now)
            elif isinstance(command, RegisterBroker):
                self._forget_former_life(command)
            pieces = self.controller.decide_in_pieces(command)
            if pieces is None:
                self._conclude(ticket, self.controller.decide(command, self._now))
                return
            leading, image, settings = self.leading, self.controller.image, self.controller.settings
            decision = yield from pieces
            encoded = None
            if len(decision.records) > ENCODED_AT_ONCE:
                encoded = yield from self._log.encode(decision.records)
            self._check_active()
            if self.leading is leading and self.controller.rests_on(command, image, settings):
                self._conclude(ticket, decision, encoded)
                return

    def _check_active(self) -> None:
        self.check_online()
        if not self.is_active or not self._still_leads():
            raise NotController("this node does not lead the metadata quorum; ask the one that does")

    def _forget_former_life(self, command: RegisterBroker) -> None:
        """Ends the session of the broker's previous process: a data directory belongs to one process at a time."""
        known = self.controller.image.brokers.get(command.broker_id)
        if known is not None and known.log_dirs == command.log_dirs and known.incarnation_id != command.incarnation_id:
            self.controller.lose(known.broker_id, known.epoch)

    def _conclude(self, ticket: int, decision: Decided, encoded: Any = None) -> None:
        """Appends and applies the records; the reply is sent once they are committed, or refused if they are lost."""
        if decision.records:
            self._record(decision.records, encoded)
        for change in decision.changes:
            assert isinstance(change, WakeAt)
            self._tick_at = change.at_ms if self._tick_at is None else min(self._tick_at, change.at_ms)
        replies = [(ticket if each == ASKER else each, reply) for each, reply in decision.replies]
        if ticket != NOBODY or decision.effects:
            end_offset = self._unpublished[-1][0] if self._unpublished else self.position
            self._replies.add(end_offset, replies, decision.effects)
            self._leave()

    def _record(self, records: Sequence[MetadataRecord], encoded: Any) -> None:
        assert self.leading is not None
        # An inconsistent record must not get into the log: no node could start any more.
        image = self._apply_all(self.controller.image, records)
        try:
            appended = self._log.append(self.leading.epoch, records, encoded)
        except LeadershipLost:
            self._step_down()
            raise NotController("this node leads the metadata quorum no longer; ask the new leader") from None
        self.controller.advance(image)
        self.bytes_since_snapshot += appended.size_bytes
        self._unpublished.append((appended.end_offset, image))

    def _leave(self) -> None:
        replies, effects = self._replies.leave(self.position)
        self._effects += [Answer(ticket, reply) for ticket, reply in replies]
        self._effects += effects

    # --- failing --------------------------------------------------------------------------------------------------

    def check_online(self) -> None:
        """Raises StorageError if the controller is offline."""
        if self.offline_reason is not None:
            raise StorageError(f"the controller is offline: {self.offline_reason}")

    def _give_up(self, reason: str, hint: str) -> None:
        self._effects += self.fail(reason)
        self._effects.append(GoOffline(f"{reason}; {hint}"))

    def fail(self, reason: str) -> list[Effect]:
        """Takes the controller offline after a failure of the log or the quorum, until the node is restarted."""
        if self.offline_reason is not None:
            return []
        self.offline_reason = reason
        self.is_active, self.leading, self._is_reading = False, None, False
        self._unpublished.clear()
        self._work.clear()
        error = StorageError(f"the controller is offline: {reason}")
        return [Refuse(ticket, error) for ticket in self._replies.clear()]
