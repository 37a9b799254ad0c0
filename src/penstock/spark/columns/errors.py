"""Errors for batches that cannot be decoded: the position of the batch, the reason, and the remedy."""

from penstock.model.errors import BatchTooLarge, ErrorCode, ProtocolError, UnsupportedCompression
from penstock.records.header import BatchView
from penstock.spark.columns.shape import RecordRange


class UnreadableBatch(ProtocolError):
    """A batch that cannot be decoded. Pickled between processes, so all its fields are in its arguments."""

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


def unreadable(wanted: RecordRange, batch: BatchView, trouble: ProtocolError) -> UnreadableBatch:
    """The error for a batch whose header can be trusted."""
    onward = f"start reading at offset {batch.last_offset + 1} to leave it out"
    match trouble:
        case BatchTooLarge():
            remedy = f"Raise bytes_max, the limit of what one batch may decompress to, or {onward}."
        case UnsupportedCompression():
            remedy = f"A newer Penstock may know the codec: update it, or {onward}."
        case _:
            remedy = f"It was written so, and reading it again cannot help: {onward}."
    return UnreadableBatch(wanted.topic, wanted.partition, batch.base_offset, str(trouble), remedy)


def damaged(wanted: RecordRange, offset: int, reason: str) -> UnreadableBatch:
    """The error for corrupt bytes, of which not even the header can be trusted."""
    remedy = (
        "Read it again: it may have been damaged on the way. If it stays so, the stored copy is damaged: read from"
        " another replica, or start reading behind it."
    )
    return UnreadableBatch(wanted.topic, wanted.partition, offset, reason, remedy)


def cut_off(wanted: RecordRange, reason: str) -> UnreadableBatch:
    """The error for less than one whole batch: to skip it would lose it, to read it again would never end."""
    remedy = "Fetch more bytes at once, so that a whole batch fits; if it is cut off then too, it is damaged."
    return UnreadableBatch(wanted.topic, wanted.partition, wanted.first, reason, remedy)
