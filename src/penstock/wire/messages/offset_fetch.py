"""OffsetFetch (key 9): reads the committed offsets of groups."""

from collections.abc import Sequence

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response, Struct, since, until
from penstock.wire.types import ZERO_UUID, Int32, Int64, Uuid


class OffsetFetchRequestTopic(Struct):
    name: str = until(7, default="")
    partition_indexes: Sequence[Int32] = until(7, default=())


class OffsetFetchRequestTopics(Struct):
    name: str = until(9, default="", ignorable=True)
    topic_id: Uuid = since(10, default=ZERO_UUID, ignorable=True)
    partition_indexes: Sequence[Int32]


class OffsetFetchRequestGroup(Struct):
    group_id: str
    member_id: str | None = since(9, default=None, ignorable=True)
    member_epoch: Int32 = since(9, default=-1, ignorable=True)
    topics: Sequence[OffsetFetchRequestTopics] | None


class OffsetFetchRequest(Request, key=9, versions="1-10", flexible="6+"):
    group_id: str = until(7, default="")
    topics: Sequence[OffsetFetchRequestTopic] | None = until(7, default=(), nullable_since=2)
    groups: Sequence[OffsetFetchRequestGroup] = since(8, default=())
    require_stable: bool = since(7, default=False)


class OffsetFetchResponsePartition(Struct):
    partition_index: Int32 = until(7, default=0)
    committed_offset: Int64 = until(7, default=0)
    committed_leader_epoch: Int32 = since(5, default=-1, until=7, ignorable=True)
    metadata: str | None = until(7, default="")
    error_code: ErrorCode = until(7, default=ErrorCode.NONE)


class OffsetFetchResponseTopic(Struct):
    name: str = until(7, default="")
    partitions: Sequence[OffsetFetchResponsePartition] = until(7, default=())


class OffsetFetchResponsePartitions(Struct):
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = -1
    metadata: str | None
    error_code: ErrorCode


class OffsetFetchResponseTopics(Struct):
    name: str = until(9, default="", ignorable=True)
    topic_id: Uuid = since(10, default=ZERO_UUID, ignorable=True)
    partitions: Sequence[OffsetFetchResponsePartitions]


class OffsetFetchResponseGroup(Struct):
    group_id: str
    topics: Sequence[OffsetFetchResponseTopics]
    error_code: ErrorCode = ErrorCode.NONE


class OffsetFetchResponse(Response, key=9, versions="1-10", flexible="6+"):
    throttle_time_ms: Int32 = since(3, default=0, ignorable=True)
    topics: Sequence[OffsetFetchResponseTopic] = until(7, default=())
    error_code: ErrorCode = since(2, default=ErrorCode.NONE, until=7, ignorable=True)
    groups: Sequence[OffsetFetchResponseGroup] = since(8, default=())
