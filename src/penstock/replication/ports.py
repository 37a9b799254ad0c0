"""The port of a replica: the log of one partition. `penstock.log.log.Log` implements it; the simulator has lossy logs.

Calls here return at once and touch the page cache at most; work that must reach the disk is an effect (`SyncLog`,
`CutLog`) whose end the driver reports.
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
        """The end of the written records."""

    @property
    def durable_end(self) -> int:
        """The end of the durable records: the synced ones, or under durability "replicated" the written ones."""

    @property
    def high_watermark(self) -> int:
        """Everything before it is committed, as far as this replica knows."""

    def advance_high_watermark(self, offset: int) -> None:
        """Moves the high watermark forward; never back, never past the end."""

    def append_replicated(self, data: Any, *, now_ms: int) -> int:
        """Writes batches with the leader's offsets and epochs; returns the new end."""


def last_epoch(log: ReplicaLog) -> int:
    """The epoch of the last record, which a fetch names; -1 for a log without records.

    Not the newest epoch in the history: an epoch without records does not describe any record.
    """
    if log.written_end <= log.start_offset:
        return -1
    return log.epochs.epoch_at(log.written_end - 1)
