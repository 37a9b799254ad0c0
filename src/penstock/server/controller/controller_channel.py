"""Sends requests to the active controller, on this node or another.

A broker's own request (`ask`) is sent as it is. A client's request (`forward`) is sent in an Envelope, so that the
controller answers in the client's version. A node that no longer leads answers NOT_CONTROLLER, and the request goes to
the new leader as soon as there is one. A request whose connection broke may have been carried out; it is sent again all
the same. Workers encode and decode large messages.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Final, TypeVar, cast

from penstock.client.bootstrap import Address
from penstock.client.connection.connection import BrokerConnection
from penstock.client.connection.pool import Pool
from penstock.client.errors import ClientError
from penstock.client.ports import ClientPorts
from penstock.metadata.runtime import NotController
from penstock.model.errors import ErrorCode, ProtocolError
from penstock.model.limits import DEFAULT_LIMITS
from penstock.server.connections.codec_worker import CodecWorker
from penstock.server.connections.serving import Call, Route
from penstock.server.controller.controller_runner import ControllerRunner
from penstock.server.quorum.quorum_runner import QuorumRunner
from penstock.wire.api import Api, response_class
from penstock.wire.codec import decode
from penstock.wire.declare import Request, Response
from penstock.wire.elements import has_more_elements
from penstock.wire.headers import read_response_header, request_frame
from penstock.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse

R = TypeVar("R", bound=Response)

ANSWER_MS: Final = 5_000
"""How long one response of the controller may take before the connection counts as dead."""
FORWARD_MS: Final = 20_000
"""How long a client's request without a shorter timeout may wait for a controller before it fails. The client does not
wait longer, and a late execution would surprise a client that has sent the request again."""
RETRY_S: Final = 0.05
_LOCALHOST: Final = bytes((127, 0, 0, 1))


class ControllerChannel:
    """See the module."""

    def __init__(
        self,
        ports: ClientPorts,
        controller: ControllerRunner,
        quorum: QuorumRunner,
        codec: CodecWorker,
        routes: Mapping[int, Route],
    ) -> None:
        """`routes` are the handlers of the controller, for the case that this node is the active one."""
        self._codec = codec
        self._controller = controller
        self._quorum = quorum
        self._routes = routes
        self._pool = Pool(
            ports, client_id=f"broker-{controller.node_id}", login=None, connect_timeout_ms=1_000, timeout_ms=ANSWER_MS
        )

    async def close(self) -> None:
        """Closes all connections."""
        await self._pool.close()

    async def ask(
        self,
        request: Request,
        answer: type[R],
        *,
        timeout_ms: int = ANSWER_MS,
        answer_ms: int = ANSWER_MS,
        lane: str = "",
    ) -> R:
        """Sends a request until an active controller answers; raises NotController if none does in time.

        A connection on which a response takes longer than `answer_ms` is given up.
        """
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while True:
                    found = await self._try(request, answer, answer_ms, lane)
                    if found is not None:
                        return found
                    await asyncio.sleep(RETRY_S)
        except TimeoutError:
            raise NotController("no controller has answered in time; look at the metadata quorum") from None

    async def _try(self, request: Request, answer: type[R], answer_ms: int, lane: str) -> R | None:
        self._controller.check_online()
        if self._controller.is_active:
            if isinstance(request, EnvelopeRequest):
                raise NotController("this node has become the controller itself, and answers without an envelope")
            route = self._routes[request.KEY]
            call = Call(route.api, route.last, 0, None, "", "")
            return _unless_refused(cast("R", await route.handle(request, call)))
        try:
            connection = await self._connection(lane)
            if connection is None:
                return None
            return _unless_refused(await connection.ask(request, answer, timeout_ms=answer_ms))
        except (ClientError, ProtocolError, OSError):
            return None

    async def forward(self, request: Request, call: Call) -> Response:
        """Returns the active controller's response to a client's request."""
        if not self._controller.is_active:
            with suppress(ProtocolError):  # then the local handler makes the error response
                return await self.forward_envelope(request, call)
        return cast("Response", await call.client.routes[request.KEY].handle(request, call))

    async def forward_envelope(self, request: Request, call: Call) -> Response:
        """Returns the response of a controller on another node; raises NotController if none answers in time."""
        codec = self._codec
        written = request, call.version, call.correlation_id, call.client_id
        if has_more_elements(request, DEFAULT_LIMITS.response_inline_elements_max):
            frame = await codec.encode_request(*written)
        else:
            frame = request_frame(*written)
        envelope = EnvelopeRequest(
            request_data=bytes(memoryview(frame)[4:]), request_principal=None, client_host_address=_LOCALHOST
        )
        timeout_ms = min(FORWARD_MS, max(1, getattr(request, "timeout_ms", FORWARD_MS)))
        wrapped = await self.ask(envelope, EnvelopeResponse, timeout_ms=timeout_ms, lane="forward")
        if wrapped.error_code is not ErrorCode.NONE:
            raise NotController(f"the controller does not take it from a broker: {wrapped.error_code.name}")
        data = memoryview(bytearray(wrapped.response_data or b""))
        api = Api(request.KEY)
        _, position = read_response_header(api, call.version, data)
        if len(data) <= DEFAULT_LIMITS.request_inline_bytes_max:
            return decode(response_class(api), call.version, data, position)
        return await codec.decode_response(response_class(api), call.version, data, position)

    async def _connection(self, lane: str) -> BrokerConnection | None:
        leader_id = self._quorum.raft.leader_id
        endpoint = None if leader_id == self._controller.node_id else self._quorum.endpoint_of(leader_id)
        if endpoint is None:
            return None
        return await self._pool.connection(Address(endpoint.host, endpoint.port), lane)


def _unless_refused(response: R) -> R | None:
    return None if getattr(response, "error_code", None) is ErrorCode.NOT_CONTROLLER else response
