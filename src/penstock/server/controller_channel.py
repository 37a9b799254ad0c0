"""How a node reaches the active controller, be it the node itself or another.

What a broker asks for itself (`ask`) goes as it is; what a client asked (`forward`) goes in an Envelope, so that the
controller answers in the client's version. Whoever does not lead any more says so, and the new leader is asked as soon
as there is one; a request whose connection broke may have been carried out, and is asked again all the same. Workers
encode and decode what is large.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeVar, cast

from penstock.client.bootstrap import Address
from penstock.client.connection import BrokerConnection
from penstock.client.errors import ClientError
from penstock.client.pool import Pool
from penstock.client.ports import ClientPorts
from penstock.model.errors import ErrorCode, ProtocolError
from penstock.model.limits import DEFAULT_LIMITS
from penstock.server.controller_runner import ControllerRunner, NotController
from penstock.server.dispatch import Route
from penstock.server.quorum_runner import QuorumRunner
from penstock.server.serving import Call
from penstock.wire.api import Api, response_class
from penstock.wire.codec import decode
from penstock.wire.declare import Request, Response
from penstock.wire.elements import has_more_elements
from penstock.wire.headers import read_response_header, request_frame
from penstock.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse

if TYPE_CHECKING:
    from penstock.server.node import Node

R = TypeVar("R", bound=Response)

ANSWER_MS: Final = 5_000
"""How long one answer of the controller may take before the connection counts as dead."""
FORWARD_MS: Final = 20_000
"""How long a client's request may look for a controller, if it does not say; then the client is told that there is
none. Nobody waits for it any longer, and to carry it out much later would surprise who has asked again."""
RETRY_S: Final = 0.05
_LOCALHOST: Final = bytes((127, 0, 0, 1))


class ControllerChannel:
    """See the module."""

    def __init__(
        self,
        node: "Node",
        ports: ClientPorts,
        controller: ControllerRunner,
        quorum: QuorumRunner,
        routes: Mapping[int, Route],
    ) -> None:
        """`routes` are what the controller serves, for the case that it is this node's own."""
        self._node = node
        self._controller = controller
        self._quorum = quorum
        self._routes = routes
        self._pool = Pool(
            ports, client_id=f"broker-{controller.node_id}", login=None, connect_timeout_ms=1_000, timeout_ms=ANSWER_MS
        )

    async def close(self) -> None:
        """Ends all connections."""
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
        """Asks until an active controller has answered; NotController when none did in time.

        A connection on which an answer takes longer than `answer_ms` is given up.
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
            call = Call(self._node, route.api, route.last, 0, None, "", "")
            return _unless_refused(cast("R", await route.handle(request, call)))
        try:
            connection = await self._connection(lane)
            if connection is None:
                return None
            return _unless_refused(await connection.ask(request, answer, timeout_ms=answer_ms))
        except (ClientError, ProtocolError, OSError):
            return None

    async def forward(self, request: Request, call: Call) -> Response:
        """The answer to a client's request, from whoever is the active controller."""
        if not self._controller.is_active:
            with suppress(ProtocolError):  # then the handler finds the words for it
                return await self.forward_envelope(request, call)
        return cast("Response", await call.client.routes[request.KEY].handle(request, call))

    async def forward_envelope(self, request: Request, call: Call) -> Response:
        """The answer of a controller on another node; NotController when none has answered in time."""
        codec = self._node.codec
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
