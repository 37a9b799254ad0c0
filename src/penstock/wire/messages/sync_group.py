"""SyncGroup (key 14): the leader of a classic group sends the assignment, every member receives its part."""

from collections.abc import Sequence

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response, Struct, since
from penstock.wire.types import Int32


class SyncGroupRequestAssignment(Struct):
    member_id: str
    assignment: bytes


class SyncGroupRequest(Request, key=14, versions="0-5", flexible="4+"):
    group_id: str
    generation_id: Int32
    member_id: str
    group_instance_id: str | None = since(3, default=None)
    protocol_type: str | None = since(5, default=None, ignorable=True)
    protocol_name: str | None = since(5, default=None, ignorable=True)
    assignments: Sequence[SyncGroupRequestAssignment]


class SyncGroupResponse(Response, key=14, versions="0-5", flexible="4+"):
    throttle_time_ms: Int32 = since(1, default=0, ignorable=True)
    error_code: ErrorCode
    protocol_type: str | None = since(5, default=None, ignorable=True)
    protocol_name: str | None = since(5, default=None, ignorable=True)
    assignment: bytes
