"""DeleteGroups (key 42): deletes empty groups and their offsets."""

from collections.abc import Sequence

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response, Struct
from penstock.wire.types import Int32


class DeleteGroupsRequest(Request, key=42, versions="0-2", flexible="2+"):
    groups_names: Sequence[str]


class DeletableGroupResult(Struct):
    group_id: str
    error_code: ErrorCode


class DeleteGroupsResponse(Response, key=42, versions="0-2", flexible="2+"):
    throttle_time_ms: Int32
    results: Sequence[DeletableGroupResult]
