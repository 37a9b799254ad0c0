"""ReadShareGroupStateSummary (key 87): start offsets and epochs of share partitions, without their batches."""

from collections.abc import Sequence

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response, Struct, since
from penstock.wire.types import Int32, Int64, Uuid


class PartitionData(Struct):
    partition: Int32
    leader_epoch: Int32


class ReadStateSummaryData(Struct):
    topic_id: Uuid
    partitions: Sequence[PartitionData]


class ReadShareGroupStateSummaryRequest(Request, key=87, versions="0-1", flexible="0+"):
    group_id: str
    topics: Sequence[ReadStateSummaryData]


class PartitionResult(Struct):
    partition: Int32
    error_code: ErrorCode
    error_message: str | None = None
    state_epoch: Int32
    leader_epoch: Int32
    start_offset: Int64
    delivery_complete_count: Int32 = since(1, default=-1, ignorable=True)


class ReadStateSummaryResult(Struct):
    topic_id: Uuid
    partitions: Sequence[PartitionResult]


class ReadShareGroupStateSummaryResponse(Response, key=87, versions="0-1", flexible="0+"):
    results: Sequence[ReadStateSummaryResult]
