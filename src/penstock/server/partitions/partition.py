"""A partition that this node leads or follows: its log, its waiters, and the records that each kind of reader may see.

With one replica the high watermark is the durable end: consumers never see records that a power cut could lose. With
several it is the end of the records that all in-sync replicas have, which `keeper` tracks.
"""

from typing import Final, Protocol

from penstock.log.log import Appended, Log
from penstock.metadata.names import INTERNAL_TOPICS
from penstock.model.errors import ErrorCode, ProtocolError, StorageError
from penstock.records.check import DEFAULT_RULES, Rules
from penstock.server.loop.waiters import OffsetWaiters, Watchers
from penstock.server.partitions.followers import Followers
from penstock.server.partitions.traffic import TopicTraffic

SETTLING_MS: Final = 60_000
"""Longer than producers wait for a response by default."""


class NotLeader(ProtocolError):
    """This node does not lead the partition, or stopped leading it during a wait."""

    code = ErrorCode.NOT_LEADER_OR_FOLLOWER


class Deleted(ProtocolError):
    """The topic was deleted during a wait."""

    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class Keeper(Protocol):
    """Moves the high watermark of partitions that have replicas on other nodes."""

    def appended(self, partition: "Partition", base_offset: int) -> None:
        """Called after records were appended from `base_offset` on."""

    def failed(self, log: Log) -> None:
        """Called when a log has gone offline: this node can no longer lead or follow with it."""

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
        """Counters of its topic, once the partition is registered."""
        self.watchers = Watchers()
        """Consumers' fetches that wait for more records."""

    def on_committed(self) -> None:
        """Wakes waiters after the high watermark has moved."""
        if self.watchers.watching:
            self.watchers.notify()


class Followed(Readable):
    """One partition that another node leads, and of which this node has a replica."""

    def retire(self) -> None:
        """Called when this node no longer follows it, or in another epoch: waiting fetches look it up again."""
        self.is_retired = True
        self.watchers.notify()


class Partition(Readable):
    """One partition that this node leads."""

    def __init__(
        self, topic: str, topic_id: bytes, index: int, log: Log, leader_epoch: int, rules: Rules = DEFAULT_RULES
    ) -> None:
        super().__init__(topic, topic_id, index, log, leader_epoch)
        self.is_internal = topic in INTERNAL_TOPICS
        """Whether only coordinators write to it."""
        self.rules = rules
        """Rules of the topic that batches are checked against."""
        self.can_delete = True
        """Whether records may be deleted from the front: False where the clean-up policy is compaction alone."""
        self.in_sync_count = 1
        """Size of the ISR, this replica included."""
        self.in_sync_min = 1
        """Size of the ISR that acks=all requires: min.insync.replicas, or all replicas where there are fewer."""
        self.keeper: Keeper | None = None
        """None where no other node has a replica."""
        self.led_since_ms = 0
        """Wall-clock time at which this node became leader; until then another node may have led."""
        self.retirement: ProtocolError | None = None
        """Why this node no longer leads it."""
        self.durable = OffsetWaiters()
        """Producers that wait for this node's own durable end (acks=1)."""
        self.committed = OffsetWaiters()
        """Producers that wait for the high watermark (acks=all)."""
        self.starts = OffsetWaiters()
        """Deletions of records that wait for the low watermark."""
        self.low_watermark = -1
        """Lowest log start offset of live replicas and eligible leaders, as last reported."""
        self.followers = Followers()
        """Followers' fetches, which may read uncommitted records."""
        self.given: dict[int, int] = {}
        """The offset from which each follower was last sent records."""
        self.given_again: dict[int, int] = {}
        """How often each follower was sent them again."""
        self.is_read_nearby = False
        """Whether consumers were sent to followers, which then receive each new high watermark at once."""

    def __repr__(self) -> str:
        return f"<partition {self.topic}-{self.index}, epoch {self.leader_epoch}>"

    @property
    def has_enough_in_sync(self) -> bool:
        """Whether the ISR is large enough for acks=all."""
        return self.in_sync_count >= self.in_sync_min

    def is_settling(self, now_ms: int) -> bool:
        """Whether batches sent to the previous leader may still be in flight."""
        return self.keeper is not None and now_ms - self.led_since_ms < SETTLING_MS

    def append(self, data: bytearray | memoryview, *, now_ms: int, rules: Rules) -> Appended:
        """Appends a producer's batch. With acks=all it is acknowledged when the high watermark has passed it."""
        try:
            appended = self.log.append(data, leader_epoch=self.leader_epoch, now_ms=now_ms, rules=rules)
        except StorageError:
            self.advance()  # fails the waiters if the log has gone offline
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
        """Wakes waiters for the durable end; where no other node has a replica, moves the high watermark to it."""
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
        """Wakes waiters after the high watermark has moved."""
        if self.committed.heap:
            self.committed.reached(self.log.high_watermark)
        if self.watchers.watching:
            self.watchers.notify()
        if self.followers.standing:
            self.followers.mark(wakes=self.is_read_nearby)

    def on_trimmed(self, *, wakes: bool) -> None:
        """Has the next response to each follower report a moved log start; `wakes` if a deletion waits for it."""
        if wakes:
            self.followers.notify()
        else:
            self.followers.mark()

    def on_low_watermark(self, low_watermark: int) -> None:
        """Wakes the deletions that waited for this low watermark."""
        self.low_watermark = low_watermark
        self.starts.reached(low_watermark)

    def retire(self, *, is_deleted: bool = False) -> None:
        """Fails all waiters when this node no longer leads it; clients then look for the new leader if there is one."""
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
