"""DescribeAcls, CreateAcls, DeleteAcls: refused, because there is no authorizer yet.

Serves    DescribeAcls 1–3, CreateAcls 1–3, DeleteAcls 1–3.
Answers   SECURITY_DISABLED, as Kafka does without an authorizer: tools then report that access is not restricted. They
          would fail if the APIs were missing.
Departs   nowhere from Kafka 4.3.
"""

from typing import Final

from penstock.model.errors import ErrorCode
from penstock.server.connections.serving import Call, serves
from penstock.wire.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from penstock.wire.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse
from penstock.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

_DISABLED: Final = ErrorCode.SECURITY_DISABLED
_WHY: Final = "No Authorizer is configured."


class AclsHandler:
    """Refuses all requests about access rules."""

    @serves(DescribeAclsRequest)
    async def describe_acls(self, _request: DescribeAclsRequest, _call: Call) -> DescribeAclsResponse:
        """Refuses the request."""
        return DescribeAclsResponse(throttle_time_ms=0, error_code=_DISABLED, error_message=_WHY, resources=())

    @serves(CreateAclsRequest)
    async def create_acls(self, request: CreateAclsRequest, _call: Call) -> CreateAclsResponse:
        """Refuses each creation."""
        refused = AclCreationResult(error_code=_DISABLED, error_message=_WHY)
        return CreateAclsResponse(throttle_time_ms=0, results=[refused] * len(request.creations))

    @serves(DeleteAclsRequest)
    async def delete_acls(self, request: DeleteAclsRequest, _call: Call) -> DeleteAclsResponse:
        """Refuses each filter."""
        refused = DeleteAclsFilterResult(error_code=_DISABLED, error_message=_WHY, matching_acls=())
        return DeleteAclsResponse(throttle_time_ms=0, filter_results=[refused] * len(request.filters))
