"""ConsumerGroupHeartbeat (key 68): a member of a KIP-848 group joins, stays, leaves and receives its assignment."""

from collections.abc import Sequence

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response, Struct, since
from penstock.wire.types import Int32, Uuid


class TopicPartitions(Struct):
    topic_id: Uuid
    partitions: Sequence[Int32]


class ConsumerGroupHeartbeatRequest(Request, key=68, versions="0-1", flexible="0+"):
    group_id: str
    member_id: str
    member_epoch: Int32
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: Int32 = -1
    subscribed_topic_names: Sequence[str] | None = None
    subscribed_topic_regex: str | None = since(1, default=None)
    server_assignor: str | None = None
    topic_partitions: Sequence[TopicPartitions] | None = None


class ConsumerGroupHeartbeatResponseTopicPartitions(Struct):
    topic_id: Uuid
    partitions: Sequence[Int32]


class Assignment(Struct):
    topic_partitions: Sequence[ConsumerGroupHeartbeatResponseTopicPartitions]


class ConsumerGroupHeartbeatResponse(Response, key=68, versions="0-1", flexible="0+"):
    throttle_time_ms: Int32
    error_code: ErrorCode
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: Int32
    heartbeat_interval_ms: Int32
    assignment: Assignment | None = None
