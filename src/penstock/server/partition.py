"""A partition that this node leads or follows: its log, who waits on it, and what each kind of reader may see.

With one replica the high watermark is the durable end: consumers never see what a power cut could take back. With
several it is what all have that are in sync, which `keeper` knows.
"""

from typing import Final, Protocol

from penstock.log.log import Appended, Log
from penstock.metadata.names import INTERNAL_TOPICS
from penstock.model.errors import ErrorCode, ProtocolError, StorageError
from penstock.records.check import DEFAULT_RULES, Rules
from penstock.server.followers import Followers
from penstock.server.traffic import TopicTraffic
from penstock.server.waiters import OffsetWaiters, Watchers

SETTLING_MS: Final = 60_000
"""Longer than producers wait for an answer by default."""


class NotLeader(ProtocolError):
    """The partition was led here when the wait began, and no longer is."""

    code = ErrorCode.NOT_LEADER_OR_FOLLOWER


class Deleted(ProtocolError):
    """The topic was there when the wait began, and no longer is."""

    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class Keeper(Protocol):
    """Who moves the high watermark of partitions that others have replicas of."""

    def appended(self, partition: "Partition", base_offset: int) -> None:
        """Records were appended from an offset on."""

    def failed(self, log: Log) -> None:
        """A log is offline: nobody can go on with it here."""

    def await_start(self, partition: "Partition") -> None:
        """Reports the partition's low watermark to `Partition.on_low_watermark`, now and whenever it moves."""


class Readable:
    """One partition that consumers may read here, up to its high watermark, in one leader epoch."""

    def __init__(self, topic: str, topic_id: bytes, index: int, log: Log, leader_epoch: int) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log = log
        self.leader_epoch = leader_epoch
        self.is_retired = False
        self.traffic = TopicTraffic()
        """That of its topic, once it is registered."""
        self.watchers = Watchers()
        """Consumers' fetches that wait for something to read."""

    def on_committed(self) -> None:
        """The high watermark has moved: wakes whoever waited for that."""
        if self.watchers.watching:
            self.watchers.notify()


class Followed(Readable):
    """One partition that another node leads, and of which this one has a copy."""

    def retire(self) -> None:
        """This node follows it no longer, or in another epoch: whoever waits looks again."""
        self.is_retired = True
        self.watchers.notify()


class Partition(Readable):
    """One led partition."""

    def __init__(
        self, topic: str, topic_id: bytes, index: int, log: Log, leader_epoch: int, rules: Rules = DEFAULT_RULES
    ) -> None:
        super().__init__(topic, topic_id, index, log, leader_epoch)
        self.is_internal = topic in INTERNAL_TOPICS
        """Whether only coordinators write to it."""
        self.rules = rules
        """What the topic asks of a batch."""
        self.can_delete = True
        """Whether records may be deleted from the front: False where the clean-up policy is compaction alone."""
        self.in_sync_count = 1
        """How many replicas are in sync, this one included."""
        self.in_sync_min = 1
        """How many must be for acks=all (Kafka: min.insync.replicas)."""
        self.keeper: Keeper | None = None
        """None where nobody else has a replica."""
        self.led_since_ms = 0
        """When it was, by the wall clock, that others may have led it."""
        self.retirement: ProtocolError | None = None
        """Why it is led here no longer."""
        self.durable = OffsetWaiters()
        """Producers that wait for this node's own durable end (acks=1)."""
        self.committed = OffsetWaiters()
        """Producers that wait for the high watermark (acks=all)."""
        self.starts = OffsetWaiters()
        """Deletions of records that wait for the low watermark."""
        self.low_watermark = -1
        """The lowest log start of all replicas that count, when it was last reported."""
        self.followers = Followers()
        """Followers' fetches, which may read what is not committed."""
        self.given: dict[int, int] = {}
        """The offset from which each follower was given records last."""
        self.given_again: dict[int, int] = {}
        """How often each was given them again."""
        self.is_read_nearby = False
        """Whether consumers were sent to followers, who are told of a new high watermark at once then."""

    def __repr__(self) -> str:
        return f"<partition {self.topic}-{self.index}, epoch {self.leader_epoch}>"

    @property
    def has_enough_in_sync(self) -> bool:
        """Whether acks=all may be promised."""
        return self.in_sync_count >= self.in_sync_min

    def is_settling(self, now_ms: int) -> bool:
        """Whether what was sent to the last leader may still be on its way to it."""
        return self.keeper is not None and now_ms - self.led_since_ms < SETTLING_MS

    def append(self, data: bytearray | memoryview, *, now_ms: int, rules: Rules) -> Appended:
        """Takes a producer's batch. It is acknowledged when the high watermark has passed it."""
        try:
            appended = self.log.append(data, leader_epoch=self.leader_epoch, now_ms=now_ms, rules=rules)
        except StorageError:
            self.advance()  # if that has taken the log offline, nobody waits in vain
            if self.keeper is not None and self.log.offline_reason is not None:
                self.keeper.failed(self.log)
            raise
        traffic = self.traffic
        traffic.produces += 1
        if not appended.is_duplicate:
            traffic.bytes_in += len(data)
            traffic.messages_in += appended.last_offset + 1 - appended.base_offset
        if self.keeper is not None and not appended.is_duplicate:
            self.keeper.appended(self, appended.base_offset)
            self.followers.notify()
        self.advance()
        return appended

    def advance(self) -> None:
        """Wakes whoever waited for what is durable now; where nobody else has a replica, that is committed."""
        log = self.log
        if log.offline_reason is not None:
            self._fail(StorageError(f"{log.path} is offline: {log.offline_reason}"))
            return
        durable_end = log.durable_end
        if self.durable.heap:
            self.durable.reached(durable_end)
        if self.keeper is None and durable_end > log.high_watermark:
            log.advance_high_watermark(durable_end)
            self.on_committed()

    def on_committed(self) -> None:
        """The high watermark has moved: wakes whoever waited for that."""
        if self.committed.heap:
            self.committed.reached(self.log.high_watermark)
        if self.watchers.watching:
            self.watchers.notify()
        if self.followers.standing:
            self.followers.mark(wakes=self.is_read_nearby)

    def on_trimmed(self, *, wakes: bool) -> None:
        """The log start has moved, which the next answer to a follower reports; `wakes` if a deletion waits for it."""
        if wakes:
            self.followers.notify()
        else:
            self.followers.mark()

    def on_low_watermark(self, low_watermark: int) -> None:
        """The log start has reached all replicas that count: wakes the deletions that waited for it."""
        self.low_watermark = low_watermark
        self.starts.reached(low_watermark)

    def retire(self, *, is_deleted: bool = False) -> None:
        """This node leads it no longer: whoever waits is told now, and looks for the new leader if there is one."""
        name = f"{self.topic}-{self.index}"
        why = Deleted(f"{name} was deleted") if is_deleted else NotLeader(f"{name} is led by another node now")
        self.is_retired = True
        self.retirement = why
        self._fail(why)

    def _fail(self, error: ProtocolError) -> None:
        self.durable.fail(error)
        self.committed.fail(error)
        self.starts.fail(error)
        self.watchers.notify()
        self.followers.notify()
