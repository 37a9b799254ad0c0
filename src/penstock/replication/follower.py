"""Following a partition's leader: what to ask for next, and what to do with the answer.

Invariants: where the logs part is found by epochs, in every fetch, and never by the high watermark (R01, R02, R05); the
leader's high watermark is taken only along with records that fit; the history of epochs ends with the log's records;
nothing is fetched while the log is being cut; a fetch acknowledges what is before its offset, so it waits until that is
as durable as the topic asks; it reports the log start, which moves only once that is durable.
"""

from enum import Enum
from typing import Final

from penstock.model.errors import ErrorCode, ProtocolError, TornBatch
from penstock.replication.effects import Committed, CutLog, Effect, RestartLog, TrimLog
from penstock.replication.ports import Key, ReplicaLog, last_epoch
from penstock.wire.messages.fetch import FetchPartition, PartitionData


class Pace(Enum):
    """What a follower is doing."""

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
        "pace",
        "refusals",
        "source",
    )

    def __init__(self, key: Key, log: ReplicaLog, source: int, epoch: int) -> None:
        self.key = key
        self.log = log
        log.epochs.cut_end(log.written_end)  # what was led without a record: records of earlier epochs may come now
        self.source = source
        self.epoch = epoch
        self.pace = Pace.FETCHING
        self.refusals = 0
        """In a row."""
        self.is_arriving = False
        """Whether it is being moved here, and counts against the throttle."""
        self.is_parked = False
        """Whether it has to wait for the throttle, or for its turn."""
        self.leader_start = 0
        """Where the leader's log starts, as far as it has been reported."""
        self.is_trimming = False
        """Whether a `TrimLog` is under way."""

    def move(self, pace: Pace) -> None:
        """Does something else from now on."""
        assert (self.pace, pace) in MOVES, f"no way leads from {self.pace.name} to {pace.name}"
        self.pace = pace

    @property
    def is_durable(self) -> bool:
        """Whether a fetch may acknowledge all of the log."""
        return self.log.durable_end >= self.log.written_end

    def wanted(self, bytes_max: int) -> FetchPartition | None:
        """What to ask for; None while there is nothing to ask."""
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
        """Takes the answer to what was asked; False if the leader refused, or the log did."""
        if asked.current_leader_epoch != self.epoch or asked.fetch_offset != self.log.written_end:
            return True  # given to a former epoch
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
            except TornBatch:  # an answer ends where its bytes do
                if log.written_end == before:
                    return False
            except (ProtocolError, OSError):
                return False  # damaged on the way, or no room: some of it may be written, and is kept
        self._learn_high_watermark(found.high_watermark, effects)
        self.leader_start = found.log_start_offset
        self.trim(effects)
        return True

    def trim(self, effects: list[Effect]) -> None:
        """Moves the log start to that of the leader, unless that is under way."""
        log = self.log
        if not self.is_trimming and log.start_offset < self.leader_start <= log.high_watermark:
            self.is_trimming = True
            effects.append(TrimLog(self.key, self.leader_start))

    def trimmed(self, effects: list[Effect]) -> None:
        """The log start has moved; if the leader's has moved further meanwhile, it is to follow."""
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
        """Cuts to the last offset that both logs may share; if they part earlier, the next fetch tells (KIP-279)."""
        log = self.log
        own_epoch, own_end = log.epochs.end_of(epoch, log.written_end)
        if own_epoch < 0:
            own_end = log.start_offset
        elif own_epoch == epoch:
            own_end = min(own_end, end_offset)
        self.move(Pace.CUTTING)
        effects.append(CutLog(self.key, own_end, max(0, log.high_watermark - own_end)))

    def _restart(self, offset: int, effects: list[Effect]) -> None:
        self.move(Pace.CUTTING)
        effects.append(RestartLog(self.key, offset))
