"""Envelope (key 58): a broker forwards a client's request to the controller, with the client's principal."""

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response


class EnvelopeRequest(Request, key=58, versions="0", flexible="0+"):
    request_data: bytes
    request_principal: bytes | None
    client_host_address: bytes


class EnvelopeResponse(Response, key=58, versions="0", flexible="0+"):
    response_data: bytes | None = None
    error_code: ErrorCode
