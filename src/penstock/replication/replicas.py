"""The replicas of one broker as a stepper: events in, effects out. No clock, no disk, no network of its own.

    replicas = Replicas(broker_id, broker_epoch, settings, now)
    effects = replicas.step(event, now)            whenever something happens, and at `replicas.wake_at`
    verdicts, effects = replicas.on_fetch(...)     when a follower fetches
    effects = replicas.appended(key, offset, now)  when records were appended to a partition that is led here
    effects = replicas.await_start(key, now)       when a deletion waits for the low watermark of such a partition

Invariants: a replica leads or follows exactly as the newest committed image says, in its newest life; it takes on a
role only when no cut of its log is under way; a follower is in exactly one fetcher, a leader in none. Nothing here
costs anything per partition while nothing happens to it.
"""

from collections import deque
from collections.abc import Iterable
from typing import Final, NamedTuple

from penstock.metadata.changes import changes_between
from penstock.metadata.copying import copying
from penstock.metadata.image import BROKER, NO_LEADER, Image, Partition, Topic
from penstock.metadata.index import Placed
from penstock.metadata.settings.layers import BrokerSettings
from penstock.metadata.view import TopicRules
from penstock.model.errors import ErrorCode
from penstock.replication.changes import NEVER, Changes
from penstock.replication.effects import Committed, DropLog, Effect, Followed, Led, OpenLog, StartReached
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
from penstock.replication.fetcher import Fetcher
from penstock.replication.follower import Following, Pace
from penstock.replication.leader import UNKNOWN_START, Asked, Leader, Neighbours, Verdict
from penstock.replication.ports import Key, ReplicaLog
from penstock.replication.settings import LOOKS_PER_STEP_MAX, ReplicationSettings
from penstock.replication.throttle import Throttle


class Replica:
    """One partition of which this broker has a replica, and what it is to it."""

    __slots__ = ("following", "key", "leader", "log", "partition", "topic")

    def __init__(self, key: Key, topic: str, partition: Partition) -> None:
        self.key = key
        self.topic = topic
        self.partition = partition
        """As the metadata log has it."""
        self.log: ReplicaLog | None = None
        """None until it is opened, and once it has failed."""
        self.leader: Leader | None = None
        self.following: Following | None = None

    @property
    def is_cutting(self) -> bool:
        """Whether a cut is under way: where the log will end is not yet where it ends now."""
        return self.following is not None and self.following.pace is Pace.CUTTING


class Examined(NamedTuple):
    """Whether each partition of a fetch can be served, and what is to be done."""

    verdicts: list[Verdict]
    effects: list[Effect]


class Replicas:
    """All partitions of a broker, in the life that has this broker epoch."""

    def __init__(self, broker_id: int, broker_epoch: int, settings: BrokerSettings, now: int) -> None:
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch
        self._me = (broker_id, broker_epoch)
        self._effects: list[Effect] = []
        self._image = Image()
        self._broker_settings = settings
        self._rules = TopicRules(self._image, settings)
        self._settings = ReplicationSettings.of(settings)
        self._neighbours = Neighbours(self._settings.lag_time_max_ms)
        self._throttle = Throttle(settings.number("reassignment.bytes.per.second.max"), now)
        self._changes = Changes(self._me, self._settings, self.leader, self._effects)
        self.partitions: dict[Key, Replica] = {}
        self.fetchers: dict[int, Fetcher] = {}
        self._arriving: dict[Key, None] = {}
        self._behind: dict[Key, None] = {}
        """Led partitions where somebody in sync may be behind: the only ones where somebody can be late."""
        self._short: dict[Key, None] = {}
        """Led partitions where not everybody is in sync: the only ones where somebody can join."""
        self._starts_awaited: dict[Key, None] = {}
        """Led partitions where a deletion waits for the low watermark."""
        self._looking: deque[Key] = deque()
        self._look_at_ms = now
        self._unpark_at_ms = NEVER
        self._fetch_at_ms: dict[int, int] = {}
        """When something is due in each fetcher: only steps change that."""

    # --- the outside ----------------------------------------------------------------------------------------------

    @property
    def image(self) -> Image:
        """The newest image that was taken in."""
        return self._image

    @property
    def wake_at(self) -> int:
        """When `TimePassed` is due."""
        wake_at = min(self._changes.wake_at, self._unpark_at_ms)
        if self._behind or self._looking:
            wake_at = min(wake_at, self._look_at_ms)
        return min(wake_at, min(self._fetch_at_ms.values(), default=NEVER))

    def step(self, event: Event, now: int) -> list[Effect]:
        """What is to be done about an event."""
        getattr(self, _STEPS[type(event)])(event, now)
        self._note_when_fetchers_wake(event)
        return self._taken_effects(now)

    def _note_when_fetchers_wake(self, event: Event) -> None:
        if isinstance(event, (FetchAnswered, FetchLost)) and not self._arriving:
            self._fetch_at_ms[event.source] = self.fetchers[event.source].wake_at
        else:  # it may have gone to all of them
            for source, fetcher in self.fetchers.items():
                self._fetch_at_ms[source] = fetcher.wake_at

    def on_fetch(self, follower_id: int, broker_epoch: int, named: Iterable[tuple[Key, Asked]], now: int) -> Examined:
        """A follower fetches. What an incremental request does not name is as it was."""
        broker = self._image.brokers.get(follower_id)
        if broker is not None and broker.epoch == broker_epoch:
            self._neighbours.heard_ms[follower_id] = now
        verdicts = [self._fetched(key, follower_id, broker_epoch, asked, now) for key, asked in named]
        return Examined(verdicts, self._taken_effects(now))

    def _fetched(self, key: Key, follower_id: int, broker_epoch: int, asked: Asked, now: int) -> Verdict:
        leader = self.leader(key)
        if leader is None:
            return Verdict(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        verdict = leader.on_fetch(follower_id, broker_epoch, asked, now)
        if verdict.fits:
            if leader.grow(now):
                self._changes.add(key)
            self._advance(key, leader, now)
            if self._starts_awaited:
                self._look_at_start(key, leader)
        return verdict

    def appended(self, key: Key, base_offset: int, now: int) -> list[Effect]:
        """Records were appended from an offset on to a partition that is led here."""
        leader = self.leader(key)
        assert leader is not None
        leader.appended(base_offset)
        self._watch(key, leader, now)
        self._advance(key, leader, now)
        return self._taken_effects(now)

    def await_start(self, key: Key, now: int) -> list[Effect]:
        """A deletion waits for the low watermark of a partition that is led here, which `StartReached` reports."""
        leader = self.leader(key)
        if leader is not None:
            self._starts_awaited[key] = None
            leader.low_watermark_told = UNKNOWN_START
            self._look_at_start(key, leader)
        return self._taken_effects(now)

    def forget_start(self, key: Key) -> None:
        """No deletion waits any more."""
        self._starts_awaited.pop(key, None)

    def _look_at_start(self, key: Key, leader: Leader) -> None:
        if key not in self._starts_awaited:
            return
        low_watermark = leader.settle_start()
        if low_watermark != leader.low_watermark_told:
            leader.low_watermark_told = low_watermark
            self._effects.append(StartReached(key, low_watermark))

    def leader(self, key: Key) -> Leader | None:
        """The leadership of a partition, if it is led here."""
        replica = self.partitions.get(key)
        return None if replica is None else replica.leader

    def _taken_effects(self, now: int) -> list[Effect]:
        self._changes.go_on(now)
        effects = self._effects[:]
        self._effects.clear()
        return effects

    def _fetch_on(self, now: int) -> None:
        for fetcher in self.fetchers.values():
            fetcher.go_on(now)

    def _advance(self, key: Key, leader: Leader, now: int) -> None:
        if leader.advance(now):
            self._effects.append(Committed(key))

    # --- metadata -------------------------------------------------------------------------------------------------

    def _on_image(self, event: ImageLearned, now: int) -> None:
        image = event.image
        own = image.brokers.get(self.broker_id)
        if own is None or own.epoch != self.broker_epoch:
            return  # from before this life: it may say that this broker leads what it has lost since
        before, self._image = self._image, image
        self._neighbours.brokers = image.brokers
        changes = changes_between(before, image)
        if changes.has_new_broker_settings:
            self._take_settings(image, now)
        has_new_rules = not self._rules.are_of(image, self._broker_settings)
        if has_new_rules:
            self._rules = TopicRules(image, self._broker_settings)
        for topic in changes.topics_deleted:
            for number in topic.partitions:
                self._drop((topic.topic_id, number))
        for topic in changes.topics_created:
            for number, partition in topic.partitions.items():
                self._place(topic, number, partition, now)
        for change in changes.topics_changed:
            for number, _, partition in change.partitions:
                self._place(change.new, number, partition, now)
        if has_new_rules:  # after that: a lower minimum is nothing to one that no longer leads
            is_for_all = changes.has_new_broker_settings or bool(changes.features)
            self._relearn(tuple(image.topics) if is_for_all else changes.topics_with_new_settings, now)
        if changes.brokers:
            self._reconsider(now)
        self._park(now)
        self._fetch_on(now)

    def _take_settings(self, image: Image, now: int) -> None:
        default, own = image.config(BROKER, ""), image.config(BROKER, str(self.broker_id))
        self._broker_settings = self._broker_settings.with_dynamic(default, own)
        self._settings = settings = ReplicationSettings.of(self._broker_settings)
        self._neighbours.lag_time_max_ms = settings.lag_time_max_ms
        self._changes.settings = settings
        for fetcher in self.fetchers.values():
            fetcher.settings = settings
        self._throttle.set_rate(self._broker_settings.number("reassignment.bytes.per.second.max"), now)

    def _relearn(self, topics: Iterable[str], now: int) -> None:
        """These may ask for another number in sync."""
        for name in topics:
            topic = self._image.topics.get(name)
            if topic is None:
                continue
            for number in topic.partitions:
                key = (topic.topic_id, number)
                replica = self.partitions.get(key)
                if replica is not None and replica.leader is not None:
                    replica.leader.learn(replica.partition, self._in_sync_min(replica))
                    self._advance(key, replica.leader, now)

    def _in_sync_min(self, replica: Replica) -> int:
        return self._rules(replica.topic).in_sync_min

    def _reconsider(self, now: int) -> None:
        """Brokers came, or are no longer fenced: they may be in sync now without fetching anything more."""
        for key in list(self._short):
            leader = self.leader(key)
            if leader is not None:
                if leader.grow(now):
                    self._changes.add(key)
                self._advance(key, leader, now)  # or they went, and need not be waited for
        for key in list(self._starts_awaited):
            leader = self.leader(key)
            if leader is not None:
                self._look_at_start(key, leader)

    def _place(self, topic: Topic, number: int, partition: Partition, now: int) -> None:
        key = (topic.topic_id, number)
        replica = self.partitions.get(key)
        if self.broker_id not in partition.replicas:
            if replica is not None:
                self._drop(key)
            return
        if replica is None:
            replica = self.partitions[key] = Replica(key, topic.name, partition)
            self._effects.append(OpenLog(key, topic.name))
        replica.partition = partition
        if self.broker_id in partition.adding_replicas and self.broker_id not in partition.isr:
            self._arriving[key] = None
        else:
            self._arriving.pop(key, None)
        self._take_role(replica, now)

    def _drop(self, key: Key) -> None:
        replica = self.partitions.pop(key, None)
        if replica is None:
            return
        self._unfollow(replica)
        self._unlead(replica)
        self._arriving.pop(key, None)
        self._effects.append(DropLog(key))

    # --- roles ----------------------------------------------------------------------------------------------------

    def _take_role(self, replica: Replica, now: int) -> None:
        """Leads or follows as the metadata log has it."""
        partition = replica.partition
        if replica.log is None or replica.is_cutting:
            self._unlead(replica)
            return
        if partition.leader == self.broker_id:
            self._lead(replica, replica.log, now)
        elif partition.leader == NO_LEADER:
            self._stop(replica)
        else:
            self._follow(replica, replica.log)

    def _lead(self, replica: Replica, log: ReplicaLog, now: int) -> None:
        key, partition, leader = replica.key, replica.partition, replica.leader
        in_sync_min = self._in_sync_min(replica)
        if leader is None or leader.epoch != partition.leader_epoch:
            self._unfollow(replica)
            leader = replica.leader = Leader(self._me, key, log, partition, in_sync_min, self._neighbours, now)
            self._effects.append(Led(key, leader.epoch, leader.start_offset))
            self._watch(key, leader, now)
        else:
            leader.learn(partition, in_sync_min)
        if leader.is_short:
            self._short[key] = None
            if leader.grow(now):
                self._changes.add(key)
        else:
            self._short.pop(key, None)
        self._advance(key, leader, now)
        self._look_at_start(key, leader)

    def _follow(self, replica: Replica, log: ReplicaLog) -> None:
        key, partition, following = replica.key, replica.partition, replica.following
        if following is None or (following.epoch, following.source) != (partition.leader_epoch, partition.leader):
            self._unfollow(replica)
            self._unlead(replica)
            following = replica.following = Following(key, log, partition.leader, partition.leader_epoch)
            following.is_parked = key in self._arriving  # until it is its turn
            self._fetcher(partition.leader).add(following)
            self._effects.append(Followed(key, partition.leader, partition.leader_epoch))
        following.is_arriving = key in self._arriving
        if not following.is_arriving:
            self._fetcher(following.source).park(key, is_parked=False)

    def _stop(self, replica: Replica) -> None:
        was_followed = replica.following is not None or replica.leader is not None
        self._unfollow(replica)
        self._unlead(replica)
        if was_followed:
            self._effects.append(Followed(replica.key, NO_LEADER, replica.partition.leader_epoch))

    def _fetcher(self, source: int) -> Fetcher:
        fetcher = self.fetchers.get(source)
        if fetcher is None:
            fetcher = Fetcher(self._me, source, self._settings, self._throttle, self._effects)
            self.fetchers[source] = fetcher
        return fetcher

    def _unfollow(self, replica: Replica) -> None:
        following = replica.following
        if following is not None:
            replica.following = None
            self.fetchers[following.source].remove(replica.key)

    def _unlead(self, replica: Replica) -> None:
        replica.leader = None
        self._behind.pop(replica.key, None)
        self._short.pop(replica.key, None)
        self._starts_awaited.pop(replica.key, None)

    # --- logs -----------------------------------------------------------------------------------------------------

    def _on_log_opened(self, event: LogOpened, now: int) -> None:
        replica = self.partitions.get(event.key)
        if replica is not None:
            replica.log = event.log
            self._take_role(replica, now)
            if event.key in self._arriving:
                self._park(now)
            if replica.following is not None:
                self.fetchers[replica.following.source].go_on(now)

    def _on_log_failed(self, event: LogFailed, _now: int) -> None:
        replica = self.partitions.get(event.key)
        if replica is not None:
            self._stop(replica)
            replica.log = None

    def _on_logs_synced(self, event: LogsSynced, now: int) -> None:
        for key in event.keys:
            replica = self.partitions.get(key)
            if replica is None:
                continue
            if replica.leader is not None:
                self._advance(key, replica.leader, now)
            elif replica.following is not None:
                fetcher = self.fetchers[replica.following.source]
                fetcher.on_synced(key)
                fetcher.go_on(now)

    def _on_log_cut(self, event: LogCut, now: int) -> None:
        replica = self.partitions.get(event.key)
        if replica is None or replica.following is None:
            return
        self.fetchers[replica.following.source].on_cut(event.key)
        self._take_role(replica, now)  # what came meanwhile
        self._fetch_on(now)

    def _on_log_trimmed(self, event: LogTrimmed, now: int) -> None:
        replica = self.partitions.get(event.key)
        if replica is None:
            return
        if replica.leader is not None:
            self._look_at_start(event.key, replica.leader)
        elif replica.following is not None:
            fetcher = self.fetchers[replica.following.source]
            fetcher.on_trimmed(event.key)
            fetcher.go_on(now)

    # --- answers --------------------------------------------------------------------------------------------------

    def _on_fetch_answered(self, event: FetchAnswered, now: int) -> None:
        fetcher = self.fetchers[event.source]
        fetcher.on_answer(event, now)
        if self._arriving:
            self._park(now)
        fetcher.go_on(now)

    def _on_fetch_lost(self, event: FetchLost, now: int) -> None:
        self.fetchers[event.source].on_lost(event.number, now)

    def _on_change_answered(self, event: ChangeAnswered, now: int) -> None:
        self._changes.on_answer(event.number, event.reply, now)

    def _on_change_lost(self, event: ChangeLost, now: int) -> None:
        self._changes.on_lost(event.number, now)

    # --- time -----------------------------------------------------------------------------------------------------

    def _on_time_passed(self, _event: TimePassed, now: int) -> None:
        if self._unpark_at_ms <= now:
            self._park(now)
        if now >= self._look_at_ms:
            self._look(now)
        self._fetch_on(now)

    def _watch(self, key: Key, leader: Leader, now: int) -> None:
        if len(leader.replicas) == 1:
            return
        if not self._behind and not self._looking:
            self._look_at_ms = max(self._look_at_ms, now + self._settings.lag_time_max_ms // 2)
        self._behind[key] = None

    def _look(self, now: int) -> None:
        """Looks for followers that are late, at some partitions at a time."""
        if not self._looking:
            self._looking.extend(self._behind)
        for _ in range(min(LOOKS_PER_STEP_MAX, len(self._looking))):
            key = self._looking.popleft()
            leader = self.leader(key)
            if leader is None or leader.is_followed():
                self._behind.pop(key, None)
            elif leader.shrink(now):
                self._changes.add(key)
            if leader is not None:
                self._advance(key, leader, now)  # one that was waited for may be late
        self._look_at_ms = now + (1 if self._looking else self._settings.lag_time_max_ms // 2)

    def _park(self, now: int) -> None:
        """Of the replicas that are being moved here, lets some be copied, and only as fast as is allowed."""
        self._unpark_at_ms = NEVER
        if not self._arriving:
            return
        topics = self._image.topic_by_id
        own = [
            Placed(topic, key[1], self.partitions[key].partition)
            for key in sorted(self._arriving)
            if (topic := topics(key[0])) is not None
        ]
        turn = {
            (placed.topic.topic_id, placed.number)
            for placed in copying(self.broker_id, own, self._broker_settings).partitions
        }
        opens_at = self._throttle.opens_at(now)
        if opens_at > now:
            self._unpark_at_ms = opens_at
        for key in self._arriving:
            following = self.partitions[key].following
            if following is not None:
                self.fetchers[following.source].park(key, is_parked=opens_at > now or key not in turn)


_STEPS: Final[dict[type, str]] = {
    TimePassed: "_on_time_passed",
    ImageLearned: "_on_image",
    LogOpened: "_on_log_opened",
    LogFailed: "_on_log_failed",
    LogsSynced: "_on_logs_synced",
    LogCut: "_on_log_cut",
    LogTrimmed: "_on_log_trimmed",
    FetchAnswered: "_on_fetch_answered",
    FetchLost: "_on_fetch_lost",
    ChangeAnswered: "_on_change_answered",
    ChangeLost: "_on_change_lost",
}
