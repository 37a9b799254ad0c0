"""DescribeGroups (key 15): state, members and assignments of classic groups."""

from collections.abc import Sequence

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response, Struct, since
from penstock.wire.types import Int32


class DescribeGroupsRequest(Request, key=15, versions="0-6", flexible="5+"):
    groups: Sequence[str]
    include_authorized_operations: bool = since(3, default=False)


class DescribedGroupMember(Struct):
    member_id: str
    group_instance_id: str | None = since(4, default=None, ignorable=True)
    client_id: str
    client_host: str
    member_metadata: bytes
    member_assignment: bytes


class DescribedGroup(Struct):
    error_code: ErrorCode
    error_message: str | None = since(6, default=None)
    group_id: str
    group_state: str
    protocol_type: str
    protocol_data: str
    members: Sequence[DescribedGroupMember]
    authorized_operations: Int32 = since(3, default=-0x80000000)


class DescribeGroupsResponse(Response, key=15, versions="0-6", flexible="5+"):
    throttle_time_ms: Int32 = since(1, default=0, ignorable=True)
    groups: Sequence[DescribedGroup]
