"""Keys and values in `__consumer_offsets`: streams groups (KIP-1071)."""

from collections.abc import Sequence

from penstock.wire.declare import StoredKey, StoredValue, Struct, tagged
from penstock.wire.types import Int8, Int16, Int32, Int64, UInt16


class StreamsGroupMetadataKey(StoredKey, type=17, versions="0"):
    group_id: str


class LastAssignmentConfig(Struct):
    key: str
    value: str


class StreamsGroupMetadataValue(StoredValue, type=17, versions="0", flexible="0+"):
    epoch: Int32
    metadata_hash: Int64
    validated_topology_epoch: Int32 = tagged(0, since=0, default=-1)
    last_assignment_configs: Sequence[LastAssignmentConfig] | None = tagged(1, since=0, default=())


class StreamsGroupMemberMetadataKey(StoredKey, type=19, versions="0"):
    group_id: str
    member_id: str


class Endpoint(Struct):
    host: str
    port: UInt16


class KeyValue(Struct):
    key: str
    value: str


class StreamsGroupMemberMetadataValue(StoredValue, type=19, versions="0", flexible="0+"):
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: Int32 = -1
    topology_epoch: Int32
    process_id: str
    user_endpoint: Endpoint | None = None
    client_tags: Sequence[KeyValue]


class StreamsGroupTargetAssignmentMetadataKey(StoredKey, type=20, versions="0"):
    group_id: str


class StreamsGroupTargetAssignmentMetadataValue(StoredValue, type=20, versions="0", flexible="0+"):
    assignment_epoch: Int32
    assignment_timestamp: Int64 = tagged(0, since=0, default=0, ignorable=True)


class StreamsGroupTargetAssignmentMemberKey(StoredKey, type=21, versions="0"):
    group_id: str
    member_id: str


class TaskIds(Struct):
    subtopology_id: str
    partitions: Sequence[Int32]


class StreamsGroupTargetAssignmentMemberValue(StoredValue, type=21, versions="0", flexible="0+"):
    active_tasks: Sequence[TaskIds]
    standby_tasks: Sequence[TaskIds]
    warmup_tasks: Sequence[TaskIds]


class StreamsGroupCurrentMemberAssignmentKey(StoredKey, type=22, versions="0"):
    group_id: str
    member_id: str


class StreamsGroupCurrentMemberAssignmentValueTaskIds(Struct):
    subtopology_id: str
    partitions: Sequence[Int32]
    assignment_epochs: Sequence[Int32] | None = tagged(0, since=0, default=())


class StreamsGroupCurrentMemberAssignmentValue(StoredValue, type=22, versions="0", flexible="0+"):
    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    active_tasks: Sequence[StreamsGroupCurrentMemberAssignmentValueTaskIds]
    standby_tasks: Sequence[StreamsGroupCurrentMemberAssignmentValueTaskIds]
    warmup_tasks: Sequence[StreamsGroupCurrentMemberAssignmentValueTaskIds]
    active_tasks_pending_revocation: Sequence[StreamsGroupCurrentMemberAssignmentValueTaskIds]
    standby_tasks_pending_revocation: Sequence[StreamsGroupCurrentMemberAssignmentValueTaskIds]
    warmup_tasks_pending_revocation: Sequence[StreamsGroupCurrentMemberAssignmentValueTaskIds]


class StreamsGroupTopologyKey(StoredKey, type=23, versions="0"):
    group_id: str


class TopicConfig(Struct):
    key: str
    value: str


class TopicInfo(Struct):
    name: str
    partitions: Int32
    replication_factor: Int16
    topic_configs: Sequence[TopicConfig]


class CopartitionGroup(Struct):
    source_topics: Sequence[Int16]
    source_topic_regex: Sequence[Int16]
    repartition_source_topics: Sequence[Int16]


class Subtopology(Struct):
    subtopology_id: str
    source_topics: Sequence[str]
    source_topic_regex: Sequence[str]
    state_changelog_topics: Sequence[TopicInfo]
    repartition_sink_topics: Sequence[str]
    repartition_source_topics: Sequence[TopicInfo]
    copartition_groups: Sequence[CopartitionGroup]


class StreamsGroupTopologyValue(StoredValue, type=23, versions="0", flexible="0+"):
    epoch: Int32
    subtopologies: Sequence[Subtopology]
