"""A partition that this node leads: its log, who waits on it, and what each kind of reader may see.

With one replica the high watermark is the durable end: consumers never see what a power cut could take back.
"""

from penstock.log.log import Appended, Log
from penstock.model.errors import ErrorCode, ProtocolError, StorageError
from penstock.records.check import DEFAULT_RULES, Rules
from penstock.server.waiters import OffsetWaiters, Watchers


class NotLeader(ProtocolError):
    """The partition was led here when the wait began, and no longer is."""

    code = ErrorCode.NOT_LEADER_OR_FOLLOWER


class Deleted(ProtocolError):
    """The topic was there when the wait began, and no longer is."""

    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class Partition:
    """One led partition."""

    def __init__(
        self, topic: str, topic_id: bytes, index: int, log: Log, leader_epoch: int, rules: Rules = DEFAULT_RULES
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log = log
        self.leader_epoch = leader_epoch
        self.rules = rules
        """What the topic asks of a batch."""
        self.can_delete = True
        """Whether records may be deleted from the front: False where the clean-up policy is compaction alone."""
        self.in_sync_count = 1
        """How many replicas are in sync, this one included."""
        self.in_sync_min = 1
        """How many must be for acks=all (Kafka: min.insync.replicas)."""
        self.is_retired = False
        self.retirement: ProtocolError | None = None
        """Why it is led here no longer."""
        self.durable = OffsetWaiters()
        """Producers that wait for this node's own durable end (acks=1)."""
        self.committed = OffsetWaiters()
        """Producers that wait for the high watermark (acks=all)."""
        self.watchers = Watchers()
        """Fetches that wait for something to read."""

    def __repr__(self) -> str:
        return f"<partition {self.topic}-{self.index}, epoch {self.leader_epoch}>"

    @property
    def has_enough_in_sync(self) -> bool:
        """Whether acks=all may be promised."""
        return self.in_sync_count >= self.in_sync_min

    def append(self, data: bytearray | memoryview, *, now_ms: int, rules: Rules) -> Appended:
        """Takes a producer's batch. It is acknowledged when the high watermark has passed it."""
        appended = self.log.append(data, leader_epoch=self.leader_epoch, now_ms=now_ms, rules=rules)
        self.advance()
        return appended

    def advance(self) -> None:
        """Moves the high watermark to where it may be, and wakes whoever waited for that."""
        log = self.log
        if log.offline_reason is not None:
            self._fail(StorageError(f"{log.path} is offline: {log.offline_reason}"))
            return
        durable_end = log.durable_end
        if self.durable.heap:
            self.durable.reached(durable_end)
        if durable_end > log.high_watermark:
            log.advance_high_watermark(durable_end)
            if self.committed.heap:
                self.committed.reached(log.high_watermark)
            if self.watchers.watching:
                self.watchers.notify()

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
        self.watchers.notify()
