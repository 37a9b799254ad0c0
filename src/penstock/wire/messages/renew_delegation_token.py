"""RenewDelegationToken (key 39): extends the lifetime of a delegation token."""

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response
from penstock.wire.types import Int32, Int64


class RenewDelegationTokenRequest(Request, key=39, versions="1-2", flexible="2+"):
    hmac: bytes
    renew_period_ms: Int64


class RenewDelegationTokenResponse(Response, key=39, versions="1-2", flexible="2+"):
    error_code: ErrorCode
    expiry_timestamp_ms: Int64
    throttle_time_ms: Int32
