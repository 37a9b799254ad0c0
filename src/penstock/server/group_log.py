"""One partition of `__consumer_offsets` as the log of a shard: records in, batches out, and the other way round.

What must stay true: a batch is written in the leader epoch that the shard believes in, or not at all; what is refused
was not written; of what is lost nobody can say whether it was.
"""

import itertools
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Final

from penstock.coordinator.events import LogRead, ReadLog
from penstock.coordinator.placement import OFFSETS_TOPIC
from penstock.coordinator.ports import AppendLost, AppendRefused, Now
from penstock.coordinator.records import GroupRecord, decode_record, encode_record, is_commit
from penstock.log.log import Log
from penstock.model.errors import BatchTooLarge, CorruptBatch, ErrorCode, ProtocolError
from penstock.model.limits import DEFAULT_LIMITS
from penstock.records.builder import BatchBuilder
from penstock.records.check import Rules
from penstock.records.header import BatchView
from penstock.records.rows import stored_rows
from penstock.server.metadata_log import whole_batches
from penstock.server.partition import Partition
from penstock.server.partitions import Partitions

PIECE_BYTES: Final = 64 * 1024
"""What is read and applied at once, some milliseconds' worth; then others get their turn."""
COMMITS_PER_PIECE: Final = 1_000


class TooLarge(AppendRefused):
    """What is to be remembered does not fit into one batch, or into its fields."""

    code = ErrorCode.UNKNOWN_SERVER_ERROR


class PartitionLog:
    """See the module. The partition is looked for each time: leadership comes and goes."""

    __slots__ = ("_index", "_partitions")

    def __init__(self, partitions: Partitions, index: int) -> None:
        self._partitions = partitions
        self._index = index

    @property
    def partition(self) -> Partition | None:
        """The partition, if it is led here."""
        return self._partitions.named(OFFSETS_TOPIC, self._index)

    @property
    def end_offset(self) -> int:
        """The end of what is written, committed or not."""
        partition = self.partition
        return 0 if partition is None else partition.log.written_end

    def append(self, epoch: int, records: Sequence[GroupRecord], now: Now) -> int:
        """Writes records as one batch in that epoch; where it ends."""
        partition = self.partition
        if partition is None or partition.leader_epoch != epoch:
            raise AppendLost(f"{OFFSETS_TOPIC}-{self._index} is not led here in epoch {epoch} any more")
        if not partition.has_enough_in_sync:
            raise AppendRefused(
                f"{partition.in_sync_count} replicas of {OFFSETS_TOPIC}-{self._index} are in sync, "
                f"{partition.in_sync_min} must be (min.insync.replicas)"
            )
        batch = batch_of(records, now.wall_ms)
        try:
            rules = _rules(partition.rules.batch_bytes_max)
            return partition.append(batch, now_ms=now.wall_ms, rules=rules).last_offset + 1
        except BatchTooLarge as error:
            raise TooLarge(str(error)) from error
        except (ProtocolError, OSError) as error:
            # A log undoes what it could not write, and goes offline where it cannot.
            if partition.log.offline_reason is None:
                raise AppendRefused(str(error)) from error
            raise AppendLost(str(error)) from error


def batch_of(records: Sequence[GroupRecord], wall_ms: int) -> bytearray:
    """Records as one batch; TooLarge where a text is longer than its field."""
    builder = BatchBuilder()
    try:
        for record in records:
            builder.append(*encode_record(record), timestamp_ms=wall_ms)
    except ValueError as error:
        raise TooLarge(f"it cannot be recorded: {error}") from None
    return builder.build()


@cache
def _rules(batch_bytes_max: int) -> Rules:
    """Our own batches need not be opened to be trusted."""
    return Rules(batch_bytes_max=batch_bytes_max, is_from_client=False, timestamp_after_ms_max=None)


class LogReader:
    """Reads a log for a shard that begins, piece by piece. Of an offset that was committed again only the last counts.

    Most of a log are such: they are gathered as bytes, and looked at when the log is read. Records of groups are told
    in their order as they are found; commits know nothing of them.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._is_read = False
        self._commits: dict[bytes, bytes | None] = {}

    def read(self, wanted: ReadLog) -> LogRead:
        """The next piece. ProtocolError, OSError where the log is not whole."""
        found: list[GroupRecord] = []
        next_offset = wanted.offset
        if not self._is_read:
            next_offset = self._read_piece(wanted, found)
            self._is_read = next_offset == wanted.offset or next_offset >= wanted.end_offset
        if self._is_read:
            found += itertools.islice(self._last_commits(), COMMITS_PER_PIECE)
            next_offset = wanted.offset if self._commits else wanted.end_offset  # the rest of them are asked for again
        return LogRead(wanted.epoch, wanted.offset, found, next_offset)

    def _read_piece(self, wanted: ReadLog, found: list[GroupRecord]) -> int:
        """Where the next one begins; nothing is left where this one does."""
        next_offset = max(wanted.offset, self._log.start_offset)
        part = self._log.read(next_offset, PIECE_BYTES, limit=wanted.end_offset)
        if part is None:
            return wanted.offset
        try:
            data = part.read()
        finally:
            part.release()
        first_offset = next_offset
        for batch in whole_batches(data):
            if not batch.is_intact:
                raise CorruptBatch(f"the checksum of the batch at offset {batch.base_offset} does not fit")
            next_offset = batch.last_offset + 1
            if not batch.is_control:
                self._sort(batch, first_offset - batch.base_offset, found)
        return next_offset

    def _sort(self, batch: BatchView, first_delta: int, found: list[GroupRecord]) -> None:
        commits = self._commits
        for _, _, delta, key, value, _ in stored_rows(batch, DEFAULT_LIMITS.batch_decompressed_bytes_max):
            if delta < first_delta or key is None:
                continue
            if is_commit(key):
                commits[key] = value
            elif (record := decode_record(key, value)) is not None:
                found.append(record)

    def _last_commits(self) -> Iterator[GroupRecord]:
        """Those that are left, as far as they are understood; each is told once."""
        while self._commits:
            record = decode_record(*self._commits.popitem())
            if record is not None:
                yield record
