"""JoinGroup (key 11): a consumer joins a classic group and learns its leader."""

from collections.abc import Sequence

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response, Struct, field, since
from penstock.wire.types import Int32


class JoinGroupRequestProtocol(Struct):
    name: str
    metadata: bytes


class JoinGroupRequest(Request, key=11, versions="0-9", flexible="6+"):
    group_id: str
    session_timeout_ms: Int32
    rebalance_timeout_ms: Int32 = since(1, default=-1, ignorable=True)
    member_id: str
    group_instance_id: str | None = since(5, default=None)
    protocol_type: str
    protocols: Sequence[JoinGroupRequestProtocol]
    reason: str | None = since(8, default=None, ignorable=True)


class JoinGroupResponseMember(Struct):
    member_id: str
    group_instance_id: str | None = since(5, default=None, ignorable=True)
    metadata: bytes


class JoinGroupResponse(Response, key=11, versions="0-9", flexible="6+"):
    throttle_time_ms: Int32 = since(2, default=0, ignorable=True)
    error_code: ErrorCode
    generation_id: Int32 = -1
    protocol_type: str | None = since(7, default=None, ignorable=True)
    protocol_name: str | None = field(nullable_since=7)
    leader: str
    skip_assignment: bool = since(9, default=False)
    member_id: str
    members: Sequence[JoinGroupResponseMember]
