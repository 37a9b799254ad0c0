"""Worlds of group coordinators and simulated consumers, on a heap, without sockets and without asyncio.

Three brokers take turns at leading one partition of `__consumer_offsets`, which holds all groups. The log is a list of
batches in bytes: who leads appends, what it appended is committed a little later, and when another one takes over, what
was not committed may be lost (replication has worlds of its own). Who does not know yet that another leads goes on, in
vain. Compaction takes what was superseded, and tombstones, up to the very end. Invariants are looked at after every
event (`groups_checks`). Time is in milliseconds.
"""

import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, Final

from penstock.coordinator.events import (
    Answer,
    Asked,
    AskedTogether,
    Committed,
    Effect,
    Elected,
    Event,
    Leased,
    LogRead,
    ReadFailed,
    ReadLog,
    Refuse,
    Resigned,
    TimePassed,
)
from penstock.coordinator.groups import GroupShard
from penstock.coordinator.outcome import Outcome
from penstock.coordinator.ports import AppendLost, AppendRefused, Now
from penstock.coordinator.records import GroupRecord, decode_record, encode_record
from penstock.coordinator.runtime import Role, ShardRuntime
from penstock.coordinator.settings import GroupSettings
from penstock.coordinator.timers import SESSION, Timer
from penstock.coordinator.topics import Topic, Topics
from penstock.coordinator.work import Ask
from penstock.simulator.randomness import Streams
from penstock.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from penstock.wire.messages.join_group import JoinGroupRequest
from penstock.wire.messages.offset_commit import OffsetCommitRequest
from tests.simulation.groups_checks import Checks
from tests.simulation.groups_options import Options
from tests.unit.metadata.world import Dice

if TYPE_CHECKING:
    from tests.simulation.groups_clients import Client

EVENTS_MAX: Final = 100_000
WALL_MS: Final = 1_700_000_000_000
BROKERS: Final = 3
FAR_MS: Final = 1_000_000
"""A lease of a leader that hears from the controller all the time."""

GATHERED_MS: Final = 5.0
"""Much longer than a turn of a loop, so that some do come together."""

Row = tuple[int, bytes, bytes | None]


class Leadership:
    """One leader epoch: the log as its leader has it. Only the newest one is the log."""

    def __init__(self, epoch: int, broker: int, rows: list[Row], end: int, committed: int) -> None:
        self.epoch = epoch
        self.broker = broker
        self.rows = rows
        self.end = end
        self.committed = committed
        self.batch_ends: list[int] = []
        self.is_current = True
        self.deposed_ms = 0.0


class BrokerLog:
    """The log port of a broker: of the leadership that it believes in."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self.leadership: Leadership | None = None

    @property
    def end_offset(self) -> int:
        assert self.leadership is not None
        return self.leadership.end

    def append(self, epoch: int, records: Sequence[GroupRecord], now: Now) -> int:
        leadership, world = self.leadership, self._world
        if leadership is None or leadership.epoch != epoch:
            raise AppendLost("another leads")
        if leadership.is_current and world.time_ms < world.refuses_until_ms:
            world.counts["refused"] += 1
            raise AppendRefused("too few are in sync")
        for record in records:
            leadership.rows.append((leadership.end, *encode_record(record)))
            leadership.end += 1
        leadership.batch_ends.append(leadership.end)
        if leadership.is_current:
            world.counts["batches"] += 1
            world.checks.appended(leadership, records)
            world.after(world.commit_delay_ms(), world.commit, leadership, leadership.end)
        return leadership.end


def _asks(event: Event) -> Sequence[Asked]:
    return (event,) if isinstance(event, Asked) else event.asks if isinstance(event, AskedTogether) else ()


class WatchedShard(GroupShard):
    """Tells the checks whose session ends."""

    world: "World"
    broker: "Broker"

    def expire(self, timer: Timer, now: Now) -> Outcome:
        outcome = super().expire(timer, now)
        if timer.kind == SESSION and self.timers.chance(timer, now.ms) is None:
            self.world.checks.session_ends(self, timer, self.broker)
        return outcome


class Broker:
    """A runtime, and whoever waits for its answers."""

    def __init__(self, world: "World", number: int) -> None:
        self.world = world
        self.number = number
        self.is_up = True
        self.is_stalled = False
        self.unaware_since_ms: float | None = None
        """Since when it has heard nothing from the controller, if it does not."""
        self._leased_until_ms = 0
        self.active_since_ms = 0.0
        self._gathered: list[Asked] = []
        self._held: list[Event] = []
        self._coming: list[Event] = []
        self._waiting: dict[int, Callable[[Any], None]] = {}
        self._asked: dict[int, tuple[Ask, float]] = {}
        self._wake_at: float | None = None
        self._make()

    def _make(self) -> None:
        self.log = BrokerLog(self.world)
        self.runtime = ShardRuntime(self._shard, self.log, commit_timeout_ms=2_500)
        self.runtime.step(Leased(0), Now(0, 0))
        self._leased_until_ms = 0
        self._deaf: list[tuple[float, int]] = []
        self._waiting, self._gathered, self._held, self._coming, self._asked = {}, [], [], [], {}

    def _shard(self) -> WatchedShard:
        world = self.world
        shard = WatchedShard(world.settings, world.dice, lambda: world.topics)
        shard.world, shard.broker = world, self
        return shard

    @property
    def shard(self) -> WatchedShard | None:
        """If it decides."""
        shard = self.runtime.shard
        return shard if isinstance(shard, WatchedShard) and self.runtime.role is Role.ACTIVE else None

    # --- life -----------------------------------------------------------------------------------------------------

    def crash(self) -> None:
        self.is_up = False
        self.is_stalled = False
        self._make()

    def start(self) -> None:
        self.is_up = True
        self.unaware_since_ms = None

    def stall(self) -> None:
        self.is_stalled = True
        self._end_lease()

    def lose_controller(self) -> None:
        """It hears nothing of a controller from now on."""
        self.unaware_since_ms = self.world.time_ms
        self._end_lease()

    def _end_lease(self) -> None:
        """Soon; until it hears of a controller again."""
        now = self.world.now
        if self._leased_until_ms > now.ms + self.world.options.lease_ms:
            self._leased_until_ms = now.ms + self.world.options.lease_ms
            self.runtime.step(Leased(self._leased_until_ms), now)

    def _renew_lease(self) -> None:
        now = self.world.now
        since_ms = max(self._leased_until_ms, int(self.active_since_ms))
        if self.shard is not None and now.ms > since_ms:
            self._deaf.append((self.world.time_ms, now.ms - since_ms))
        if self._leased_until_ms < FAR_MS:
            self._leased_until_ms = FAR_MS
            self._carry_out(self.runtime.step(Leased(FAR_MS), now))

    def deaf_ms(self, since_ms: float) -> int:
        """For how long it could hear nobody, since then."""
        return sum(length_ms for end_ms, length_ms in self._deaf if end_ms > since_ms)

    def has_in_hand(self, group_id: str, member_id: str, before_ms: float) -> bool:
        """Whether something of a member had come in by then that was not looked at yet."""
        return any(
            self._asked[each.ticket][1] < before_ms
            and getattr(each.command.request, "group_id", "") == group_id
            and getattr(each.command.request, "member_id", "") == member_id
            for event in self._coming
            for each in _asks(event)
        )

    def go_on(self) -> None:
        """First the timers, then what came in meanwhile: the worst order for those who sent heartbeats."""
        if not self.is_stalled:
            return
        self.is_stalled = False
        held, self._held = self._held, []
        self._coming = held
        self.do(TimePassed())
        for event in held:
            self.do(event)
        self._coming = []

    # --- what happens ---------------------------------------------------------------------------------------------

    def ask(self, ask: Ask, answered: Callable[[Any], None]) -> None:
        if not self.is_up:
            return
        world = self.world
        world.tickets += 1
        self._waiting[world.tickets] = answered
        self._asked[world.tickets] = (ask, world.time_ms)
        event = Asked(world.tickets, ask)
        if isinstance(ask.request, OffsetCommitRequest):
            if not self._gathered:
                world.after(GATHERED_MS, self._hand_in)
            self._gathered.append(event)
        else:
            self._hand_in()
            self.do(event)

    def _hand_in(self) -> None:
        """Commits of a while are decided and written together."""
        if self._gathered:
            gathered, self._gathered = self._gathered, []
            self.world.counts["commits together"] += len(gathered) > 1
            self.do(AskedTogether(gathered) if len(gathered) > 1 else gathered[0])

    def do(self, event: Event) -> None:
        if not self.is_up:
            return
        if self.is_stalled:
            if not isinstance(event, TimePassed):
                self._held.append(event)
            return
        world = self.world
        was_active = self.runtime.role is Role.ACTIVE
        now = world.now
        if isinstance(event, Elected) and event.epoch > self.runtime.epoch:
            self.log.leadership = world.leaderships[event.epoch]
        leadership = self.log.leadership
        if self.unaware_since_ms is None and not self._coming and leadership is not None and leadership.is_current:
            self._renew_lease()
        effects = self.runtime.step(event, now)
        if not was_active and self.runtime.role is Role.ACTIVE:
            self.active_since_ms = world.time_ms
            world.counts["loads"] += 1
        self._carry_out(effects)
        self._sleep()
        world.checks.after(self, event)

    def _carry_out(self, effects: list[Effect]) -> None:
        world = self.world
        for effect in effects:
            match effect:
                case Answer(ticket, reply):
                    ask, arrived_ms = self._asked.pop(ticket)
                    if world.story is not None:
                        world.story.append(f"{world.time_ms:9.1f}     {self.number}: {ask.request} -> {reply}")
                    world.checks.answered(self, ask, reply, arrived_ms)
                    self._waiting.pop(ticket)(reply)
                case Refuse(ticket, code):
                    self._asked.pop(ticket, None)
                    world.counts[code.name] += 1
                    self._waiting.pop(ticket)(code)
                case ReadLog():
                    world.after(1.0 + 20.0 * world.random.random(), self._read, self.log.leadership, effect)

    def _read(self, leadership: Leadership, effect: ReadLog) -> None:
        if self.world.time_ms < self.world.unreadable_until_ms:
            self.do(ReadFailed(effect.epoch))
            return
        rows = [row for row in leadership.rows if row[0] >= effect.offset][: self.world.options.piece_rows]
        found = [record for row in rows if (record := decode_record(row[1], row[2])) is not None]
        next_offset = rows[-1][0] + 1 if rows else effect.offset
        if not rows and effect.offset < effect.end_offset:
            self.world.counts["gap at the end"] += 1
        self.do(LogRead(effect.epoch, effect.offset, found, next_offset))

    def _sleep(self) -> None:
        at = self.runtime.wake_at
        if at is None:
            return
        at_ms = max(float(at), self.world.time_ms)
        if self._wake_at is None or at_ms < self._wake_at or self._wake_at < self.world.time_ms:
            self._wake_at = at_ms
            self.world.after(at_ms - self.world.time_ms, self._wake, at_ms)

    def _wake(self, at_ms: float) -> None:
        if at_ms == self._wake_at:
            self._wake_at = None
            self.do(TimePassed())


class World:
    """Brokers, a log, consumers, and time."""

    def __init__(self, seed: int, options: Options, story: list[str] | None = None) -> None:
        self.streams = Streams(seed)
        self.options = options
        self.random = self.streams.stream("network")
        self.dice = Dice(f"{seed} ids")
        self.counts: Counter[str] = Counter()
        self.story = story
        self.trace = 0
        self.events = 0
        self.time_ms = 0.0
        self.tickets = 0
        self.is_calm = False
        self.is_deleting = False
        """Whether an operator takes a group away, at this moment."""
        self.refuses_until_ms = 0.0
        self.unreadable_until_ms = 0.0
        self.commits_from_ms = 0.0
        self.settings = GroupSettings(
            session_min_ms=1_000,
            initial_delay_ms=500,
            members_max=options.members_max,
            consumer_members_max=options.members_max,
            consumer_session_ms=options.session_ms,
            consumer_heartbeat_ms=int(options.heartbeat_ms),
            taking_ms=3_000,
            assignment_interval_ms=options.interval_ms,
            assignors=("range", "uniform") if options.uses_range else ("uniform", "range"),
            retention_ms=options.retention_ms,
            retention_check_ms=700,
            load_grace_ms=options.session_ms + options.rebalance_ms + 2_000,
        )
        self._queue: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._number = 0
        self.partitions = {f"g{number}": options.partitions for number in range(len(options.groups))}
        self.assigned_for: dict[str, int] = {}
        """For how many partitions the leader of a classic group has last said who reads what."""
        self.topics = Topics({}, -1)
        self.grow(None)
        self.checks = Checks(self)
        self.clients: list[Client] = []
        self.leadership = Leadership(0, 0, [], 0, 0)
        self.leaderships = {0: self.leadership}
        self.brokers = [Broker(self, number) for number in range(BROKERS)]

    # --- time -----------------------------------------------------------------------------------------------------

    def after(self, delay_ms: float, call: Callable[..., None], *arguments: Any) -> None:
        self._number += 1
        heappush(self._queue, (self.time_ms + delay_ms, self._number, call, arguments))

    def run_until(self, end_ms: float) -> None:
        queue = self._queue
        while queue and queue[0][0] <= end_ms:
            self.time_ms, _, call, arguments = heappop(queue)
            self.events += 1
            assert self.events < EVENTS_MAX, "the world does not come to an end"
            call(*arguments)
        self.time_ms = end_ms

    def tell(self, sentence: str) -> None:
        row = f"{self.time_ms:9.1f} {sentence}"
        self.trace = zlib.crc32(row.encode(), self.trace)
        if self.story is not None:
            self.story.append(row)

    @property
    def now(self) -> Now:
        return Now(int(self.time_ms), WALL_MS + int(self.time_ms))

    # --- topics ---------------------------------------------------------------------------------------------------

    def grow(self, group_id: str | None) -> None:
        """The topic of a group gets a partition more. Every group reads the topic of its name."""
        if group_id is not None:
            self.partitions[group_id] += 1
        found = {name: Topic(name, topic_id(name), count) for name, count in self.partitions.items()}
        self.topics = Topics(found, self.topics.version + 1)

    # --- the network ----------------------------------------------------------------------------------------------

    def delay_ms(self) -> float:
        random = self.random
        if not self.is_calm and random.random() < self.options.straggling:
            return 5_000.0 * random.random()
        return 0.2 + random.expovariate(1.0 / self.options.delay_ms)

    def commit_delay_ms(self) -> float:
        return 0.2 + self.random.expovariate(1.0 / self.options.commit_ms)

    def _is_lost(self) -> bool:
        return not self.is_calm and self.random.random() < self.options.loss

    def send(self, client: "Client", number: int, ask: Ask, answered: Callable[[int, Any], None]) -> None:
        """A request to the broker that the client takes for its coordinator; the answer may be lost, too."""
        broker = self.brokers[client.coordinator]
        times = 2 if not self.is_calm and self.random.random() < self.options.doubling else 1
        for _ in range(times):
            if not self._is_lost():
                self.after(self.delay_ms(), self._arrive, client, number, broker, ask, answered)

    def _arrive(
        self, client: "Client", number: int, broker: Broker, ask: Ask, answered: Callable[[int, Any], None]
    ) -> None:
        if isinstance(ask.request, ConsumerGroupHeartbeatRequest | JoinGroupRequest) and ask.request.member_id:
            # Connections double nothing; and what a broker reads from one that is gone, after a later one has spoken,
            # it throws away: nothing in a heartbeat of the new protocol, or in a first join, says which came first.
            if number <= client.heard:
                return
            client.heard = number

        def answer(reply: Any) -> None:
            if not self._is_lost():
                self.after(self.delay_ms(), answered, number, reply)

        broker.ask(ask, answer)

    def find_coordinator(self) -> int:
        """Whom the metadata calls the leader; that may be old news."""
        if not self.is_calm and self.random.random() < 0.1:
            return self.random.randrange(BROKERS)
        return self.leadership.broker

    # --- the log --------------------------------------------------------------------------------------------------

    def commit(self, leadership: Leadership, end: int) -> None:
        if not leadership.is_current:
            return
        if self.time_ms < self.commits_from_ms:
            self.after(self.commits_from_ms - self.time_ms + self.commit_delay_ms(), self.commit, leadership, end)
            return
        if end >= leadership.committed:
            leadership.committed = end
            self.brokers[leadership.broker].do(Committed(end))

    def elect(self, number: int, *, tells_old_ms: float = 0.0) -> None:
        """A broker leads from now on; the last one learns of it some time."""
        old = self.leadership
        ends = [old.committed, *(end for end in old.batch_ends if end > old.committed)]
        kept = self.random.choice(ends)
        self.counts["lost batches"] += sum(end > kept for end in ends)
        rows = [row for row in old.rows if row[0] < kept]
        new = Leadership(old.epoch + 1, number, rows, kept, old.committed)
        old.is_current, old.deposed_ms = False, self.time_ms
        self.leadership = self.leaderships[new.epoch] = new
        self.checks.cut(kept)
        self.tell(f"broker {number} leads epoch {new.epoch} from {kept}")
        start = rows[0][0] if rows else kept
        first_ms, second_ms = self.delay_ms() % 100.0, tells_old_ms
        self.after(first_ms, self.brokers[number].do, Elected(new.epoch, start))
        if old.broker != number:
            self.after(second_ms, self.brokers[old.broker].do, Resigned(new.epoch))
        self.after(first_ms + self.commit_delay_ms(), self.commit, new, new.end)

    def compact(self) -> None:
        """What is superseded goes, and so do tombstones, as far as the log is committed.

        While somebody loads, tombstones stay: that is what their retention is for.
        """
        leadership = self.leadership
        takes_all = self.brokers[leadership.broker].shard is not None
        last = {row[1]: row[0] for row in leadership.rows if row[0] < leadership.committed}
        leadership.rows = [
            row
            for row in leadership.rows
            if row[0] >= leadership.committed or (row[0] == last[row[1]] and not (takes_all and row[2] is None))
        ]


def gap(leadership: Leadership, count: int) -> None:
    """Something at the end of the log that compaction takes at once: offsets without records (R26)."""
    leadership.end += count
    leadership.batch_ends.append(leadership.end)
    leadership.committed = leadership.end


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b".")
