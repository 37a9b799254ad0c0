"""DescribeLogDirs (key 35): the data directories of a broker and the replicas in them."""

from collections.abc import Sequence

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response, Struct, since
from penstock.wire.types import Int32, Int64


class DescribableLogDirTopic(Struct):
    topic: str
    partitions: Sequence[Int32]


class DescribeLogDirsRequest(Request, key=35, versions="1-5", flexible="2+"):
    topics: Sequence[DescribableLogDirTopic] | None


class DescribeLogDirsPartition(Struct):
    partition_index: Int32
    partition_size: Int64
    offset_lag: Int64
    is_future_key: bool


class DescribeLogDirsTopic(Struct):
    name: str
    partitions: Sequence[DescribeLogDirsPartition]


class DescribeLogDirsResult(Struct):
    error_code: ErrorCode
    log_dir: str
    topics: Sequence[DescribeLogDirsTopic]
    total_bytes: Int64 = since(4, default=-1, ignorable=True)
    usable_bytes: Int64 = since(4, default=-1, ignorable=True)
    is_cordoned: bool = since(5, default=False, ignorable=True)


class DescribeLogDirsResponse(Response, key=35, versions="1-5", flexible="2+"):
    throttle_time_ms: Int32
    error_code: ErrorCode = since(3, default=ErrorCode.NONE, ignorable=True)
    results: Sequence[DescribeLogDirsResult]
