"""InitializeShareGroupState (key 83): creates the state of share partitions."""

from collections.abc import Sequence

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response, Struct
from penstock.wire.types import Int32, Int64, Uuid


class PartitionData(Struct):
    partition: Int32
    state_epoch: Int32
    start_offset: Int64


class InitializeStateData(Struct):
    topic_id: Uuid
    partitions: Sequence[PartitionData]


class InitializeShareGroupStateRequest(Request, key=83, versions="0", flexible="0+"):
    group_id: str
    topics: Sequence[InitializeStateData]


class PartitionResult(Struct):
    partition: Int32
    error_code: ErrorCode
    error_message: str | None = None


class InitializeStateResult(Struct):
    topic_id: Uuid
    partitions: Sequence[PartitionResult]


class InitializeShareGroupStateResponse(Response, key=83, versions="0", flexible="0+"):
    results: Sequence[InitializeStateResult]
