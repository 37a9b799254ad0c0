"""Runs the controller on the metadata log.

A command is decided, its records are appended as one batch (all or none), applied at once, and the reply waits until
everything applied when it was decided is durable; commands may overlap. `image` is the cluster as far as it is durable:
no answer ever shows what a power cut could take back. When the log fails, what was applied and what is stored may
differ: the controller is thrown away, and the node must be started again.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeVar

from penstock.log.directory import DataDirectory
from penstock.log.log import Log
from penstock.metadata.changes import Changes, changes_between
from penstock.metadata.commands import RegisterBroker
from penstock.metadata.controller import Controller
from penstock.metadata.declare import MetadataRecord
from penstock.metadata.draft import InconsistentRecord
from penstock.metadata.image import BROKER, Image
from penstock.metadata.records import BrokerEndpoint, BrokerFeature, FeatureLevelRecord, RemoveTopicRecord
from penstock.metadata.settings.layers import BrokerSettings
from penstock.model.errors import ProtocolError, StorageError
from penstock.model.ports import Clock, Entropy
from penstock.model.shard import Command
from penstock.server.metadata_log import append_records, open_metadata_log, read_records
from penstock.server.settings import CannotStart, Feature
from penstock.server.waiters import OffsetWaiters

logger = logging.getLogger("penstock.controller")

Reply = TypeVar("Reply")
Subscriber: TypeAlias = Callable[[Changes, Image], None]


class ControllerRunner:
    """The controller of a node that is its own quorum: `load` it, then `register`, then `ask`."""

    def __init__(
        self,
        directory: DataDirectory,
        clock: Clock,
        entropy: Entropy,
        node_id: int,
        settings: BrokerSettings,
        on_offline: Callable[[str], None] = lambda _sentence: None,
    ) -> None:
        self._directory = directory
        self._clock = clock
        self._entropy = entropy
        self._on_offline = on_offline
        self._controller = Controller(node_id, settings, entropy)
        self._log: Log | None = None
        self._committed = OffsetWaiters()
        self._unpublished: deque[tuple[int, Image]] = deque()
        self._subscribers: list[Subscriber] = []
        self._deleted: dict[bytes, None] = {}
        self.node_id = node_id
        self.image = Image()
        """The cluster as far as it is durable."""
        self.settings = settings
        """The settings of this node under the dynamic ones of `image`."""
        self.offline_reason: str | None = None

    def subscribe(self, subscriber: Subscriber) -> None:
        """Calls back with every later image and what it changed, in order, before any reply that rests on it leaves."""
        self._subscribers.append(subscriber)

    # --- starting -------------------------------------------------------------------------------------------------

    async def load(self) -> None:
        """Reads the log from its start; what opening the directory has found in it is durable."""
        log = await open_metadata_log(self._directory)
        try:
            for record in read_records(log):
                self._controller.apply(record)
                if isinstance(record, RemoveTopicRecord):
                    self._deleted[record.topic_id] = None
            self.image = self._controller.image
        except (ProtocolError, InconsistentRecord) as error:
            raise CannotStart(f"The metadata log cannot be read: {error}; restore it from a backup.") from error
        self.settings = self._controller.settings
        log.advance_high_watermark(log.durable_end)
        self._log = log

    def was_deleted(self, topic_id: bytes) -> bool:
        """Whether the log that was loaded tells of a topic with this id, and of its deletion."""
        return topic_id in self._deleted

    async def register(
        self, listeners: Sequence[BrokerEndpoint], features: Sequence[Feature] = (), rack: str | None = None
    ) -> int:
        """Tells the cluster that this node is up, and at its very first start which features are on; its epoch."""
        self._deleted = {}
        log = self._online()
        finalized = [FeatureLevelRecord(name=f.name, feature_level=f.finalized) for f in features if f.finalized]
        if finalized and not self._controller.image.features:
            self._record(log, finalized)
        command = RegisterBroker(
            broker_id=self.node_id,
            incarnation_id=self._entropy.token(16),
            epoch=log.written_end,
            listeners=tuple(listeners),
            features=tuple(
                BrokerFeature(name=f.name, min_supported_version=f.min_version, max_supported_version=f.max_version)
                for f in features
            ),
            rack=rack,
            log_dirs=(bytes.fromhex(self._directory.identity["directory_id"]),),
        )
        return (await self.ask(command)).epoch

    # --- asking ---------------------------------------------------------------------------------------------------

    async def ask(self, command: Command[Reply]) -> Reply:
        """Has a command decided and carried out.

        A ProtocolError says that nothing has changed; only when the log failed meanwhile (`offline_reason`), nobody can
        say. Who stops waiting does not stop the command.
        """
        log = self._online()
        decision = self._controller.decide(command, self._clock.wall_ms())
        if decision.records:
            self._record(log, decision.records)
        if log.high_watermark < log.written_end:
            await self._committed.wait_for(log.written_end)
        return decision.reply

    def _record(self, log: Log, records: Sequence[MetadataRecord]) -> None:
        """Appends and applies."""
        self._controller.image.apply(records)  # what does not fit must not get into the log: no start would get past it
        now_ms = self._clock.wall_ms()
        try:
            log.reserve.spend(lambda: append_records(log, records, now_ms))  # a deletion frees more than it takes
        except StorageError:
            if log.offline_reason is not None:  # else the disk is full, and nothing was written
                self._go_offline(log.offline_reason)
            raise
        for record in records:
            self._controller.apply(record)
        self._unpublished.append((log.written_end, self._controller.image))

    # --- becoming durable -----------------------------------------------------------------------------------------

    def advance(self) -> None:
        """After every round of group commit: publishes what has become durable, then lets replies go."""
        log = self._log
        if log is None:
            return
        if log.offline_reason is not None:
            self._go_offline(log.offline_reason)
        elif log.durable_end > log.high_watermark:
            log.advance_high_watermark(log.durable_end)
            self._publish(log.high_watermark)
            self._committed.reached(log.high_watermark)

    def _publish(self, end_offset: int) -> None:
        newest: Image | None = None
        while self._unpublished and self._unpublished[0][0] <= end_offset:
            newest = self._unpublished.popleft()[1]
        if newest is None:
            return
        changes = changes_between(self.image, newest)
        self.image = newest
        if changes.has_new_broker_settings:
            own = newest.config(BROKER, str(self.node_id))
            self.settings = self.settings.with_dynamic(newest.config(BROKER, ""), own)
        for subscriber in self._subscribers:
            subscriber(changes, newest)

    # --- failing --------------------------------------------------------------------------------------------------

    def _online(self) -> Log:
        if self.offline_reason is not None:
            raise StorageError(f"the controller is offline: {self.offline_reason}")
        assert self._log is not None, "load first"
        return self._log

    def _go_offline(self, reason: str) -> None:
        if self.offline_reason is not None:
            return
        self.offline_reason = reason
        self._unpublished.clear()
        sentence = (
            f"The metadata log failed, and nothing can be changed any more: {reason}. "
            "See to the disk, then start the node again."
        )
        logger.critical(sentence)
        self._committed.fail(StorageError(f"the controller is offline: {reason}"))
        self._on_offline(sentence)
