"""ReadShareGroupState (key 84): a share-partition leader loads its state."""

from collections.abc import Sequence

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response, Struct
from penstock.wire.types import Int8, Int16, Int32, Int64, Uuid


class PartitionData(Struct):
    partition: Int32
    leader_epoch: Int32


class ReadStateData(Struct):
    topic_id: Uuid
    partitions: Sequence[PartitionData]


class ReadShareGroupStateRequest(Request, key=84, versions="0", flexible="0+"):
    group_id: str
    topics: Sequence[ReadStateData]


class StateBatch(Struct):
    first_offset: Int64
    last_offset: Int64
    delivery_state: Int8
    delivery_count: Int16


class PartitionResult(Struct):
    partition: Int32
    error_code: ErrorCode
    error_message: str | None = None
    state_epoch: Int32
    start_offset: Int64
    state_batches: Sequence[StateBatch]


class ReadStateResult(Struct):
    topic_id: Uuid
    partitions: Sequence[PartitionResult]


class ReadShareGroupStateResponse(Response, key=84, versions="0", flexible="0+"):
    results: Sequence[ReadStateResult]
