"""OffsetDelete (key 47): deletes the committed offsets of a group for some partitions."""

from collections.abc import Sequence

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response, Struct
from penstock.wire.types import Int32


class OffsetDeleteRequestPartition(Struct):
    partition_index: Int32


class OffsetDeleteRequestTopic(Struct):
    name: str
    partitions: Sequence[OffsetDeleteRequestPartition]


class OffsetDeleteRequest(Request, key=47, versions="0"):
    group_id: str
    topics: Sequence[OffsetDeleteRequestTopic]


class OffsetDeleteResponsePartition(Struct):
    partition_index: Int32
    error_code: ErrorCode


class OffsetDeleteResponseTopic(Struct):
    name: str
    partitions: Sequence[OffsetDeleteResponsePartition]


class OffsetDeleteResponse(Response, key=47, versions="0"):
    error_code: ErrorCode
    throttle_time_ms: Int32
    topics: Sequence[OffsetDeleteResponseTopic]
