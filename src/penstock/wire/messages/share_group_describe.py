"""ShareGroupDescribe (key 77): state, members and assignments of share groups."""

from collections.abc import Sequence

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response, Struct
from penstock.wire.types import Int32, Uuid


class ShareGroupDescribeRequest(Request, key=77, versions="1", flexible="0+"):
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
    rack_id: str | None = None
    member_epoch: Int32
    client_id: str
    client_host: str
    subscribed_topic_names: Sequence[str]
    assignment: Assignment


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


class ShareGroupDescribeResponse(Response, key=77, versions="1", flexible="0+"):
    throttle_time_ms: Int32
    groups: Sequence[DescribedGroup]
