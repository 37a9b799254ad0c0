"""DeleteTopics (key 20): deletes topics, by name or by id."""

from collections.abc import Sequence

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response, Struct, field, since, until
from penstock.wire.types import ZERO_UUID, Int32, Uuid


class DeleteTopicState(Struct):
    name: str | None = None
    topic_id: Uuid


class DeleteTopicsRequest(Request, key=20, versions="1-6", flexible="4+"):
    topics: Sequence[DeleteTopicState] = since(6, default=())
    topic_names: Sequence[str] = until(5, default=(), ignorable=True)
    timeout_ms: Int32


class DeletableTopicResult(Struct):
    name: str | None = field(nullable_since=6)
    topic_id: Uuid = since(6, default=ZERO_UUID, ignorable=True)
    error_code: ErrorCode
    error_message: str | None = since(5, default=None, ignorable=True)


class DeleteTopicsResponse(Response, key=20, versions="1-6", flexible="4+"):
    throttle_time_ms: Int32
    responses: Sequence[DeletableTopicResult]
