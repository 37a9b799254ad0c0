"""DeleteAcls (key 31): deletes the ACLs that match a filter."""

from collections.abc import Sequence

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response, Struct
from penstock.wire.types import Int8, Int32


class DeleteAclsFilter(Struct):
    resource_type_filter: Int8
    resource_name_filter: str | None
    pattern_type_filter: Int8 = 3
    principal_filter: str | None
    host_filter: str | None
    operation: Int8
    permission_type: Int8


class DeleteAclsRequest(Request, key=31, versions="1-3", flexible="2+"):
    filters: Sequence[DeleteAclsFilter]


class DeleteAclsMatchingAcl(Struct):
    error_code: ErrorCode
    error_message: str | None
    resource_type: Int8
    resource_name: str
    pattern_type: Int8 = 3
    principal: str
    host: str
    operation: Int8
    permission_type: Int8


class DeleteAclsFilterResult(Struct):
    error_code: ErrorCode
    error_message: str | None
    matching_acls: Sequence[DeleteAclsMatchingAcl]


class DeleteAclsResponse(Response, key=31, versions="1-3", flexible="2+"):
    throttle_time_ms: Int32
    filter_results: Sequence[DeleteAclsFilterResult]
