"""OffsetForLeaderEpoch (key 23): the end offset of a leader epoch, by which a reader detects a diverged log."""

from collections.abc import Sequence

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response, Struct, since
from penstock.wire.types import Int32, Int64


class OffsetForLeaderPartition(Struct):
    partition: Int32
    current_leader_epoch: Int32 = -1
    leader_epoch: Int32


class OffsetForLeaderTopic(Struct):
    topic: str
    partitions: Sequence[OffsetForLeaderPartition]


class OffsetForLeaderEpochRequest(Request, key=23, versions="2-4", flexible="4+"):
    replica_id: Int32 = since(3, default=-2, ignorable=True)
    topics: Sequence[OffsetForLeaderTopic]


class EpochEndOffset(Struct):
    error_code: ErrorCode
    partition: Int32
    leader_epoch: Int32 = -1
    end_offset: Int64 = -1


class OffsetForLeaderTopicResult(Struct):
    topic: str
    partitions: Sequence[EpochEndOffset]


class OffsetForLeaderEpochResponse(Response, key=23, versions="2-4", flexible="4+"):
    throttle_time_ms: Int32
    topics: Sequence[OffsetForLeaderTopicResult]
