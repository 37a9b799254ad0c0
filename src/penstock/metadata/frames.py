"""A metadata record as the value of a log record: frame version 1, the record's key, its version, then the message.

All three numbers are unsigned varints. A key or version that is not declared is refused: a node that does not
understand a change must not guess the cluster state.
"""

from typing import Final

from penstock.metadata import records
from penstock.metadata.declare import MetadataRecord
from penstock.model.errors import MalformedMessage, UnsupportedVersion
from penstock.wire import codec
from penstock.wire.varint import read_uvarint, write_uvarint

FRAME_VERSION: Final = 1

RECORD_TYPES: Final[dict[int, type[MetadataRecord]]] = {
    kind.KEY: kind
    for kind in vars(records).values()
    if isinstance(kind, type) and issubclass(kind, MetadataRecord) and kind is not MetadataRecord
}
"""Every declared record by its key."""


def encode_record(record: MetadataRecord, version: int | None = None) -> bytes:
    """Encodes a framed record; without a version, in its newest one."""
    if version is None:
        version = record.VERSIONS.last
    out = bytearray((FRAME_VERSION,))
    write_uvarint(out, record.KEY)
    write_uvarint(out, version)
    codec.write_into(out, record, version)
    return bytes(out)


def decode_record(buffer: bytes | bytearray | memoryview) -> MetadataRecord:
    """Decodes the record that fills the buffer."""
    try:
        frame_version, position = read_uvarint(buffer, 0)
        key, position = read_uvarint(buffer, position)
        version, position = read_uvarint(buffer, position)
    except IndexError:
        raise MalformedMessage("a metadata record ends inside its frame") from None
    if frame_version != FRAME_VERSION:
        raise UnsupportedVersion(f"a metadata record has frame version {frame_version}, only {FRAME_VERSION} is known")
    kind = RECORD_TYPES.get(key)
    if kind is None:
        raise UnsupportedVersion(f"there is no metadata record with key {key}")
    return codec.decode(kind, version, buffer, position)
