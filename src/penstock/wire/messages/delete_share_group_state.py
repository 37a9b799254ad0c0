"""DeleteShareGroupState (key 86): deletes the state of share partitions."""

from collections.abc import Sequence

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response, Struct
from penstock.wire.types import Int32, Uuid


class PartitionData(Struct):
    partition: Int32


class DeleteStateData(Struct):
    topic_id: Uuid
    partitions: Sequence[PartitionData]


class DeleteShareGroupStateRequest(Request, key=86, versions="0", flexible="0+"):
    group_id: str
    topics: Sequence[DeleteStateData]


class PartitionResult(Struct):
    partition: Int32
    error_code: ErrorCode
    error_message: str | None = None


class DeleteStateResult(Struct):
    topic_id: Uuid
    partitions: Sequence[PartitionResult]


class DeleteShareGroupStateResponse(Response, key=86, versions="0", flexible="0+"):
    results: Sequence[DeleteStateResult]
