"""The replicas of this node: carries out the effects of their core (`penstock.replication`).

The effects concern logs, connections and waiters. Work on a log's segments (truncation, deletion from the front) holds
upkeep's lock. A core and its driver belong to one registration of this broker: results of work that an earlier
registration began are dropped.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, TypeAlias

from penstock.log import truncation
from penstock.log.directory import DataDirectory
from penstock.log.log import Log
from penstock.metadata.changes import Changes
from penstock.metadata.image import NO_LEADER, Image
from penstock.metadata.image import Partition as Placed
from penstock.model.errors import ErrorCode, OffsetOutOfRange, ProtocolError
from penstock.model.ports import Clock
from penstock.model.report import Report
from penstock.model.signal import Signal
from penstock.replication import effects as wanted
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
from penstock.replication.fetch_sessions import RequestedPartition
from penstock.replication.leader import Leader, Verdict
from penstock.replication.ports import Key
from penstock.replication.replicas import Replicas
from penstock.server.connections.advertised import address_of
from penstock.server.controller.controller_runner import ControllerRunner
from penstock.server.loop.driver import Driver
from penstock.server.loop.loop_port import LoopPort, Work
from penstock.server.loop.reporting import Reporter
from penstock.server.partitions.partition import Followed, Partition
from penstock.server.partitions.partitions import Partitions
from penstock.server.partitions.upkeep_loop import Upkeep
from penstock.server.replicas.replica_messages import ReplicaMessages
from penstock.server.replicas.topic_configs import TopicConfigs

logger = logging.getLogger("penstock.replication")

Life: TypeAlias = Driver[Event, wanted.Effect, int, Work]
"""The driver of one registration; closed when the next one begins."""

LEADERS_ONLY: Final = "org.apache.kafka.common.replica.LeaderSelector"
"""Value of `replica.selector.class` with which all consumers read from leaders."""
TRIM_AGAIN_MS: Final = 1_000
"""Time between two attempts to delete records that the leader has deleted."""


class ReplicaRunner:
    """See the module. Follows images from `begin` on."""

    def __init__(
        self,
        controller: ControllerRunner,
        clock: Clock,
        directory: DataDirectory,
        partitions: Partitions,
        topic_configs: TopicConfigs,
        upkeep: Upkeep,
        messages: ReplicaMessages,
        on_broken: Callable[[str], None],
    ) -> None:
        """`on_broken` is called if a step or an effect raises: the core's state is unknown, and the node must stop."""
        self._controller = controller
        self._clock = clock
        self._directory = directory
        self._partitions = partitions
        self._topic_configs = topic_configs
        self._upkeep = upkeep
        self._messages = messages
        self._core: Replicas | None = None
        self._life: Life | None = None
        self._port = LoopPort(clock)
        self._reporter = Reporter(logger)
        self._logs: dict[Key, Log] = {}
        """All opened logs of this node."""
        self._shared: dict[int, Key] = {}
        """Partitions with replicas on other brokers too, by log number: the core tracks the ends of these logs only."""
        self._trimming: dict[int, None] = {}
        self._on_broken = on_broken
        self.led: Signal[[Key, Log, Placed, int]] = Signal()
        """Emitted when this node leads a partition in a new leader epoch, which begins at this offset."""
        self.log_failed: Signal[[]] = Signal()
        """Emitted when a log of which other brokers have replicas has failed."""
        upkeep.trimmed.connect(self.trimmed)
        controller.subscribe(self._on_image)

    # --- registrations --------------------------------------------------------------------------------------------

    async def begin(self, broker_epoch: int) -> None:
        """Begins a registration with this broker epoch; all roles of an earlier registration end."""
        self._end_life()
        self._partitions.clear()
        async with self._upkeep.lock:  # no truncation is in progress
            controller = self._controller
            self._core = Replicas(controller.node_id, broker_epoch, controller.settings, self._now)
            self._life = Driver(
                self._core,
                self._port,
                {
                    wanted.OpenLog: self._open,
                    wanted.DropLog: self._drop,
                    wanted.Led: self._lead,
                    wanted.Followed: self._follow,
                    wanted.Committed: self._commit,
                    wanted.SyncLog: self._sync,
                    wanted.CutLog: self._cut,
                    wanted.RestartLog: self._restart,
                    wanted.TrimLog: self._trim,
                    wanted.StartReached: self._reach_start,
                    wanted.SendFetch: self._fetch,
                    wanted.SendChange: self._change,
                    Report: self._reporter.tell,
                },
                time_passed=TimePassed(),
                on_broken=self._broke,
            )
        self._learn(controller.image)

    def _end_life(self) -> None:
        if self._life is not None:
            self._life.close()
        self._core = self._life = None

    async def stop(self) -> None:
        """Stops all work. The caller holds upkeep's lock, so that no work on a log is interrupted."""
        self._end_life()
        await self._port.stop()
        await self._messages.close()

    @property
    def _now(self) -> int:
        return self._clock.monotonic_ms()

    # --- inputs ---------------------------------------------------------------------------------------------------

    def _on_image(self, changes: Changes, image: Image) -> None:
        if self._core is None:
            return
        self._learn(image)
        for change in changes.topics_changed:
            for number, _, _ in change.partitions:
                key = (change.new.topic_id, number)
                if key in self._logs:
                    self._look_at_replicas(key)

    def _learn(self, image: Image) -> None:
        self._take(ImageLearned(image))

    def has_opened(self, key: Key, log: Log | None) -> bool:
        """Whether this log is open as the log of the partition."""
        return log is not None and self._logs.get(key) is log

    def opened(self, key: Key, log: Log) -> None:
        """Takes the opened log of a partition."""
        if self.has_opened(key, log):
            return
        self._logs[key] = log
        self.dress(log)
        if self._core is not None and key in self._core.partitions and log.offline_reason is None:
            self._take(LogOpened(key, log))
        self._look_at_replicas(key)

    def closed(self, key: Key, log: Log) -> None:
        """Drops the log of a partition, which another log will replace."""
        if not self.has_opened(key, log):
            return
        self.failed(log)
        del self._logs[key]
        self._shared.pop(log.identity.number, None)
        self._partitions.unfollow(*key)
        partition = self._partitions.identified(*key)
        if partition is not None and partition.log is log:
            self._partitions.remove(partition)

    def dress(self, log: Log) -> None:
        """Applies the topic settings to a log and its partition."""
        dress = self._topic_configs.config_of(log.identity.topic)
        log.adopt_settings(dress.log)
        partition = self._partitions.of_log(log.identity.number)
        if partition is not None:
            partition.rules = dress.rules
            partition.can_delete = dress.can_delete
            self._set_in_sync_min(partition)
            partition.advance()  # the durable end may be higher under the new settings
        self.synced([log])

    def synced(self, covered: Iterable[Log]) -> None:
        """Handles a round of group commit that covered these logs. A failed log must not delay other fetches."""
        if not self._shared:
            return
        keys: list[Key] = []
        for log in covered:
            key = self._shared.get(log.identity.number)
            if key is None:
                continue
            if log.offline_reason is None:
                keys.append(key)
            else:
                self.failed(log)
        if keys:
            self._take(LogsSynced(keys))

    def failed(self, log: Log) -> None:
        """Reports to the core that a log is offline: this node neither leads nor follows with it any more."""
        key = self._shared.get(log.identity.number)
        replica = None if self._core is None or key is None else self._core.partitions.get(key)
        if replica is not None and replica.log is not None:
            self._take(LogFailed(replica.key))
            self.log_failed()

    def appended(self, partition: Partition, base_offset: int) -> None:
        """Reports to the core that records were appended to a led partition, from an offset on."""
        if self._core is not None:
            self._carry_out(self._core.appended((partition.topic_id, partition.index), base_offset, self._now))

    def trimmed(self, log: Log) -> None:
        """Reports to the core that the log start offset has moved durably."""
        key = self._shared.get(log.identity.number)
        if key is not None:
            self._take(LogTrimmed(key))

    def await_start(self, partition: Partition) -> None:
        """Registers a record deletion that waits for the low watermark of a partition."""
        if self._core is not None:
            self._carry_out(self._core.await_start((partition.topic_id, partition.index), self._now))

    def examine(
        self, follower_id: int, broker_epoch: int, named: Sequence[tuple[Key, RequestedPartition]]
    ) -> list[Verdict]:
        """Records the fetch offsets of a follower; returns for each partition whether it can be served."""
        if self._core is None:
            return [NOT_LED for _ in named]
        examined = self._core.on_fetch(follower_id, broker_epoch, named, self._now)
        self._carry_out(examined.effects)
        return examined.verdicts

    def leader(self, key: Key) -> Leader | None:
        """The leader state of a partition, if this node leads it."""
        return None if self._core is None else self._core.leader(key)

    def reader_near(self, rack: str, listener: str, partition: Partition, offset: int) -> int | None:
        """The replica that a consumer in a rack should read a led partition from; None for this node (KIP-392).

        A replica whose broker lacks the consumer's listener is not named: the consumer knows no address of it.
        """
        if self._controller.settings.text("replica.selector.class") == LEADERS_ONLY:
            return None
        leader = self.leader((partition.topic_id, partition.index))
        reader_id = None if leader is None else leader.preferred_reader(rack, offset)
        broker = None if reader_id is None else self._controller.image.brokers.get(reader_id)
        if broker is None or address_of(broker, listener) is None:
            return None
        partition.is_read_nearby = True
        return reader_id

    # --- steps ----------------------------------------------------------------------------------------------------

    def _take(self, event: Event) -> None:
        if self._life is not None:
            self._life.post(event)

    def _carry_out(self, effects: Sequence[wanted.Effect]) -> None:
        if self._life is not None:
            self._life.absorb(effects)

    def _broke(self, error: BaseException) -> None:
        logger.critical("Replication failed by a mistake of ours: %r.", error, exc_info=error)
        self._on_broken(f"Replication failed by a mistake of ours ({error!r}): start the node again, and report this.")

    # --- roles ----------------------------------------------------------------------------------------------------

    def _open(self, effect: wanted.OpenLog) -> None:
        log = self._logs.get(effect.key)
        if log is None:
            return  # `opened` will be called
        if log.offline_reason is None:
            self._take(LogOpened(effect.key, log))
        else:
            self._look_at_replicas(effect.key)

    def _drop(self, effect: wanted.DropLog) -> None:
        log = self._logs.pop(effect.key, None)
        if log is not None:
            self._shared.pop(log.identity.number, None)
        self._partitions.unfollow(*effect.key)
        partition = self._partitions.identified(*effect.key)
        if partition is not None:
            is_deleted = self._controller.image.topic_by_id(effect.key[0]) is None
            self._partitions.remove(partition, is_deleted=is_deleted)

    def _lead(self, effect: wanted.Led) -> None:
        key, log = effect.key, self._logs[effect.key]
        topic_id, index = key
        epoch = max(effect.epoch, log.epochs.latest)
        self._partitions.unfollow(*key)
        partition = self._partitions.identified(topic_id, index)
        if partition is None:
            partition = Partition(log.identity.topic, topic_id, index, log, epoch)
            partition.keeper = self  # until it is known whether other brokers have replicas
            partition.led_since_ms = self._clock.wall_ms()
            self._partitions.add(partition)
            self.dress(log)
        partition.leader_epoch = epoch
        self._look_at_replicas(key)
        partition.followers.notify()  # followers that wait in an earlier epoch learn of this one
        replica = None if self._core is None else self._core.partitions.get(key)
        if replica is not None:
            self.led(key, log, replica.partition, effect.start_offset)

    def _follow(self, effect: wanted.Followed) -> None:
        partition = self._partitions.identified(*effect.key)
        if partition is not None:
            self._partitions.remove(partition)
        if effect.leader_id == NO_LEADER:
            self._partitions.unfollow(*effect.key)
            self._look_at_replicas(effect.key)
        else:
            self._show(effect.key, effect.epoch)

    def _show(self, key: Key, epoch: int) -> None:
        """Lets consumers read a followed partition, up to the known high watermark."""
        log = self._logs[key]
        self._partitions.follow(Followed(log.identity.topic, *key, log, epoch))

    def _look_at_replicas(self, key: Key) -> None:
        """Updates a partition after a change of its replicas or its ISR."""
        replica = None if self._core is None else self._core.partitions.get(key)
        log = self._logs.get(key)
        if replica is None or log is None:
            return
        is_shared = len(replica.partition.replicas) > 1
        if is_shared:
            self._shared[log.identity.number] = key
        else:
            self._shared.pop(log.identity.number, None)
        if log.offline_reason is not None:
            self._show_failed(key, log, replica.partition)
        partition = self._partitions.identified(*key)
        if partition is not None:
            partition.keeper = self if is_shared else None
            partition.in_sync_count = len(replica.partition.isr)
            self._set_in_sync_min(partition)
            partition.advance()

    def _set_in_sync_min(self, partition: Partition) -> None:
        """Sets how many must be in sync for acks=all: as in Kafka, never more than the partition has replicas."""
        replica = None if self._core is None else self._core.partitions.get((partition.topic_id, partition.index))
        wanted_min = self._topic_configs.config_of(partition.topic).in_sync_min
        partition.in_sync_min = wanted_min if replica is None else min(wanted_min, len(replica.partition.replicas))

    def _show_failed(self, key: Key, log: Log, placed: Placed) -> None:
        """Keeps a failed log visible while this broker is its leader, so that requests get the log's error."""
        partition = self._partitions.identified(*key)
        is_led = placed.leader == self._controller.node_id
        if partition is not None and not is_led:
            self._partitions.remove(partition)
        elif partition is None and is_led:
            epoch = max(placed.leader_epoch, log.epochs.latest)
            self._partitions.add(Partition(log.identity.topic, *key, log, epoch))

    def _commit(self, effect: wanted.Committed) -> None:
        partition = self._partitions.identified(*effect.key) or self._partitions.followed(*effect.key)
        if partition is not None:
            partition.on_committed()

    # --- logs -----------------------------------------------------------------------------------------------------

    def _sync(self, effect: wanted.SyncLog) -> None:
        """Does nothing: the log is already due in the next round of group commit, by its append or its new settings."""

    def _cut(self, effect: wanted.CutLog) -> Work:
        log = self._logs[effect.key]
        return self._rework(self._now_living, effect.key, log, self._truncated(log, effect.end_offset))

    def _restart(self, effect: wanted.RestartLog) -> Work:
        log = self._logs[effect.key]
        return self._rework(self._now_living, effect.key, log, self._restarted(log, effect.offset))

    @property
    def _now_living(self) -> Life:
        assert self._life is not None
        return self._life

    def _truncated(self, log: Log, end_offset: int) -> Callable[[], Awaitable[None]]:
        return lambda: self._directory.truncate(log, end_offset, now_ms=self._clock.wall_ms())

    def _restarted(self, log: Log, offset: int) -> Callable[[], Awaitable[None]]:
        return lambda: truncation.restart_at(log, self._directory.disk, self._directory.ledger, offset)

    async def _rework(self, life: Life, key: Key, log: Log, work: Callable[[], Awaitable[None]]) -> None:
        self._partitions.unfollow(*key)  # consumers must not read a log during truncation
        try:
            async with self._upkeep.lock:
                if not life.is_closed and self._logs.get(key) is log:
                    await work()
        except (ProtocolError, OSError) as error:
            logger.error("%s could not be cut, and is neither led nor followed any more: %s.", log.path, error)
            life.post(LogFailed(key))
            return
        life.post(LogCut(key))
        replica = None if life.is_closed or self._core is None else self._core.partitions.get(key)
        if replica is not None and replica.following is not None and not replica.is_cutting:
            self._show(key, replica.following.epoch)

    def _trim(self, effect: wanted.TrimLog) -> Work | None:
        log = self._logs[effect.key]
        if log.identity.number in self._trimming:
            return None
        self._trimming[log.identity.number] = None
        return self._follow_start(self._now_living, effect.key, log, effect.start_offset)

    async def _follow_start(self, life: Life, key: Key, log: Log, start_offset: int) -> None:
        """Deletes records up to the leader's log start offset; retries while this is the partition's log."""
        try:
            while not life.is_closed and self._logs.get(key) is log and log.offline_reason is None:
                try:
                    await self._upkeep.delete_before(log, start_offset)
                    break
                except OffsetOutOfRange:
                    break  # retention on this node deleted it meanwhile, or the log was truncated
                except (ProtocolError, OSError) as error:
                    logger.warning("%s keeps what its leader has deleted, until the next try: %s.", log.path, error)
                if log.offline_reason is not None:
                    self.failed(log)
                    break
                await asyncio.sleep(TRIM_AGAIN_MS / 1000)
        finally:
            del self._trimming[log.identity.number]
        if self._logs.get(key) is log:
            self._take(LogTrimmed(key))  # also for a newer registration, which may wait for it

    def _reach_start(self, effect: wanted.StartReached) -> None:
        partition = self._partitions.identified(*effect.key)
        if partition is not None:
            partition.on_low_watermark(effect.low_watermark)
        if self._core is not None and (partition is None or not len(partition.starts)):
            self._core.forget_start(effect.key)

    # --- messages -------------------------------------------------------------------------------------------------

    def _fetch(self, effect: wanted.SendFetch) -> Work:
        return self._fetched(self._now_living, effect)

    async def _fetched(self, life: Life, effect: wanted.SendFetch) -> None:
        response = await self._messages.fetch(effect.source, effect.request)
        if response is None:
            life.post(FetchLost(effect.source, effect.number))
        else:
            life.post(FetchAnswered(effect.source, effect.number, response, self._clock.wall_ms()))

    def _change(self, effect: wanted.SendChange) -> Work:
        return self._changed(self._now_living, effect)

    async def _changed(self, life: Life, effect: wanted.SendChange) -> None:
        reply = await self._messages.change(effect.command)
        life.post(ChangeLost(effect.number) if reply is None else ChangeAnswered(effect.number, reply))


NOT_LED: Final = Verdict(ErrorCode.NOT_LEADER_OR_FOLLOWER)
