"""AlterPartitionReassignments (key 45): starts or cancels the move of partitions to other brokers."""

from collections.abc import Sequence

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response, Struct, since
from penstock.wire.types import Int32


class ReassignablePartition(Struct):
    partition_index: Int32
    replicas: Sequence[Int32] | None = None


class ReassignableTopic(Struct):
    name: str
    partitions: Sequence[ReassignablePartition]


class AlterPartitionReassignmentsRequest(Request, key=45, versions="0-1", flexible="0+"):
    timeout_ms: Int32 = 60000
    allow_replication_factor_change: bool = since(1, default=True)
    topics: Sequence[ReassignableTopic]


class ReassignablePartitionResponse(Struct):
    partition_index: Int32
    error_code: ErrorCode
    error_message: str | None


class ReassignableTopicResponse(Struct):
    name: str
    partitions: Sequence[ReassignablePartitionResponse]


class AlterPartitionReassignmentsResponse(Response, key=45, versions="0-1", flexible="0+"):
    throttle_time_ms: Int32
    allow_replication_factor_change: bool = since(1, default=True, ignorable=True)
    error_code: ErrorCode
    error_message: str | None
    responses: Sequence[ReassignableTopicResponse]
