"""StreamsGroupDescribe (key 89): state, topology, members and tasks of streams groups."""

from collections.abc import Sequence

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response, Struct
from penstock.wire.types import Int16, Int32, Int64, UInt16


class StreamsGroupDescribeRequest(Request, key=89, versions="0", flexible="0+"):
    group_ids: Sequence[str]
    include_authorized_operations: bool


class KeyValue(Struct):
    key: str
    value: str


class TopicInfo(Struct):
    name: str
    partitions: Int32
    replication_factor: Int16
    topic_configs: Sequence[KeyValue]


class Subtopology(Struct):
    subtopology_id: str
    source_topics: Sequence[str]
    repartition_sink_topics: Sequence[str]
    state_changelog_topics: Sequence[TopicInfo]
    repartition_source_topics: Sequence[TopicInfo]


class Topology(Struct):
    epoch: Int32
    subtopologies: Sequence[Subtopology] | None = None


class Endpoint(Struct):
    host: str
    port: UInt16


class TaskOffset(Struct):
    subtopology_id: str
    partition: Int32
    offset: Int64


class TaskIds(Struct):
    subtopology_id: str
    partitions: Sequence[Int32]


class Assignment(Struct):
    active_tasks: Sequence[TaskIds]
    standby_tasks: Sequence[TaskIds]
    warmup_tasks: Sequence[TaskIds]


class Member(Struct):
    member_id: str
    member_epoch: Int32
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str
    client_host: str
    topology_epoch: Int32
    process_id: str
    user_endpoint: Endpoint | None = None
    client_tags: Sequence[KeyValue]
    task_offsets: Sequence[TaskOffset]
    task_end_offsets: Sequence[TaskOffset]
    assignment: Assignment
    target_assignment: Assignment
    is_classic: bool


class DescribedGroup(Struct):
    error_code: ErrorCode
    error_message: str | None = None
    group_id: str
    group_state: str
    group_epoch: Int32
    assignment_epoch: Int32
    topology: Topology | None = None
    members: Sequence[Member]
    authorized_operations: Int32 = -0x80000000


class StreamsGroupDescribeResponse(Response, key=89, versions="0", flexible="0+"):
    throttle_time_ms: Int32
    groups: Sequence[DescribedGroup]
