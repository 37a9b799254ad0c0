"""Envelope: a broker passes on what a client asked it.

Serves    Envelope 0, on listeners of controllers.
Answers   in the order of requests, which are carried out beside each other. NOT_CONTROLLER when this node is not the
          active controller; INVALID_REQUEST to what only brokers serve, or cannot be read. Everything else is inside
          the answer, in the version that the client speaks.
Departs   from Kafka 4.3: the client's principal is not looked at, since there are no logins yet.
"""

from penstock.model.errors import ErrorCode, ProtocolError
from penstock.model.limits import DEFAULT_LIMITS
from penstock.server.dispatch import Route
from penstock.server.handlers.needs import node_of
from penstock.server.serving import Answer, Buffers, Call, serves_overlapping
from penstock.wire.api import ALSO_ON_CONTROLLERS
from penstock.wire.codec import decode_request
from penstock.wire.elements import has_more_elements
from penstock.wire.headers import read_request_header, read_start, response_frame
from penstock.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse


@serves_overlapping(EnvelopeRequest)
async def envelope(request: EnvelopeRequest, call: Call) -> Answer:
    """What is inside may take a while; those behind it are looked at meanwhile."""
    return _answer(request, call)


async def _answer(request: EnvelopeRequest, call: Call) -> Buffers:
    return [response_frame(await _open(request, call), call.version, call.correlation_id)]


async def _open(request: EnvelopeRequest, call: Call) -> EnvelopeResponse:
    node = node_of(call)
    if not node.controller.is_active:
        return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
    frame = memoryview(request.request_data)
    try:
        start = read_start(frame)
        route = call.client.routes.get(start.key)
        if route is None or not _may_be_inside(route) or not route.first <= start.version <= route.last:
            return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
        header, position = read_request_header(route.api, start.version, frame)
        if len(frame) <= DEFAULT_LIMITS.request_small_bytes_max:
            inner = decode_request(route.request, start.version, frame, position)
        else:
            inner = await node.codec.decode(route.request, start.version, frame, position)
    except ProtocolError:
        return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
    inner_call = Call(
        call.node,
        route.api,
        start.version,
        start.correlation_id,
        header.client_id,
        call.peer,
        call.local,
        call.client,
    )
    response = await route.handle(inner, inner_call)
    if has_more_elements(response, DEFAULT_LIMITS.response_inline_elements_max):
        answer = await node.codec.encode(response, start.version, start.correlation_id)
    else:
        answer = response_frame(response, start.version, start.correlation_id)
    return EnvelopeResponse(response_data=bytes(memoryview(answer)[4:]), error_code=ErrorCode.NONE)


def _may_be_inside(route: Route) -> bool:
    """What clients may ask brokers for, and brokers pass on."""
    return route.api in ALSO_ON_CONTROLLERS and not route.overlaps
