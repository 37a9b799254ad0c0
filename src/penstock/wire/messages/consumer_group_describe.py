"""ConsumerGroupDescribe (key 69): state, members and assignments of consumer groups (KIP-848)."""

from collections.abc import Sequence

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response, Struct, since
from penstock.wire.types import Int8, Int32, Uuid


class ConsumerGroupDescribeRequest(Request, key=69, versions="0-1", flexible="0+"):
    group_ids: Sequence[str]
    include_authorized_operations: bool


class TopicPartitions(Struct):
    topic_id: Uuid
    topic_name: str
    partitions: Sequence[Int32]


class Assignment(Struct):
    topic_partitions: Sequence[TopicPartitions]


class Member(Struct):
    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    member_epoch: Int32
    client_id: str
    client_host: str
    subscribed_topic_names: Sequence[str]
    subscribed_topic_regex: str | None = None
    assignment: Assignment
    target_assignment: Assignment
    member_type: Int8 = since(1, default=-1, ignorable=True)


class DescribedGroup(Struct):
    error_code: ErrorCode
    error_message: str | None = None
    group_id: str
    group_state: str
    group_epoch: Int32
    assignment_epoch: Int32
    assignor_name: str
    members: Sequence[Member]
    authorized_operations: Int32 = -0x80000000


class ConsumerGroupDescribeResponse(Response, key=69, versions="0-1", flexible="0+"):
    throttle_time_ms: Int32
    groups: Sequence[DescribedGroup]
