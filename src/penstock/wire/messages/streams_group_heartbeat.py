"""StreamsGroupHeartbeat (key 88): a member of a streams group (KIP-1071) joins, stays, leaves, receives its tasks."""

from collections.abc import Sequence

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response, Struct
from penstock.wire.types import Int8, Int16, Int32, Int64, UInt16


class KeyValue(Struct):
    key: str
    value: str


class TopicInfo(Struct):
    name: str
    partitions: Int32
    replication_factor: Int16
    topic_configs: Sequence[KeyValue]


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


class Topology(Struct):
    epoch: Int32
    subtopologies: Sequence[Subtopology]


class TaskIds(Struct):
    subtopology_id: str
    partitions: Sequence[Int32]


class Endpoint(Struct):
    host: str
    port: UInt16


class TaskOffset(Struct):
    subtopology_id: str
    partition: Int32
    offset: Int64


class StreamsGroupHeartbeatRequest(Request, key=88, versions="0", flexible="0+"):
    group_id: str
    member_id: str
    member_epoch: Int32
    endpoint_information_epoch: Int32
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: Int32 = -1
    topology: Topology | None = None
    active_tasks: Sequence[TaskIds] | None = None
    standby_tasks: Sequence[TaskIds] | None = None
    warmup_tasks: Sequence[TaskIds] | None = None
    process_id: str | None = None
    user_endpoint: Endpoint | None = None
    client_tags: Sequence[KeyValue] | None = None
    task_offsets: Sequence[TaskOffset] | None = None
    task_end_offsets: Sequence[TaskOffset] | None = None
    shutdown_application: bool = False


class Status(Struct):
    status_code: Int8
    status_detail: str


class StreamsGroupHeartbeatResponseTaskIds(Struct):
    subtopology_id: str
    partitions: Sequence[Int32]


class StreamsGroupHeartbeatResponseEndpoint(Struct):
    host: str
    port: UInt16


class TopicPartition(Struct):
    topic: str
    partitions: Sequence[Int32]


class EndpointToPartitions(Struct):
    user_endpoint: StreamsGroupHeartbeatResponseEndpoint
    active_partitions: Sequence[TopicPartition]
    standby_partitions: Sequence[TopicPartition]


class StreamsGroupHeartbeatResponse(Response, key=88, versions="0", flexible="0+"):
    throttle_time_ms: Int32
    error_code: ErrorCode
    error_message: str | None = None
    member_id: str
    member_epoch: Int32
    heartbeat_interval_ms: Int32
    acceptable_recovery_lag: Int32
    task_offset_interval_ms: Int32
    status: Sequence[Status] | None
    active_tasks: Sequence[StreamsGroupHeartbeatResponseTaskIds] | None = None
    standby_tasks: Sequence[StreamsGroupHeartbeatResponseTaskIds] | None = None
    warmup_tasks: Sequence[StreamsGroupHeartbeatResponseTaskIds] | None = None
    endpoint_information_epoch: Int32
    partitions_by_user_endpoint: Sequence[EndpointToPartitions] | None = None
