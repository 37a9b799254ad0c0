"""Control records, which brokers write into a log for each other and consumers skip.

The key holds a version and a type. A COMMIT or ABORT marker holds the epoch of the transaction coordinator that wrote
it, so that a deposed coordinator is detected. Later versions may add fields at the end; readers ignore them.
"""

from dataclasses import dataclass
from enum import IntEnum
from struct import Struct

from penstock.model.errors import CorruptBatch
from penstock.records.builder import BatchBuilder
from penstock.records.header import NO_LEADER_EPOCH, BatchView
from penstock.records.rows import rows

CONTROL_VERSION = 0
# Control records are a few bytes each and never compressed.
CONTROL_BATCH_BYTES_MAX = 64 * 1024

_KEY = Struct(">hh")
_MARKER = Struct(">hi")


class ControlType(IntEnum):
    """Type of a control record."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6
    UNKNOWN = -1

    @classmethod
    def _missing_(cls, _value: object) -> "ControlType":
        """Maps a type of a later version to UNKNOWN, which readers skip."""
        return cls.UNKNOWN


@dataclass(frozen=True, slots=True)
class EndTransactionMarker:
    """The end of one producer's transaction in one partition."""

    type: ControlType
    coordinator_epoch: int


def write_control_key(type_: ControlType) -> bytes:
    """The key of a control record."""
    return _KEY.pack(CONTROL_VERSION, type_)


def read_control_key(key: bytes | None) -> ControlType:
    """The type that the key of a control record names."""
    if key is None or len(key) < _KEY.size:
        raise CorruptBatch("a control record needs a key of four bytes")
    version, number = _KEY.unpack_from(key)
    if version < 0:
        raise CorruptBatch(f"control record of version {version}")
    return ControlType(number)


def write_marker(marker: EndTransactionMarker) -> tuple[bytes, bytes]:
    """Key and value of the marker's record."""
    if marker.type not in (ControlType.COMMIT, ControlType.ABORT):
        raise ValueError(f"{marker.type.name} does not end a transaction")
    return write_control_key(marker.type), _MARKER.pack(CONTROL_VERSION, marker.coordinator_epoch)


def read_marker(key: bytes | None, value: bytes | None) -> EndTransactionMarker:
    """The marker that a control record holds; CorruptBatch when it is of another type."""
    type_ = read_control_key(key)
    if type_ not in (ControlType.COMMIT, ControlType.ABORT):
        raise CorruptBatch(f"control record {type_.name} does not end a transaction")
    if value is None or len(value) < _MARKER.size:
        raise CorruptBatch("a transaction marker needs a value of six bytes")
    version, coordinator_epoch = _MARKER.unpack_from(value)
    if version < 0:
        raise CorruptBatch(f"transaction marker of version {version}")
    return EndTransactionMarker(type_, coordinator_epoch)


def marker_batch(
    marker: EndTransactionMarker,
    *,
    producer_id: int,
    producer_epoch: int,
    timestamp_ms: int,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytearray:
    """The batch that ends the producer's transaction. Markers have no sequence number."""
    builder = BatchBuilder(
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
    )
    key, value = write_marker(marker)
    builder.append(key, value, timestamp_ms=timestamp_ms)
    return builder.build()


def read_control_type(batch: BatchView) -> ControlType:
    """The type of the first record of a control batch."""
    for record in rows(batch, CONTROL_BATCH_BYTES_MAX):
        return read_control_key(record.key)
    return ControlType.UNKNOWN
