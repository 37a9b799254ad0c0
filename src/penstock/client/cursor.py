"""Where a consumer stands in one partition: what it has read, what it has fetched ahead, what went wrong. No I/O."""

from penstock.client.errors import ClientError
from penstock.client.fetched import Fetched
from penstock.client.metadata import TopicPartition
from penstock.records.rows import Record


class Cursor:
    """See the module. `life` changes with every seek: what was fetched in a former life is thrown away."""

    __slots__ = (
        "ahead_bytes",
        "end_offset",
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
        """The offset of the next record that the reader gets, or one that is no record."""
        self.fetch_offset = position
        self.end_offset = end_offset
        """Where to stop; None to go on for ever."""
        self.last_epoch = -1
        """The leader epoch of the last batch that was fetched."""
        self.ahead_bytes = 0
        self.high_watermark = -1
        self.is_paused = False
        self.life = 0
        self.trouble: ClientError | None = None
        self.failures = 0
        self.failing_since_ms: int | None = None
        self.not_before_ms = 0

    @property
    def is_at_end(self) -> bool:
        """Whether the reader has everything up to where it wanted to stop."""
        return self.end_offset is not None and self.position >= self.end_offset

    def wants_more(self, ahead_bytes_max: int) -> bool:
        """Whether something should be fetched."""
        if self.is_paused or self.trouble is not None or self.ahead_bytes >= ahead_bytes_max:
            return False
        return self.end_offset is None or self.fetch_offset < self.end_offset

    def seek(self, offset: int, end_offset: int | None) -> None:
        """Goes elsewhere, and forgets what was fetched and what went wrong."""
        self.position = self.fetch_offset = offset
        self.end_offset = end_offset
        self.last_epoch = -1
        self.ahead_bytes = 0
        self.trouble = None
        self.failures = 0
        self.failing_since_ms = None
        self.not_before_ms = 0
        self.life += 1

    def arrived(self, fetched: Fetched) -> None:
        """Something was fetched: the next fetch begins behind it."""
        self.high_watermark = fetched.high_watermark
        self.failures = 0
        self.failing_since_ms = None
        if fetched.batches:
            self.fetch_offset = fetched.next_offset
            self.last_epoch = fetched.batches[-1].leader_epoch
            self.ahead_bytes += fetched.size_bytes

    def read(self, records: list[Record]) -> None:
        """The reader took records."""
        self.position = records[-1].offset + 1

    def used_up(self, fetched: Fetched) -> None:
        """The reader has all of it; what nobody may see counts as read."""
        self.ahead_bytes -= fetched.size_bytes
        self.position = max(self.position, fetched.next_offset)

    def failed(self, now_ms: int, pause_ms: int) -> int:
        """A fetch failed and is to be repeated; for how long that has been going on."""
        self.failures += 1
        self.not_before_ms = now_ms + pause_ms
        if self.failing_since_ms is None:
            self.failing_since_ms = now_ms
        return now_ms - self.failing_since_ms
