"""AlterShareGroupOffsets (key 91): sets the start offsets of a share group."""

from collections.abc import Sequence

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response, Struct
from penstock.wire.types import Int32, Int64, Uuid


class AlterShareGroupOffsetsRequestPartition(Struct):
    partition_index: Int32
    start_offset: Int64


class AlterShareGroupOffsetsRequestTopic(Struct):
    topic_name: str
    partitions: Sequence[AlterShareGroupOffsetsRequestPartition]


class AlterShareGroupOffsetsRequest(Request, key=91, versions="0", flexible="0+"):
    group_id: str
    topics: Sequence[AlterShareGroupOffsetsRequestTopic]


class AlterShareGroupOffsetsResponsePartition(Struct):
    partition_index: Int32
    error_code: ErrorCode
    error_message: str | None = None


class AlterShareGroupOffsetsResponseTopic(Struct):
    topic_name: str
    topic_id: Uuid
    partitions: Sequence[AlterShareGroupOffsetsResponsePartition]


class AlterShareGroupOffsetsResponse(Response, key=91, versions="0", flexible="0+"):
    throttle_time_ms: Int32
    error_code: ErrorCode
    error_message: str | None = None
    responses: Sequence[AlterShareGroupOffsetsResponseTopic]
