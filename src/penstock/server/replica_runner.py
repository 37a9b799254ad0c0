"""The replicas of this node: what their core (`penstock.replication`) wants done to logs, sockets and waiters.

One step after the other, the effects of each in their order; what takes time is told to the core when it is done. Work
on a log's segments (cutting, deleting from the front) holds upkeep's lock. The core belongs to one registration of this
broker: what was under way in an earlier one is told to nobody.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Final, TypeAlias

from penstock.log import truncation
from penstock.log.directory import DataDirectory
from penstock.log.log import Log
from penstock.metadata.changes import Changes
from penstock.metadata.image import NO_LEADER, Image
from penstock.metadata.image import Partition as Placed
from penstock.model.errors import ErrorCode, OffsetOutOfRange, ProtocolError
from penstock.model.ports import Clock
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
from penstock.replication.fetch_sessions import Wanted
from penstock.replication.leader import Leader, Verdict
from penstock.replication.ports import Key
from penstock.replication.replicas import Replicas
from penstock.server.controller_runner import ControllerRunner
from penstock.server.partition import Followed, Partition
from penstock.server.partitions import Partitions
from penstock.server.replica_messages import ReplicaMessages
from penstock.server.topic_settings import Wardrobe
from penstock.server.upkeep_loop import Upkeep

logger = logging.getLogger("penstock.replication")

Work: TypeAlias = Coroutine[Any, Any, None]

LEADERS_ONLY: Final = "org.apache.kafka.common.replica.LeaderSelector"
"""What the setting `replica.selector.class` may say to have all consumers read from leaders."""
TRIM_AGAIN_MS: Final = 1_000
"""Between two attempts to delete what the leader has deleted."""
TIMER_MS_MAX: Final = 60_000
"""The timer is looked at again after this at the latest."""


class ReplicaRunner:
    """See the module. It follows images from `begin` on."""

    def __init__(
        self,
        controller: ControllerRunner,
        clock: Clock,
        directory: DataDirectory,
        partitions: Partitions,
        wardrobe: Wardrobe,
        upkeep: Upkeep,
        messages: ReplicaMessages,
    ) -> None:
        self._controller = controller
        self._clock = clock
        self._directory = directory
        self._partitions = partitions
        self._wardrobe = wardrobe
        self._upkeep = upkeep
        self._messages = messages
        self._core: Replicas | None = None
        self._logs: dict[Key, Log] = {}
        """All that this node has, as far as it was told."""
        self._shared: dict[int, Key] = {}
        """Those that others have, too, by the number of the log: only their ends are the core's business."""
        self._trimming: dict[int, None] = {}
        self._events: deque[Event] = deque()
        self._is_stepping = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self.on_failed: Callable[[], None] = lambda: None
        """Called when a log has failed that others have, too."""
        self.on_broken: Callable[[str], None] = lambda _sentence: None
        """Called when a step or an effect raised: what the core then holds is not known, and the node must end."""
        self._tasks: dict[asyncio.Task[None], None] = {}
        self.on_led: Callable[[Key, Log, Placed, int], None] = _nobody_asks
        """Called when a partition is led here in a new epoch, which begins at this offset."""
        upkeep.on_trimmed = self.trimmed
        controller.subscribe(self._on_image)

    # --- lives ----------------------------------------------------------------------------------------------------

    async def begin(self, broker_epoch: int) -> None:
        """The broker is registered with this epoch: whatever it was before, it is no longer."""
        self._core = None
        self._events.clear()
        self._partitions.clear()
        async with self._upkeep.lock:  # nobody is in the middle of a cut
            controller = self._controller
            self._core = Replicas(controller.node_id, broker_epoch, controller.settings, self._now)
        self._learn(controller.image)

    async def stop(self) -> None:
        """Ends what is under way. Upkeep's lock is held: nothing stops in the middle of work on a log."""
        self._core = None
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._messages.close()

    @property
    def _now(self) -> int:
        return self._clock.monotonic_ms()

    # --- what it is told ------------------------------------------------------------------------------------------

    def _on_image(self, changes: Changes, image: Image) -> None:
        if self._core is None:
            return
        self._learn(image)
        for change in changes.topics_changed:
            for number, _, _ in change.partitions:
                self._look_at_replicas((change.new.topic_id, number))

    def _learn(self, image: Image) -> None:
        self._take(ImageLearned(image))

    def has_opened(self, key: Key, log: Log | None) -> bool:
        """Whether this is known to be the log of a partition."""
        return log is not None and self._logs.get(key) is log

    def opened(self, key: Key, log: Log) -> None:
        """This node has the log of a partition."""
        if self.has_opened(key, log):
            return
        self._logs[key] = log
        self.dress(log)
        if self._core is not None and key in self._core.partitions and log.offline_reason is None:
            self._take(LogOpened(key, log))
        self._look_at_replicas(key)

    def closed(self, key: Key, log: Log) -> None:
        """This node no longer has that log of a partition, and will have another one."""
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
        """Gives a log, and the partition that it belongs to, the settings of their topic."""
        dress = self._wardrobe.dress_of(log.identity.topic)
        log.adopt_settings(dress.log)
        partition = self._partitions.of_log(log.identity.number)
        if partition is not None:
            partition.rules = dress.rules
            partition.can_delete = dress.can_delete
            partition.in_sync_min = dress.in_sync_min
            partition.advance()  # what counts as durable may be more than before
        self.synced([log])

    def synced(self, covered: Iterable[Log]) -> None:
        """A round of group commit has covered these logs. One that failed must not hold up what else is fetched."""
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
        """A log is offline: it is neither led nor followed any more."""
        key = self._shared.get(log.identity.number)
        replica = None if self._core is None or key is None else self._core.partitions.get(key)
        if replica is not None and replica.log is not None:
            self._take(LogFailed(replica.key))
            self.on_failed()

    def appended(self, partition: Partition, base_offset: int) -> None:
        """Records were appended to a partition that is led here, from an offset on."""
        if self._core is not None:
            self._carry_out(self._core.appended((partition.topic_id, partition.index), base_offset, self._now))

    def trimmed(self, log: Log) -> None:
        """The start of a log has moved, durably."""
        key = self._shared.get(log.identity.number)
        if key is not None:
            self._take(LogTrimmed(key))

    def await_start(self, partition: Partition) -> None:
        """A deletion waits for the low watermark of a partition."""
        if self._core is not None:
            self._carry_out(self._core.await_start((partition.topic_id, partition.index), self._now))

    def examine(self, follower_id: int, broker_epoch: int, named: Sequence[tuple[Key, Wanted]]) -> list[Verdict]:
        """A follower fetches, and so tells how far it is; whether it can be served."""
        if self._core is None:
            return [NOT_LED for _ in named]
        examined = self._core.on_fetch(follower_id, broker_epoch, named, self._now)
        self._carry_out(examined.effects)
        return examined.verdicts

    def leader(self, key: Key) -> Leader | None:
        """The leadership of a partition, if it is led here."""
        return None if self._core is None else self._core.leader(key)

    def reader_near(self, rack: str, partition: Partition, offset: int) -> int | None:
        """Where a consumer in a rack should read a partition that is led here; None if here (KIP-392)."""
        if self._controller.settings.text("replica.selector.class") == LEADERS_ONLY:
            return None
        leader = self.leader((partition.topic_id, partition.index))
        reader_id = None if leader is None else leader.preferred_reader(rack, offset)
        if reader_id is not None:
            partition.is_read_nearby = True
        return reader_id

    # --- steps ----------------------------------------------------------------------------------------------------

    def _take(self, event: Event) -> None:
        self._events.append(event)
        if not self._is_stepping:
            self._go_on()

    def _go_on(self) -> None:
        self._is_stepping = True
        try:
            while self._events and self._core is not None:
                for effect in self._core.step(self._events.popleft(), self._now):
                    _EFFECTS[type(effect)](self, effect)
        except Exception as error:
            self._broke(error)
            raise
        finally:
            self._is_stepping = False
        self._set_timer()

    def _carry_out(self, effects: list[wanted.Effect]) -> None:
        try:
            for effect in effects:
                _EFFECTS[type(effect)](self, effect)
        except Exception as error:
            self._broke(error)
            raise
        self._set_timer()  # somebody may be late from now on

    def _broke(self, error: BaseException) -> None:
        logger.critical("Replication failed by a mistake of ours: %r.", error, exc_info=error)
        self.on_broken(f"Replication failed by a mistake of ours ({error!r}): start the node again, and report this.")

    def _set_timer(self) -> None:
        if self._core is None:
            return
        wake_at = self._core.wake_at
        if self._timer is not None:
            if self._timer_ms <= wake_at:
                return
            self._timer.cancel()
        wait_ms = min(max(1, wake_at - self._now), TIMER_MS_MAX)
        self._timer_ms = wake_at
        self._timer = asyncio.get_running_loop().call_later(wait_ms / 1000, self._wake)

    def _wake(self) -> None:
        self._timer = None
        if self._core is not None and self._core.wake_at <= self._now:
            self._take(TimePassed())
        else:
            self._set_timer()

    def _begin(self, work: Callable[[Replicas], Work]) -> None:
        """Something that takes time, in this life of the broker."""
        assert self._core is not None
        task = asyncio.get_running_loop().create_task(work(self._core))
        self._tasks[task] = None
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        del self._tasks[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            self._broke(error)

    def _tell(self, core: Replicas, event: Event) -> None:
        if core is self._core:
            self._take(event)

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
            partition.keeper = self  # until it is known that nobody else has a replica
            partition.led_since_ms = self._clock.wall_ms()
            self._partitions.add(partition)
            self.dress(log)
        partition.leader_epoch = epoch
        self._look_at_replicas(key)
        partition.followers.notify()  # those of an earlier epoch are told of this one
        replica = None if self._core is None else self._core.partitions.get(key)
        if replica is not None:
            self.on_led(key, log, replica.partition, effect.start_offset)

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
        """Consumers may read what is followed here, up to what is known to be committed."""
        log = self._logs[key]
        self._partitions.follow(Followed(log.identity.topic, *key, log, epoch))

    def _look_at_replicas(self, key: Key) -> None:
        """Others may have come to have replicas, or to be in sync."""
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
            partition.advance()

    def _show_failed(self, key: Key, log: Log, placed: Placed) -> None:
        """Whoever asks for a log that has failed is told so, for as long as nobody else leads."""
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
        """What was written is due in the next round by itself, or has been since the topic asks for it."""

    def _cut(self, effect: wanted.CutLog) -> None:
        log = self._logs[effect.key]
        if effect.lost:
            logger.warning(
                "%s is cut back to offset %d, %d records that were committed are gone: its leader does not have them.",
                log.path,
                effect.end_offset,
                effect.lost,
            )
        self._begin(lambda core: self._rework(core, effect.key, log, self._truncated(log, effect.end_offset)))

    def _restart(self, effect: wanted.RestartLog) -> None:
        log = self._logs[effect.key]
        self._begin(lambda core: self._rework(core, effect.key, log, self._restarted(log, effect.offset)))

    def _truncated(self, log: Log, end_offset: int) -> Callable[[], Work]:
        return lambda: self._directory.truncate(log, end_offset, now_ms=self._clock.wall_ms())

    def _restarted(self, log: Log, offset: int) -> Callable[[], Work]:
        return lambda: truncation.restart_at(log, self._directory.disk, self._directory.ledger, offset)

    async def _rework(self, core: Replicas, key: Key, log: Log, work: Callable[[], Work]) -> None:
        self._partitions.unfollow(*key)  # nobody reads a log that is being cut
        try:
            async with self._upkeep.lock:
                if core is self._core and self._logs.get(key) is log:
                    await work()
        except (ProtocolError, OSError) as error:
            logger.error("%s could not be cut, and is neither led nor followed any more: %s.", log.path, error)
            self._tell(core, LogFailed(key))
            return
        self._tell(core, LogCut(key))
        replica = core.partitions.get(key)
        if core is self._core and replica is not None and replica.following is not None and not replica.is_cutting:
            self._show(key, replica.following.epoch)

    def _trim(self, effect: wanted.TrimLog) -> None:
        log = self._logs[effect.key]
        if log.identity.number not in self._trimming:
            self._trimming[log.identity.number] = None
            self._begin(lambda core: self._follow_start(core, effect.key, log, effect.start_offset))

    async def _follow_start(self, core: Replicas, key: Key, log: Log, start_offset: int) -> None:
        """What cannot be deleted now is tried again, for as long as this is the partition's log."""
        try:
            while core is self._core and self._logs.get(key) is log and log.offline_reason is None:
                try:
                    await self._upkeep.delete_before(log, start_offset)
                    break
                except OffsetOutOfRange:
                    break  # it was deleted meanwhile by this node's own retention, or the log was cut
                except (ProtocolError, OSError) as error:
                    logger.warning("%s keeps what its leader has deleted, until the next try: %s.", log.path, error)
                if log.offline_reason is not None:
                    self.failed(log)
                    break
                await asyncio.sleep(TRIM_AGAIN_MS / 1000)
        finally:
            del self._trimming[log.identity.number]
        if self._logs.get(key) is log:
            self._take(LogTrimmed(key))  # also if another registration has begun, which may wait for it

    def _reach_start(self, effect: wanted.StartReached) -> None:
        partition = self._partitions.identified(*effect.key)
        if partition is not None:
            partition.on_low_watermark(effect.low_watermark)
        if self._core is not None and (partition is None or not len(partition.starts)):
            self._core.forget_start(effect.key)

    # --- messages -------------------------------------------------------------------------------------------------

    def _fetch(self, effect: wanted.SendFetch) -> None:
        self._begin(lambda core: self._fetched(core, effect))

    async def _fetched(self, core: Replicas, effect: wanted.SendFetch) -> None:
        response = await self._messages.fetch(effect.source, effect.request)
        if response is None:
            self._tell(core, FetchLost(effect.source, effect.number))
        else:
            self._tell(core, FetchAnswered(effect.source, effect.number, response, self._clock.wall_ms()))

    def _change(self, effect: wanted.SendChange) -> None:
        self._begin(lambda core: self._changed(core, effect))

    async def _changed(self, core: Replicas, effect: wanted.SendChange) -> None:
        reply = await self._messages.change(effect.command)
        self._tell(core, ChangeLost(effect.number) if reply is None else ChangeAnswered(effect.number, reply))


def _nobody_asks(_key: Key, _log: Log, _placed: Placed, _start_offset: int) -> None:
    return None


NOT_LED: Final = Verdict(ErrorCode.NOT_LEADER_OR_FOLLOWER)
_EFFECTS: Final[dict[type, Callable[[ReplicaRunner, Any], None]]] = {
    wanted.OpenLog: ReplicaRunner._open,
    wanted.DropLog: ReplicaRunner._drop,
    wanted.Led: ReplicaRunner._lead,
    wanted.Followed: ReplicaRunner._follow,
    wanted.Committed: ReplicaRunner._commit,
    wanted.SyncLog: ReplicaRunner._sync,
    wanted.CutLog: ReplicaRunner._cut,
    wanted.RestartLog: ReplicaRunner._restart,
    wanted.TrimLog: ReplicaRunner._trim,
    wanted.StartReached: ReplicaRunner._reach_start,
    wanted.SendFetch: ReplicaRunner._fetch,
    wanted.SendChange: ReplicaRunner._change,
}
