"""State of a consumer in one partition: position, prefetched bytes, errors. No I/O."""

from penstock.client.consumer.fetched import Fetched
from penstock.client.errors import ClientError
from penstock.client.metadata import TopicPartition
from penstock.records.rows import Record


class Cursor:
    """See the module. `life` changes with every seek: data fetched in an earlier life is discarded."""

    __slots__ = (
        "ahead_bytes",
        "end_offset",
        "error",
        "failing_since_ms",
        "failures",
        "fetch_offset",
        "high_watermark",
        "is_paused",
        "last_epoch",
        "life",
        "not_before_ms",
        "partition",
        "position",
        "trouble",
    )

    def __init__(self, partition: TopicPartition, position: int, end_offset: int | None = None) -> None:
        self.partition = partition
        self.position = position
        """The offset of the next record to be returned, or of a gap before it."""
        self.fetch_offset = position
        self.end_offset = end_offset
        """Where to stop; None for no end."""
        self.last_epoch = -1
        """The leader epoch of the last fetched batch."""
        self.ahead_bytes = 0
        self.high_watermark = -1
        self.is_paused = False
        self.life = 0
        self.trouble: ClientError | None = None
        self.failures = 0
        self.failing_since_ms: int | None = None
        self.error: ClientError | None = None
        """The error of the last fetch, which is to be retried; None if it succeeded."""
        self.not_before_ms = 0

    @property
    def is_at_end(self) -> bool:
        """Whether the reader has everything up to `end_offset`."""
        return self.end_offset is not None and self.position >= self.end_offset

    def wants_more(self, ahead_bytes_max: int) -> bool:
        """Whether the partition should be fetched."""
        if self.is_paused or self.trouble is not None or self.ahead_bytes >= ahead_bytes_max:
            return False
        return self.end_offset is None or self.fetch_offset < self.end_offset

    def seek(self, offset: int, end_offset: int | None) -> None:
        """Moves to another offset, and clears prefetched data and errors."""
        self.position = self.fetch_offset = offset
        self.end_offset = end_offset
        self.last_epoch = -1
        self.ahead_bytes = 0
        self.trouble = None
        self.failures = 0
        self.failing_since_ms = None
        self.error = None
        self.not_before_ms = 0
        self.life += 1

    def arrived(self, fetched: Fetched) -> None:
        """Records a successful fetch: the next fetch begins after it."""
        self.high_watermark = fetched.high_watermark
        self.failures = 0
        self.failing_since_ms = None
        self.error = None
        if fetched.batches:
            self.fetch_offset = fetched.next_offset
            self.last_epoch = fetched.batches[-1].leader_epoch
            self.ahead_bytes += fetched.size_bytes

    def read(self, records: list[Record]) -> None:
        """Advances past records that were returned to the reader."""
        self.position = records[-1].offset + 1

    def used_up(self, fetched: Fetched) -> None:
        """Marks a fetch as fully read, including the batches that are hidden from the reader."""
        self.ahead_bytes -= fetched.size_bytes
        self.position = max(self.position, fetched.next_offset)

    def failed(self, error: ClientError, now_ms: int, pause_ms: int) -> int:
        """Records a failed fetch that is to be retried; returns how long fetches have been failing."""
        self.error = error
        self.failures += 1
        self.not_before_ms = now_ms + pause_ms
        if self.failing_since_ms is None:
            self.failing_since_ms = now_ms
        return now_ms - self.failing_since_ms
