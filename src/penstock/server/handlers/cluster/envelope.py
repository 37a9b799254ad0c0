"""Envelope: a broker forwards a client's request to the active controller.

Serves    Envelope 0 on controller listeners.
Answers   in the order of the requests, which are executed concurrently. NOT_CONTROLLER if this node is not the active
          controller; INVALID_REQUEST if the inner request is malformed, or is one that brokers do not forward. Any
          other result is in the inner response, in the client's version.
Departs   from Kafka 4.3: the client's principal is ignored, since there is no authentication yet.
"""

from penstock.model.errors import ErrorCode, ProtocolError
from penstock.model.limits import DEFAULT_LIMITS
from penstock.server.connections.codec_worker import CodecWorker
from penstock.server.connections.serving import Answer, Buffers, Call, Route, serves_overlapping
from penstock.server.controller.controller_runner import ControllerRunner
from penstock.wire.api import ALSO_ON_CONTROLLERS
from penstock.wire.codec import decode_request
from penstock.wire.elements import has_more_elements
from penstock.wire.headers import read_request_header, read_start, response_frame
from penstock.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse


class EnvelopeHandler:
    """Executes the requests inside envelopes."""

    def __init__(self, controller: ControllerRunner, codec: CodecWorker) -> None:
        self._controller = controller
        self._codec = codec

    @serves_overlapping(EnvelopeRequest)
    async def envelope(self, request: EnvelopeRequest, call: Call) -> Answer:
        """Executes the inner request; later envelopes begin before it is answered."""
        return self._answer(request, call)

    async def _answer(self, request: EnvelopeRequest, call: Call) -> Buffers:
        return [response_frame(await self._open(request, call), call.version, call.correlation_id)]

    async def _open(self, request: EnvelopeRequest, call: Call) -> EnvelopeResponse:
        if not self._controller.is_active:
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
                inner = await self._codec.decode(route.request, start.version, frame, position)
        except ProtocolError:
            return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
        inner_call = Call(
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
            answer = await self._codec.encode(response, start.version, start.correlation_id)
        else:
            answer = response_frame(response, start.version, start.correlation_id)
        return EnvelopeResponse(response_data=bytes(memoryview(answer)[4:]), error_code=ErrorCode.NONE)


def _may_be_inside(route: Route) -> bool:
    """Whether brokers forward requests of this route from clients."""
    return route.api in ALSO_ON_CONTROLLERS and not route.overlaps
