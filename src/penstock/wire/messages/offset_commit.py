"""OffsetCommit (key 8): stores the committed offsets of a group."""

from collections.abc import Sequence

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response, Struct, since, until
from penstock.wire.types import ZERO_UUID, Int32, Int64, Uuid


class OffsetCommitRequestPartition(Struct):
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = since(6, default=-1, ignorable=True)
    committed_metadata: str | None


class OffsetCommitRequestTopic(Struct):
    name: str = until(9, default="", ignorable=True)
    topic_id: Uuid = since(10, default=ZERO_UUID, ignorable=True)
    partitions: Sequence[OffsetCommitRequestPartition]


class OffsetCommitRequest(Request, key=8, versions="2-10", flexible="8+"):
    group_id: str
    generation_id_or_member_epoch: Int32 = -1
    member_id: str
    group_instance_id: str | None = since(7, default=None)
    retention_time_ms: Int64 = until(4, default=-1, ignorable=True)
    topics: Sequence[OffsetCommitRequestTopic]


class OffsetCommitResponsePartition(Struct):
    partition_index: Int32
    error_code: ErrorCode


class OffsetCommitResponseTopic(Struct):
    name: str = until(9, default="", ignorable=True)
    topic_id: Uuid = since(10, default=ZERO_UUID, ignorable=True)
    partitions: Sequence[OffsetCommitResponsePartition]


class OffsetCommitResponse(Response, key=8, versions="2-10", flexible="8+"):
    throttle_time_ms: Int32 = since(3, default=0, ignorable=True)
    topics: Sequence[OffsetCommitResponseTopic]
