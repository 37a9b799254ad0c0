"""Serves one connection: receives request frames and sends the responses in the same order.

Overlapping requests (Produce, Fetch and others) run their first stage in the order of arrival, and the rest while more
requests are read. All other requests are barriers: they start when all earlier requests are answered, and no request
starts until they are answered. The socket is not read while too many requests are in flight or no input memory is left.
When the client disconnects, its in-flight requests are cancelled. Workers decode large requests, within a budget, and
encode large responses.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeAlias, cast

from penstock.model.errors import FrameTooLarge, MalformedMessage, ProtocolError, RequestTooCostly
from penstock.model.limits import Limits
from penstock.model.ports import Buffer, Connection, FileSlice
from penstock.server.connections.client_warnings import ClientWarnings
from penstock.server.connections.codec_worker import CodecWorker
from penstock.server.connections.dispatch import NO_BODY, Dispatch, Opened
from penstock.server.connections.input_pool import InputPool
from penstock.server.connections.peer_connections import PEER_APIS
from penstock.server.connections.protocol_sniffing import GREETING_BYTES, recognize
from penstock.server.connections.response_order import Order, release
from penstock.server.connections.serving import Answer, Buffers, Call, Client, Later, Route, Unfinished
from penstock.server.loop.pacing import pacer
from penstock.server.loop.timing import Timing
from penstock.wire.api import Api
from penstock.wire.codec import decode_request
from penstock.wire.declare import Request, Response
from penstock.wire.elements import has_more_elements
from penstock.wire.frames import FrameReader
from penstock.wire.headers import response_frame
from penstock.wire.messages.api_versions import ApiVersionsRequest

logger = logging.getLogger("penstock.connection")
requests_logger = logging.getLogger("penstock.requests")
"""Logs every request at DEBUG."""

PROBATION = "only nodes of this cluster are let in while connections are at their limit"
TURN_UNITS = 32
"""Requests served, or units of bytes read, before this connection yields to the others."""
UNIT_SHIFT = 15
COSTLY_UNIT_SHIFT = 10
"""For requests that carry no records: a kilobyte of small elements costs as much as a request."""
FAREWELL_MS = 1_000
FAREWELL_BYTES = 64 * 1024
ADVICE: dict[type[Exception], str] = {
    FrameTooLarge: "; check that it speaks Kafka's protocol, or raise frame_bytes_max",
    MalformedMessage: "; check that it speaks Kafka's protocol, and that nothing in between alters what it sends",
    RequestTooCostly: "; have it send several smaller requests",
}


class NoSlot(ProtocolError):
    """A connection on probation did not prove to be a node of this cluster."""


class ResponseTooLarge(ProtocolError):
    """The response to a request would be larger than clients accept."""


Forward: TypeAlias = Callable[[Request, Call], Awaitable[Response]]


@dataclass(slots=True)
class Service:
    """State that all connections of a listener share."""

    dispatch: Dispatch
    limits: Limits
    pool: InputPool
    large_pool: InputPool
    """For frames of more than `frame_large_bytes`, so that a few of them do not exhaust the pool of all others."""
    client_warnings: ClientWarnings
    codec: CodecWorker
    forward: Forward | None = None
    """Forwards requests that only the active controller can answer; if None, the handlers here answer them."""
    now_ms: int = 0
    """Monotonic time, up to about a second old: precise enough for time-outs and free to read."""
    time: Callable[[], float] = field(default_factory=lambda: asyncio.get_running_loop().time)
    """Clock in seconds that measures request durations."""
    listener: str = ""
    """Name of the listener."""


class ServedConnection:
    """One connection. `run` is its task; cancelling the task ends the connection."""

    __slots__ = (
        "_connection",
        "_held_bytes",
        "_on_peer",
        "_order",
        "_pacer",
        "_pool",
        "_reader",
        "_ready",
        "_service",
        "_since_turn",
        "active_ms",
        "client",
        "frame_began_ms",
        "has_partial",
        "is_on_probation",
        "is_reading",
        "is_sending",
        "is_stopping",
        "number",
        "requests",
        "task",
    )

    def __init__(
        self,
        connection: Connection,
        service: Service,
        number: int = 0,
        *,
        is_on_probation: bool = False,
        on_peer: Callable[[], None] | None = None,
    ) -> None:
        """`on_peer` is called when the client is recognized as a node of this cluster, soon if it is on probation."""
        limits = service.limits
        self.number = number
        """Connections that were accepted later have higher numbers."""
        self.is_on_probation = is_on_probation
        self._on_peer = on_peer
        self._connection = connection
        self._service = service
        self._reader = FrameReader(
            limits.frame_before_login_bytes_max if is_on_probation else limits.frame_bytes_max,
            limits.frame_first_bytes,
            limits.frame_growth_bytes,
            request_bytes_max=limits.request_bytes_max,
            large_bytes=limits.frame_large_bytes,
        )
        self._order: Order | None = None  # made when requests overlap for the first time
        self._ready: list[Buffer | FileSlice] = []
        """Responses to the requests of one buffer that wait for no earlier response."""
        self._held_bytes = 0
        """Bytes taken from the pool, without those of requests in `_order`."""
        self._pool = service.pool
        """The pool that `_held_bytes` were taken from."""
        self._pacer = pacer()
        self._since_turn = 0
        self.client: Client | None = None
        self.task: asyncio.Task[None] | None = None
        self.requests = 0
        """Number of requests begun."""
        self.active_ms = service.now_ms
        """Time of the last receive or send."""
        self.frame_began_ms = 0
        """Time at which the incomplete frame began to arrive."""
        self.has_partial = False
        self.is_reading = False
        """Whether the connection waits for input, or for input memory."""
        self.is_sending = False
        self.is_stopping = False

    @property
    def peer(self) -> str:
        """Host and port of the client."""
        return self._connection.peer

    @property
    def is_quiet(self) -> bool:
        """Whether no request is in flight."""
        return self.is_reading and not self._order

    def stop(self) -> None:
        """Ends the connection as soon as no request is in flight."""
        self.is_stopping = True
        if self._order is not None:
            self._order.on_empty = self._end_if_quiet
        self._end_if_quiet()

    async def run(self) -> None:
        """Serves until the client disconnects, violates the protocol, or the task is cancelled."""
        try:
            await self._serve()
        except ConnectionError:
            pass
        except Exception as error:
            await self._explain(error)
        finally:
            self._connection.close()
            if self.client is not None and self.client.on_end is not None:
                self.client.on_end()
            if self._order is not None:
                self._order.drop()
            release(self._ready)
            self._give_back()
            self._settle(self._held_bytes)

    # --- reading --------------------------------------------------------------------------------------------------

    async def _serve(self) -> None:
        reader, service, connection = self._reader, self._service, self._connection
        large_bytes = service.limits.frame_large_bytes
        while not self.is_stopping:
            self.is_reading = True
            if not self._has_borrowed() and (growth_bytes := reader.growth_bytes):
                if reader.frame_bytes > large_bytes and self._pool is service.pool:
                    growth_bytes += self._move_to_large_pool()
                if not self._pool.try_take(growth_bytes):
                    await self._wait_for_room(growth_bytes)
                self._held_bytes += growth_bytes
            count = connection.try_receive_into(reader.writable())
            if count is None:
                self._give_back()
                await connection.readable()
                continue
            if count == 0:
                return
            reader.received(count)
            self.active_ms = service.now_ms
            if frames := reader.frames():
                self._pacer.requests += 1
                self.is_reading = False
                await self._handle(frames)
                frames.clear()  # their buffer must not stay alive while the connection waits for input
                self.has_partial = reader.unparsed_bytes > 0
                self.frame_began_ms = service.now_ms
                if self.has_partial:
                    reader.frames()  # raises if the incomplete frame is too large; returns no frame
            elif not self.has_partial:
                self.has_partial = True
                self.frame_began_ms = service.now_ms
            self._since_turn += count >> UNIT_SHIFT
            if self._pool is not service.pool:
                await self._pacer.turn()
            elif self._since_turn >= TURN_UNITS:
                await self._take_turns()
        if self._order is not None:
            await self._order.until_fewer_than(1)

    def _has_borrowed(self) -> bool:
        """Whether the connection receives into a lent buffer; borrows one if possible."""
        reader, service = self._reader, self._service
        if reader.is_lent:
            if not reader.is_used_up():
                return True
            self._give_back()
        if not reader.can_borrow(service.limits.frame_lent_bytes) or (buffer := service.pool.lend()) is None:
            return False
        reader.borrow(buffer)
        self._settle(self._held_bytes)
        return True

    def _give_back(self) -> None:
        reader = self._reader
        if reader.is_lent:
            buffer = reader.give_back()
            self._held_bytes += reader.beyond_first_bytes
            self._service.pool.take_back(buffer, reader.beyond_first_bytes)

    def _move_to_large_pool(self) -> int:
        """Switches a large frame to the large pool; returns the bytes that it held of the other pool."""
        held_bytes = self._held_bytes
        self._settle(held_bytes)
        self._pool = self._service.large_pool
        return held_bytes

    async def _wait_for_room(self, growth_bytes: int) -> None:
        """Waits for input memory. Meanwhile the socket is not read, and the frame's time-out is suspended."""
        service = self._service
        began_ms, self.has_partial = service.now_ms, False
        await self._pool.take(self, growth_bytes, is_first=not self._held_bytes)
        self.has_partial = True
        self.frame_began_ms += service.now_ms - began_ms

    async def _handle(self, frames: list[memoryview]) -> None:
        """Handles the frames of one buffer. The pool gets the bytes back when the last frame is answered."""
        last = len(frames) - 1
        under_way_max, time = self._service.limits.requests_under_way_max, self._service.time
        small_bytes_max = self._service.limits.request_small_bytes_max
        try:
            for number, frame in enumerate(frames):
                opened = self._service.dispatch.open(frame)
                route = opened.route
                self.requests += 1
                if requests_logger.isEnabledFor(logging.DEBUG):
                    self._log_request(opened, len(frame))
                if self.is_on_probation and route.api not in PEER_APIS:
                    raise NoSlot(PROBATION)
                cost_bytes = self._held_bytes if number == last else 0
                if self._ready and not route.is_prompt:
                    await self._send_ready()
                frame_bytes = len(frame)
                if route.overlaps:
                    if self._order is not None and len(self._order.places) >= under_way_max:
                        await self._order.until_fewer_than(under_way_max)
                    began_s = time()
                    try:
                        if route.is_framed:
                            answer = route.handle(self._call(opened, frame_bytes), frame, opened.position)
                        elif frame_bytes <= small_bytes_max:
                            request = decode_request(route.request, opened.version, frame, opened.position)
                            answer = route.handle(request, self._call(opened, frame_bytes))
                        else:
                            answer = Unfinished(self._begin_large(opened, frame))
                    except (MalformedMessage, RequestTooCostly) as error:
                        raise _unreadable(opened, error) from None
                    if answer.__class__ is Unfinished:
                        answer = await self._continue(answer)
                    elif not route.is_prompt:
                        answer = await answer
                    if self._ready and not (answer is None or isinstance(answer, (list, tuple))):
                        await self._send_ready()  # else they would wait behind a pending response
                    self._place(answer, cost_bytes, route.timing, began_s)
                else:
                    await self._handle_plain(opened, frame, cost_bytes)
                if self.is_on_probation and route.api is not Api.API_VERSIONS:
                    raise NoSlot(PROBATION)
                if self.is_stopping:
                    break
                self._since_turn += 1 + (frame_bytes >> (UNIT_SHIFT if route.is_framed else COSTLY_UNIT_SHIFT))
                if self._since_turn >= TURN_UNITS:
                    if self._ready:
                        await self._send_ready()
                    await self._take_turns()
        except ProtocolError:
            if self._ready:  # requests before the invalid one are answered
                await self._send_ready()
            raise
        if self._ready:
            await self._send_ready()

    def _log_request(self, opened: Opened, frame_bytes: int) -> None:
        requests_logger.debug(
            "%s v%d, %d bytes, correlation id %d, from client %.100r at %s.",
            opened.route.api.title,
            opened.version,
            frame_bytes,
            opened.correlation_id,
            opened.client_id,
            self.peer,
        )

    async def _take_turns(self) -> None:
        self._since_turn = 0
        await asyncio.sleep(0)

    # --- handling -------------------------------------------------------------------------------------------------

    async def _handle_plain(self, opened: Opened, frame: memoryview, cost_bytes: int) -> None:
        """Handles a barrier: waits for all earlier requests, and is answered before any other request starts."""
        if self._order is not None:
            await self._order.until_fewer_than(1)
        small_bytes_max = self._service.limits.request_small_bytes_max
        if len(frame) <= small_bytes_max or opened.position == NO_BODY:
            answer = await self._answer_plain(opened, _decode(opened, frame))
            self._settle(cost_bytes)
        elif (request := await self._decode_paced(opened, frame)) is not None:
            answer = await self._answer_plain(opened, request)
            self._settle(cost_bytes)
        else:
            async with self._service.codec.slots:
                request = await self._decode_large(opened, frame)
                self._settle(cost_bytes)
                answer = await self._answer_plain(opened, request)
        await self._send((answer,))

    async def _answer_plain(self, opened: Opened, request: Request) -> bytearray:
        service, route = self._service, opened.route
        call, began_s = self._call(opened), service.time()
        if route.is_for_controller and service.forward is not None:
            response = await service.forward(request, call)
        else:
            response = await route.handle(request, call)
        route.timing.note(service.time() - began_s)
        version = 0 if opened.position == NO_BODY else opened.version
        if has_more_elements(response, service.limits.response_inline_elements_max):
            answer = await service.codec.encode(response, version, opened.correlation_id)
        else:
            answer = response_frame(response, version, opened.correlation_id)
        if len(answer) > service.limits.response_bytes_max:
            raise ResponseTooLarge(
                f"the answer to its {route.api.title} request has {len(answer):,} bytes, more than the "
                f"{service.limits.response_bytes_max:,} that are allowed; have it ask for less at once"
            )
        return answer

    async def _begin_large(self, opened: Opened, frame: memoryview) -> Answer:
        """Runs the first stage of an overlapping request that is not small."""
        frame_bytes, route = len(frame), opened.route
        if (request := await self._decode_paced(opened, frame)) is not None:
            answer: Answer | Unfinished = route.handle(request, self._call(opened, frame_bytes))
            return await self._first_stage(route, answer)
        async with self._service.codec.slots:
            request = await self._decode_large(opened, frame)
            answer = route.handle(request, self._call(opened, frame_bytes))
            del request
            return await self._first_stage(route, answer)

    async def _first_stage(self, route: Route, answer: Answer | Unfinished) -> Answer:
        if isinstance(answer, Unfinished):
            return await answer.rest
        if not route.is_prompt:
            return await cast("Awaitable[Answer]", answer)
        return answer

    async def _decode_paced(self, opened: Opened, frame: memoryview) -> Request | None:
        """Decodes a request with few elements on the loop; returns None if workers must decode it."""
        limits, codec = self._service.limits, self._service.codec
        if len(frame) > limits.request_inline_bytes_max:
            return None
        route, version, _, _, position = opened
        is_peer = self.client is not None and self.client.is_peer
        try:
            if not is_peer:
                with suppress(RequestTooCostly):
                    return decode_request(route.request, version, frame, position, codec.prompt_budget)
                await self._pacer.turn()
            return decode_request(route.request, version, frame, position, codec.inline_budget)
        except RequestTooCostly:
            return None
        except MalformedMessage as error:
            raise _unreadable(opened, error) from None

    async def _continue(self, unfinished: Unfinished) -> Answer:
        """Runs the rest of a first stage; sends responses that are ready before it."""
        try:
            if self._ready:
                await self._send_ready()
        except BaseException:
            unfinished.rest.close()
            raise
        return await unfinished.rest

    async def _decode_large(self, opened: Opened, frame: memoryview) -> Request:
        """Decodes a request in a worker and releases its frame: only Produce requests keep views of theirs."""
        route, version, _, _, position = opened
        try:
            request = await self._service.codec.decode(route.request, version, frame, position)
        except (MalformedMessage, RequestTooCostly) as error:
            raise _unreadable(opened, error) from None
        frame.release()
        return request

    def _place(self, answer: Answer, cost_bytes: int, timing: Timing, began_s: float) -> None:
        """Adds a finished response that waits for no other to `_ready`, and any other to `_order`."""
        order = self._order
        if not (order and order.places) and (answer is None or isinstance(answer, (list, tuple))):
            timing.note(self._service.time() - began_s)
            if answer:
                self._ready += answer
            self._settle(cost_bytes)
            return
        if order is None:
            order = self._order = Order(self._send, self._fail, self._service.time)
        if isinstance(answer, Later) and not answer.holds_input:
            self._settle(cost_bytes)
            cost_bytes = 0
        order.add(answer, cost_bytes, timing, began_s, self._pool.give)
        self._held_bytes -= cost_bytes
        if not self._held_bytes:
            self._pool = self._service.pool

    def _call(self, opened: Opened, request_bytes: int = 0) -> Call:
        client = self.client
        if client is None:
            client = self.client = Client(
                routes=self._service.dispatch.routes,
                listener=self._service.listener,
                number=self.number,
                on_peer=self._recognized,
            )
        route, version, correlation_id, client_id, _ = opened
        connection = self._connection
        return Call(
            route.api,
            version,
            correlation_id,
            client_id,
            connection.peer,
            connection.local,
            client,
            request_bytes,
        )

    def _recognized(self) -> None:
        """Called when the client is recognized as a node of this cluster."""
        self.is_on_probation = False
        self._reader.frame_bytes_max = self._service.limits.frame_bytes_max
        if self._on_peer is not None:
            self._on_peer()

    async def _send_ready(self) -> None:
        ready, self._ready = self._ready, []
        await self._send(ready)

    async def _send(self, buffers: Buffers) -> None:
        self.is_sending = True
        await self._connection.send(buffers)
        self.is_sending = False
        self.active_ms = self._service.now_ms

    def _settle(self, cost_bytes: int) -> None:
        if cost_bytes:
            self._held_bytes -= cost_bytes
            self._pool.give(cost_bytes)
            if not self._held_bytes:
                self._pool = self._service.pool

    # --- ending ---------------------------------------------------------------------------------------------------

    def _end_if_quiet(self) -> None:
        if self.is_quiet and self.task is not None:
            self.task.cancel()

    def _fail(self, error: Exception) -> None:
        """Ends the connection because an in-flight request failed."""
        if not isinstance(error, ConnectionError):
            self._complain(error)
        if self.task is not None:
            self.task.cancel()

    async def _explain(self, error: Exception) -> None:
        """Logs once why the connection ends, and informs the other end if its protocol is recognized."""
        connection = self._connection
        if isinstance(error, FrameTooLarge) and self.requests == 0:
            foreign = recognize(self._reader.peek(GREETING_BYTES), connection.peer, connection.local)
            if foreign is not None:
                self._service.client_warnings.say(foreign.kind, foreign.sentence)
                if foreign.answer:
                    await part(connection, (foreign.answer,))
                return
        if not isinstance(error, NoSlot):  # the listener logs the exceeded limit
            self._complain(error)

    def _complain(self, error: Exception) -> None:
        if isinstance(error, ProtocolError):
            kind = type(error).__name__
            sentence = f"Closed the connection of {self.peer}: {error}{ADVICE.get(type(error), '')}."
            self._service.client_warnings.say(kind, sentence)
        else:
            logger.error(
                "A request of %s failed by a mistake of ours, and its connection was closed: please report this.",
                self.peer,
                exc_info=error,
            )


def _decode(opened: Opened, frame: memoryview) -> Request:
    """Decodes a small request."""
    if opened.position == NO_BODY:
        return ApiVersionsRequest()
    try:
        return decode_request(opened.route.request, opened.version, frame, opened.position)
    except MalformedMessage as error:
        raise _unreadable(opened, error) from None


def _unreadable(opened: Opened, error: ProtocolError) -> ProtocolError:
    what = "costs too much" if isinstance(error, RequestTooCostly) else "is malformed"
    return type(error)(f"its {opened.route.api.title} request of version {opened.version} {what}: {error}")


async def part(connection: Connection, answer: Sequence[bytes]) -> None:
    """Sends a last response and waits briefly for the other end to close: a reset could overtake the response."""
    scratch = memoryview(bytearray(4096))
    left = FAREWELL_BYTES
    with suppress(ConnectionError, TimeoutError):
        async with asyncio.timeout(FAREWELL_MS / 1000):
            await connection.send(answer)
            while left > 0 and (count := await connection.receive_into(scratch)):
                left -= count
