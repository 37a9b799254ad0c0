"""CreateAcls (key 30): creates ACLs."""

from collections.abc import Sequence

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response, Struct
from penstock.wire.types import Int8, Int32


class AclCreation(Struct):
    resource_type: Int8
    resource_name: str
    resource_pattern_type: Int8 = 3
    principal: str
    host: str
    operation: Int8
    permission_type: Int8


class CreateAclsRequest(Request, key=30, versions="1-3", flexible="2+"):
    creations: Sequence[AclCreation]


class AclCreationResult(Struct):
    error_code: ErrorCode
    error_message: str | None


class CreateAclsResponse(Response, key=30, versions="1-3", flexible="2+"):
    throttle_time_ms: Int32
    results: Sequence[AclCreationResult]
