"""Heartbeat (key 12): a member of a classic group reports that it is alive."""

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response, since
from penstock.wire.types import Int32


class HeartbeatRequest(Request, key=12, versions="0-4", flexible="4+"):
    group_id: str
    generation_id: Int32
    member_id: str
    group_instance_id: str | None = since(3, default=None)


class HeartbeatResponse(Response, key=12, versions="0-4", flexible="4+"):
    throttle_time_ms: Int32 = since(1, default=0, ignorable=True)
    error_code: ErrorCode
