"""The 61-byte header of a record batch v2, as a view over the buffer that holds the batch.

The checksum covers everything from the attributes on. Base offset and leader epoch lie before it, which is why a broker
may assign both without reading the records. A view reads the header once: after a patch, create a new view.
"""

from collections.abc import Iterator
from enum import IntEnum
from struct import Struct
from struct import error as struct_error

from crc32c import crc32c

from penstock.model.errors import CorruptBatch, TornBatch
from penstock.records.compression import Codec, codec_of

Buffer = bytes | bytearray | memoryview

HEADER = Struct(">qiibIhiqqqhii")
HEADER_BYTES = HEADER.size
# The length field counts the bytes after it, so the batch is this much longer.
LENGTH_EXCLUDES_BYTES = 12
LENGTH_MIN = HEADER_BYTES - LENGTH_EXCLUDES_BYTES
CRC_POSITION = 17
CRC_COVERS_FROM = 21

MAGIC = 2
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_LEADER_EPOCH = -1
NO_TIMESTAMP = -1

CODEC_BITS = 0x07
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40
UNUSED_BITS = 0xFF80

_BASE_OFFSET = Struct(">q")
_LEADER_EPOCH = Struct(">i")
_CRC = Struct(">I")
_ATTRIBUTES = Struct(">h")
_MAX_TIMESTAMP = Struct(">q")
_LEADER_EPOCH_POSITION = 12
_ATTRIBUTES_POSITION = 21
_MAX_TIMESTAMP_POSITION = 35


class TimestampType(IntEnum):
    """Origin of the timestamps: the producer, or the broker at append."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class BatchView:
    """One batch inside a buffer, from `position` on. Copies nothing; no field is trusted until a check has passed."""

    __slots__ = (
        "attributes",
        "base_offset",
        "base_sequence",
        "base_timestamp_ms",
        "buffer",
        "count",
        "crc",
        "last_offset_delta",
        "leader_epoch",
        "length",
        "magic",
        "max_timestamp_ms",
        "position",
        "producer_epoch",
        "producer_id",
        "size_bytes",
    )

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int

    def __init__(self, buffer: Buffer, position: int = 0) -> None:
        self.buffer = buffer
        self.position = position
        try:
            (
                self.base_offset,
                self.length,
                self.leader_epoch,
                self.magic,
                self.crc,
                self.attributes,
                self.last_offset_delta,
                self.base_timestamp_ms,
                self.max_timestamp_ms,
                self.producer_id,
                self.producer_epoch,
                self.base_sequence,
                self.count,
            ) = HEADER.unpack_from(buffer, position)
        except struct_error:
            raise TornBatch(f"{len(buffer) - position} bytes are too few for a batch header", position) from None
        self.size_bytes = self.length + LENGTH_EXCLUDES_BYTES
        """Size of the whole batch, header included."""

    def __repr__(self) -> str:
        return f"<batch of {self.count} from offset {self.base_offset}, {self.size_bytes} bytes>"

    @property
    def last_offset(self) -> int:
        """The offset of the last record, kept even when compaction has removed that record."""
        return self.base_offset + self.last_offset_delta

    @property
    def codec(self) -> Codec:
        """Codec of the records; raises UnsupportedCompression if it is unknown."""
        return codec_of(self.attributes & CODEC_BITS)

    @property
    def timestamp_type(self) -> TimestampType:
        """Origin of the timestamps."""
        return TimestampType.LOG_APPEND_TIME if self.attributes & LOG_APPEND_TIME_BIT else TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def is_control(self) -> bool:
        """Whether the batch holds markers for brokers instead of records for consumers."""
        return self.attributes & CONTROL_BIT != 0

    @property
    def has_delete_horizon(self) -> bool:
        """Whether the base timestamp is the delete horizon of tombstones and markers (KIP-534)."""
        return self.attributes & DELETE_HORIZON_BIT != 0

    @property
    def has_producer_id(self) -> bool:
        """Whether an idempotent producer sent the batch."""
        return self.producer_id > NO_PRODUCER_ID

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record; sequences wrap from 2^31 - 1 to 0."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF

    @property
    def whole(self) -> memoryview:
        """The bytes of the batch."""
        return memoryview(self.buffer)[self.position : self.position + self.size_bytes]

    @property
    def payload(self) -> memoryview:
        """The bytes after the header: the records, compressed with `codec`."""
        return memoryview(self.buffer)[self.position + HEADER_BYTES : self.position + self.size_bytes]

    @property
    def is_intact(self) -> bool:
        """Whether the checksum matches the bytes."""
        covered = memoryview(self.buffer)[self.position + CRC_COVERS_FROM : self.position + self.size_bytes]
        return crc32c(covered) == self.crc


def batches(buffer: Buffer, position: int = 0) -> Iterator[BatchView]:
    """Consecutive batches, as in a segment. Checks lengths and magic, not checksums.

    Raises TornBatch if the bytes end inside a batch, CorruptBatch for an invalid length or magic. All batches yielded
    before the error are complete; none after it can be found.
    """
    end = len(buffer)
    while position < end:
        batch = BatchView(buffer, position)
        if batch.magic != MAGIC:
            raise CorruptBatch(f"magic {batch.magic} at position {position}, expected {MAGIC}")
        if batch.length < LENGTH_MIN:
            raise CorruptBatch(f"batch length {batch.length} at position {position} is shorter than a header")
        if position + batch.size_bytes > end:
            raise TornBatch(f"batch of {batch.size_bytes} bytes at position {position} of {end}", position)
        yield batch
        position += batch.size_bytes


def patch(buffer: bytearray | memoryview, base_offset: int, leader_epoch: int, position: int = 0) -> None:
    """Sets base offset and leader epoch of the batch. Both lie outside the checksum, which stays valid."""
    _BASE_OFFSET.pack_into(buffer, position, base_offset)
    _LEADER_EPOCH.pack_into(buffer, position + _LEADER_EPOCH_POSITION, leader_epoch)


def stamp_log_append_time(buffer: bytearray | memoryview, now_ms: int, position: int = 0) -> None:
    """Sets the append time of the whole batch, and the new checksum."""
    batch = BatchView(buffer, position)
    _ATTRIBUTES.pack_into(buffer, position + _ATTRIBUTES_POSITION, batch.attributes | LOG_APPEND_TIME_BIT)
    _MAX_TIMESTAMP.pack_into(buffer, position + _MAX_TIMESTAMP_POSITION, now_ms)
    seal(buffer, position)


def seal(buffer: bytearray | memoryview, position: int = 0) -> None:
    """Writes the checksum of the batch."""
    size_bytes = BatchView(buffer, position).size_bytes
    crc = crc32c(memoryview(buffer)[position + CRC_COVERS_FROM : position + size_bytes])
    _CRC.pack_into(buffer, position + CRC_POSITION, crc)
