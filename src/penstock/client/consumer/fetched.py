"""The result of one fetch of one partition: stored batches, and the records in them that are visible to the reader.

With READ_COMMITTED, a transactional batch is visible unless its producer's transaction was aborted. The broker reports
where aborted transactions begin; the marker in the log shows where each ends. Markers are never visible.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from penstock.client.metadata import TopicPartition
from penstock.model.errors import BatchTooLarge, CorruptBatch, TornBatch
from penstock.model.limits import DEFAULT_LIMITS
from penstock.records.control import ControlType, read_control_type
from penstock.records.header import BatchView, Buffer, batches
from penstock.records.rows import Record, rows


@dataclass(frozen=True, slots=True)
class Fetched:
    """Batches of a partition from an offset on. The first may begin before that offset; the last is complete."""

    partition: TopicPartition
    offset: int
    """The requested offset."""
    batches: tuple[BatchView, ...]
    aborted: tuple[tuple[int, int], ...] | None
    """Producer id and first offset of aborted transactions; None with READ_UNCOMMITTED."""
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int

    @property
    def next_offset(self) -> int:
        """The offset of the next fetch."""
        return self.batches[-1].last_offset + 1 if self.batches else self.offset

    @property
    def size_bytes(self) -> int:
        """Size of the batches as stored."""
        return sum(batch.size_bytes for batch in self.batches)

    def records(
        self,
        *,
        end_offset: int | None = None,
        checks_crc: bool = True,
        bytes_max: int = DEFAULT_LIMITS.batch_decompressed_bytes_max,
    ) -> Iterator[Record]:
        """The visible records from the requested offset up to `end_offset`."""
        seen = visible(self.batches, self.aborted)
        for batch in seen:
            if checks_crc and not batch.is_intact:
                raise CorruptBatch(
                    f"{self.partition}: the checksum of the batch at offset {batch.base_offset} is wrong"
                )
            for record in rows(batch, bytes_max):
                if end_offset is not None and record.offset >= end_offset:
                    return
                if record.offset >= self.offset:
                    yield record


def visible(stored: Sequence[BatchView], aborted: Sequence[tuple[int, int]] | None) -> Iterator[BatchView]:
    """The visible batches: no markers, and no batches of `aborted` transactions if these are given."""
    begins = sorted(aborted or (), key=lambda each: each[1], reverse=True)
    dropped: dict[int, None] = {}
    for batch in stored:
        while begins and begins[-1][1] <= batch.last_offset:
            dropped[begins.pop()[0]] = None
        if batch.is_control:
            if batch.producer_id in dropped and read_control_type(batch) is ControlType.ABORT:
                del dropped[batch.producer_id]
        elif not (batch.is_transactional and batch.producer_id in dropped):
            yield batch


def whole_batches(partition: TopicPartition, offset: int, data: Buffer) -> tuple[BatchView, ...]:
    """The complete batches in a response that reach the offset; a truncated last batch is left out."""
    found: list[BatchView] = []
    try:
        found.extend(batch for batch in batches(data) if batch.last_offset >= offset)
    except TornBatch:
        if not found and len(data):
            text = f"{partition}: the batch at offset {offset} does not fit into a fetch: raise partition_bytes_max"
            raise BatchTooLarge(text) from None
    return tuple(found)
