"""LeaveGroup (key 13): members leave a classic group at once instead of timing out."""

from collections.abc import Sequence

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response, Struct, since, until
from penstock.wire.types import Int32


class MemberIdentity(Struct):
    member_id: str
    group_instance_id: str | None = None
    reason: str | None = since(5, default=None, ignorable=True)


class LeaveGroupRequest(Request, key=13, versions="0-5", flexible="4+"):
    group_id: str
    member_id: str = until(2, default="")
    members: Sequence[MemberIdentity] = since(3, default=())


class MemberResponse(Struct):
    member_id: str
    group_instance_id: str | None
    error_code: ErrorCode


class LeaveGroupResponse(Response, key=13, versions="0-5", flexible="4+"):
    throttle_time_ms: Int32 = since(1, default=0, ignorable=True)
    error_code: ErrorCode
    members: Sequence[MemberResponse] = since(3, default=())
