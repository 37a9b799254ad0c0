"""The controller of a world of replicas: the real one, on a metadata log that is one list of batches.

An appended batch is committed a little later; when another controller takes over, uncommitted batches may be lost. The
former controller keeps answering brokers that still use it: it can refuse, but nothing that it appends is ever
committed.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from harness.metadata_world import Dice
from penstock.metadata.cluster_commands import AlteredPartitions, AlterPartition, Heartbeat, Tick
from penstock.metadata.commands import CreateTopics, NewTopic, RegisterBroker
from penstock.metadata.controller import Controller
from penstock.metadata.declare import MetadataRecord
from penstock.metadata.image import Image
from penstock.metadata.records import FeatureLevelRecord
from penstock.metadata.settings.layers import BrokerSettings
from penstock.metadata.view import ELR_FEATURE
from penstock.model.errors import ErrorCode
from penstock.model.shard import Command
from tests.simulation.controller_core.world import MetadataLog

if TYPE_CHECKING:
    from tests.simulation.replication_core.world import World

TOPIC = "orders"


class Quorum:
    """The active controller and the former one."""

    def __init__(self, world: "World", settings: BrokerSettings) -> None:
        self._world = world
        self._settings = settings
        self.log = MetadataLog()
        self.term = 0
        self.active: Controller | None = None
        self._former: Controller | None = None
        self._wake_at: float | None = None

    @property
    def image(self) -> Image:
        """The committed image of the cluster."""
        return self.log.committed_image

    def elect(self) -> None:
        """Makes another controller active, with all committed batches and maybe more."""
        world, log = self._world, self.log
        self.term += 1
        kept = world.network.randrange(log.committed, len(log.batches)) if self.term > 1 else 0
        before = log.committed_image
        log.cut(kept)
        world.on_committed(before)
        self._former = self.active
        self.active = Controller(0, self._settings, Dice(f"{world.streams.seed} {self.term}"), log.image)
        self._wake_at = None
        world.tell("controller", f"is elected for the {self.term}. time")
        self.active.begin(world.now)
        if self.term == 1:
            self._record(self.active, (FeatureLevelRecord(name=ELR_FEATURE, feature_level=1),))
        self._wake(0.0)

    def create_topic(self, replicas: tuple[int, ...] = ()) -> None:
        options = self._world.options
        new = NewTopic(
            TOPIC,
            -1 if replicas else options.partitions,
            -1 if replicas else options.factor,
            ((0, replicas),) if replicas else (),
            configs=(("min.insync.replicas", str(options.in_sync_min)),),
        )
        self.decide(CreateTopics((new,)), lambda _: None)

    # --- decisions ------------------------------------------------------------------------------------------------

    def ask(self, term: int, command: Command[Any], answer: Callable[[Any], None]) -> None:
        """Handles a request for the controller of a term, as known to the sender."""
        if term == self.term:
            self.decide(command, answer)
        elif term == self.term - 1 and self._former is not None and not isinstance(command, Heartbeat):
            decision = self._former.decide(command, self._world.now)
            if isinstance(command, AlterPartition) and self._world.network.random() < 0.5:
                answer(AlteredPartitions(code=ErrorCode.NOT_CONTROLLER))  # it knows of its successor
            elif not decision.records:
                answer(decision.reply)

    def decide(self, command: Command[Any], answer: Callable[[Any], None]) -> None:
        controller, now = self.active, self._world.now
        assert controller is not None
        if isinstance(command, Heartbeat):
            command = replace(command, log_end=self.log.end)
            controller.hear(command, now)
        if isinstance(command, RegisterBroker):
            command = replace(command, epoch=self.log.end)
        decision = controller.decide(command, now)
        at = len(self.log.batches) - 1
        if decision.records:
            at = self._record(controller, decision.records)
        self._when_committed(at, answer, decision.reply)
        for change in decision.changes:
            self._wake(max(0.0, change.at_ms - self._world.time_ms))

    def _record(self, controller: Controller, records: tuple[MetadataRecord, ...]) -> int:
        for record in records:
            controller.apply(record)
        at = self.log.append(records, controller.image)
        self._world.after(self._world.quorum_ms(), self._commit, self.term, at)
        return at

    def _commit(self, term: int, at: int) -> None:
        if term == self.term and at > self.log.committed:
            self._set_committed(at)

    def _set_committed(self, at: int) -> None:
        before, self.log.committed = self.log.committed_image, at
        self._world.on_committed(before)

    def _when_committed(self, at: int, answer: Callable[[Any], None], reply: Any) -> None:
        term = self.term

        def look() -> None:
            if term == self.term:
                if self.log.committed >= at:
                    answer(reply)
                else:
                    self._world.after(5.0, look)

        look()

    def _wake(self, delay_ms: float) -> None:
        at = self._world.time_ms + delay_ms
        if self._wake_at is None or at < self._wake_at:
            self._wake_at = at
            self._world.after(delay_ms, self._tick, self.term, at)

    def _tick(self, term: int, at: float) -> None:
        if term != self.term or at != self._wake_at or self.active is None:
            return
        self._wake_at = None
        self.active.time_passes(self._world.now)
        self.decide(Tick(), lambda _: None)
