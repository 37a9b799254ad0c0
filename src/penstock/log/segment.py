"""One segment: a file of consecutive batches, and its metadata in memory."""

from collections.abc import Iterator

from crc32c import crc32c

from penstock.log.index import ActiveIndex
from penstock.model.errors import CorruptBatch, TornBatch
from penstock.model.ports import Buffer, File
from penstock.records.header import CRC_COVERS_FROM, HEADER_BYTES, LENGTH_MIN, MAGIC, BatchView

SCAN_BYTES = 1024 * 1024
NO_TIMESTAMP = -1


class Segment:
    """Metadata of one segment."""

    __slots__ = (
        "base_offset",
        "end_offset",
        "first_timestamp_ms",
        "generation",
        "header_seed",
        "header_sum",
        "index",
        "max_timestamp_ms",
        "name",
        "size_bytes",
        "written_ms",
    )

    def __init__(
        self,
        base_offset: int,
        generation: int = 0,
        end_offset: int | None = None,
        size_bytes: int = 0,
        max_timestamp_ms: int = NO_TIMESTAMP,
        first_timestamp_ms: int = NO_TIMESTAMP,
        header_sum: int = 0,
        header_seed: int = 0,
    ) -> None:
        self.base_offset = base_offset
        self.generation = generation
        self.name = f"{base_offset:020d}-{generation}"
        """The file's name without its ending; a replacement of a segment has a higher generation."""
        self.end_offset = base_offset if end_offset is None else end_offset
        self.size_bytes = size_bytes
        self.max_timestamp_ms = max_timestamp_ms
        self.first_timestamp_ms = first_timestamp_ms
        self.header_sum = header_sum
        self.header_seed = header_seed
        """Initial value of the running checksum: the final value of the previous segment, which chains segments."""
        self.written_ms = NO_TIMESTAMP
        """Wall-clock time of the last append, used as the age of records without timestamps; -1 if unknown."""
        self.index: ActiveIndex | None = None
        """Set until the segment is sealed; a sealed segment's index is mapped on demand."""

    def __repr__(self) -> str:
        return f"<segment {self.name}: offsets {self.base_offset} to {self.end_offset}, {self.size_bytes} bytes>"

    def take(self, batch: BatchView, head: Buffer) -> None:
        """Adds a batch that now lies at the segment's end; `head` starts with its header."""
        self.size_bytes += batch.size_bytes
        self.end_offset = batch.last_offset + 1
        self.header_sum = crc32c(memoryview(head)[:CRC_COVERS_FROM], self.header_sum)
        if batch.max_timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms = batch.max_timestamp_ms
        if self.first_timestamp_ms == NO_TIMESTAMP:
            self.first_timestamp_ms = batch.max_timestamp_ms

    @property
    def age_from_ms(self) -> int:
        """The time from which retention counts: the highest timestamp, else the last append (Kafka: file time)."""
        return self.max_timestamp_ms if self.max_timestamp_ms != NO_TIMESTAMP else self.written_ms

    def to_list(self) -> list[int]:
        """Encodes the segment for the manifest."""
        return [
            self.base_offset,
            self.generation,
            self.end_offset,
            self.size_bytes,
            self.max_timestamp_ms,
            self.first_timestamp_ms,
            self.header_sum,
            self.header_seed,
        ]

    def start_again(self, header_seed: int | None = None) -> "Segment":
        """Returns the same segment without batches."""
        fresh = Segment(self.base_offset, self.generation)
        fresh.header_sum = fresh.header_seed = self.header_seed if header_seed is None else header_seed
        return fresh

    @classmethod
    def parse_name(cls, name: str) -> "Segment | None":
        """Returns the segment that a file name denotes, None for other names."""
        stem, dot, ending = name.rpartition(".")
        base, dash, generation = stem.partition("-")
        if not dot or ending != "log" or not dash or len(base) != 20 or not (base + generation).isdecimal():
            return None
        return cls(int(base), int(generation))


def scan_headers(file: File, position: int, end: int, read_bytes: int = SCAN_BYTES) -> Iterator[tuple[int, BatchView]]:
    """Yields (position, batch) of whole batches from a position, read in pieces; only their headers may be used.

    Raises TornBatch where the bytes end inside a batch, CorruptBatch where there is no valid header.
    """
    buffer, start = b"", position
    while position < end:
        if position + HEADER_BYTES > start + len(buffer):
            start = position
            buffer = file.read(position, min(max(read_bytes, HEADER_BYTES), end - position))
        batch = BatchView(buffer, position - start)
        _check_frame(batch, position, end)
        yield position, batch
        position += batch.size_bytes


def scan_batches(file: File, position: int, end: int) -> Iterator[tuple[int, BatchView]]:
    """Yields (position, batch) of whole batches with all their bytes, so that checksums can be verified."""
    buffer, start = b"", position
    while position < end:
        if position + HEADER_BYTES > start + len(buffer):
            start, buffer = position, file.read(position, min(SCAN_BYTES, end - position))
        batch = BatchView(buffer, position - start)
        _check_frame(batch, position, end)
        if position + batch.size_bytes > start + len(buffer):
            start, buffer = position, file.read(position, min(max(SCAN_BYTES, batch.size_bytes), end - position))
            batch = BatchView(buffer, 0)
            if len(buffer) < batch.size_bytes:
                raise TornBatch(f"the file ends inside the batch at position {position}", position)
        yield position, batch
        position += batch.size_bytes


def _check_frame(batch: BatchView, position: int, end: int) -> None:
    if batch.magic != MAGIC or batch.length < LENGTH_MIN or batch.last_offset_delta < 0:
        raise CorruptBatch(f"there is no batch at position {position}")
    if position + batch.size_bytes > end:
        raise TornBatch(f"the file ends inside the batch at position {position}", position)
