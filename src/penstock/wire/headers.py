"""Request and response headers, and complete frames of header and message.

The header version follows from the message: flexible messages have flexible headers, except that an ApiVersions
response always has header version 0, because its reader does not know yet which versions the broker supports.
"""

import struct
from typing import NamedTuple

from penstock.model.errors import MalformedMessage
from penstock.wire.api import Api, request_class, response_class
from penstock.wire.budget import HEADER_BUDGET
from penstock.wire.codec import read_from, write_into
from penstock.wire.compile import Breathe
from penstock.wire.declare import Request, Response
from penstock.wire.messages.header import RequestHeader, ResponseHeader

_START = struct.Struct(">hhi")
_FRAME = struct.Struct(">i")
_RESPONSE = struct.Struct(">ii")


class Start(NamedTuple):
    """The first eight bytes of a request of any version: enough to reject a request that cannot be read."""

    key: int
    version: int
    correlation_id: int


def read_start(frame: memoryview) -> Start:
    """Key, version and correlation id of a request."""
    if len(frame) < _START.size:
        raise MalformedMessage(f"a request of {len(frame)} bytes is shorter than any request")
    return Start(*_START.unpack_from(frame))


def request_header_version(request: type[Request], version: int) -> int:
    """2 for flexible requests, 1 for the others (0 belonged to a retired API)."""
    return 2 if version in request.FLEXIBLE else 1


def response_header_version(response: type[Response], version: int) -> int:
    """1 for flexible responses, 0 for the others and for ApiVersions."""
    return 1 if version in response.FLEXIBLE and response.KEY != Api.API_VERSIONS else 0


def read_request_header(api: Api, version: int, frame: memoryview) -> tuple[RequestHeader, int]:
    """The header, and the position of the body after it. Raises RequestTooCostly for thousands of tagged fields."""
    return read_from(RequestHeader, request_header_version(request_class(api), version), frame, 0, HEADER_BUDGET)


def read_response_header(api: Api, version: int, frame: memoryview) -> tuple[ResponseHeader, int]:
    """The header, and the position of the body after it."""
    return read_from(ResponseHeader, response_header_version(response_class(api), version), frame)


def request_frame(
    request: Request, version: int, correlation_id: int, client_id: str | None, breathe: Breathe | None = None
) -> bytearray:
    """A complete request frame, ready to be sent."""
    header = RequestHeader(
        request_api_key=request.KEY,
        request_api_version=version,
        correlation_id=correlation_id,
        client_id=client_id,
    )
    out = bytearray(_FRAME.size)
    write_into(out, header, request_header_version(type(request), version))
    write_into(out, request, version, breathe)
    _FRAME.pack_into(out, 0, len(out) - _FRAME.size)
    return out


def response_frame(response: Response, version: int, correlation_id: int, breathe: Breathe | None = None) -> bytearray:
    """A complete response frame. Its header is the correlation id, and zero tagged fields if it is flexible."""
    out = bytearray(_RESPONSE.pack(0, correlation_id))
    if response_header_version(type(response), version):
        out.append(0)
    write_into(out, response, version, breathe)
    _FRAME.pack_into(out, 0, len(out) - _FRAME.size)
    return out
