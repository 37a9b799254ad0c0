"""DescribeAcls (key 29): the ACLs that match a filter."""

from collections.abc import Sequence

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response, Struct
from penstock.wire.types import Int8, Int32


class DescribeAclsRequest(Request, key=29, versions="1-3", flexible="2+"):
    resource_type_filter: Int8
    resource_name_filter: str | None
    pattern_type_filter: Int8 = 3
    principal_filter: str | None
    host_filter: str | None
    operation: Int8
    permission_type: Int8


class AclDescription(Struct):
    principal: str
    host: str
    operation: Int8
    permission_type: Int8


class DescribeAclsResource(Struct):
    resource_type: Int8
    resource_name: str
    pattern_type: Int8 = 3
    acls: Sequence[AclDescription]


class DescribeAclsResponse(Response, key=29, versions="1-3", flexible="2+"):
    throttle_time_ms: Int32
    error_code: ErrorCode
    error_message: str | None
    resources: Sequence[DescribeAclsResource]
