"""SaslAuthenticate (key 36): one step of a SASL login."""

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response, since
from penstock.wire.types import Int64


class SaslAuthenticateRequest(Request, key=36, versions="0-2", flexible="2+"):
    auth_bytes: bytes


class SaslAuthenticateResponse(Response, key=36, versions="0-2", flexible="2+"):
    error_code: ErrorCode
    error_message: str | None
    auth_bytes: bytes
    session_lifetime_ms: Int64 = since(1, default=0, ignorable=True)
