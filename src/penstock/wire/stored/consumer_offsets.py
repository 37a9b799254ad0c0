"""Keys and values in `__consumer_offsets`: committed offsets and classic groups.

The first two bytes of a key are its type, those of a value its version. Burrow, kminion and others read this topic.
"""

from collections.abc import Sequence

from penstock.wire.declare import StoredKey, StoredValue, Struct, since, tagged
from penstock.wire.types import ZERO_UUID, Int32, Int64, Uuid


class LegacyOffsetCommitKey(StoredKey, type=0, versions="0"):
    group: str
    topic: str
    partition: Int32


class LegacyOffsetCommitValue(StoredValue, type=0, versions="0"):
    offset: Int64
    metadata: str
    commit_timestamp: Int64


class OffsetCommitKey(StoredKey, type=1, versions="0"):
    group: str
    topic: str
    partition: Int32


class OffsetCommitValue(StoredValue, type=1, versions="0-4", flexible="4+"):
    offset: Int64
    leader_epoch: Int32 = since(3, default=-1, ignorable=True)
    metadata: str
    commit_timestamp: Int64
    expire_timestamp: Int64 = since(1, default=-1, until=1, ignorable=True)
    topic_id: Uuid = tagged(0, since=4, default=ZERO_UUID, ignorable=True)


class GroupMetadataKey(StoredKey, type=2, versions="0"):
    group: str


class MemberMetadata(Struct):
    member_id: str
    group_instance_id: str | None = since(3, default=None, ignorable=True)
    client_id: str
    client_host: str
    rebalance_timeout: Int32 = since(1, default=-1, ignorable=True)
    session_timeout: Int32
    subscription: bytes
    assignment: bytes


class GroupMetadataValue(StoredValue, type=2, versions="0-4", flexible="4+"):
    protocol_type: str
    generation: Int32
    protocol: str | None
    leader: str | None
    current_state_timestamp: Int64 = since(2, default=-1, ignorable=True)
    members: Sequence[MemberMetadata]
