"""ShareGroupHeartbeat (key 76): a member of a share group (KIP-932) joins, stays, leaves, receives its assignment."""

from collections.abc import Sequence

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response, Struct
from penstock.wire.types import Int32, Uuid


class ShareGroupHeartbeatRequest(Request, key=76, versions="1", flexible="0+"):
    group_id: str
    member_id: str
    member_epoch: Int32
    rack_id: str | None = None
    subscribed_topic_names: Sequence[str] | None = None


class TopicPartitions(Struct):
    topic_id: Uuid
    partitions: Sequence[Int32]


class Assignment(Struct):
    topic_partitions: Sequence[TopicPartitions]


class ShareGroupHeartbeatResponse(Response, key=76, versions="1", flexible="0+"):
    throttle_time_ms: Int32
    error_code: ErrorCode
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: Int32
    heartbeat_interval_ms: Int32
    assignment: Assignment | None = None
