"""What a replica stands on: the log of one partition. `penstock.log.log.Log` is one; the simulator has lossy ones.

Calls here return at once and touch the page cache at most; what must reach the disk is an effect (`SyncLog`, `CutLog`)
that the driver reports the end of.
"""

from typing import Any, Protocol, TypeAlias

from penstock.log.epochs import EpochHistory

Key: TypeAlias = tuple[bytes, int]
"""A partition: the id of its topic and its number."""


class ReplicaLog(Protocol):
    """The log of one replica."""

    epochs: EpochHistory

    @property
    def start_offset(self) -> int:
        """The first offset that can be read."""

    @property
    def written_end(self) -> int:
        """The end of what is written."""

    @property
    def durable_end(self) -> int:
        """The end of what counts as kept here: what is synced, or under durability "replicated" what is written."""

    @property
    def high_watermark(self) -> int:
        """Everything before it is committed, as far as this replica knows."""

    def advance_high_watermark(self, offset: int) -> None:
        """Moves the high watermark forward; never back, never past the end."""

    def append_replicated(self, data: Any, *, now_ms: int) -> int:
        """Writes batches as their leader has them, offsets and epochs included; the new end."""


def last_epoch(log: ReplicaLog) -> int:
    """The epoch of the last record, which a fetch names; -1 for a log without records.

    Not the newest epoch that the log has heard of: one in which nothing was written says nothing about records.
    """
    if log.written_end <= log.start_offset:
        return -1
    return log.epochs.epoch_at(log.written_end - 1)
