"""Port of a shard: the log of one partition of an internal topic."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from penstock.coordinator.records import GroupRecord
from penstock.model.errors import ErrorCode, ProtocolError


class Now(NamedTuple):
    """The time on both clocks: `ms`, for time-outs, is monotonic; `wall_ms` may jump."""

    ms: int
    wall_ms: int


class AppendRefused(ProtocolError):
    """Nothing was written, and this broker still leads: too few in-sync replicas, for example, or a batch too large."""

    code = ErrorCode.COORDINATOR_NOT_AVAILABLE


class AppendLost(ProtocolError):
    """This broker no longer leads, or its log is offline; the outcome of the append is unknown."""

    code = ErrorCode.NOT_COORDINATOR


class Producer(NamedTuple):
    """The producer of records."""

    producer_id: int
    epoch: int


class ShardLog(Protocol):
    """The log, while this broker leads it."""

    @property
    def end_offset(self) -> int:
        """The end of the written records, committed or not."""

    def append(self, epoch: int, records: Sequence[GroupRecord], now: Now, producer: Producer | None = None) -> int:
        """Appends records as one batch, all or none, in a leader epoch; returns its end.

        Raises AppendRefused or AppendLost. With a producer, the records are part of its transaction.
        """
