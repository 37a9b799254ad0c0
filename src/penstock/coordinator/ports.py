"""What a shard stands on: the log of one partition of an internal topic."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from penstock.model.errors import ErrorCode, ProtocolError


class Now(NamedTuple):
    """What time it is, on both clocks: the one for time-outs never jumps, the one for people may."""

    ms: int
    wall_ms: int


class AppendRefused(ProtocolError):
    """Nothing was written, and this broker leads as before: too few replicas are in sync, say, or it is too large."""

    code = ErrorCode.COORDINATOR_NOT_AVAILABLE


class AppendLost(ProtocolError):
    """This broker leads no longer, or its log is offline; what became of the records nobody can say."""

    code = ErrorCode.NOT_COORDINATOR


class ShardLog(Protocol):
    """The log, for as long as this broker leads it."""

    @property
    def end_offset(self) -> int:
        """The end of what is written, committed or not."""

    def append(self, epoch: int, records: Sequence[Any], now: Now) -> int:
        """Writes records as one batch, all or none, in that leader epoch; where it ends. AppendRefused, AppendLost."""
