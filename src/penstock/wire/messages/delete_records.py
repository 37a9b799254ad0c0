"""DeleteRecords (key 21): deletes all records before an offset."""

from collections.abc import Sequence

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response, Struct
from penstock.wire.types import Int32, Int64


class DeleteRecordsPartition(Struct):
    partition_index: Int32
    offset: Int64


class DeleteRecordsTopic(Struct):
    name: str
    partitions: Sequence[DeleteRecordsPartition]


class DeleteRecordsRequest(Request, key=21, versions="0-2", flexible="2+"):
    topics: Sequence[DeleteRecordsTopic]
    timeout_ms: Int32


class DeleteRecordsPartitionResult(Struct):
    partition_index: Int32
    low_watermark: Int64
    error_code: ErrorCode


class DeleteRecordsTopicResult(Struct):
    name: str
    partitions: Sequence[DeleteRecordsPartitionResult]


class DeleteRecordsResponse(Response, key=21, versions="0-2", flexible="2+"):
    throttle_time_ms: Int32
    topics: Sequence[DeleteRecordsTopicResult]
