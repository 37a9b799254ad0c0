"""Worlds of replicas: the steppers of three to five brokers on a heap, without sockets and without asyncio.

The controller is the real one (`replication_core.controller`), fetch sessions are the real ones, logs are models
(`replication_core.disk`). Messages are lost and delayed; links are cut in one direction or both; brokers are killed,
lose power and unsynced data, pause, shut down, receive metadata late; replicas move. After every event the invariants
are checked (`replication_core.checks`). In the last part of a world all faults are healed, and then it must converge.
Time is in milliseconds.
"""

import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final, NamedTuple

from penstock.metadata.cluster_commands import AlterPartition, Heartbeat, NewIsr
from penstock.metadata.commands import RegisterBroker
from penstock.metadata.image import Image, Partition
from penstock.metadata.settings.layers import BrokerSettings
from penstock.model.errors import ErrorCode
from penstock.model.report import Report
from penstock.model.shard import Command
from penstock.replication.effects import (
    Committed,
    CutLog,
    DropLog,
    Effect,
    Followed,
    Led,
    OpenLog,
    RestartLog,
    SendChange,
    SendFetch,
    StartReached,
    SyncLog,
    TrimLog,
)
from penstock.replication.events import (
    ChangeAnswered,
    ChangeLost,
    Event,
    FetchAnswered,
    FetchLost,
    ImageLearned,
    LogCut,
    LogFailed,
    LogOpened,
    LogsSynced,
    LogTrimmed,
    TimePassed,
)
from penstock.replication.fetch_sessions import Fetching, FetchSessions, RequestedPartition
from penstock.replication.leader import Verdict
from penstock.replication.ports import Key
from penstock.replication.replicas import Replicas
from penstock.server.loop.driver import Driver
from penstock.simulator.randomness import Streams
from penstock.wire.hot.fetch import FetchedPartition
from penstock.wire.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from tests.simulation.controller_core.brokers import FEATURE, HEARTBEAT_MS
from tests.simulation.kit.heap_port import HeapPort, Work, raise_again
from tests.simulation.kit.timeline import Timeline
from tests.simulation.raft_core.world import Chance
from tests.simulation.replication_core.checks import Checks
from tests.simulation.replication_core.controller import TOPIC, Quorum
from tests.simulation.replication_core.disk import Disk, ModelLog, Records
from tests.simulation.replication_core.options import Options
from tests.simulation.replication_core.shown import show_change, show_fetch, show_found

REGISTER_MS: Final = 400.0
NOT_LED: Final = Verdict(ErrorCode.NOT_LEADER_OR_FOLLOWER)


class Letter(NamedTuple):
    """A fetch in transit: the fetching broker, its life, the number and the content of the request."""

    asker: int
    life: int
    number: int
    request: FetchRequest


class Held(NamedTuple):
    """A fetch that waits for news."""

    letter: Letter
    fetching: Fetching
    refused: dict[Key, Verdict]


class Waiting(NamedTuple):
    """A producer that waits for its record to be committed."""

    offset: int
    epoch: int
    value: int
    last_offset: int
    """The last offset of its batch."""


class Deletion(NamedTuple):
    """A DeleteRecords that waits for the low watermark."""

    offset: int
    deadline_ms: float


class Broker:
    """A machine with a disk, and in each of its lives replicas on it."""

    def __init__(self, world: "World", broker_id: int) -> None:
        self.world = world
        self.broker_id = broker_id
        self.random = world.streams.stream("broker", str(broker_id))
        self.disk = Disk()
        self.life = 0
        self.is_up = False
        self.epoch = -1
        self.replicas: Replicas | None = None
        self.paused: list[tuple[Callable[..., None], tuple[Any, ...]]] | None = None
        self.is_leaving = False
        self.is_stale = False
        """Whether the metadata log does not reach the broker for a while."""
        self.is_retracing = False
        """Whether the broker applies the missed metadata batches one by one."""
        self.metadata_at = 0
        self.known_term = 0
        self._incarnation = b""
        self._sessions = FetchSessions(Chance(self.random))
        self._held: list[Held] = []
        self.waiting: dict[Key, list[Waiting]] = {}
        self._syncing: dict[Key, tuple[int, int]] | None = None
        self._to_sync: dict[Key, None] = {}
        self._rebuilding: dict[Key, Effect] = {}
        self._trimming: dict[Key, TrimLog] = {}
        self.deletions: dict[Key, list[Deletion]] = {}
        self._driver: Driver[Event, Effect, int, Work] | None = None
        self._port = HeapPort(self)

    def __str__(self) -> str:
        return f"broker {self.broker_id}"

    @property
    def has_failed_log(self) -> bool:
        return any(log.has_failed for log in self.disk.logs.values())

    def log(self, key: Key) -> ModelLog | None:
        return self.disk.logs.get(key)

    def is_impaired(self, key: Key, partition: Partition) -> bool:
        """Whether the broker may have lost records of a partition, and has not been in the ISR again since."""
        if self.has_failed_log and not self.world.options.is_fsync:
            return True  # after a restart it registers as having lost records
        known = self.world.quorum.image.brokers.get(self.broker_id)
        is_this_life = known is not None and self.epoch >= 0 and known.epoch == self.epoch
        if is_this_life and self.broker_id in partition.isr:
            self.disk.impaired.pop(key, None)
        return key in self.disk.impaired

    @property
    def now(self) -> int:
        return self.world.now

    @property
    def now_ms(self) -> int:
        return self.now

    @property
    def is_paused(self) -> bool:
        return self.paused is not None

    def world_ms(self, at_ms: int) -> float:
        return float(at_ms)

    # --- lives ----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        assert not self.is_up
        self.is_up = True
        self._incarnation = self.random.randbytes(16)
        self.metadata_at = 0
        self.known_term = self.world.quorum.term
        self.world.tell(self, "starts")
        self._register(self.life)

    def die(self, *, loses: bool) -> None:
        """Kills the process, or cuts the power: then unsynced data is lost; operations in progress are done or not."""
        assert self.is_up
        self.is_up = False
        self.life += 1
        if self.epoch >= 0:
            self.disk.last_epoch = self.epoch
        gone = 0
        for key, effect in self._rebuilding.items():
            if self.random.random() < 0.5:
                self._rebuild(key, effect)
        for key, trim in self._trimming.items():
            if self.random.random() < 0.5:
                self.disk.logs[key].trim(trim.start_offset)
        vouches = not self.has_failed_log
        for log in self.disk.logs.values():
            if loses or log.has_failed:
                gone += log.lose_power(self.random)
            else:
                log.die()
        if (loses or not vouches) and not self.world.options.is_fsync:
            self.disk.last_epoch = -1
            # Also partitions without a log: the controller may already count on the broker for them.
            held = [
                key for key, each in self.world.partitions(is_newest=True).items() if self.broker_id in each.replicas
            ]
            self.disk.impaired.update(dict.fromkeys((*self.disk.logs, *held)))
        self.epoch = -1
        if self._driver is not None:
            self._driver.close()
        self.replicas = self._driver = self._syncing = self.paused = None
        self.is_leaving = self.is_stale = self.is_retracing = False
        self._sessions = FetchSessions(Chance(self.random))
        self._held, self.waiting, self._to_sync, self._rebuilding = [], {}, {}, {}
        self._trimming, self.deletions = {}, {}
        self.world.tell(self, f"loses power, and {gone} records with it" if loses else "is killed")
        self.world.checks.died(self)

    def pause(self) -> None:
        if self.paused is None:
            self.paused = []
            self.world.tell(self, "is paused")

    def resume(self) -> None:
        held, self.paused = self.paused, None
        if held is not None:
            self.world.tell(self, "goes on")
            for call, arguments in held:
                call(*arguments)
            self._port.look()

    def later(self, life: int, call: Callable[..., None], *arguments: Any) -> None:
        """Makes a call in a given life of the broker, if that life has not ended, and once it is no longer paused."""
        if life != self.life or not self.is_up:
            return
        if self.paused is not None:
            self.paused.append((self.later, (life, call, *arguments)))
        else:
            call(*arguments)

    # --- the controller -------------------------------------------------------------------------------------------

    def _register(self, life: int) -> None:
        if life != self.life or not self.is_up or self.epoch >= 0:
            return
        self.world.after(REGISTER_MS * (0.5 + self.random.random()), self._register, life)
        if self.paused is not None:
            return
        self.known_term = self.world.quorum.term
        command = RegisterBroker(
            self.broker_id,
            self._incarnation,
            0,  # the controller fills in the offset of the record
            (),
            (FEATURE,),
            f"rack {self.broker_id}",
            (b"d" * 15 + bytes([self.broker_id]),),
            is_fenced=True,
            previous_epoch=self.disk.last_epoch,
        )
        self.world.ask(self, command, self._registered)

    def _registered(self, reply: Any) -> None:
        if reply.code is not ErrorCode.NONE or self.epoch >= 0:
            return
        self.epoch = reply.epoch
        self.world.tell(self, f"is registered with epoch {self.epoch}")
        placed_at_once = 1 + self.broker_id % 2 + self.life % 2  # few, so that new partitions are placed in steps
        self.replicas = Replicas(self.broker_id, self.epoch, self.world.settings, self.world.now, placed_at_once)
        self._port = HeapPort(self)
        self._driver = Driver(
            Watched(self, self.replicas),
            self._port,
            {
                OpenLog: self._open,
                DropLog: self._drop,
                Led: self._lead,
                Followed: self._follow,
                Committed: self._commit,
                SyncLog: self._sync_log,
                CutLog: self._cut,
                RestartLog: self._restart,
                TrimLog: self._trim_log,
                StartReached: self._reach_start,
                SendFetch: self._fetch,
                SendChange: self._change,
                Report: self._report,
            },
            time_passed=TimePassed(),
            on_broken=raise_again,
        )
        self.world.checks.begins(self)
        log = self.world.quorum.log
        self.take(ImageLearned(log.batches[self.random.randint(0, log.committed)][1]))  # the metadata on its disk
        self._beat(self.life)

    def _beat(self, life: int) -> None:
        if life != self.life or not self.is_up:
            return
        self.world.after(HEARTBEAT_MS * (0.8 + 0.4 * self.random.random()), self._beat, life)
        if self.paused is not None:
            return
        self.world.follow_metadata(self)
        self.known_term = self.world.quorum.term
        offset = self.world.quorum.log.batches[min(self.metadata_at, len(self.world.quorum.log.batches) - 1)][0] - 1
        command = Heartbeat(self.broker_id, self.epoch, offset, log_end=0, wants_shutdown=self.is_leaving)
        self.world.ask(self, command, self._heard)

    def _heard(self, reply: Any) -> None:
        if reply.code in (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED):
            self.die(loses=False)  # another process has its id by now, or this one in a former life
            self.world.after(100.0, self.start_again)
        elif reply.should_shut_down and self.is_leaving:
            self.world.tell(self, "shuts down")
            for log in self.disk.logs.values():
                log.synced(log.written_end, log.cuts)
            self.die(loses=False)
            self.world.after(200.0 + 2_000.0 * self.random.random(), self.start_again)

    def start_again(self) -> None:
        if not self.is_up:
            self.start()

    def learn(self, at: int) -> None:
        """Receives the metadata log up to a batch."""
        if at <= self.metadata_at or self.replicas is None or self.is_stale:
            return
        is_stepwise = self.is_retracing or self.world.options.is_stepwise
        is_stepwise = is_stepwise and not self.world.is_calm and self.metadata_at > 0
        self.learn_now(self.metadata_at + 1 if is_stepwise else at)
        if at > self.metadata_at:
            delay_ms = max(self.world.options.metadata_ms, 200.0 if self.is_retracing else 0.0)
            self.world.after(delay_ms * self.random.random(), self.later, self.life, self.learn, at)
        else:
            self.is_retracing = False

    def learn_now(self, at: int) -> None:
        """Applies the metadata log up to a batch at once, whatever delays are in force."""
        self.metadata_at = at
        self.take(ImageLearned(self.world.quorum.log.batches[at][1]))

    # --- steps ----------------------------------------------------------------------------------------------------

    def take(self, event: Event) -> None:
        if self._driver is not None:
            self._driver.post(event)

    def _carry_out(self, effects: list[Effect]) -> None:
        """Carries out the effects that a direct call has returned."""
        assert self._driver is not None
        self.world.checks.stepped(self)
        self._driver.absorb(effects)

    def _open(self, effect: OpenLog) -> None:
        log = self.disk.logs.get(effect.key)
        if log is None:
            log = self.disk.logs[effect.key] = ModelLog(waits_for_sync=self.world.options.is_fsync)
        self.world.after(0.0, self.later, self.life, self._opened, effect.key, log)

    def _opened(self, key: Key, log: ModelLog) -> None:
        if not log.has_failed:
            self.take(LogOpened(key, log))

    def _drop(self, effect: DropLog) -> None:
        self.disk.logs.pop(effect.key, None)
        self._rebuilding.pop(effect.key, None)
        self._to_sync.pop(effect.key, None)
        self._trimming.pop(effect.key, None)
        self.waiting.pop(effect.key, None)
        self.deletions.pop(effect.key, None)
        self._poke(effect.key)

    def _lead(self, effect: Led) -> None:
        self.waiting.pop(effect.key, None)
        self.deletions.pop(effect.key, None)
        self.world.tell(self, f"leads {effect.key[1]} in epoch {effect.epoch} from {effect.start_offset} on")
        self._poke(effect.key)

    def _follow(self, effect: Followed) -> None:
        self.waiting.pop(effect.key, None)
        self.deletions.pop(effect.key, None)
        whom = f"follows {effect.leader_id}" if effect.leader_id >= 0 else "follows nobody"
        self.world.tell(self, f"{whom} for {effect.key[1]} in epoch {effect.epoch}")
        self._poke(effect.key)

    def _commit(self, effect: Committed) -> None:
        key = effect.key
        log = self.disk.logs[key]
        assert self.replicas is not None
        leader = self.replicas.leader(key)
        if leader is None:
            return
        self.world.tell(self, f"commits {key[1]} up to {log.high_watermark}")
        waiting = self.waiting.get(key, [])
        done = [each for each in waiting if each.last_offset < log.high_watermark]
        if done:
            self.waiting[key] = waiting[len(done) :]
            if leader.has_enough_in_sync:
                for each in done:
                    self.world.checks.acknowledged(self, key, each.offset, each.value)

    def _sync_log(self, effect: SyncLog) -> None:
        self._to_sync[effect.key] = None
        if self._syncing is None:
            self._sync()

    def _cut(self, effect: CutLog) -> None:
        lost = f", {effect.lost} of it committed" if effect.lost else ""
        self.world.tell(self, f"cuts {effect.key[1]} back to {effect.end_offset}{lost}")
        self._rebuilding[effect.key] = effect
        self.world.after(self._rebuild_ms(), self.later, self.life, self._rebuilt, effect)

    def _restart(self, effect: RestartLog) -> None:
        self.world.tell(self, f"begins {effect.key[1]} anew at {effect.offset}")
        self._rebuilding[effect.key] = effect
        self.world.after(self._rebuild_ms(), self.later, self.life, self._rebuilt, effect)

    def _rebuilt(self, effect: CutLog | RestartLog) -> None:
        if self._rebuilding.get(effect.key) is effect:
            del self._rebuilding[effect.key]
            self._rebuild(effect.key, effect)
            self.take(LogCut(effect.key))

    def _rebuild(self, key: Key, effect: Effect) -> None:
        log = self.disk.logs[key]
        if isinstance(effect, CutLog):
            self.world.checks.cutting(self, key, effect.end_offset)
            log.cut(effect.end_offset)
            log.synced_end = log.written_end
        elif isinstance(effect, RestartLog):
            log.restart(effect.offset)

    def _trim_log(self, effect: TrimLog) -> None:
        self._trimming[effect.key] = effect
        self.world.after(self._rebuild_ms(), self.later, self.life, self._trimmed, effect)

    def _trimmed(self, effect: TrimLog) -> None:
        if self._trimming.get(effect.key) is effect:
            del self._trimming[effect.key]
            self._trim(effect.key, effect.start_offset)

    def _trim(self, key: Key, start_offset: int) -> None:
        """Moves the log start, durably."""
        log = self.disk.logs[key]
        before = log.start_offset
        log.trim(start_offset)
        if log.start_offset > before:
            self.world.tell(self, f"has deleted what it had of {key[1]} before {log.start_offset}")
        self.take(LogTrimmed(key))

    def _reach_start(self, effect: StartReached) -> None:
        key, low_watermark = effect.key, effect.low_watermark
        waiting = self.deletions.get(key, [])
        done = [each for each in waiting if each.offset <= low_watermark]
        self.deletions[key] = [each for each in waiting if each.offset > low_watermark]
        for _ in done:
            self.world.tell(self, f"acknowledges that {key[1]} starts at {low_watermark}")
            self.world.checks.deleted_before(self, key, low_watermark)
        assert self.replicas is not None
        if not self.deletions[key]:
            self.replicas.forget_start(key)

    def _fetch(self, effect: SendFetch) -> None:
        letter = Letter(self.broker_id, self.life, effect.number, effect.request)
        if self.world.story is not None:
            self.world.tell(self, f"to {effect.source}: {show_fetch(effect.request)}")
        self.world.send(self.broker_id, effect.source, self._arrives, effect.source, letter)

    def _change(self, effect: SendChange) -> None:
        number, life = effect.number, self.life
        if self.world.story is not None:
            self.world.tell(self, f"asks for {show_change(effect.command)}")

        def answered(reply: Any) -> None:
            if self.world.story is not None:
                codes = [reply.code, *(each.code for each in reply.partitions)]
                refused = [code.name for code in codes if code is not ErrorCode.NONE]
                self.world.tell(self, f"is told: {', '.join(refused) or 'done'}")
            self.take(ChangeAnswered(number, reply))

        self.world.ask(self, effect.command, answered)
        self.world.after(self.world.options.patience_ms, self.later, life, self.take, ChangeLost(number))

    # --- the disk -------------------------------------------------------------------------------------------------

    def _sync(self) -> None:
        logs = self.disk.logs
        self._syncing = {key: (logs[key].written_end, logs[key].cuts) for key in self._to_sync if key in logs}
        self._to_sync = {}
        self.world.after(self.world.disk_ms(self.random), self.later, self.life, self._synced)

    def _synced(self) -> None:
        covered, self._syncing = self._syncing, None
        assert covered is not None
        for key, (end_offset, cuts) in covered.items():
            if key in self.disk.logs:
                self.disk.logs[key].synced(end_offset, cuts)
        if self._to_sync:
            self._sync()
        self.take(LogsSynced(list(covered)))

    def flush(self) -> None:
        """Syncs all logs, as happens from time to time whatever the topic's durability."""
        self._to_sync.update(dict.fromkeys(self.disk.logs))
        if self._syncing is None:
            self._sync()

    def fail_log(self, key: Key) -> None:
        """A sync or a write fails: the log is neither led nor followed until the broker restarts."""
        log = self.disk.logs[key]
        if self.replicas is None or log.has_failed:
            return
        log.has_failed = True
        self.world.tell(self, f"has a log of {key[1]} that fails")
        self._rebuilding.pop(key, None)
        self._trimming.pop(key, None)
        self.take(LogFailed(key))
        self._give_way(self.life)

    def _give_way(self, life: int) -> None:
        """Asks the controller for another leader, as long as there is another replica in sync."""
        failed = [key for key, log in self.disk.logs.items() if log.has_failed]
        if life != self.life or self.replicas is None or not failed:
            return
        image = self.replicas.image
        changes = []
        for key in failed:
            topic = image.topics.get(TOPIC)
            placed = None if topic is None or topic.topic_id != key[0] else topic.partitions.get(key[1])
            if placed is None or placed.leader != self.broker_id:
                continue
            others = [image.brokers[each] for each in placed.isr if each != self.broker_id and each in image.brokers]
            isr = tuple((each.broker_id, each.epoch) for each in others if each.is_active)
            if isr:
                changes.append(NewIsr(*key, placed.leader_epoch, placed.partition_epoch, isr))
        if changes and self.paused is None:
            self.world.ask(self, AlterPartition(self.broker_id, self.epoch, tuple(changes)), lambda _: None)
        self.world.after(1_000.0, self._give_way, life)

    def _rebuild_ms(self) -> float:
        """Truncating a log takes many syncs, and sometimes longer than the time-outs."""
        if self.world.is_calm or self.random.random() < 0.8:
            return self.world.disk_ms(self.random)
        return 2_000.0 * self.random.random()

    # --- leading --------------------------------------------------------------------------------------------------

    def produce(self, key: Key, *values: int) -> None:
        """Appends a batch of a client, acks=all."""
        replicas = self.replicas
        leader = None if replicas is None or self.paused is not None else replicas.leader(key)
        if replicas is None or leader is None or not leader.has_enough_in_sync:
            return
        log = self.disk.logs[key]
        if log.has_failed:
            return
        offset = log.append(leader.epoch, *values)
        what = " ".join(map(str, values))
        self.world.tell(self, f"appends {what} to {key[1]} at {offset} in epoch {leader.epoch}")
        self.world.checks.values.update(values)
        last = offset + len(values) - 1
        waiting = [Waiting(offset + at, leader.epoch, value, last) for at, value in enumerate(values)]
        self.waiting.setdefault(key, []).extend(waiting)
        self._carry_out(replicas.appended(key, offset, self.world.now))
        if log.waits_for_sync:
            self._sync_log(SyncLog(key))
        self._poke(key)

    def ask_for_end(self, key: Key) -> None:
        """Answers a client's ListOffsets for the end of the partition."""
        leader = None if self.replicas is None or self.paused is not None else self.replicas.leader(key)
        if leader is not None:
            end = self.disk.logs[key].high_watermark if leader.is_settled else None
            if self.world.story is not None:
                self.world.tell(self, "cannot tell the end yet" if end is None else f"tells the end: {end}")
            self.world.checks.told_end(self, key, leader.epoch, end)

    def delete(self, key: Key) -> None:
        """Retention: deletes some records at the front of the log."""
        log = self.disk.logs.get(key)
        leader = None if self.replicas is None else self.replicas.leader(key)
        if log is not None and leader is not None and log.high_watermark > log.start_offset:
            self._trim(key, self.random.randint(log.start_offset, log.high_watermark))

    def delete_records(self, key: Key, offset: int, timeout_ms: float) -> bool:
        """Starts a client's DeleteRecords; whether this broker accepts the request."""
        leader = None if self.replicas is None or self.paused is not None else self.replicas.leader(key)
        if leader is None or offset > self.disk.logs[key].high_watermark:
            return False
        self.world.tell(self, f"is asked to delete what {key[1]} has before {offset}")
        deletion = Deletion(offset, self.world.time_ms + timeout_ms)
        delay_ms = self.world.disk_ms(self.random) if offset > self.disk.logs[key].start_offset else 0.0
        self.world.after(delay_ms, self.later, self.life, self._deleted, key, leader.epoch, deletion)
        return True

    def _deleted(self, key: Key, epoch: int, deletion: Deletion) -> None:
        leader = None if self.replicas is None else self.replicas.leader(key)
        if self.replicas is None or leader is None or leader.epoch != epoch:
            return  # NOT_LEADER_OR_FOLLOWER
        self.deletions.setdefault(key, []).append(deletion)
        self._trim(key, deletion.offset)
        self._carry_out(self.replicas.await_start(key, self.world.now))
        self._poke(key)
        wait_ms = max(0.0, deletion.deadline_ms - self.world.time_ms)
        self.world.after(wait_ms, self.later, self.life, self._give_up, key, deletion)

    def _give_up(self, key: Key, deletion: Deletion) -> None:
        waiting = self.deletions.get(key, [])
        if any(each is deletion for each in waiting):
            self.world.tell(self, f"gives up waiting for {key[1]} to start at {deletion.offset}")
            self.deletions[key] = [each for each in waiting if each is not deletion]

    def _arrives(self, source: int, letter: Letter) -> None:
        """A fetch of this broker reaches its source, or finds it down."""
        target = self.world.brokers[source]
        if not target.is_up:
            if (
                self.world.is_calm or self.world.network.random() < 0.7
            ):  # the connection is refused, if the machine has power
                lost = FetchLost(source, letter.number)
                self.world.after(self.world.options.delay_ms, self.later, letter.life, self.take, lost)
            return
        target.later(target.life, target.serve, letter)

    def serve(self, letter: Letter) -> None:
        request, replicas = letter.request, self.replicas
        if replicas is None:
            self._reply(letter, _answer(ErrorCode.BROKER_NOT_AVAILABLE))
            return
        state = request.replica_state
        fetching = self._sessions.begin(
            request.session_id,
            request.session_epoch,
            request.topics,
            request.forgotten_topics_data,
            self.world.now,
            has_ids=True,
            is_follower=True,
        )
        if fetching.error_code is not ErrorCode.NONE:
            self._reply(letter, _answer(fetching.error_code))
            return
        requested = {(each.topic, each.index): each for each in fetching.requested}
        named = [(topic.topic_id, each.partition) for topic in request.topics for each in topic.partitions]
        pairs = [(key, requested[key]) for key in named]
        examined = replicas.on_fetch(state.replica_id, state.replica_epoch, pairs, self.world.now)
        refused = {key: verdict for key, verdict in zip(named, examined.verdicts, strict=True) if not verdict.fits}
        held = Held(letter, fetching, refused)
        if not self._try_to_answer(held, is_due=not fetching.has_partitions):
            self._held.append(held)
            self.world.after(float(request.max_wait_ms), self.later, self.life, self._time_is_up, held)
        self._carry_out(examined.effects)

    def _time_is_up(self, held: Held) -> None:
        if any(each is held for each in self._held):
            self._held = [each for each in self._held if each is not held]
            self._try_to_answer(held, is_due=True)

    def _poke(self, key: Key) -> None:
        """Retries waiting fetches after a change of a partition."""
        if self._held:
            self._held = [held for held in self._held if not self._try_to_answer(held, is_due=False)]

    def _try_to_answer(self, held: Held, *, is_due: bool) -> bool:
        found = [(requested, self._look_at(requested, held.refused)) for requested in held.fetching.requested]
        if not is_due and not any(
            part.records
            or part.error_code
            or part.diverging_epoch is not None
            or (requested.session is not None and requested.told_log_start != part.log_start_offset)
            for requested, part in found
        ):
            return False
        result = held.fetching.answer(found, self.world.now)
        by_topic: dict[bytes, list[PartitionData]] = {}
        for requested, part in result.found:
            by_topic.setdefault(requested.topic, []).append(_part(part))  # type: ignore[arg-type]
        responses = [FetchableTopicResponse(topic_id=topic, partitions=parts) for topic, parts in by_topic.items()]
        self._reply(held.letter, _answer(result.error_code, result.session_id, responses))
        return True

    def _look_at(self, requested: RequestedPartition, refused: dict[Key, Verdict]) -> FetchedPartition:
        key: Key = (requested.topic, requested.index)  # type: ignore[assignment]
        assert self.replicas is not None
        leader, log = self.replicas.leader(key), self.disk.logs.get(key)
        verdict = refused.get(key)
        if verdict is None:
            verdict = NOT_LED if leader is None else leader.examine(requested)
        if log is None or leader is None:
            return FetchedPartition(requested.index, verdict.error, -1)
        records: Records | None = None
        if verdict.fits:
            records = log.read(requested.offset, self.world.options.entries_max)
        return FetchedPartition(
            requested.index,
            verdict.error,
            log.high_watermark,
            -1,
            log.start_offset,
            records=records,
            diverging_epoch=verdict.diverging,
        )

    def _report(self, report: Report) -> None:
        if self.world.story is not None:
            self.world.tell(self, str(report))

    def _reply(self, letter: Letter, response: FetchResponse) -> None:
        if self.world.story is not None:
            self.world.tell(self, f"to {letter.asker}: {show_found(response)}")
        asker = self.world.brokers[letter.asker]
        event = FetchAnswered(self.broker_id, letter.number, response, self.world.now)
        self.world.send(self.broker_id, letter.asker, asker.later, letter.life, asker.take, event)


_MOVING: Final = (ImageLearned, LogOpened, LogCut)
"""Events by which a replica may become leader or follower."""


def _answer(error: ErrorCode, session_id: int = 0, topics: Sequence[FetchableTopicResponse] = ()) -> FetchResponse:
    return FetchResponse(throttle_time_ms=0, error_code=error, session_id=session_id, responses=topics)


def _part(part: FetchedPartition) -> PartitionData:
    epoch, end_offset = part.diverging_epoch or (-1, -1)
    return PartitionData(
        partition_index=part.partition,
        error_code=ErrorCode(part.error_code),
        high_watermark=part.high_watermark,
        log_start_offset=part.log_start_offset,
        diverging_epoch=EpochEndOffset(epoch=epoch, end_offset=end_offset),
        aborted_transactions=None,
        records=part.records,  # type: ignore[arg-type]
    )


class Watched:
    """The replicas of one life, checked after every step."""

    def __init__(self, broker: Broker, replicas: Replicas) -> None:
        self._broker = broker
        self._replicas = replicas

    @property
    def wake_at(self) -> int:
        return self._replicas.wake_at

    def step(self, event: Event, now: int) -> list[Effect]:
        effects = self._replicas.step(event, now)
        checks = self._broker.world.checks
        if type(event) in _MOVING:
            checks.moved(self._broker)
        checks.stepped(self._broker)
        return effects


class World(Timeline):
    """Time, the network, the brokers and their controller."""

    EVENTS_MAX: ClassVar[int] = 60_000

    def __init__(self, seed: int, options: Options, *, story: Callable[[str], None] | None = None) -> None:
        super().__init__()
        self.streams = Streams(seed)
        self.options = options
        self.story = story
        self.counts: Counter[str] = Counter()
        self.cut_links: Counter[tuple[int, int]] = Counter()
        """Pairs of brokers; the controller is 0."""
        self.is_calm = False
        self.network = self.streams.stream("network")
        self.settings = BrokerSettings(
            {
                "replica.lag.time.max.ms": str(options.lag_ms),
                "replica.fetch.backoff.ms": "200",
                "replica.socket.timeout.ms": str(options.patience_ms),
                "broker.session.timeout.ms": str(options.session_ms),
                "auto.balance.enable": "false",
            }
        )
        self._partitions: tuple[Image | None, dict[Key, Partition]] = (None, {})
        self.checks = Checks(self)
        self.quorum = Quorum(self, self.settings)
        self.brokers = {broker_id: Broker(self, broker_id) for broker_id in range(1, options.brokers + 1)}

    @property
    def now(self) -> int:
        return int(self.time_ms)

    def tell(self, who: object, what: str) -> None:
        if self.story is not None:
            self.story(f"{self.time_ms / 1000:8.3f} {who} {what}")

    def sweep(self) -> None:
        self.checks.sweep()

    # --- the network ----------------------------------------------------------------------------------------------

    def send(self, source: int, to: int, call: Callable[..., None], *arguments: Any) -> None:
        delay_ms = self._delay(source, to)
        if delay_ms is not None:
            self.after(delay_ms, call, *arguments)

    def ask(self, asker: Broker, command: Command[Any], answered: Callable[[Any], None]) -> None:
        """Sends a broker's request to the controller it knows; the request or the response may be lost."""
        life = asker.life

        def answer(reply: Any) -> None:
            self.send(0, asker.broker_id, asker.later, life, answered, reply)

        # Not delayed: a broker that registers as having lost records leaves every ISR and ELR, whatever it holds by
        # then.
        is_prompt = isinstance(command, RegisterBroker)
        delay_ms = self._delay(asker.broker_id, 0, is_prompt=is_prompt)
        if delay_ms is not None:
            self.after(delay_ms, self.quorum.ask, asker.known_term, command, answer)

    def _delay(self, source: int, to: int, *, is_prompt: bool = False) -> float | None:
        if self.cut_links and self.cut_links[source, to] > 0:
            return None
        options, random = self.options, self.network.random
        if self.is_calm:
            return options.delay_ms
        if options.loss and random() < options.loss:
            return None
        if options.straggling and not is_prompt and random() < options.straggling:
            return 4_000.0 * random()
        return options.delay_ms * (0.5 + random())

    def quorum_ms(self) -> float:
        """The time until a batch is committed."""
        return self.options.delay_ms if self.is_calm else self.options.delay_ms * (0.5 + 2 * self.network.random())

    def disk_ms(self, random: Any) -> float:
        sync_ms = self.options.sync_ms
        return sync_ms if self.is_calm else 2 * sync_ms * float(random.random())

    # --- metadata -------------------------------------------------------------------------------------------------

    def on_committed(self, before: Image) -> None:
        """Sends a new committed batch to the brokers, each with its own delay."""
        self.checks.decided(before, self.quorum.image)
        if self.story is not None:
            self._tell_decided(before)
        for broker in self.brokers.values():
            self.follow_metadata(broker)

    def follow_metadata(self, broker: Broker) -> None:
        log = self.quorum.log
        if broker.replicas is None or broker.metadata_at >= log.committed:
            return
        delay_ms = self._delay(0, broker.broker_id)
        if delay_ms is not None:
            if not self.is_calm:
                delay_ms += self.options.metadata_ms * self.network.random()
            elif self.story is None:
                delay_ms += 1.0
            self.after(delay_ms, broker.later, broker.life, broker.learn, log.committed)

    def _tell_decided(self, before: Image) -> None:
        for key, partition in self.partitions().items():
            topic = before.topics.get(TOPIC)
            old = None if topic is None else topic.partitions.get(key[1])
            if old != partition:
                elr = f", eligible {list(partition.eligible_leader_replicas)}"
                self.tell(
                    "controller",
                    f"says of {key[1]}: leader {partition.leader} in epoch {partition.leader_epoch}, "
                    f"in sync {list(partition.isr)}{elr if partition.eligible_leader_replicas else ''}",
                )

    def partitions(self, *, is_newest: bool = False) -> dict[Key, Partition]:
        """The partitions in the committed metadata, or with `is_newest` in the appended metadata."""
        image = self.quorum.log.image if is_newest else self.quorum.image
        known, found = self._partitions
        if known is not image:
            topic = image.topics.get(TOPIC)
            parts = {} if topic is None else topic.partitions
            found = {} if topic is None else {(topic.topic_id, number): each for number, each in parts.items()}
            self._partitions = image, found
        return found

    def in_sync_min(self, *, is_newest: bool = False) -> int:
        """The topic's min.insync.replicas in the committed metadata, or with `is_newest` in the appended metadata."""
        image = self.quorum.log.image if is_newest else self.quorum.image
        return int(image.config(2, TOPIC).get("min.insync.replicas", "1"))

    def leaders(self, key: Key) -> list[Broker]:
        """All brokers that believe they lead a partition, the newest last."""
        found = []
        for broker in self.brokers.values():
            leader = None if broker.replicas is None else broker.replicas.leader(key)
            if leader is not None:
                found.append((leader.epoch, broker.broker_id, broker))
        return [broker for _, _, broker in sorted(found, key=lambda each: each[:2])]


def trace_of(world: World) -> int:
    """A hash that is equal for two runs of one seed, and differs between seeds."""
    committed = [(key[1], entries) for key, entries in world.checks.committed.items()]
    return zlib.crc32(repr((world.trace_hash, committed)).encode())
