"""Worlds of controller cores and simulated brokers, on a heap, without sockets and without asyncio.

The metadata log is one list of batches: an active controller appends, an appended batch is committed a little later,
and when another controller takes over, uncommitted batches may be lost (the quorum has worlds of its own). Brokers
follow committed batches, send heartbeats, fetch from each other, crash with and without loss, pause, are cut off and
shut down. Invariants are checked after every batch (`controller_core.checks`). Time is in milliseconds.
"""

import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from math import inf
from typing import Any, TypeVar

from harness.metadata_world import Dice
from penstock.metadata.cluster_commands import Heartbeat, Tick
from penstock.metadata.commands import RegisterBroker
from penstock.metadata.controller import Controller
from penstock.metadata.declare import MetadataRecord
from penstock.metadata.image import Image
from penstock.metadata.liveness import GAP_MS_MAX, WAKE_MS
from penstock.metadata.records import FeatureLevelRecord
from penstock.metadata.settings.layers import BrokerSettings
from penstock.metadata.view import ELR_FEATURE
from penstock.model.shard import Command
from penstock.simulator.randomness import Streams
from tests.simulation.controller_core.brokers import Broker
from tests.simulation.controller_core.checks import Checks
from tests.simulation.controller_core.options import Options
from tests.simulation.kit.timeline import Timeline

Reply = TypeVar("Reply")


class MetadataLog:
    """The batches, the index of the last committed one, and an image at the end of each."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, Image]] = [(0, Image())]
        """End offsets, and the image there."""
        self.committed = 0
        """The index of the last committed batch."""

    @property
    def end(self) -> int:
        return self.batches[-1][0]

    @property
    def image(self) -> Image:
        return self.batches[-1][1]

    @property
    def committed_end(self) -> int:
        return self.batches[self.committed][0]

    @property
    def committed_image(self) -> Image:
        return self.batches[self.committed][1]

    def append(self, records: tuple[MetadataRecord, ...], image: Image) -> int:
        self.batches.append((self.end + len(records), image))
        return len(self.batches) - 1

    def cut(self, kept: int) -> None:
        del self.batches[kept + 1 :]
        self.committed = kept


class World(Timeline):
    """Brokers, controllers, a log, and time."""

    def __init__(self, seed: int, options: Options, story: list[str] | None = None) -> None:
        super().__init__()
        self.streams = Streams(seed)
        self.options = options
        self.random = self.streams.stream("network")
        self.log = MetadataLog()
        self.checks = Checks(self)
        self.counts: Counter[str] = Counter()
        self.story = story
        self.trace = 0
        self.term = 0
        self.active: Controller | None = None
        self.is_stalled = self._is_stalled_again = False
        self._steady_since_ms = 0.0
        self._heard_ms: dict[tuple[int, int], float] = {}
        self.is_calm = False
        self.leaving: set[int] = set()
        self.settings = BrokerSettings(options.settings)
        self.session_ms = float(self.settings.number("broker.session.timeout.ms"))
        self._held: list[Callable[[], None]] = []
        self._wake_at: float | None = None
        self.brokers = {
            broker_id: Broker(self, broker_id, options.racks[broker_id % len(options.racks)])
            for broker_id in range(1, options.brokers + options.spares + 1)
        }

    def tell(self, sentence: str) -> None:
        row = f"{self.time_ms:9.1f} {sentence}"
        self.trace = zlib.crc32(row.encode(), self.trace)
        if self.story is not None:
            self.story.append(row)

    # --- the brokers' view ----------------------------------------------------------------------------------------

    @property
    def image(self) -> Image:
        """The controller's image of the cluster."""
        return self.log.image

    def has_power(self, broker: Broker) -> bool:
        return True

    def metadata(self, broker: Broker) -> tuple[int, Image]:
        if broker.is_cut_off:
            return broker.metadata_end, broker.image
        return self.log.committed_end, self.log.committed_image

    # --- the network ----------------------------------------------------------------------------------------------

    def _delay_ms(self) -> float:
        """The delay of a message between machines."""
        if not self.is_calm and self.options.straggling and self.random.random() < self.options.straggling:
            return 6_000.0 * self.random.random()
        return self._quorum_ms()

    def _quorum_ms(self) -> float:
        """The time until a batch is committed."""
        return 0.2 + self.random.expovariate(1.0 / self.options.delay_ms)

    def _is_lost(self) -> bool:
        return not self.is_calm and self.random.random() < self.options.loss

    def send(self, source: Broker, target: Broker, call: Callable[..., None], *arguments: Any) -> None:
        if source.is_cut_off or target.is_cut_off or self._is_lost():
            return
        self.after(self._delay_ms(), call, *arguments)

    def ask(self, source: Broker, command: Command[Reply], answered: Callable[[Reply], None]) -> None:
        """Sends a broker's request to the controller at its arrival; the request or the response may be lost."""
        # Not delayed: a late registration after a loss removes the broker from every ISR and ELR again, which is safe,
        # but then more than one broker lacks records at a time.
        is_prompt = isinstance(command, RegisterBroker) and command.previous_epoch < 0
        if not source.is_cut_off and not self._is_lost():
            delay_ms = self._quorum_ms() if is_prompt else self._delay_ms()
            self.after(delay_ms, self._arrive, source, command, answered)

    def _arrive(self, source: Broker, command: Command[Any], answered: Callable[[Any], None]) -> None:
        if self.active is None:
            return
        if isinstance(command, Heartbeat):
            self._heard_ms[command.broker_id, command.broker_epoch] = self.time_ms
            if not (self.is_stalled and self._is_late(command)):
                self._note_arrival(command)
        if self.is_stalled:
            self._held.append(lambda: self._decide(command, self._answerer(source, answered)))
        else:
            self._decide(command, self._answerer(source, answered))

    def _is_late(self, command: Heartbeat) -> bool:
        """Whether the broker was silent for a session, in the second of two stalls: patience is not renewed."""
        return self._is_stalled_again and self._silence(command.broker_id, command.broker_epoch) >= self.session_ms

    def _note_arrival(self, command: Heartbeat) -> None:
        broker = self.brokers[command.broker_id]
        if command.broker_epoch == broker.epoch:
            broker.last_arrival_ms = self.time_ms

    def _answerer(self, source: Broker, answered: Callable[[Any], None]) -> Callable[[Any], None]:
        def answer(reply: Any) -> None:
            if not source.is_cut_off and not source.is_paused and not self._is_lost():
                self.after(self._delay_ms(), answered, reply)

        return answer

    # --- the controller -------------------------------------------------------------------------------------------

    @property
    def now(self) -> int:
        return int(self.time_ms)

    def _decide(self, command: Command[Any], answer: Callable[[Any], None], *, is_by_itself: bool = False) -> None:
        controller = self.active
        if controller is None:
            return
        if isinstance(command, Heartbeat):
            self._note_arrival(command)
            command = replace(command, log_end=self.log.end)
            controller.hear(command, self.now)
        if isinstance(command, RegisterBroker):
            command = replace(command, epoch=self.log.end)
        decision = controller.decide(command, self.now)
        if isinstance(command, Heartbeat) and decision.reply.should_shut_down and command.wants_shutdown:
            self.checks.stops(command.broker_id, controller.image)
        at = len(self.log.batches) - 1
        if decision.records:
            at = self._record(controller, decision.records, is_by_itself=is_by_itself)
        self._when_committed(at, answer, decision.reply)
        for change in decision.changes:
            self._wake(max(0.0, change.at_ms - self.time_ms))

    def _record(self, controller: Controller, records: tuple[MetadataRecord, ...], *, is_by_itself: bool) -> int:
        before = self.log.image
        for record in records:
            controller.apply(record)
            self.counts[type(record).__name__] += 1
        at = self.log.append(records, controller.image)
        if self.story is not None:
            self.tell(f"records {records if len(records) < 4 else len(records)}")
        else:
            self.tell(f"records {len(records)}")
        self.checks.decided(before, controller.image, len(records), self._silence if is_by_itself else None)
        self.checks.recorded(before, controller.image)
        self.after(self._quorum_ms(), self._commit, self.term, at)
        return at

    def _silence(self, broker_id: int, epoch: int) -> float:
        """How long a broker has been silent; infinitely, if a probe found it gone."""
        broker = self.brokers[broker_id]
        return inf if broker.lost_epoch == epoch else self.time_ms - broker.last_arrival_ms

    def _commit(self, term: int, at: int) -> None:
        if term == self.term and at > self.log.committed:
            self.log.committed = at

    def _when_committed(self, at: int, answer: Callable[[Any], None], reply: Any) -> None:
        term = self.term

        def look() -> None:
            if term != self.term:
                return
            if self.log.committed >= at:
                answer(reply)
            else:
                self.after(5.0, look)

        look()

    def _wake(self, delay_ms: float) -> None:
        at = self.time_ms + delay_ms
        if self._wake_at is None or at < self._wake_at:
            self._wake_at = at
            self.after(delay_ms, self._tick, self.term, at)

    def _tick(self, term: int, at: float) -> None:
        if term != self.term or at != self._wake_at or self.active is None:
            return
        self._wake_at = None
        if self.is_stalled:
            return
        self.active.time_passes(self.now)
        self._decide(Tick(), lambda _reply: None, is_by_itself=True)
        self.checks.steady(self.active.image, self.time_ms, self._steady_since_ms, self._heard_ms)

    def stall(self) -> None:
        if not self.is_stalled:
            self._is_stalled_again = self.time_ms - self._steady_since_ms <= GAP_MS_MAX + WAKE_MS
        self.is_stalled = True

    def go_on(self) -> None:
        """Fires the timer first, then handles what arrived meanwhile: the worst order for heartbeats."""
        if not self.is_stalled:
            return
        self.is_stalled = False
        self._steady_since_ms = self.time_ms
        held, self._held = self._held, []
        self._wake_at = self.time_ms
        self._tick(self.term, self.time_ms)
        for call in held:
            call()

    def elect_controller(self) -> None:
        """Makes another controller active, with all committed batches and maybe more."""
        self.term += 1
        self.is_stalled = False
        self._steady_since_ms = self.time_ms
        self._held = []
        kept = self.random.randrange(self.log.committed, len(self.log.batches))
        self.log.cut(kept)
        self.counts["failover"] += 1
        old, self._wake_at = self.active, None
        if old is not None and self.random.random() < 0.5:
            old.revert(self.log.image)  # it may well be elected again
            self.active = old
        else:
            dice = Dice(f"{self.streams.seed} {self.term}")
            self.active = Controller(0, self.settings, dice, self.log.image)
        self.tell(f"controller {self.term} takes over at {self.log.end}")
        self.active.begin(self.now)
        if not self.log.image.features:
            self._record(self.active, (FeatureLevelRecord(name=ELR_FEATURE, feature_level=1),), is_by_itself=False)
        self._wake(0.0)

    def operators_ask(self, command: Command[Reply], answered: Callable[[Reply], None] = lambda _reply: None) -> bool:
        """Sends an operator's request, which always arrives."""
        is_heard = self.active is not None and not self.is_stalled
        if is_heard:
            self._decide(command, answered)
        return is_heard
