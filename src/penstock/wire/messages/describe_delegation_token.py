"""DescribeDelegationToken (key 41): the delegation tokens of some owners."""

from collections.abc import Sequence

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response, Struct, since
from penstock.wire.types import Int32, Int64


class DescribeDelegationTokenOwner(Struct):
    principal_type: str
    principal_name: str


class DescribeDelegationTokenRequest(Request, key=41, versions="1-3", flexible="2+"):
    owners: Sequence[DescribeDelegationTokenOwner] | None


class DescribedDelegationTokenRenewer(Struct):
    principal_type: str
    principal_name: str


class DescribedDelegationToken(Struct):
    principal_type: str
    principal_name: str
    token_requester_principal_type: str = since(3, default="")
    token_requester_principal_name: str = since(3, default="")
    issue_timestamp: Int64
    expiry_timestamp: Int64
    max_timestamp: Int64
    token_id: str
    hmac: bytes
    renewers: Sequence[DescribedDelegationTokenRenewer]


class DescribeDelegationTokenResponse(Response, key=41, versions="1-3", flexible="2+"):
    error_code: ErrorCode
    tokens: Sequence[DescribedDelegationToken]
    throttle_time_ms: Int32
