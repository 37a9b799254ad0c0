"""ListOffsets (key 2): the first offset, the last offset, or the first offset at a time."""

from collections.abc import Sequence

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response, Struct, since
from penstock.wire.types import Int8, Int32, Int64


class ListOffsetsPartition(Struct):
    partition_index: Int32
    current_leader_epoch: Int32 = since(4, default=-1, ignorable=True)
    timestamp: Int64


class ListOffsetsTopic(Struct):
    name: str
    partitions: Sequence[ListOffsetsPartition]


class ListOffsetsRequest(Request, key=2, versions="1-11", flexible="6+"):
    replica_id: Int32
    isolation_level: Int8 = since(2, default=0)
    topics: Sequence[ListOffsetsTopic]
    timeout_ms: Int32 = since(10, default=0, ignorable=True)


class ListOffsetsPartitionResponse(Struct):
    partition_index: Int32
    error_code: ErrorCode
    timestamp: Int64 = -1
    offset: Int64 = -1
    leader_epoch: Int32 = since(4, default=-1)


class ListOffsetsTopicResponse(Struct):
    name: str
    partitions: Sequence[ListOffsetsPartitionResponse]


class ListOffsetsResponse(Response, key=2, versions="1-11", flexible="6+"):
    throttle_time_ms: Int32 = since(2, default=0, ignorable=True)
    topics: Sequence[ListOffsetsTopicResponse]
