"""The records of `__consumer_offsets` as keys and values, and as the bytes that Burrow, kminion and Kafka read.

The first two bytes of a key are its type, those of a value its version; no value means that the key is gone. What was
written by a newer version or belongs to kinds of groups that are not served here is passed over, never refused.
"""

import struct
from functools import cache, lru_cache
from typing import Final, NamedTuple

from penstock.model.errors import MalformedMessage
from penstock.wire import codec
from penstock.wire.compile import Reader
from penstock.wire.declare import StoredKey, StoredValue
from penstock.wire.stored import consumer_groups, consumer_offsets
from penstock.wire.stored.consumer_offsets import OffsetCommitKey, OffsetCommitValue

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

_WRITTEN: Final = {OffsetCommitValue.TYPE: 3, consumer_offsets.GroupMetadataValue.TYPE: 3}
"""Versions that are written where that is not the newest: those that tools of today can read."""

_COMMIT: Final = _INT16.pack(OffsetCommitKey.TYPE)
_PARTITION: Final = struct.Struct(">i")
_BARE_COMMIT: Final = struct.Struct(">hqihq")
"""Version, offset, leader epoch, the length of no metadata, time."""
PREFIXES_KEPT: Final = 16
"""A request commits many partitions of a topic; names may be long, so few are kept."""


class GroupRecord(NamedTuple):
    """A key, and what is known of it from now on; None takes the key back."""

    key: StoredKey
    value: StoredValue | None


def encode_record(record: GroupRecord) -> tuple[bytes, bytes | None]:
    """Key and value as they lie in the log."""
    key, value = record
    if type(value) is OffsetCommitValue and type(key) is OffsetCommitKey and not value.metadata:
        return _bare_commit(key, value)
    out = bytearray(_INT16.pack(key.TYPE))
    codec.write_into(out, key, 0)
    if value is None:
        return bytes(out), None
    version = _WRITTEN.get(value.TYPE, value.VERSIONS.last)
    body = bytearray(_INT16.pack(version))
    codec.write_into(body, value, version)
    return bytes(out), bytes(body)


def _bare_commit(key: OffsetCommitKey, value: OffsetCommitValue) -> tuple[bytes, bytes]:
    """The same as for any other record, several times as fast: nearly all that is ever written are these."""
    version = _WRITTEN[OffsetCommitValue.TYPE]
    body = _BARE_COMMIT.pack(version, value.offset, value.leader_epoch, 0, value.commit_timestamp)
    return _commit_prefix(key.group, key.topic) + _PARTITION.pack(key.partition), body


@lru_cache(maxsize=PREFIXES_KEPT)
def _commit_prefix(group: str, topic: str) -> bytes:
    """All of a key but its partition."""
    out = bytearray(_COMMIT)
    codec.write_into(out, OffsetCommitKey(group=group, topic=topic, partition=0), 0)
    return bytes(out[: -_PARTITION.size])


def is_commit(key: bytes) -> bool:
    """Whether it is the key of a committed offset."""
    return key[: _INT16.size] == _COMMIT


def _decode_key(key: bytes) -> StoredKey | None:
    if len(key) < _INT16.size:
        return None
    kind = KEYS.get(_INT16.unpack_from(key)[0])
    return None if kind is None else codec.decode(kind, 0, key, _INT16.size)


@cache
def _value_reader(kind: int, version: int) -> Reader | None:
    return codec.reader_for(VALUES[kind], version) if version in VALUES[kind].VERSIONS else None


def decode_record(key: bytes | None, value: bytes | None) -> GroupRecord | None:
    """The record, or None if it is nothing that is understood here. MalformedMessage if it should be, but is not."""
    read = None if key is None else _decode_key(key)
    if read is None:
        return None
    if value is None:
        return GroupRecord(read, None)
    number = read.TYPE
    if len(value) < _INT16.size:
        raise MalformedMessage(f"a value of type {number} has no version")
    (version,) = _INT16.unpack_from(value)
    reader = _value_reader(number, version)
    if reader is None:
        return None
    try:
        found, end = reader(value, _INT16.size)
        if end == len(value):
            return GroupRecord(read, found)
    except (IndexError, struct.error, UnicodeDecodeError):
        pass
    return GroupRecord(read, codec.decode(VALUES[number], version, value, _INT16.size))  # which says what is wrong
