"""ListGroups (key 16): the groups that a broker coordinates."""

from collections.abc import Sequence

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response, Struct, since
from penstock.wire.types import Int32


class ListGroupsRequest(Request, key=16, versions="0-5", flexible="3+"):
    states_filter: Sequence[str] = since(4, default=())
    types_filter: Sequence[str] = since(5, default=())


class ListedGroup(Struct):
    group_id: str
    protocol_type: str
    group_state: str = since(4, default="", ignorable=True)
    group_type: str = since(5, default="", ignorable=True)


class ListGroupsResponse(Response, key=16, versions="0-5", flexible="3+"):
    throttle_time_ms: Int32 = since(1, default=0, ignorable=True)
    error_code: ErrorCode
    groups: Sequence[ListedGroup]
