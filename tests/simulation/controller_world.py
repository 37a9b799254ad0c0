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
from typing import Any, Final, TypeVar

from penstock.metadata.cluster_commands import AlterPartition, Heartbeat, NewIsr, Tick
from penstock.metadata.commands import RegisterBroker
from penstock.metadata.controller import Controller
from penstock.metadata.declare import MetadataRecord
from penstock.metadata.image import Image
from penstock.metadata.records import BrokerFeature, FeatureLevelRecord
from penstock.metadata.settings.layers import BrokerSettings
from penstock.metadata.view import ELR_FEATURE
from penstock.model.errors import ErrorCode
from penstock.model.shard import Command
from penstock.simulator.randomness import Streams
from tests.simulation.controller_checks import Checks
from tests.simulation.controller_options import Options
from tests.simulation.controller_replicas import Entry, Fetch, Fetched, Replica, Where, in_sync_min_of
from tests.unit.metadata.world import Dice

Reply = TypeVar("Reply")

EVENTS_MAX: Final = 100_000
HEARTBEAT_MS: Final = 500.0
FETCH_MS: Final = 300.0
RETRY_MS: Final = 1_500.0
FEATURE: Final = BrokerFeature(name=ELR_FEATURE, min_supported_version=0, max_supported_version=1)


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


class Broker:
    """A machine that holds replicas, in each of its lives with another epoch."""

    def __init__(self, world: "World", broker_id: int, rack: str | None) -> None:
        self.world = world
        self.broker_id = broker_id
        self.rack = rack
        self.random = world.streams.stream("broker", str(broker_id))
        self.replicas: dict[Where, Replica] = {}
        self.life = 0
        self.is_up = False
        self.is_paused = False
        self.is_cut_off = False
        self.lost_epoch = -1
        """The epoch of the life that a probe found to be over."""
        self.wants_shutdown = False
        self.epoch = -1
        self.last_epoch = -1
        """The epoch in which it stopped without loss; -1 if it did not."""
        self.image = Image()
        self.metadata_end = 0
        self.last_arrival_ms = -1e9

    # --- lives ----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        if self.is_up:
            return
        self.is_up = True
        self.is_paused = self.wants_shutdown = False
        self.epoch = -1
        self.metadata_end = 0
        for replica in self.replicas.values():
            replica.epoch = replica.partition_epoch = replica.leader = -1
        self.world.tell(f"broker {self.broker_id} starts")
        self._register(self.life, self.random.randbytes(16))
        self.world.after(self.random.random() * FETCH_MS, self._fetch_round, self.life)

    def stop(self, *, loses: bool) -> None:
        """Dies at once; with loss, some of the end of every log is gone, and it knows."""
        if not self.is_up:
            return
        self.is_up = False
        self.life += 1
        if self.epoch >= 0:
            self.last_epoch = self.epoch
        if loses:
            self.last_epoch = -1
            for replica in self.replicas.values():
                del replica.log[self.random.randrange(len(replica.log) + 1) :]
                replica.high_watermark = min(replica.high_watermark, len(replica.log))
        self.world.tell(f"broker {self.broker_id} stops{' and loses records' if loses else ''}")

    def _register(self, life: int, incarnation_id: bytes) -> None:
        if life != self.life or not self.is_up or self.epoch >= 0:
            return
        command = RegisterBroker(
            self.broker_id,
            incarnation_id,
            self.world.log.end,
            (),
            (FEATURE,),
            self.rack,
            (b"d" * 15 + bytes([self.broker_id]),),
            is_fenced=True,
            previous_epoch=self.last_epoch,
        )

        def answered(reply: Any) -> None:
            if life == self.life and reply.code is ErrorCode.NONE and self.epoch < 0:
                self.epoch = reply.epoch
                self.world.after(1.0, self._beat, life)

        self.world.ask(self, command, answered)
        self.world.after(300.0 + 300.0 * self.random.random(), self._register, life, incarnation_id)

    # --- the controller -------------------------------------------------------------------------------------------

    def _beat(self, life: int) -> None:
        if life != self.life or not self.is_up:
            return
        self.world.after(HEARTBEAT_MS * (0.8 + 0.4 * self.random.random()), self._beat, life)
        if self.is_paused:
            return
        self._follow()
        command = Heartbeat(
            self.broker_id, self.epoch, self.metadata_end - 1, log_end=0, wants_shutdown=self.wants_shutdown
        )

        def answered(reply: Any) -> None:
            if life != self.life or not self.is_up:
                return
            if reply.should_shut_down and self.wants_shutdown:
                self.stop(loses=False)
                self.world.after(1_000.0 + 4_000.0 * self.random.random(), self.start)
            elif reply.code in (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED):
                self.last_epoch, self.epoch = self.epoch, -1
                self._register(life, self.random.randbytes(16))

        self.world.ask(self, command, answered)

    def _follow(self) -> None:
        """Takes in what is committed."""
        log = self.world.log
        if self.metadata_end == log.committed_end or self.is_cut_off:
            return
        self.metadata_end, self.image = log.committed_end, log.committed_image
        mine: dict[Where, Replica] = {}
        for topic in self.image.topics.values():
            in_sync_min = in_sync_min_of(self.image, topic.name)
            for number, partition in topic.partitions.items():
                if self.broker_id in partition.replicas:
                    where = (topic.topic_id, number)
                    replica = mine[where] = self.replicas.get(where) or Replica()
                    replica.follow_metadata(self.broker_id, partition, in_sync_min, self.world.time_ms)
        self.replicas = mine

    # --- replication ----------------------------------------------------------------------------------------------

    def _fetch_round(self, life: int) -> None:
        if life != self.life or not self.is_up:
            return
        self.world.after(FETCH_MS * (0.5 + self.random.random()), self._fetch_round, life)
        if self.is_paused or self.epoch < 0:
            return
        self._follow()
        asked: dict[int, list[Fetch]] = {}
        for where, replica in self.replicas.items():
            if replica.leader == self.broker_id:
                self._lead(where, replica)
            elif replica.leader >= 0:
                asked.setdefault(replica.leader, []).append(replica.fetch(where, self.broker_id, self.epoch))
        for leader, fetches in asked.items():
            self.world.send(self, self.world.brokers[leader], self.world.brokers[leader].serve, self, life, fetches)

    def serve(self, follower: "Broker", life: int, fetches: list[Fetch]) -> None:
        if not self.is_up or self.is_paused or self.epoch < 0:
            return
        self._follow()
        answers = []
        for fetch in fetches:
            replica = self.replicas.get(fetch.where)
            if replica is None or replica.leader != self.broker_id:
                continue
            answer = replica.serve(fetch, self.world.time_ms)
            if answer is not None:
                answers.append(answer)
                self._lead(fetch.where, replica)
        if answers:
            self.world.send(self, follower, follower.take, life, answers)

    def take(self, life: int, answers: list[Fetched]) -> None:
        if life != self.life or not self.is_up or self.is_paused:
            return
        for answer in answers:
            replica = self.replicas.get(answer.where)
            if replica is not None and replica.leader != self.broker_id:
                replica.take(answer)

    def _lead(self, where: Where, replica: Replica) -> None:
        for offset in replica.advance(self.broker_id):
            self.world.checks.committed(where, offset, replica.log[offset].value)
        topic = self.image.topic_by_id(where[0])
        if topic is None:
            return
        partition = topic.partitions[where[1]]
        now = self.world.time_ms
        if replica.pending is not None and now - replica.pending_since < RETRY_MS:
            return
        known = self.image.brokers
        careless = self.world.options.is_careless and not self.world.is_calm
        able = tuple(each for each in partition.replicas if each in known and (careless or known[each].is_active))
        wanted = replica.pending or replica.wanted_isr(self.broker_id, able, now, self.world.options.patience_ms)
        if wanted is None:
            return
        replica.pending, replica.pending_since = wanted, now
        self._alter(where, replica, wanted)

    def _alter(self, where: Where, replica: Replica, wanted: tuple[int, ...]) -> None:
        epochs = {self.broker_id: self.epoch, **{each: epoch for each, (_, epoch) in replica.ends.items()}}
        known = self.image.brokers
        isr = tuple((each, epochs[each] if each in epochs else known[each].epoch) for each in wanted if each in known)
        command = AlterPartition(
            self.broker_id, self.epoch, (NewIsr(*where, replica.epoch, replica.partition_epoch, isr),)
        )
        life, partition_epoch = self.life, replica.partition_epoch

        def answered(reply: Any) -> None:
            refused = reply.code is not ErrorCode.NONE or reply.partitions[0].code is ErrorCode.INELIGIBLE_REPLICA
            if life == self.life and refused and replica.partition_epoch == partition_epoch:
                replica.pending = None

        self.world.ask(self, command, answered)

    def produce(self, where: Where, value: int) -> None:
        replica = self.replicas.get(where)
        leads = replica is not None and self.is_up and not self.is_paused and replica.leader == self.broker_id
        if replica is not None and leads and len(replica.isr) >= replica.in_sync_min:
            replica.log.append(Entry(replica.epoch, value))


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
        self.checks.after_batch(before, controller.image, len(records), is_by_itself=is_by_itself)
        self.after(self._quorum_ms(), self._commit, self.term, at)
        return at

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

    def stall(self) -> None:
        self.is_stalled = True

    def go_on(self) -> None:
        """First the timer, then what came in meanwhile: the worst order for those who sent heartbeats."""
        if not self.is_stalled:
            return
        self.is_stalled = False
        held, self._held = self._held, []
        self._wake_at = self.time_ms
        self._tick(self.term, self.time_ms)
        for call in held:
            call()

    def elect_controller(self) -> None:
        """Another controller takes over, with all that is committed and maybe more."""
        self.term += 1
        self.is_stalled = False
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

    def people_ask(self, command: Command[Reply], answered: Callable[[Reply], None] = lambda _reply: None) -> None:
        """An operator, whose request always arrives."""
        if self.active is not None and not self.is_stalled:
            self._decide(command, answered)
