"""SaslHandshake (key 17): the client names the SASL mechanism that it wants to log in with."""

from collections.abc import Sequence

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response


class SaslHandshakeRequest(Request, key=17, versions="0-1"):
    mechanism: str


class SaslHandshakeResponse(Response, key=17, versions="0-1"):
    error_code: ErrorCode
    mechanisms: Sequence[str]
