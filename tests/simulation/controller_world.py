"""Worlds of controller cores and simulated brokers, on a heap, without sockets and without asyncio.

The metadata log is one list of batches: an active controller appends, what it appended is committed a little later, and
when another one takes over, what was not committed may be lost (the quorum itself has worlds of its own). Brokers
follow what is committed, send heartbeats, fetch from each other, crash with and without loss, stall, are cut off and
shut down. Invariants are looked at after every batch (`controller_checks`). Time is in milliseconds.
"""

import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from heapq import heappop, heappush
from math import inf
from typing import Any, Final, TypeVar

from penstock.metadata.cluster_commands import Heartbeat, Tick
from penstock.metadata.commands import RegisterBroker
from penstock.metadata.controller import Controller
from penstock.metadata.declare import MetadataRecord
from penstock.metadata.image import Image
from penstock.metadata.records import FeatureLevelRecord
from penstock.metadata.settings.layers import BrokerSettings
from penstock.metadata.view import ELR_FEATURE
from penstock.model.shard import Command
from penstock.simulator.randomness import Streams
from tests.simulation.controller_brokers import Broker
from tests.simulation.controller_checks import Checks
from tests.simulation.controller_options import Options
from tests.unit.metadata.world import Dice

Reply = TypeVar("Reply")

EVENTS_MAX: Final = 100_000


class MetadataLog:
    """Batches, and how far they are committed; an image at the end of each."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, Image]] = [(0, Image())]
        """End offsets, and the image there."""
        self.committed = 0
        """Which of these is the last that is committed."""

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


class World:
    """Brokers, controllers, a log, and time."""

    def __init__(self, seed: int, options: Options, story: list[str] | None = None) -> None:
        self.streams = Streams(seed)
        self.options = options
        self.random = self.streams.stream("network")
        self.log = MetadataLog()
        self.checks = Checks(self)
        self.counts: Counter[str] = Counter()
        self.story = story
        self.trace = 0
        self.events = 0
        self.time_ms = 0.0
        self.term = 0
        self.active: Controller | None = None
        self.is_stalled = False
        self._steady_since_ms = 0.0
        self._heard_ms: dict[tuple[int, int], float] = {}
        self.is_calm = False
        self.leaving: set[int] = set()
        self.settings = BrokerSettings(options.settings)
        self.session_ms = float(self.settings.number("broker.session.timeout.ms"))
        self._queue: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._number = 0
        self._held: list[Callable[[], None]] = []
        self._wake_at: float | None = None
        self.brokers = {
            broker_id: Broker(self, broker_id, options.racks[broker_id % len(options.racks)])
            for broker_id in range(1, options.brokers + options.spares + 1)
        }

    # --- time -----------------------------------------------------------------------------------------------------

    def after(self, delay_ms: float, call: Callable[..., None], *arguments: Any) -> None:
        self._number += 1
        heappush(self._queue, (self.time_ms + delay_ms, self._number, call, arguments))

    def run_until(self, end_ms: float) -> None:
        while self._queue and self._queue[0][0] <= end_ms:
            self.time_ms, _, call, arguments = heappop(self._queue)
            self.events += 1
            assert self.events < EVENTS_MAX, "the world does not come to an end"
            call(*arguments)
        self.time_ms = end_ms

    def tell(self, sentence: str) -> None:
        row = f"{self.time_ms:9.1f} {sentence}"
        self.trace = zlib.crc32(row.encode(), self.trace)
        if self.story is not None:
            self.story.append(row)

    # --- what brokers see -----------------------------------------------------------------------------------------

    @property
    def image(self) -> Image:
        """The cluster as the controller has it."""
        return self.log.image

    def has_power(self, broker: Broker) -> bool:
        return True

    def metadata(self, broker: Broker) -> tuple[int, Image]:
        if broker.is_cut_off:
            return broker.metadata_end, broker.image
        return self.log.committed_end, self.log.committed_image

    # --- the network ----------------------------------------------------------------------------------------------

    def _delay_ms(self) -> float:
        """Of a message between machines."""
        if not self.is_calm and self.options.straggling and self.random.random() < self.options.straggling:
            return 6_000.0 * self.random.random()
        return self._quorum_ms()

    def _quorum_ms(self) -> float:
        """Until a batch is committed."""
        return 0.2 + self.random.expovariate(1.0 / self.options.delay_ms)

    def _is_lost(self) -> bool:
        return not self.is_calm and self.random.random() < self.options.loss

    def send(self, source: Broker, target: Broker, call: Callable[..., None], *arguments: Any) -> None:
        if source.is_cut_off or target.is_cut_off or self._is_lost():
            return
        self.after(self._delay_ms(), call, *arguments)

    def ask(self, source: Broker, command: Command[Reply], answered: Callable[[Reply], None]) -> None:
        """A request of a broker to whoever is the controller when it arrives; the answer may be lost too."""
        # Whoever lost records and says so late is struck from all lists once more: safe, but more than one at a time.
        is_prompt = isinstance(command, RegisterBroker) and command.previous_epoch < 0
        if not source.is_cut_off and not self._is_lost():
            delay_ms = self._quorum_ms() if is_prompt else self._delay_ms()
            self.after(delay_ms, self._arrive, source, command, answered)

    def _arrive(self, source: Broker, command: Command[Any], answered: Callable[[Any], None]) -> None:
        if self.active is None:
            return
        if isinstance(command, Heartbeat) and command.broker_epoch == source.epoch:
            source.last_arrival_ms = self.time_ms
        if isinstance(command, Heartbeat):
            self._heard_ms[command.broker_id, command.broker_epoch] = self.time_ms
        if self.is_stalled:
            self._held.append(lambda: self._decide(command, self._answerer(source, answered)))
        else:
            self._decide(command, self._answerer(source, answered))

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
        if decision.wake_at is not None:
            self._wake(max(0.0, decision.wake_at - self.time_ms))

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
        """How long nothing has come from a broker; for good, where a probe found that it is gone."""
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
        self.is_stalled = True

    def go_on(self) -> None:
        """First the timer, then what came in meanwhile: the worst order for those who sent heartbeats."""
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
        """Another controller takes over, with all that is committed and maybe more."""
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

    def people_ask(self, command: Command[Reply], answered: Callable[[Reply], None] = lambda _reply: None) -> bool:
        """An operator, whose request always arrives."""
        is_heard = self.active is not None and not self.is_stalled
        if is_heard:
            self._decide(command, answered)
        return is_heard
