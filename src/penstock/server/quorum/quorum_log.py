"""The metadata log as the quorum uses it: the raft core's log on a Penstock log.

Invariants: batches are replicated whole and unchanged, with their offsets and epochs; the epoch of the record before
the log start is that of the snapshot which ends there.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import partial

from penstock.log.log import Log
from penstock.model.errors import CorruptBatch
from penstock.model.ports import Clock
from penstock.raft import control
from penstock.raft.ports import EpochEnd, LeaderChange, Snapshots
from penstock.raft.replicas import VotersAt, VoterSet
from penstock.records.control import ControlType
from penstock.records.header import batches
from penstock.server.quorum.metadata_log import METADATA_RULES, READ_BYTES, whole_batches


def check_fetched(records: bytes) -> None:
    """Raises CorruptBatch or TornBatch unless these are whole batches: damaged bytes must not reach the log."""
    for batch in batches(records):
        if not batch.is_intact:
            raise CorruptBatch(f"the checksum of the batch at offset {batch.base_offset} does not fit")


class QuorumLog:
    """`RaftLog` on a log; `append` takes a batch as it is to be stored."""

    def __init__(self, log: Log, snapshots: Snapshots, clock: Clock) -> None:
        self.log = log
        self._snapshots = snapshots
        self._clock = clock

    @property
    def start_offset(self) -> int:
        """The first offset that can be read."""
        return self.log.start_offset

    @property
    def end_offset(self) -> int:
        """The log end offset."""
        return self.log.written_end

    @property
    def synced_end(self) -> int:
        """The end of the records that survive a power cut."""
        return self.log.durable_end

    @property
    def _start_epoch(self) -> int:
        start = self.log.start_offset
        return next((each.epoch for each in self._snapshots.ids if each.end_offset == start), 0)

    @property
    def last_epoch(self) -> int:
        """The epoch of the last record, or of the snapshot that an empty log starts from."""
        return self.epoch_before(self.log.written_end)

    def append(self, epoch: int, batch: bytearray, now: int) -> int:  # noqa: ARG002 - stamped with the wall clock
        """Appends a batch as the leader of an epoch; returns the new end offset."""
        log = self.log
        now_ms = self._clock.wall_ms()
        log.reserve.spend(lambda: log.append(batch, leader_epoch=epoch, now_ms=now_ms, rules=METADATA_RULES))
        return log.written_end

    def append_control(self, epoch: int, records: Sequence[LeaderChange | VoterSet], now: int) -> int:
        """Appends control records as one batch; returns the new end offset."""
        encoded: list[tuple[ControlType, bytes]] = []
        for record in records:
            if isinstance(record, LeaderChange):
                encoded.append(control.leader_change(record))
            else:
                encoded += [control.kraft_version(), control.voter_set(record)]
        return self.append(epoch, control.control_batch(encoded, self._clock.wall_ms()), now)

    def append_fetched(self, records: bytes, now: int) -> list[VotersAt]:  # noqa: ARG002 - keeps the leader's times
        """Appends fetched batches; returns the voter sets in them."""
        found: list[VotersAt] = []
        for batch in batches(records):  # one by one: a failed append must leave nothing behind (`spend`)
            self.log.reserve.spend(partial(self.log.append_replicated, batch.whole, now_ms=self._clock.wall_ms()))
            found += control.voters_in(batch)
        return found

    def read(self, offset: int, bytes_max: int) -> bytes:
        """Reads whole batches from an offset on, at least one if there is any."""
        part = self.log.read(offset, bytes_max, limit=self.log.written_end)
        if part is None:
            return b""
        try:
            data = part.read()
        finally:
            part.release()
        return data[: sum(batch.size_bytes for batch in whole_batches(data))]

    def epoch_before(self, offset: int) -> int:
        """The epoch of the record before an offset."""
        return self.log.epochs.epoch_at(offset - 1) if offset > self.log.start_offset else self._start_epoch

    def end_of_epoch(self, epoch: int) -> EpochEnd:
        """The largest epoch up to this one and its end; if all are newer, the snapshot's epoch and the log start."""
        known = list(self.log.epochs)
        at = bisect_right(known, epoch, key=lambda each: each.epoch) - 1
        if at < 0:
            return EpochEnd(self._start_epoch, self.log.start_offset)
        end = known[at + 1].start_offset if at + 1 < len(known) else self.log.written_end
        return EpochEnd(known[at].epoch, end)

    def voter_sets(self) -> Iterator[VotersAt]:
        """The voter sets in the log, oldest first."""
        offset = self.log.start_offset
        while offset < self.log.written_end:
            for batch in whole_batches(self.read(offset, READ_BYTES)):
                if not batch.is_intact:
                    raise CorruptBatch(f"the checksum of the batch at offset {batch.base_offset} does not fit")
                yield from control.voters_in(batch)
                offset = batch.last_offset + 1
