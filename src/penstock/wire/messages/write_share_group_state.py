"""WriteShareGroupState (key 85): a share-partition leader stores its state."""

from collections.abc import Sequence

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response, Struct, since
from penstock.wire.types import Int8, Int16, Int32, Int64, Uuid


class StateBatch(Struct):
    first_offset: Int64
    last_offset: Int64
    delivery_state: Int8
    delivery_count: Int16


class PartitionData(Struct):
    partition: Int32
    state_epoch: Int32
    leader_epoch: Int32
    start_offset: Int64
    delivery_complete_count: Int32 = since(1, default=-1, ignorable=True)
    state_batches: Sequence[StateBatch]


class WriteStateData(Struct):
    topic_id: Uuid
    partitions: Sequence[PartitionData]


class WriteShareGroupStateRequest(Request, key=85, versions="0-1", flexible="0+"):
    group_id: str
    topics: Sequence[WriteStateData]


class PartitionResult(Struct):
    partition: Int32
    error_code: ErrorCode
    error_message: str | None = None


class WriteStateResult(Struct):
    topic_id: Uuid
    partitions: Sequence[PartitionResult]


class WriteShareGroupStateResponse(Response, key=85, versions="0-1", flexible="0+"):
    results: Sequence[WriteStateResult]
