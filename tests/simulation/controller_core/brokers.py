"""A broker of a simulated cluster: it registers, sends heartbeats, follows the metadata, holds replicas, stops.

It does what decision 13 requires of brokers. It learns the committed metadata and the controller from its surroundings:
a world with a log that is one list (`controller_core.world`), or with a quorum (`controllers_on_quorum.world`).
"""

from collections.abc import Callable
from typing import Any, Final, Protocol, TypeVar

from penstock.metadata.cluster_commands import AlterPartition, Heartbeat, NewIsr
from penstock.metadata.commands import RegisterBroker
from penstock.metadata.image import Image
from penstock.metadata.records import BrokerFeature
from penstock.metadata.view import ELR_FEATURE
from penstock.model.errors import ErrorCode
from penstock.model.shard import Command
from penstock.simulator.randomness import Streams
from tests.simulation.controller_core.checks import Checks
from tests.simulation.controller_core.options import Options
from tests.simulation.controller_core.replicas import Entry, Fetch, Fetched, Replica, Where, in_sync_min_of

Reply = TypeVar("Reply")

HEARTBEAT_MS: Final = 500.0
FETCH_MS: Final = 300.0
RETRY_MS: Final = 1_500.0
FEATURE: Final = BrokerFeature(name=ELR_FEATURE, min_supported_version=0, max_supported_version=1)


class Surroundings(Protocol):
    """The world as a broker sees it."""

    streams: Streams
    options: Options
    brokers: dict[int, "Broker"]
    checks: Checks

    @property
    def time_ms(self) -> float: ...

    @property
    def is_calm(self) -> bool: ...

    def after(self, delay_ms: float, call: Callable[..., None], *arguments: Any) -> None: ...

    def tell(self, sentence: str) -> None: ...

    def has_power(self, broker: "Broker") -> bool:
        """Whether its machine runs."""
        ...

    def metadata(self, broker: "Broker") -> tuple[int, Image]:
        """How far the broker has received the committed metadata, and the image there."""
        ...

    def send(self, source: "Broker", target: "Broker", call: Callable[..., None], *arguments: Any) -> None:
        """Sends a message between brokers, which may be lost."""
        ...

    def ask(self, source: "Broker", command: Command[Reply], answered: Callable[[Reply], None]) -> None:
        """Sends a request to the controller; the request or the response may be lost."""
        ...


class Broker:
    """A machine that holds replicas, with another epoch in each of its lives."""

    def __init__(self, world: "Surroundings", broker_id: int, rack: str | None) -> None:
        self.world = world
        self.broker_id = broker_id
        self.rack = rack
        self.random = world.streams.stream("broker", str(broker_id))
        self.replicas: dict[Where, Replica] = {}
        self.life = 0
        self.is_up = False
        self.is_paused = False
        self.is_cut_off = False
        self.is_full = False
        """Whether it reports that it cannot write."""
        self.lost_epoch = -1
        """The epoch of the life that a probe found ended."""
        self.wants_shutdown = False
        self.epoch = -1
        self.last_epoch = -1
        """The epoch in which it stopped without loss; -1 after a loss."""
        self.image = Image()
        self.metadata_end = 0
        self.last_arrival_ms = -1e9

    # --- lives ----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        if self.is_up or not self.world.has_power(self):
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
        """Stops at once; with loss, every log loses some of its end, and the broker knows."""
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
            0,  # the controller fills in the offset of the record
            (),
            (FEATURE,),
            self.rack,
            self.log_dirs,
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

    @property
    def log_dirs(self) -> tuple[bytes, ...]:
        """Its single log directory."""
        return (b"d" * 15 + bytes([self.broker_id]),)

    def _beat(self, life: int) -> None:
        if life != self.life or not self.is_up:
            return
        self.world.after(HEARTBEAT_MS * (0.8 + 0.4 * self.random.random()), self._beat, life)
        if self.is_paused:
            return
        self._follow()
        command = Heartbeat(
            self.broker_id,
            self.epoch,
            self.metadata_end - 1,
            log_end=0,
            wants_shutdown=self.wants_shutdown,
            offline_log_dirs=self.log_dirs if self.is_full else (),
        )

        def answered(reply: Any) -> None:
            if life != self.life or not self.is_up:
                return
            if reply.should_shut_down and self.wants_shutdown:
                self.stop(loses=False)
                self.world.after(1_000.0 + 4_000.0 * self.random.random(), self.start)
            elif self.epoch != command.broker_epoch:
                return  # a response from before its new registration
            elif reply.code in (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED):
                self.last_epoch, self.epoch = self.epoch, -1
                self._register(life, self.random.randbytes(16))

        self.world.ask(self, command, answered)

    def _follow(self) -> None:
        """Applies the committed metadata."""
        end, image = self.world.metadata(self)
        if self.metadata_end == end:
            return
        self.metadata_end, self.image = end, image
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
        if replica.pending is None:
            replica.pending, replica.pending_named = wanted, self._named(replica, wanted)
        replica.pending_since = now
        self._alter(where, replica)

    def _named(self, replica: Replica, wanted: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
        epochs = {self.broker_id: self.epoch, **{each: epoch for each, (_, epoch) in replica.ends.items()}}
        known = self.image.brokers
        return tuple((each, epochs[each] if each in epochs else known[each].epoch) for each in wanted if each in known)

    def _alter(self, where: Where, replica: Replica) -> None:
        change = NewIsr(*where, replica.epoch, replica.partition_epoch, replica.pending_named)
        command = AlterPartition(self.broker_id, self.epoch, (change,))
        life, partition_epoch = self.life, replica.partition_epoch
        replica.asked += 1
        number = replica.asked

        def answered(reply: Any) -> None:
            refused = reply.code is ErrorCode.NONE and reply.partitions[0].code is ErrorCode.INELIGIBLE_REPLICA
            is_present = life == self.life and replica.asked == number and replica.partition_epoch == partition_epoch
            if refused and is_present:  # any other response: an earlier request may have been carried out
                replica.pending = None

        self.world.ask(self, command, answered)

    def produce(self, where: Where, value: int) -> None:
        replica = self.replicas.get(where)
        leads = replica is not None and self.is_up and not self.is_paused and replica.leader == self.broker_id
        if replica is not None and leads and len(replica.isr) >= replica.in_sync_min:
            replica.log.append(Entry(replica.epoch, value))
