"""CreateDelegationToken (key 38): an authenticated client creates a short-lived credential."""

from collections.abc import Sequence

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response, Struct, since
from penstock.wire.types import Int32, Int64


class CreatableRenewers(Struct):
    principal_type: str
    principal_name: str


class CreateDelegationTokenRequest(Request, key=38, versions="1-3", flexible="2+"):
    owner_principal_type: str | None = since(3, default="")
    owner_principal_name: str | None = since(3, default="")
    renewers: Sequence[CreatableRenewers]
    max_lifetime_ms: Int64


class CreateDelegationTokenResponse(Response, key=38, versions="1-3", flexible="2+"):
    error_code: ErrorCode
    principal_type: str
    principal_name: str
    token_requester_principal_type: str = since(3, default="")
    token_requester_principal_name: str = since(3, default="")
    issue_timestamp_ms: Int64
    expiry_timestamp_ms: Int64
    max_timestamp_ms: Int64
    token_id: str
    hmac: bytes
    throttle_time_ms: Int32
