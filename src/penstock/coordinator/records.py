"""The records of `__consumer_offsets` as keys and values, and as the bytes that Burrow, kminion and Kafka read.

The first two bytes of a key are its type, those of a value its version; no value means that the key is gone. What was
written by a newer version or belongs to kinds of groups that are not served here is passed over, never refused.
"""

import struct
from typing import Final, NamedTuple

from penstock.model.errors import MalformedMessage
from penstock.wire import codec
from penstock.wire.declare import StoredKey, StoredValue
from penstock.wire.stored import consumer_groups, consumer_offsets

_INT16: Final = struct.Struct(">h")

_DECLARED: Final = [
    kind
    for module in (consumer_offsets, consumer_groups)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, StoredKey) and kind not in (StoredKey, StoredValue)
]
KEYS: Final[dict[int, type[StoredKey]]] = {kind.TYPE: kind for kind in _DECLARED if not issubclass(kind, StoredValue)}
"""Every key that is understood here, by its type."""
VALUES: Final[dict[int, type[StoredValue]]] = {kind.TYPE: kind for kind in _DECLARED if issubclass(kind, StoredValue)}

_WRITTEN: Final = {consumer_offsets.OffsetCommitValue.TYPE: 3, consumer_offsets.GroupMetadataValue.TYPE: 3}
"""Versions that are written where that is not the newest: those that tools of today can read."""


class GroupRecord(NamedTuple):
    """A key, and what is known of it from now on; None takes the key back."""

    key: StoredKey
    value: StoredValue | None


def encode_record(record: GroupRecord) -> tuple[bytes, bytes | None]:
    """Key and value as they lie in the log."""
    key, value = record
    out = bytearray(_INT16.pack(key.TYPE))
    codec.write_into(out, key, 0)
    if value is None:
        return bytes(out), None
    version = _WRITTEN.get(value.TYPE, value.VERSIONS.last)
    body = bytearray(_INT16.pack(version))
    codec.write_into(body, value, version)
    return bytes(out), bytes(body)


def decode_record(key: bytes | None, value: bytes | None) -> GroupRecord | None:
    """The record, or None if it is nothing that is understood here. MalformedMessage if it should be, but is not."""
    if key is None or len(key) < _INT16.size:
        return None
    (number,) = _INT16.unpack_from(key)
    kind = KEYS.get(number)
    if kind is None:
        return None
    read = codec.decode(kind, 0, key, _INT16.size)
    if value is None:
        return GroupRecord(read, None)
    if len(value) < _INT16.size:
        raise MalformedMessage(f"a value of type {number} has no version")
    (version,) = _INT16.unpack_from(value)
    if version not in VALUES[number].VERSIONS:
        return None
    return GroupRecord(read, codec.decode(VALUES[number], version, value, _INT16.size))
