"""DeleteShareGroupOffsets (key 92): deletes the offsets of a share group for some topics."""

from collections.abc import Sequence

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response, Struct
from penstock.wire.types import Int32, Uuid


class DeleteShareGroupOffsetsRequestTopic(Struct):
    topic_name: str


class DeleteShareGroupOffsetsRequest(Request, key=92, versions="0", flexible="0+"):
    group_id: str
    topics: Sequence[DeleteShareGroupOffsetsRequestTopic]


class DeleteShareGroupOffsetsResponseTopic(Struct):
    topic_name: str
    topic_id: Uuid
    error_code: ErrorCode
    error_message: str | None = None


class DeleteShareGroupOffsetsResponse(Response, key=92, versions="0", flexible="0+"):
    throttle_time_ms: Int32
    error_code: ErrorCode
    error_message: str | None = None
    responses: Sequence[DeleteShareGroupOffsetsResponseTopic]
