"""The replicas of one broker as a stepper: events in, effects out, without its own clock, disk or network.

    replicas = Replicas(broker_id, broker_epoch, settings, now)
    effects = replicas.step(event, now)            on every event, and at `replicas.wake_at`
    verdicts, effects = replicas.on_fetch(...)     when a follower fetches
    effects = replicas.appended(key, offset, now)  when records were appended to a partition that is led here
    effects = replicas.await_start(key, now)       when a deletion waits for the low watermark of such a partition

Invariants: a replica leads or follows exactly as the newest committed image of this broker epoch says; it takes on a
role only when no truncation of its log is in progress; a follower is in exactly one fetcher, a leader in none. A
partition costs nothing while nothing happens to it.
"""

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple, assert_never

from penstock.metadata.changes import changes_between
from penstock.metadata.copying import copying
from penstock.metadata.image import BROKER, NO_LEADER, Image, Partition, Topic
from penstock.metadata.index import PartitionEntry
from penstock.metadata.settings.layers import BrokerSettings
from penstock.metadata.view import TopicRules
from penstock.model.errors import ErrorCode
from penstock.model.report import Report
from penstock.replication import reports
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
from penstock.replication.isr_changes import NEVER, Changes
from penstock.replication.leader import UNKNOWN_START, Asked, Leader, Neighbours, Verdict
from penstock.replication.ports import Key, ReplicaLog
from penstock.replication.settings import LOOKS_PER_STEP_MAX, PLACED_AT_ONCE, ReplicationSettings
from penstock.replication.throttle import Throttle


class Replica:
    """One partition of which this broker has a replica, and the replica's role."""

    __slots__ = ("following", "key", "leader", "log", "partition", "topic")

    def __init__(self, key: Key, topic: str, partition: Partition) -> None:
        self.key = key
        self.topic = topic
        self.partition = partition
        """The partition as of the metadata log."""
        self.log: ReplicaLog | None = None
        """None until it is opened, and after it has failed."""
        self.leader: Leader | None = None
        self.following: Following | None = None

    @property
    def name(self) -> str:
        """The partition's name in reports."""
        return f"{self.topic}-{self.key[1]}"

    @property
    def is_cutting(self) -> bool:
        """Whether a truncation is in progress, so that the log does not have its new end yet."""
        return self.following is not None and self.following.pace is Pace.CUTTING


class Examined(NamedTuple):
    """Whether each partition of a fetch can be served, and the effects."""

    verdicts: list[Verdict]
    effects: list[Effect]


class Replicas:
    """All replicas of a broker, under one broker epoch."""

    def __init__(
        self,
        broker_id: int,
        broker_epoch: int,
        settings: BrokerSettings,
        now: int,
        placed_at_once: int = PLACED_AT_ONCE,
    ) -> None:
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch
        self._placed_at_once = placed_at_once
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
        self._unplaced: deque[Key] = deque()
        """Partitions of the image that are new on this broker and wait for their turn."""
        self._place_at_ms = NEVER
        self._arriving: dict[Key, None] = {}
        self._behind: dict[Key, None] = {}
        """Led partitions where an in-sync replica may be behind: the only ones where a replica can be late."""
        self._short: dict[Key, None] = {}
        """Led partitions with an incomplete ISR or in recovery: the only ones where a replica can join."""
        self._starts_awaited: dict[Key, None] = {}
        """Led partitions where a deletion waits for the low watermark."""
        self._looking: deque[Key] = deque()
        self._look_at_ms = now
        self._unpark_at_ms = NEVER
        self._fetch_at_ms: dict[int, int] = {}
        """When the next action of each fetcher is due; only steps change it."""

    # --- interface ------------------------------------------------------------------------------------------------

    @property
    def image(self) -> Image:
        """The newest image that was applied."""
        return self._image

    @property
    def wake_at(self) -> int:
        """When `TimePassed` is due."""
        wake_at = min(self._changes.wake_at, self._unpark_at_ms, self._place_at_ms)
        if self._behind or self._looking:
            wake_at = min(wake_at, self._look_at_ms)
        return min(wake_at, min(self._fetch_at_ms.values(), default=NEVER))

    def step(self, event: Event, now: int) -> list[Effect]:
        """Handles an event and returns its effects."""
        match event:
            case FetchAnswered():
                self._on_fetch_answered(event, now)
            case LogsSynced():
                self._on_logs_synced(event, now)
            case TimePassed():
                self._on_time_passed(now)
            case ImageLearned():
                self._on_image(event, now)
            case LogOpened():
                self._on_log_opened(event, now)
            case LogFailed():
                self._on_log_failed(event)
            case LogCut():
                self._on_log_cut(event, now)
            case LogTrimmed():
                self._on_log_trimmed(event, now)
            case FetchLost():
                self._on_fetch_lost(event, now)
            case ChangeAnswered():
                self._on_change_answered(event, now)
            case ChangeLost():
                self._on_change_lost(event, now)
            case _:
                assert_never(event)
        self._note_when_fetchers_wake(event)
        return self._taken_effects(now)

    def _note_when_fetchers_wake(self, event: Event) -> None:
        if isinstance(event, (FetchAnswered, FetchLost)) and not self._arriving:
            self._fetch_at_ms[event.source] = self.fetchers[event.source].wake_at
        else:  # the event may have affected all of them
            for source, fetcher in self.fetchers.items():
                self._fetch_at_ms[source] = fetcher.wake_at

    def on_fetch(self, follower_id: int, broker_epoch: int, named: Iterable[tuple[Key, Asked]], now: int) -> Examined:
        """Handles a follower's fetch. Partitions that an incremental request does not name are unchanged."""
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
                self._propose(key, leader)
            self._advance(key, leader, now)
            if self._starts_awaited:
                self._look_at_start(key, leader)
        return verdict

    def appended(self, key: Key, base_offset: int, now: int) -> list[Effect]:
        """Handles an append from an offset on to a partition that is led here."""
        leader = self.leader(key)
        assert leader is not None
        leader.appended(base_offset)
        self._watch(key, leader, now)
        self._advance(key, leader, now)
        return self._taken_effects(now)

    def await_start(self, key: Key, now: int) -> list[Effect]:
        """Makes `StartReached` report the low watermark of a partition that is led here, for a waiting deletion."""
        leader = self.leader(key)
        if leader is not None:
            self._starts_awaited[key] = None
            leader.low_watermark_told = UNKNOWN_START
            self._look_at_start(key, leader)
        return self._taken_effects(now)

    def forget_start(self, key: Key) -> None:
        """Ends the reports of `StartReached`: no deletion waits any more."""
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

    def _propose(self, key: Key, leader: Leader) -> None:
        """Queues a leader's proposal for the controller, and reports it."""
        self._changes.add(key)
        assert leader.proposal is not None
        proposed = [each for each, _ in leader.proposal.isr]
        late = [each for each in leader.isr if each not in proposed]
        caught_up = [each for each in proposed if each not in leader.isr]
        name, isr = self.partitions[key].name, ", ".join(map(str, proposed))
        if late:
            lag_ms = self._settings.lag_time_max_ms
            report = reports.LATE(late=", ".join(map(str, late)), partition=name, lag_ms=lag_ms, isr=isr)
            self._effects.append(report)
        elif caught_up:
            self._effects.append(reports.CAUGHT_UP(caught_up=", ".join(map(str, caught_up)), partition=name, isr=isr))

    def _advance(self, key: Key, leader: Leader, now: int) -> None:
        if leader.advance(now):
            self._effects.append(Committed(key))

    # --- metadata -------------------------------------------------------------------------------------------------

    def _on_image(self, event: ImageLearned, now: int) -> None:
        image = event.image
        own = image.brokers.get(self.broker_id)
        if own is None or own.epoch != self.broker_epoch:
            return  # from before this broker epoch: the broker may have lost what it led in this image
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
        self._place_new(now)
        if has_new_rules:  # after placing: a lower minimum must not affect a former leader
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
        """Applies a possibly changed min.insync.replicas of topics to their leaders."""
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
        """Reconsiders ISRs after broker changes: unfenced brokers may be in sync now without another fetch."""
        for key in list(self._short):
            leader = self.leader(key)
            if leader is not None:
                if leader.grow(now):
                    self._propose(key, leader)
                self._advance(key, leader, now)  # brokers that went are not waited for
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
        elif replica is None:
            self._unplaced.append(key)
        else:
            replica.partition = partition
            self._note_whether_it_arrives(replica)
            self._take_role(replica, now)

    def _place_new(self, now: int) -> None:
        """Places some of the new partitions; until its log is open a replica has no role."""
        for _ in range(min(self._placed_at_once, len(self._unplaced))):
            key = self._unplaced.popleft()
            topic = self._image.topic_by_id(key[0])
            partition = None if topic is None else topic.partitions.get(key[1])
            if topic is None or partition is None or self.broker_id not in partition.replicas or key in self.partitions:
                continue  # it has changed since
            replica = self.partitions[key] = Replica(key, topic.name, partition)
            self._effects.append(OpenLog(key, topic.name))
            self._note_whether_it_arrives(replica)
        self._place_at_ms = now + 1 if self._unplaced else NEVER

    def _note_whether_it_arrives(self, replica: Replica) -> None:
        partition = replica.partition
        if self.broker_id in partition.adding_replicas and self.broker_id not in partition.isr:
            self._arriving[replica.key] = None
        else:
            self._arriving.pop(replica.key, None)

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
        """Leads or follows as the metadata log says."""
        partition = replica.partition
        if replica.log is None or replica.is_cutting:
            self._unlead(replica)
            return
        if partition.leader == self.broker_id:
            self._lead(replica, replica.log, now)
        elif partition.leader == NO_LEADER:
            self._stop(replica, reports.STOPPED(partition=replica.name, epoch=partition.leader_epoch))
        else:
            self._follow(replica, replica.log)

    def _lead(self, replica: Replica, log: ReplicaLog, now: int) -> None:
        key, partition, leader = replica.key, replica.partition, replica.leader
        in_sync_min = self._in_sync_min(replica)
        if leader is None or leader.epoch != partition.leader_epoch:
            self._unfollow(replica)
            leader = replica.leader = Leader(self._me, key, log, partition, in_sync_min, self._neighbours, now)
            epoch, start_offset = leader.epoch, leader.start_offset
            self._effects.append(reports.LEADS(partition=replica.name, epoch=epoch, start_offset=start_offset))
            self._effects.append(Led(key, epoch, start_offset))
            self._watch(key, leader, now)
        else:
            leader.learn(partition, in_sync_min)
        if leader.is_short:
            self._short[key] = None
            if leader.grow(now):
                self._propose(key, leader)
        else:
            self._short.pop(key, None)
        self._advance(key, leader, now)
        self._look_at_start(key, leader)

    def _follow(self, replica: Replica, log: ReplicaLog) -> None:
        key, partition, following = replica.key, replica.partition, replica.following
        if following is None or (following.epoch, following.source) != (partition.leader_epoch, partition.leader):
            self._unfollow(replica)
            self._unlead(replica)
            leader_id, epoch = partition.leader, partition.leader_epoch
            following = replica.following = Following(key, replica.name, log, leader_id, epoch)
            following.is_parked = key in self._arriving  # until it is its turn
            self._fetcher(partition.leader).add(following)
            self._effects.append(reports.FOLLOWS(leader=leader_id, partition=replica.name, epoch=epoch))
            self._effects.append(Followed(key, leader_id, epoch))
        following.is_arriving = key in self._arriving
        if not following.is_arriving:
            self._fetcher(following.source).park(key, is_parked=False)

    def _stop(self, replica: Replica, report: Report) -> None:
        was_followed = replica.following is not None or replica.leader is not None
        self._unfollow(replica)
        self._unlead(replica)
        if was_followed:
            self._effects += [report, Followed(replica.key, NO_LEADER, replica.partition.leader_epoch)]

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

    def _on_log_failed(self, event: LogFailed) -> None:
        replica = self.partitions.get(event.key)
        if replica is not None:
            self._stop(replica, reports.LOG_FAILED(partition=replica.name, epoch=replica.partition.leader_epoch))
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
        self._take_role(replica, now)  # which may have changed meanwhile
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

    # --- responses ------------------------------------------------------------------------------------------------

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

    def _on_time_passed(self, now: int) -> None:
        if self._place_at_ms <= now:
            self._place_new(now)
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
        """Checks for late followers, some partitions at a time."""
        if not self._looking:
            self._looking.extend(self._behind)
        for _ in range(min(LOOKS_PER_STEP_MAX, len(self._looking))):
            key = self._looking.popleft()
            leader = self.leader(key)
            if leader is None or leader.is_followed():
                self._behind.pop(key, None)
            elif leader.shrink(now):
                self._propose(key, leader)
            if leader is not None:
                self._advance(key, leader, now)  # a replica that was waited for may be late
        self._look_at_ms = now + (1 if self._looking else self._settings.lag_time_max_ms // 2)

    def _park(self, now: int) -> None:
        """Selects the replicas being moved here that may be copied now, within the throttle."""
        self._unpark_at_ms = NEVER
        if not self._arriving:
            return
        topics = self._image.topic_by_id
        own = [
            PartitionEntry(topic, key[1], self.partitions[key].partition)
            for key in sorted(self._arriving)
            if (topic := topics(key[0])) is not None
        ]
        turn = {
            (entry.topic.topic_id, entry.number)
            for entry in copying(self.broker_id, own, self._broker_settings).partitions
        }
        opens_at = self._throttle.opens_at(now)
        if opens_at > now:
            self._unpark_at_ms = opens_at
        for key in self._arriving:
            following = self.partitions[key].following
            if following is not None:
                self.fetchers[following.source].park(key, is_parked=opens_at > now or key not in turn)
