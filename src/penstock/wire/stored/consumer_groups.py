"""Keys and values in `__consumer_offsets`: consumer groups (KIP-848).

Target and current assignment, epochs, members and resolved regular expressions each have a record of their own.
"""

from collections.abc import Sequence

from penstock.wire.declare import StoredKey, StoredValue, Struct, tagged
from penstock.wire.types import Int8, Int32, Int64, Uuid


class ConsumerGroupMetadataKey(StoredKey, type=3, versions="0"):
    group_id: str


class ConsumerGroupMetadataValue(StoredValue, type=3, versions="0", flexible="0+"):
    epoch: Int32
    metadata_hash: Int64 = tagged(0, since=0, default=0)


class ConsumerGroupPartitionMetadataKey(StoredKey, type=4, versions="0"):
    group_id: str


class PartitionMetadata(Struct):
    partition: Int32
    racks: Sequence[str]


class TopicMetadata(Struct):
    topic_id: Uuid
    topic_name: str
    num_partitions: Int32
    partition_metadata: Sequence[PartitionMetadata]


class ConsumerGroupPartitionMetadataValue(StoredValue, type=4, versions="0", flexible="0+"):
    topics: Sequence[TopicMetadata]


class ConsumerGroupMemberMetadataKey(StoredKey, type=5, versions="0"):
    group_id: str
    member_id: str


class ClassicProtocol(Struct):
    name: str
    metadata: bytes


class ClassicMemberMetadata(Struct):
    session_timeout_ms: Int32 = 0
    supported_protocols: Sequence[ClassicProtocol] = ()


class ConsumerGroupMemberMetadataValue(StoredValue, type=5, versions="0", flexible="0+"):
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_topic_names: Sequence[str]
    subscribed_topic_regex: str | None
    rebalance_timeout_ms: Int32 = -1
    server_assignor: str | None
    classic_member_metadata: ClassicMemberMetadata | None = tagged(0, since=0, default=ClassicMemberMetadata())


class ConsumerGroupTargetAssignmentMetadataKey(StoredKey, type=6, versions="0"):
    group_id: str


class ConsumerGroupTargetAssignmentMetadataValue(StoredValue, type=6, versions="0", flexible="0+"):
    assignment_epoch: Int32
    assignment_timestamp: Int64 = tagged(0, since=0, default=0, ignorable=True)


class ConsumerGroupTargetAssignmentMemberKey(StoredKey, type=7, versions="0"):
    group_id: str
    member_id: str


class TopicPartition(Struct):
    topic_id: Uuid
    partitions: Sequence[Int32]


class ConsumerGroupTargetAssignmentMemberValue(StoredValue, type=7, versions="0", flexible="0+"):
    topic_partitions: Sequence[TopicPartition]


class ConsumerGroupCurrentMemberAssignmentKey(StoredKey, type=8, versions="0"):
    group_id: str
    member_id: str


class TopicPartitions(Struct):
    topic_id: Uuid
    partitions: Sequence[Int32]
    assignment_epochs: Sequence[Int32] | None = tagged(0, since=0, default=())


class ConsumerGroupCurrentMemberAssignmentValue(StoredValue, type=8, versions="0", flexible="0+"):
    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    assigned_partitions: Sequence[TopicPartitions]
    partitions_pending_revocation: Sequence[TopicPartitions]


class ConsumerGroupRegularExpressionKey(StoredKey, type=16, versions="0"):
    group_id: str
    regular_expression: str


class ConsumerGroupRegularExpressionValue(StoredValue, type=16, versions="0", flexible="0+"):
    topics: Sequence[str]
    version: Int64
    timestamp: Int64
