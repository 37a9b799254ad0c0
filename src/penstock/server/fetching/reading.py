"""Reads the partitions of a fetch: each gives records as a slice of a file, or an error.

High watermark, last stable offset and log start offset are read once per partition, and they limit the result (R17).
Slices pin their files; a caller that does not send them calls `release`.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Final

from penstock.log.index import AbortedTransaction
from penstock.log.log import Log
from penstock.log.segment import scan_headers
from penstock.model.errors import CorruptBatch, ErrorCode, OffsetOutOfRange, ProtocolError
from penstock.model.ports import FileSlice
from penstock.replication.fetch_sessions import Fetching, RequestedPartition
from penstock.server.loop.pieces import Turns, cut
from penstock.server.loop.waiters import Watchers
from penstock.server.partitions.partition import Readable
from penstock.server.partitions.partitions import Leader, Partitions
from penstock.server.partitions.traffic import EXPECTED
from penstock.wire.hot.fetch import FetchedPartition

NO_RECORDS = b""
PIECE_PARTITIONS: Final = 100
"""Partitions of a large request that are read before yielding to other connections."""
ABORTED_UNTRIMMED_MAX = 64
"""A longer list of aborted transactions is trimmed to the end offset of the slice, which must be read for that."""


class Reading:
    """One read of all partitions that a fetch wants, which can be repeated."""

    __slots__ = (
        "_bytes_max",
        "_fetching",
        "_partitions",
        "found",
        "is_committed",
        "is_final",
        "leaders",
        "size_bytes",
    )

    def __init__(self, partitions: Partitions, fetching: Fetching, bytes_max: int, *, is_committed: bool) -> None:
        self._partitions = partitions
        self._fetching = fetching
        self._bytes_max = bytes_max
        self.is_committed = is_committed
        self.found: list[tuple[RequestedPartition, FetchedPartition]] = []
        self.leaders: dict[int, Leader] = {}
        """Leaders of requested partitions that this node does not lead, by node id."""
        self.size_bytes = 0
        self.is_final = False
        """Whether waiting gains nothing: an error, a divergence, or more records in a later segment."""

    def look(self) -> None:
        """Reads every partition, within the byte limit of the request."""
        self.release()
        self._look_at_each(self._fetching.unsettled)

    async def look_in_pieces(self, turns: Turns) -> None:
        """Like `look`, but yields to other connections. A caller that is cancelled meanwhile releases the results."""
        self.release()
        for piece in cut(list(self._fetching.unsettled), PIECE_PARTITIONS):
            await turns.after(len(piece))
            self._look_at_each(piece)

    def _look_at_each(self, each: Iterable[RequestedPartition]) -> None:
        left = self._bytes_max - self.size_bytes
        at_least_one = not self.size_bytes  # the first batch of all is returned whole whatever its size (KIP-74)
        is_incremental = self._fetching.is_incremental
        for requested in each:
            if is_incremental and self._knows_all(requested):
                self._settle(requested)
                continue
            part = self._look_at(requested, left, at_least_one=at_least_one)
            self.found.append((requested, part))
            size = len(part.records or NO_RECORDS)
            if size:
                at_least_one = False
                left -= size
                self.size_bytes += size

    def release(self) -> None:
        """Drops the results and releases their files."""
        for _, part in self.found:
            if isinstance(part.records, FileSlice):
                part.records.release()
        self.found = []
        self.leaders = {}
        self.size_bytes = 0
        self.is_final = False

    def measure(self, requested: RequestedPartition) -> int:
        """The bytes that this partition alone would return now; sets `is_final` where waiting gains nothing."""
        part = self._look_at(requested, requested.bytes_max, at_least_one=True)
        if not isinstance(part.records, FileSlice):
            return 0
        part.records.release()
        return len(part.records)

    def count(self, told: Sequence[tuple[RequestedPartition, FetchedPartition]]) -> None:
        """Counts the partitions of a response to a consumer."""
        for requested, part in told:
            place: Readable | None = requested.place
            traffic = self._partitions.traffic.gone if place is None else place.traffic
            traffic.fetches += 1
            if part.error_code:
                traffic.fetch_failures += part.error_code not in EXPECTED
            elif part.records:
                traffic.bytes_out += len(part.records)

    def partition_of(self, requested: RequestedPartition) -> Readable | None:
        """The partition, if this node leads it."""
        place: Readable | None = requested.place
        if place is None or place.is_retired:
            place = requested.place = self._partitions.find(requested.topic, requested.index)
        return place

    def watchers_of(self, partition: Readable) -> Watchers:
        """The watchers through which to wait for more records."""
        return partition.watchers

    def end_of(self, partition: Readable) -> int:
        """The offset at which readable records end, or with which that end moves."""
        return partition.log.high_watermark

    def _knows_all(self, requested: RequestedPartition) -> bool:
        """Whether the reader is at the end and was sent the current offsets: by far the most frequent case."""
        partition: Readable | None = requested.place
        if partition is None or partition.is_retired:
            return False
        log = partition.log
        return (
            log.high_watermark == requested.offset == requested.told_high_watermark
            and log.start_offset == requested.told_log_start
            and log.offline_reason is None
            and requested.leader_epoch in (-1, partition.leader_epoch)
            and requested.last_fetched_epoch < 0
        )

    def _settle(self, requested: RequestedPartition) -> None:
        """Called for a partition without news: a session that is notified need not read it before its next change."""

    def _look_at(self, requested: RequestedPartition, bytes_left: int, *, at_least_one: bool) -> FetchedPartition:
        partition = self.partition_of(requested)
        if partition is None:
            return self._missing(requested)
        log = partition.log
        if requested.leader_epoch not in (-1, partition.leader_epoch):
            is_old = requested.leader_epoch < partition.leader_epoch
            return self._failed(requested, ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH)
        if log.offline_reason is not None:
            return self._failed(requested, ErrorCode.KAFKA_STORAGE_ERROR)
        return self._read(requested, log, bytes_left, at_least_one=at_least_one)

    def _read(
        self, requested: RequestedPartition, log: Log, bytes_left: int, *, at_least_one: bool
    ) -> FetchedPartition:
        offset = requested.offset
        high_watermark, stable, start = log.high_watermark, log.last_stable_offset, log.start_offset
        limit = stable if self.is_committed else high_watermark
        aborted: list[tuple[int, int]] | None = [] if self.is_committed else None
        try:
            if requested.last_fetched_epoch >= 0:
                diverging = _divergence(log, offset, requested.last_fetched_epoch)
                if diverging is not None:
                    self.is_final = True
                    return FetchedPartition(
                        requested.index,
                        0,
                        high_watermark,
                        stable,
                        start,
                        aborted,
                        NO_RECORDS,
                        diverging_epoch=diverging,
                    )
            bytes_max = min(requested.bytes_max, bytes_left)
            if bytes_max <= 0 and not at_least_one and start <= offset <= log.written_end:
                part = None
            else:
                part = log.read(offset, max(bytes_max, 0), limit=limit, at_least_one=at_least_one)
        except OffsetOutOfRange:
            self.is_final = True
            return FetchedPartition(
                requested.index, ErrorCode.OFFSET_OUT_OF_RANGE, high_watermark, stable, start, None, NO_RECORDS
            )
        except ProtocolError as error:
            return self._failed(requested, error.code)
        except OSError:
            return self._failed(requested, ErrorCode.KAFKA_STORAGE_ERROR)
        if part is None:
            return FetchedPartition(requested.index, 0, high_watermark, stable, start, aborted, NO_RECORDS)
        if log.segments[-1].base_offset > offset:
            self.is_final = True  # a slice ends with its segment, and more records follow
        if self.is_committed:
            try:
                aborted = [(t.producer_id, t.first_offset) for t in _aborted_in(log, offset, part, limit)]
            except BaseException as error:
                part.release()
                if isinstance(error, OSError):
                    return self._failed(requested, ErrorCode.KAFKA_STORAGE_ERROR)
                if isinstance(error, ProtocolError):
                    return self._failed(requested, error.code)
                raise
        return FetchedPartition(requested.index, 0, high_watermark, stable, start, aborted, part)

    def _missing(self, requested: RequestedPartition) -> FetchedPartition:
        code, leader = self._partitions.why_missing(requested.topic, requested.index)
        part = self._failed(requested, code)
        if leader is None:
            return part
        self.leaders[leader.node_id] = leader
        return part._replace(current_leader=(leader.node_id, leader.epoch))

    def _failed(self, requested: RequestedPartition, code: ErrorCode) -> FetchedPartition:
        self.is_final = True
        return FetchedPartition(requested.index, code, -1, records=NO_RECORDS)


def _divergence(log: Log, offset: int, last_fetched_epoch: int) -> tuple[int, int] | None:
    """Where the reader's log diverges from ours (KIP-595): the last common epoch and its end offset here."""
    epoch, end_offset = log.epochs.end_of(last_fetched_epoch, log.written_end)
    if epoch < 0 or end_offset < 0:
        raise OffsetOutOfRange(f"nothing is known of epoch {last_fetched_epoch}, which was fetched last")
    if offset < log.start_offset:
        raise OffsetOutOfRange(f"offset {offset} lies before the start {log.start_offset}")
    if epoch < last_fetched_epoch or end_offset < offset:
        return epoch, end_offset
    return None


def _aborted_in(log: Log, offset: int, part: FileSlice, limit: int) -> list[AbortedTransaction]:
    """The aborted transactions that have records in the slice; rarely a few more, never fewer."""
    behind = bisect_right(log.segments, offset, key=lambda segment: segment.base_offset)
    while behind < len(log.segments) and log.path_of(log.segments[behind - 1], "log") != part.file.path:
        behind += 1  # the offset lies in a gap, and the slice begins after it
    end_offset = limit if behind >= len(log.segments) else min(limit, log.segments[behind].base_offset)
    found = log.aborted_between(offset, end_offset)
    if len(found) > ABORTED_UNTRIMMED_MAX:
        end_offset = _end_offset(part)
        found = [transaction for transaction in found if transaction.first_offset < end_offset]
    return found


def _end_offset(part: FileSlice) -> int:
    """The offset after the last whole batch of the slice."""
    end_offset = 0
    try:
        for _, batch in scan_headers(part.file, part.position, part.position + part.size_bytes):
            end_offset = batch.last_offset + 1
    except CorruptBatch:  # the slice may end inside a batch
        pass
    return end_offset
