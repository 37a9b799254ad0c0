"""What is raised when a batch cannot be turned into rows: where it lies, what is wrong with it, and what to do."""

from penstock.model.errors import BatchTooLarge, ErrorCode, ProtocolError, UnsupportedCompression
from penstock.records.header import BatchView
from penstock.spark.columns.shape import Wanted


class UnreadableBatch(ProtocolError):
    """A batch that cannot be turned into rows. Travels between processes: all it knows is in its arguments."""

    code = ErrorCode.CORRUPT_MESSAGE

    def __init__(self, topic: str, partition: int, offset: int, reason: str, remedy: str) -> None:
        super().__init__(topic, partition, offset, reason, remedy)
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.reason = reason
        self.remedy = remedy

    def __str__(self) -> str:
        return (
            f"{self.topic}-{self.partition}: the batch at offset {self.offset} cannot be read: {self.reason}. "
            f"{self.remedy}"
        )


def unreadable(wanted: Wanted, batch: BatchView, trouble: ProtocolError) -> UnreadableBatch:
    """What went wrong with a batch whose header can be trusted."""
    onward = f"start reading at offset {batch.last_offset + 1} to leave it out"
    match trouble:
        case BatchTooLarge():
            remedy = f"Raise bytes_max, the limit of what one batch may decompress to, or {onward}."
        case UnsupportedCompression():
            remedy = f"A newer Penstock may know the codec: update it, or {onward}."
        case _:
            remedy = f"It was written so, and reading it again cannot help: {onward}."
    return UnreadableBatch(wanted.topic, wanted.partition, batch.base_offset, str(trouble), remedy)


def damaged(wanted: Wanted, offset: int, reason: str) -> UnreadableBatch:
    """Bytes that are not what was written, so that not even their header can be trusted."""
    remedy = (
        "Read it again: it may have been damaged on the way. If it stays so, the stored copy is damaged: read from"
        " another replica, or start reading behind it."
    )
    return UnreadableBatch(wanted.topic, wanted.partition, offset, reason, remedy)


def cut_off(wanted: Wanted, reason: str) -> UnreadableBatch:
    """Not one whole batch: whoever read on behind it would lose it, and whoever read again would do so forever."""
    remedy = "Fetch more bytes at once, so that a whole batch fits; if it is cut off then too, it is damaged."
    return UnreadableBatch(wanted.topic, wanted.partition, wanted.first, reason, remedy)
