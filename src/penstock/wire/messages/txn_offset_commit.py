"""TxnOffsetCommit (key 28): stores the offsets of a group as part of a transaction."""

from collections.abc import Sequence

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response, Struct, since
from penstock.wire.types import Int16, Int32, Int64


class TxnOffsetCommitRequestPartition(Struct):
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = since(2, default=-1, ignorable=True)
    committed_metadata: str | None


class TxnOffsetCommitRequestTopic(Struct):
    name: str
    partitions: Sequence[TxnOffsetCommitRequestPartition]


class TxnOffsetCommitRequest(Request, key=28, versions="0-5", flexible="3+"):
    transactional_id: str
    group_id: str
    producer_id: Int64
    producer_epoch: Int16
    generation_id: Int32 = since(3, default=-1)
    member_id: str = since(3, default="")
    group_instance_id: str | None = since(3, default=None)
    topics: Sequence[TxnOffsetCommitRequestTopic]


class TxnOffsetCommitResponsePartition(Struct):
    partition_index: Int32
    error_code: ErrorCode


class TxnOffsetCommitResponseTopic(Struct):
    name: str
    partitions: Sequence[TxnOffsetCommitResponsePartition]


class TxnOffsetCommitResponse(Response, key=28, versions="0-5", flexible="3+"):
    throttle_time_ms: Int32
    topics: Sequence[TxnOffsetCommitResponseTopic]
