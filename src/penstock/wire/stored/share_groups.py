"""Keys and values in `__consumer_offsets`: share groups (KIP-932)."""

from collections.abc import Sequence

from penstock.wire.declare import StoredKey, StoredValue, Struct, tagged
from penstock.wire.types import Int8, Int32, Int64, Uuid


class ShareGroupMemberMetadataKey(StoredKey, type=10, versions="0"):
    group_id: str
    member_id: str


class ShareGroupMemberMetadataValue(StoredValue, type=10, versions="0", flexible="0+"):
    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_topic_names: Sequence[str]


class ShareGroupMetadataKey(StoredKey, type=11, versions="0"):
    group_id: str


class ShareGroupMetadataValue(StoredValue, type=11, versions="0", flexible="0+"):
    epoch: Int32
    metadata_hash: Int64


class ShareGroupTargetAssignmentMetadataKey(StoredKey, type=12, versions="0"):
    group_id: str


class ShareGroupTargetAssignmentMetadataValue(StoredValue, type=12, versions="0", flexible="0+"):
    assignment_epoch: Int32
    assignment_timestamp: Int64 = tagged(0, since=0, default=0, ignorable=True)


class ShareGroupTargetAssignmentMemberKey(StoredKey, type=13, versions="0"):
    group_id: str
    member_id: str


class TopicPartition(Struct):
    topic_id: Uuid
    partitions: Sequence[Int32]


class ShareGroupTargetAssignmentMemberValue(StoredValue, type=13, versions="0", flexible="0+"):
    topic_partitions: Sequence[TopicPartition]


class ShareGroupCurrentMemberAssignmentKey(StoredKey, type=14, versions="0"):
    group_id: str
    member_id: str


class TopicPartitions(Struct):
    topic_id: Uuid
    partitions: Sequence[Int32]


class ShareGroupCurrentMemberAssignmentValue(StoredValue, type=14, versions="0", flexible="0+"):
    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    assigned_partitions: Sequence[TopicPartitions]


class ShareGroupStatePartitionMetadataKey(StoredKey, type=15, versions="0"):
    group_id: str


class TopicPartitionsInfo(Struct):
    topic_id: Uuid
    topic_name: str
    partitions: Sequence[Int32]


class TopicInfo(Struct):
    topic_id: Uuid
    topic_name: str


class ShareGroupStatePartitionMetadataValue(StoredValue, type=15, versions="0", flexible="0+"):
    initializing_topics: Sequence[TopicPartitionsInfo]
    initialized_topics: Sequence[TopicPartitionsInfo]
    deleting_topics: Sequence[TopicInfo]
