"""A partition that this node leads: its log, who waits on it, and what each kind of reader may see.

With one replica the high watermark is the durable end: consumers never see what a power cut could take back.
"""

from penstock.log.log import Appended, Log
from penstock.model.errors import StorageError
from penstock.records.check import Rules
from penstock.server.waiters import OffsetWaiters, Watchers


class Partition:
    """One led partition."""

    def __init__(self, topic: str, topic_id: bytes, index: int, log: Log, leader_epoch: int) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log = log
        self.leader_epoch = leader_epoch
        self.committed = OffsetWaiters()
        """Producers that wait for the high watermark."""
        self.watchers = Watchers()
        """Fetches that wait for something to read."""

    def __repr__(self) -> str:
        return f"<partition {self.topic}-{self.index}, epoch {self.leader_epoch}>"

    def append(self, data: bytearray | memoryview, *, now_ms: int, rules: Rules) -> Appended:
        """Takes a producer's batch. It is acknowledged when the high watermark has passed it."""
        appended = self.log.append(data, leader_epoch=self.leader_epoch, now_ms=now_ms, rules=rules)
        self.advance()
        return appended

    def advance(self) -> None:
        """Moves the high watermark to where it may be, and wakes whoever waited for that."""
        log = self.log
        if log.offline_reason is not None:
            self.committed.fail(StorageError(f"{log.path} is offline: {log.offline_reason}"))
            self.watchers.notify()
            return
        if log.durable_end > log.high_watermark:
            log.advance_high_watermark(log.durable_end)
            self.committed.reached(log.high_watermark)
            self.watchers.notify()
