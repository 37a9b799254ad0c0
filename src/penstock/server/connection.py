"""Serves one connection: frames in, answers out in the same order.

Overlapping requests (Produce, Fetch and others): their first stage runs in the order of arrival, the rest runs while
more is read. All others are barriers: they start when everything before them is answered, and nothing starts meanwhile.
With too much under way, or no room for input, the socket is not read. When the client goes, so does all that was under
way. Large requests are decoded by workers, within a budget, and so are large responses encoded.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias, cast

from penstock.model.errors import FrameTooLarge, MalformedMessage, ProtocolError, RequestTooCostly
from penstock.model.limits import Limits
from penstock.model.ports import Buffer, Connection, FileSlice
from penstock.server.codec_worker import CodecWorker
from penstock.server.complaints import Complaints
from penstock.server.dispatch import NO_BODY, Dispatch, Opened, Route
from penstock.server.greeting import GREETING_BYTES, recognize
from penstock.server.input_pool import InputPool
from penstock.server.order import Order, release
from penstock.server.pacing import pacer
from penstock.server.peer_connections import PEER_APIS
from penstock.server.serving import Answer, Buffers, Call, Client, Later, Unfinished
from penstock.server.timing import Timing
from penstock.wire.api import Api
from penstock.wire.codec import decode_request
from penstock.wire.declare import Request, Response
from penstock.wire.elements import has_more_elements
from penstock.wire.frames import FrameReader
from penstock.wire.headers import response_frame
from penstock.wire.messages.api_versions import ApiVersionsRequest

if TYPE_CHECKING:
    from penstock.server.node import Node

logger = logging.getLogger("penstock.connection")

PROBATION = "only nodes of this cluster are let in while connections are at their limit"
TURN_UNITS = 32
"""Requests served, or units of bytes read, without waiting; then the other connections get their turn."""
UNIT_SHIFT = 15
COSTLY_UNIT_SHIFT = 10
"""Of requests whose bytes are not records: a kilobyte of small elements costs as much as a request."""
FAREWELL_MS = 1_000
FAREWELL_BYTES = 64 * 1024
ADVICE: dict[type[Exception], str] = {
    FrameTooLarge: "; check that it speaks Kafka's protocol, or raise frame_bytes_max",
    MalformedMessage: "; check that it speaks Kafka's protocol, and that nothing in between alters what it sends",
    RequestTooCostly: "; have it send several smaller requests",
}


class NoSlot(ProtocolError):
    """A client came while only nodes of this cluster are let in."""


class ResponseTooLarge(ProtocolError):
    """A request whose answer would be larger than any client takes."""


Forward: TypeAlias = Callable[[Request, Call], Awaitable[Response]]


@dataclass(slots=True)
class Service:
    """What all connections of a listener share."""

    node: "Node"
    dispatch: Dispatch
    limits: Limits
    pool: InputPool
    large_pool: InputPool
    """For frames of more than `frame_large_bytes`: a few of them do not take the room that all others need."""
    complaints: Complaints
    codec: CodecWorker
    forward: Forward | None = None
    """Answers what only the active controller can, wherever that is; without it, the handlers here do."""
    now_ms: int = 0
    """What the clock said about a second ago: good enough for time-outs, and costs nothing."""
    time: Callable[[], float] = field(default_factory=lambda: asyncio.get_running_loop().time)
    """In seconds, for how long requests take."""


class ServedConnection:
    """One connection. `run` is its task; whoever ends it from outside cancels that."""

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
        """`on_peer` is called when the client turns out to be a node of this cluster; on probation it has to soon."""
        limits = service.limits
        self.number = number
        """Those that were accepted later have higher ones."""
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
        """Answers to the requests of one buffer, with nobody in front of them."""
        self._held_bytes = 0
        """What it has of the pool, apart from requests in the order."""
        self._pool = service.pool
        """Where it has that from."""
        self._pacer = pacer()
        self._since_turn = 0
        self.client: Client | None = None
        self.task: asyncio.Task[None] | None = None
        self.requests = 0
        """How many were begun."""
        self.active_ms = service.now_ms
        """When something last came in or went out."""
        self.frame_began_ms = 0
        """When the frame that is not whole began to arrive."""
        self.has_partial = False
        self.is_reading = False
        """Whether it waits for input, or for room for it."""
        self.is_sending = False
        self.is_stopping = False

    @property
    def peer(self) -> str:
        """Host and port that the client came from."""
        return self._connection.peer

    @property
    def is_quiet(self) -> bool:
        """Whether no request is under way."""
        return self.is_reading and not self._order

    def stop(self) -> None:
        """Ends as soon as nothing is under way."""
        self.is_stopping = True
        if self._order is not None:
            self._order.on_empty = self._end_if_quiet
        self._end_if_quiet()

    async def run(self) -> None:
        """Until the client goes, breaks the rules, or the task is cancelled."""
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
                frames.clear()  # their buffer must not be kept alive while more is waited for
                self.has_partial = reader.unparsed_bytes > 0
                self.frame_began_ms = service.now_ms
                if self.has_partial:
                    reader.frames()  # refuses a frame that is too large; there is no whole one
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
        """Whether it receives into a lent buffer; it borrows one if it can."""
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
        """A large frame takes its room from the other pool; how much of it is here already."""
        held_bytes = self._held_bytes
        self._settle(held_bytes)
        self._pool = self._service.large_pool
        return held_bytes

    async def _wait_for_room(self, growth_bytes: int) -> None:
        """The socket is not read meanwhile, and the frame's time does not run."""
        service = self._service
        began_ms, self.has_partial = service.now_ms, False
        await self._pool.take(self, growth_bytes, is_first=not self._held_bytes)
        self.has_partial = True
        self.frame_began_ms += service.now_ms - began_ms

    async def _handle(self, frames: list[memoryview]) -> None:
        """The frames of one buffer. The pool gets the buffer back when the last of them is answered."""
        last = len(frames) - 1
        under_way_max, time = self._service.limits.requests_under_way_max, self._service.time
        small_bytes_max = self._service.limits.request_small_bytes_max
        try:
            for number, frame in enumerate(frames):
                opened = self._service.dispatch.open(frame)
                route = opened.route
                self.requests += 1
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
                        await self._send_ready()  # else they would stand behind one that waits
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
            if self._ready:  # what came before the request that breaks the rules is answered
                await self._send_ready()
            raise
        if self._ready:
            await self._send_ready()

    async def _take_turns(self) -> None:
        self._since_turn = 0
        await asyncio.sleep(0)

    # --- handling -------------------------------------------------------------------------------------------------

    async def _handle_plain(self, opened: Opened, frame: memoryview, cost_bytes: int) -> None:
        """A barrier on both sides: waits for what came before, and is answered before anything else starts."""
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
        """The first stage of an overlapping request that is not small."""
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
        """The request, if it has few elements; None if workers are to decode it."""
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
        """The rest of a first stage; answers before it do not wait for that."""
        try:
            if self._ready:
                await self._send_ready()
        except BaseException:
            unfinished.rest.close()
            raise
        return await unfinished.rest

    async def _decode_large(self, opened: Opened, frame: memoryview) -> Request:
        """The request, of which no view of the frame is left: only Produce has such."""
        route, version, _, _, position = opened
        try:
            request = await self._service.codec.decode(route.request, version, frame, position)
        except (MalformedMessage, RequestTooCostly) as error:
            raise _unreadable(opened, error) from None
        frame.release()
        return request

    def _place(self, answer: Answer, cost_bytes: int, timing: Timing, began_s: float) -> None:
        """Answers that are ready and have nobody in front of them leave together; the others take a place."""
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
                routes=self._service.dispatch.routes, number=self.number, on_peer=self._recognized
            )
        route, version, correlation_id, client_id, _ = opened
        connection = self._connection
        return Call(
            self._service.node,
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
        """The other end is a node of this cluster."""
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
        """A request that was under way could not be answered."""
        if not isinstance(error, ConnectionError):
            self._complain(error)
        if self.task is not None:
            self.task.cancel()

    async def _explain(self, error: Exception) -> None:
        """Says once why the connection ends, also to the other end if it understands."""
        connection = self._connection
        if isinstance(error, FrameTooLarge) and self.requests == 0:
            stranger = recognize(self._reader.peek(GREETING_BYTES), connection.peer, connection.local)
            if stranger is not None:
                self._service.complaints.say(stranger.kind, stranger.sentence)
                if stranger.answer:
                    await part(connection, (stranger.answer,))
                return
        if not isinstance(error, NoSlot):  # of which the listener says more
            self._complain(error)

    def _complain(self, error: Exception) -> None:
        if isinstance(error, ProtocolError):
            kind = type(error).__name__
            sentence = f"Closed the connection of {self.peer}: {error}{ADVICE.get(type(error), '')}."
            self._service.complaints.say(kind, sentence)
        else:
            logger.error(
                "A request of %s failed by a mistake of ours, and its connection was closed: please report this.",
                self.peer,
                exc_info=error,
            )


def _decode(opened: Opened, frame: memoryview) -> Request:
    """A small request."""
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
    """Sends a last answer, and waits a moment for the other end to close: a reset could overtake the answer."""
    scratch = memoryview(bytearray(4096))
    left = FAREWELL_BYTES
    with suppress(ConnectionError, TimeoutError):
        async with asyncio.timeout(FAREWELL_MS / 1000):
            await connection.send(answer)
            while left > 0 and (count := await connection.receive_into(scratch)):
                left -= count
