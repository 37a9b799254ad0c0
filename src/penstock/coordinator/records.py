"""Records of `__consumer_offsets` as keys and values, and as the bytes that Burrow, kminion and Kafka read.

The first two bytes of a key are its type, those of a value its version; a null value is a tombstone. Records of newer
versions, and of group types that are not served here, are skipped, never refused.
"""

import struct
from functools import cache, lru_cache
from typing import Final, NamedTuple, TypeAlias, TypeVar, get_args

from penstock.model.errors import MalformedMessage
from penstock.wire import codec
from penstock.wire.compile import Reader
from penstock.wire.stored import consumer_groups, consumer_offsets
from penstock.wire.stored.consumer_offsets import OffsetCommitKey, OffsetCommitValue

_INT16: Final = struct.Struct(">h")

ConsumerKey: TypeAlias = (
    consumer_groups.ConsumerGroupCurrentMemberAssignmentKey
    | consumer_groups.ConsumerGroupMemberMetadataKey
    | consumer_groups.ConsumerGroupTargetAssignmentMemberKey
    | consumer_groups.ConsumerGroupTargetAssignmentMetadataKey
    | consumer_groups.ConsumerGroupMetadataKey
    | consumer_groups.ConsumerGroupRegularExpressionKey
    | consumer_groups.ConsumerGroupPartitionMetadataKey
)
"""Keys of consumer group records; the last is written only by older versions, and ignored."""
GroupKey: TypeAlias = (
    OffsetCommitKey | consumer_offsets.GroupMetadataKey | consumer_offsets.LegacyOffsetCommitKey | ConsumerKey
)
GroupValue: TypeAlias = (
    OffsetCommitValue
    | consumer_offsets.GroupMetadataValue
    | consumer_offsets.LegacyOffsetCommitValue
    | consumer_groups.ConsumerGroupCurrentMemberAssignmentValue
    | consumer_groups.ConsumerGroupMemberMetadataValue
    | consumer_groups.ConsumerGroupTargetAssignmentMemberValue
    | consumer_groups.ConsumerGroupTargetAssignmentMetadataValue
    | consumer_groups.ConsumerGroupMetadataValue
    | consumer_groups.ConsumerGroupRegularExpressionValue
    | consumer_groups.ConsumerGroupPartitionMetadataValue
)
Value = TypeVar("Value", bound=GroupValue)

KEYS: Final[dict[int, type[GroupKey]]] = {kind.TYPE: kind for kind in get_args(GroupKey)}
"""Supported keys by type."""
VALUES: Final[dict[int, type[GroupValue]]] = {kind.TYPE: kind for kind in get_args(GroupValue)}

_WRITTEN: Final = {OffsetCommitValue.TYPE: 3, consumer_offsets.GroupMetadataValue.TYPE: 3}
"""Versions that are written instead of the newest, for tools that cannot read the newest."""

_COMMIT: Final = _INT16.pack(OffsetCommitKey.TYPE)
_PARTITION: Final = struct.Struct(">i")
_BARE_COMMIT: Final = struct.Struct(">hqihq")
"""Version, offset, leader epoch, metadata length 0, timestamp."""
PREFIXES_KEPT: Final = 16
"""Size of a cache: a request commits many partitions of a topic, and names may be long."""


class GroupRecord(NamedTuple):
    """A key and its new value; None is a tombstone."""

    key: GroupKey
    value: GroupValue | None


def value_as(kind: type[Value], value: GroupValue | None) -> Value | None:
    """The value of a record whose key is of the same type as `kind`."""
    assert value is None or isinstance(value, kind), f"{value} is no {kind.__name__}"
    return value


def encode_record(record: GroupRecord) -> tuple[bytes, bytes | None]:
    """Key and value as bytes of the log."""
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
    """Encodes a commit without metadata, several times as fast: nearly all records are such commits."""
    version = _WRITTEN[OffsetCommitValue.TYPE]
    body = _BARE_COMMIT.pack(version, value.offset, value.leader_epoch, 0, value.commit_timestamp)
    return _commit_prefix(key.group, key.topic) + _PARTITION.pack(key.partition), body


@lru_cache(maxsize=PREFIXES_KEPT)
def _commit_prefix(group: str, topic: str) -> bytes:
    """An offset commit key without its partition."""
    out = bytearray(_COMMIT)
    codec.write_into(out, OffsetCommitKey(group=group, topic=topic, partition=0), 0)
    return bytes(out[: -_PARTITION.size])


def is_commit(key: bytes) -> bool:
    """Whether this is the key of a committed offset."""
    return key[: _INT16.size] == _COMMIT


def _decode_key(key: bytes) -> GroupKey | None:
    if len(key) < _INT16.size:
        return None
    kind = KEYS.get(_INT16.unpack_from(key)[0])
    return None if kind is None else codec.decode(kind, 0, key, _INT16.size)


@cache
def _value_reader(kind: int, version: int) -> Reader | None:
    return codec.reader_for(VALUES[kind], version) if version in VALUES[kind].VERSIONS else None


def decode_record(key: bytes | None, value: bytes | None) -> GroupRecord | None:
    """The record, or None if its type or version is unknown. Raises MalformedMessage if it is damaged."""
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
    return GroupRecord(read, codec.decode(VALUES[number], version, value, _INT16.size))  # raises the precise error
