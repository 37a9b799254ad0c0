"""DescribeAcls, CreateAcls, DeleteAcls: there are no access rules yet, and whoever asks is told so.

Serves    DescribeAcls 1–3, CreateAcls 1–3, DeleteAcls 1–3.
Answers   SECURITY_DISABLED, as Kafka without an authorizer does: tools then show that access is not restricted, where
          a missing API would make them fail.
Departs   nowhere from Kafka 4.3.
"""

from typing import Final

from penstock.model.errors import ErrorCode
from penstock.server.serving import Call, serves
from penstock.wire.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from penstock.wire.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse
from penstock.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

_DISABLED: Final = ErrorCode.SECURITY_DISABLED
_WHY: Final = "No Authorizer is configured."


@serves(DescribeAclsRequest)
async def describe_acls(_request: DescribeAclsRequest, _call: Call) -> DescribeAclsResponse:
    """None."""
    return DescribeAclsResponse(throttle_time_ms=0, error_code=_DISABLED, error_message=_WHY, resources=())


@serves(CreateAclsRequest)
async def create_acls(request: CreateAclsRequest, _call: Call) -> CreateAclsResponse:
    """Refuses each."""
    refused = AclCreationResult(error_code=_DISABLED, error_message=_WHY)
    return CreateAclsResponse(throttle_time_ms=0, results=[refused] * len(request.creations))


@serves(DeleteAclsRequest)
async def delete_acls(request: DeleteAclsRequest, _call: Call) -> DeleteAclsResponse:
    """Refuses each."""
    refused = DeleteAclsFilterResult(error_code=_DISABLED, error_message=_WHY, matching_acls=())
    return DeleteAclsResponse(throttle_time_ms=0, filter_results=[refused] * len(request.filters))
