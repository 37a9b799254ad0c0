"""Following a partition's leader: what to fetch next, and how to apply the response.

Invariants: divergence is found by leader epochs, in every fetch, and never by the high watermark (R01, R02, R05); the
leader's high watermark is adopted only from a response that fits the log; the epoch history ends with the log's
records; nothing is fetched while the log is being truncated; a fetch acknowledges the records before its offset, so it
waits until they are as durable as the topic requires; it reports the log start, which moves only once that is durable.
"""

from enum import Enum
from typing import Final

from penstock.model.errors import ErrorCode, ProtocolError, TornBatch
from penstock.replication import reports
from penstock.replication.effects import Committed, CutLog, Effect, RestartLog, TrimLog
from penstock.replication.ports import Key, ReplicaLog, last_epoch
from penstock.wire.messages.fetch import FetchPartition, PartitionData


class Pace(Enum):
    """The state of a follower."""

    FETCHING = "asks for what comes next"
    CUTTING = "cuts off what its leader does not have"
    RESTING = "was refused, and waits a little"


MOVES: Final = {
    (Pace.FETCHING, Pace.CUTTING): "the logs part, or the leader's begins behind the end of this one",
    (Pace.CUTTING, Pace.FETCHING): "the cut is on disk",
    (Pace.FETCHING, Pace.RESTING): "the leader refused, or what it sent could not be written",
    (Pace.RESTING, Pace.FETCHING): "the back-off is over",
}


class Following:
    """One partition that this broker follows, in one leader epoch."""

    __slots__ = (
        "epoch",
        "is_arriving",
        "is_parked",
        "is_trimming",
        "key",
        "leader_start",
        "log",
        "name",
        "pace",
        "refusals",
        "source",
    )

    def __init__(self, key: Key, name: str, log: ReplicaLog, source: int, epoch: int) -> None:
        self.key = key
        self.name = name
        """The partition's name in reports."""
        self.log = log
        log.epochs.cut_end(log.written_end)  # drops epochs led without a record: records of earlier ones may follow
        self.source = source
        self.epoch = epoch
        self.pace = Pace.FETCHING
        self.refusals = 0
        """Consecutive refusals."""
        self.is_arriving = False
        """Whether the replica is being moved here, and counts against the throttle."""
        self.is_parked = False
        """Whether the replica must wait for the throttle, or for its turn."""
        self.leader_start = 0
        """The leader's log start offset, as last reported."""
        self.is_trimming = False
        """Whether a `TrimLog` is in progress."""

    def move(self, pace: Pace) -> None:
        """Changes the state."""
        assert (self.pace, pace) in MOVES, f"no way leads from {self.pace.name} to {pace.name}"
        self.pace = pace

    @property
    def is_durable(self) -> bool:
        """Whether a fetch may acknowledge all of the log."""
        return self.log.durable_end >= self.log.written_end

    def wanted(self, bytes_max: int) -> FetchPartition | None:
        """The partition's entry in the next fetch; None while it is not fetched."""
        if self.pace is not Pace.FETCHING or self.is_parked:
            return None
        log = self.log
        return FetchPartition(
            partition=self.key[1],
            current_leader_epoch=self.epoch,
            fetch_offset=log.written_end,
            last_fetched_epoch=last_epoch(log),
            log_start_offset=log.start_offset,
            partition_max_bytes=bytes_max,
        )

    def take(self, asked: FetchPartition, found: PartitionData, wall_ms: int, effects: list[Effect]) -> bool:
        """Applies the response to `asked`; False if the leader refused, or the log could not be written."""
        if asked.current_leader_epoch != self.epoch or asked.fetch_offset != self.log.written_end:
            return True  # a response to an earlier epoch or offset
        if self.pace is not Pace.FETCHING:
            return True
        if found.error_code is ErrorCode.OFFSET_OUT_OF_RANGE and found.log_start_offset >= 0:
            self._restart(found.log_start_offset, effects)
            return True
        if found.error_code is not ErrorCode.NONE:
            return False
        if found.diverging_epoch.epoch >= 0:
            self._cut(found.diverging_epoch.epoch, found.diverging_epoch.end_offset, effects)
            return True
        return self._append(found, wall_ms, effects)

    def _append(self, found: PartitionData, wall_ms: int, effects: list[Effect]) -> bool:
        log = self.log
        if found.records:
            before = log.written_end
            try:
                log.append_replicated(found.records, now_ms=wall_ms)
            except TornBatch:  # a response may end inside a batch
                if log.written_end == before:
                    return False
            except (ProtocolError, OSError):
                return False  # damaged in transit, or disk full: some batches may be written, and are kept
        self._learn_high_watermark(found.high_watermark, effects)
        self.leader_start = found.log_start_offset
        self.trim(effects)
        return True

    def trim(self, effects: list[Effect]) -> None:
        """Moves the log start to that of the leader, unless a move is in progress."""
        log = self.log
        if not self.is_trimming and log.start_offset < self.leader_start <= log.high_watermark:
            self.is_trimming = True
            effects.append(TrimLog(self.key, self.leader_start))

    def trimmed(self, effects: list[Effect]) -> None:
        """Handles the end of a move of the log start; starts another if the leader's has moved further."""
        self.is_trimming = False
        if self.pace is not Pace.CUTTING:
            self.trim(effects)

    def _learn_high_watermark(self, high_watermark: int, effects: list[Effect]) -> None:
        log = self.log
        before = log.high_watermark
        log.advance_high_watermark(high_watermark)
        if log.high_watermark > before:
            effects.append(Committed(self.key))

    def _cut(self, epoch: int, end_offset: int, effects: list[Effect]) -> None:
        """Truncates to the last offset both logs may share; the next fetch shows an earlier divergence (KIP-279)."""
        log = self.log
        own_epoch, own_end = log.epochs.end_of(epoch, log.written_end)
        if own_epoch < 0:
            own_end = log.start_offset
        elif own_epoch == epoch:
            own_end = min(own_end, end_offset)
        self.move(Pace.CUTTING)
        lost = max(0, log.high_watermark - own_end)
        whose = {"leader": self.source, "epoch": self.epoch}
        effects.append(reports.LOG_CUT(partition=self.name, end_offset=own_end, was=log.written_end, **whose))
        if lost:
            effects.append(reports.RECORDS_LOST(partition=self.name, end_offset=own_end, lost=lost))
        effects.append(CutLog(self.key, own_end, lost))

    def _restart(self, offset: int, effects: list[Effect]) -> None:
        self.move(Pace.CUTTING)
        whose = {"leader": self.source, "epoch": self.epoch}
        effects.append(reports.LOG_RESTARTED(partition=self.name, offset=offset, **whose))
        effects.append(RestartLog(self.key, offset))
