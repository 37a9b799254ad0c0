"""DescribeShareGroupOffsets (key 90): the start offsets of share groups."""

from collections.abc import Sequence

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response, Struct, since
from penstock.wire.types import Int32, Int64, Uuid


class DescribeShareGroupOffsetsRequestTopic(Struct):
    topic_name: str
    partitions: Sequence[Int32]


class DescribeShareGroupOffsetsRequestGroup(Struct):
    group_id: str
    topics: Sequence[DescribeShareGroupOffsetsRequestTopic] | None


class DescribeShareGroupOffsetsRequest(Request, key=90, versions="0-1", flexible="0+"):
    groups: Sequence[DescribeShareGroupOffsetsRequestGroup]


class DescribeShareGroupOffsetsResponsePartition(Struct):
    partition_index: Int32
    start_offset: Int64
    leader_epoch: Int32
    lag: Int64 = since(1, default=-1, ignorable=True)
    error_code: ErrorCode
    error_message: str | None = None


class DescribeShareGroupOffsetsResponseTopic(Struct):
    topic_name: str
    topic_id: Uuid
    partitions: Sequence[DescribeShareGroupOffsetsResponsePartition]


class DescribeShareGroupOffsetsResponseGroup(Struct):
    group_id: str
    topics: Sequence[DescribeShareGroupOffsetsResponseTopic]
    error_code: ErrorCode
    error_message: str | None = None


class DescribeShareGroupOffsetsResponse(Response, key=90, versions="0-1", flexible="0+"):
    throttle_time_ms: Int32
    groups: Sequence[DescribeShareGroupOffsetsResponseGroup]
