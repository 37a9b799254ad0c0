"""One partition of `__consumer_offsets` as the log of a shard: encodes records to batches and reads them back.

Invariants: a batch is written in the leader epoch of the shard or not at all; after AppendRefused the batch was not
written; after AppendLost it is unknown whether the batch was written.
"""

import itertools
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Final

from penstock.coordinator.events import LogRead, ReadLog, TransactionEnded
from penstock.coordinator.placement import OFFSETS_TOPIC
from penstock.coordinator.ports import AppendLost, AppendRefused, Now, Producer
from penstock.coordinator.records import GroupRecord, decode_record, encode_record, is_commit
from penstock.log.log import Log
from penstock.model.errors import BatchTooLarge, CorruptBatch, ErrorCode, ProtocolError
from penstock.model.limits import DEFAULT_LIMITS
from penstock.records.builder import BatchBuilder
from penstock.records.check import Rules
from penstock.records.control import ControlType, read_control_type
from penstock.records.header import BatchView
from penstock.records.rows import stored_rows
from penstock.server.partitions.partition import Partition
from penstock.server.partitions.partitions import Partitions
from penstock.server.quorum.metadata_log import whole_batches

PIECE_BYTES: Final = 64 * 1024
"""Bytes read and applied in one step, which takes some milliseconds; then the loop serves other work."""
COMMITS_PER_PIECE: Final = 1_000
ENDS: Final = (ControlType.ABORT, ControlType.COMMIT)


class TooLarge(AppendRefused):
    """The records do not fit into one batch, or a value does not fit into its field."""

    code = ErrorCode.UNKNOWN_SERVER_ERROR


class PartitionLog:
    """See the module. The partition is looked up on each call, because leadership changes."""

    __slots__ = ("_index", "_partitions")

    def __init__(self, partitions: Partitions, index: int) -> None:
        self._partitions = partitions
        self._index = index

    @property
    def partition(self) -> Partition | None:
        """The partition, if this node leads it."""
        return self._partitions.named(OFFSETS_TOPIC, self._index)

    @property
    def end_offset(self) -> int:
        """The log end offset, committed or not."""
        partition = self.partition
        return 0 if partition is None else partition.log.written_end

    def append(self, epoch: int, records: Sequence[GroupRecord], now: Now, producer: Producer | None = None) -> int:
        """Writes records as one batch in that leader epoch; returns the end offset of the batch."""
        partition = self.partition
        if partition is None or partition.leader_epoch != epoch:
            raise AppendLost(f"{OFFSETS_TOPIC}-{self._index} is not led here in epoch {epoch} any more")
        if not partition.has_enough_in_sync:
            raise AppendRefused(
                f"{partition.in_sync_count} replicas of {OFFSETS_TOPIC}-{self._index} are in sync, "
                f"{partition.in_sync_min} must be (min.insync.replicas)"
            )
        batch = batch_of(records, now.wall_ms, producer)
        try:
            rules = _rules(partition.rules.batch_bytes_max)
            return partition.append(batch, now_ms=now.wall_ms, rules=rules).last_offset + 1
        except BatchTooLarge as error:
            raise TooLarge(str(error)) from error
        except (ProtocolError, OSError) as error:
            # A log rolls back a failed write, and goes offline if it cannot.
            if partition.log.offline_reason is None:
                raise AppendRefused(str(error)) from error
            raise AppendLost(str(error)) from error


def batch_of(records: Sequence[GroupRecord], wall_ms: int, producer: Producer | None = None) -> bytearray:
    """Encodes records as one batch; raises TooLarge if a text is longer than its field."""
    if producer is None:
        builder = BatchBuilder()
    else:
        builder = BatchBuilder(
            producer_id=producer.producer_id, producer_epoch=producer.epoch, base_sequence=0, is_transactional=True
        )
    try:
        for record in records:
            builder.append(*encode_record(record), timestamp_ms=wall_ms)
    except ValueError as error:
        raise TooLarge(f"it cannot be recorded: {error}") from None
    return builder.build()


@cache
def _rules(batch_bytes_max: int) -> Rules:
    """Rules for batches of our own, which are not validated record by record."""
    return Rules(batch_bytes_max=batch_bytes_max, is_from_client=False, timestamp_after_ms_max=None)


class LogReader:
    """Reads the log for a loading shard, piece by piece. Only the last commit of each offset key counts.

    Most records of a log are commits that later ones replace. They are gathered as bytes and decoded once the whole log
    is read. Group records are returned in log order as they are read; commits do not depend on them.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._is_read = False
        self._commits: dict[bytes, bytes | None] = {}

    def read(self, wanted: ReadLog) -> LogRead:
        """Reads the next piece; raises ProtocolError or OSError if the log is damaged."""
        found: list[GroupRecord | TransactionEnded] = []
        next_offset = wanted.offset
        if not self._is_read:
            next_offset = self._read_piece(wanted, found)
            self._is_read = next_offset == wanted.offset or next_offset >= wanted.end_offset
        if self._is_read:
            found += itertools.islice(self._last_commits(), COMMITS_PER_PIECE)
            next_offset = wanted.offset if self._commits else wanted.end_offset  # the remaining commits follow
        return LogRead(wanted.epoch, wanted.offset, found, next_offset)

    def _read_piece(self, wanted: ReadLog, found: list[GroupRecord | TransactionEnded]) -> int:
        """Returns the offset of the next piece; `wanted.offset` means that nothing is left."""
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
            elif read_control_type(batch) in ENDS:
                producer = Producer(batch.producer_id, batch.producer_epoch)
                found.append(TransactionEnded(producer, read_control_type(batch) is ControlType.COMMIT))
        return next_offset

    def _sort(self, batch: BatchView, first_delta: int, found: list[GroupRecord | TransactionEnded]) -> None:
        commits = self._commits
        for _, _, delta, key, value, _ in stored_rows(batch, DEFAULT_LIMITS.batch_decompressed_bytes_max):
            if delta < first_delta or key is None:
                continue
            if is_commit(key):
                commits[key] = value
            elif (record := decode_record(key, value)) is not None:
                found.append(record)

    def _last_commits(self) -> Iterator[GroupRecord]:
        """Removes and decodes the gathered commits; skips those of an unknown type."""
        while self._commits:
            record = decode_record(*self._commits.popitem())
            if record is not None:
                yield record
