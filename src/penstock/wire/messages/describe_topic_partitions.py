"""DescribeTopicPartitions (key 75): partitions of topics, page by page."""

from collections.abc import Sequence

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response, Struct
from penstock.wire.types import Int32, Uuid


class TopicRequest(Struct):
    name: str


class Cursor(Struct):
    topic_name: str
    partition_index: Int32


class DescribeTopicPartitionsRequest(Request, key=75, versions="0", flexible="0+"):
    topics: Sequence[TopicRequest]
    response_partition_limit: Int32 = 2000
    cursor: Cursor | None = None


class DescribeTopicPartitionsResponsePartition(Struct):
    error_code: ErrorCode
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Int32 = -1
    replica_nodes: Sequence[Int32]
    isr_nodes: Sequence[Int32]
    eligible_leader_replicas: Sequence[Int32] | None = None
    last_known_elr: Sequence[Int32] | None = None
    offline_replicas: Sequence[Int32]


class DescribeTopicPartitionsResponseTopic(Struct):
    error_code: ErrorCode
    name: str | None
    topic_id: Uuid
    is_internal: bool = False
    partitions: Sequence[DescribeTopicPartitionsResponsePartition]
    topic_authorized_operations: Int32 = -0x80000000


class DescribeTopicPartitionsResponseCursor(Struct):
    topic_name: str
    partition_index: Int32


class DescribeTopicPartitionsResponse(Response, key=75, versions="0", flexible="0+"):
    throttle_time_ms: Int32
    topics: Sequence[DescribeTopicPartitionsResponseTopic]
    next_cursor: DescribeTopicPartitionsResponseCursor | None = None
