"""One connection to one broker: requests are sent in the order in which they are begun; responses arrive in that order.

`begin` sends a request at once and returns the future of its response, so two calls keep their order; `ask` waits for
the response. If the caller is cancelled, its response is discarded. A request that is not answered in time ends the
connection: all later responses are late too. The Network handles encryption, and the login is a step of opening; both
are invisible afterwards.
"""

import asyncio
import struct
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from penstock.client.connection.trouble import cannot_connect, closed_at_once, lost, not_let_in, unreadable
from penstock.client.errors import ClientError, Closed, ConnectionLost, TimedOut, Unsupported, check
from penstock.model.errors import ErrorCode, FrameTooLarge, MalformedMessage, ProtocolError
from penstock.model.limits import DEFAULT_LIMITS
from penstock.model.ports import Buffer, Connection, Network
from penstock.version import __version__
from penstock.wire.api import Api
from penstock.wire.codec import decode
from penstock.wire.declare import Request, Response
from penstock.wire.frames import FrameReader
from penstock.wire.headers import read_response_header, request_frame
from penstock.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

R = TypeVar("R", bound=Response)

SOFTWARE = "penstock"
TIMEOUT_MS = 30_000
RECEIVE_BYTES = 64 * 1024
_FIRST_BYTES = 16
_CORRELATION = struct.Struct(">i")
_CORRELATION_AND_CODE = struct.Struct(">ih")
_CORRELATION_MASK = 0x7FFFFFFF


class Login(Protocol):
    """Authentication between ApiVersions and the first request, such as SASL."""

    async def log_in(self, connection: "BrokerConnection") -> int:
        """Returns the session lifetime in milliseconds, 0 if it is unlimited; or raises LoginFailed."""


@dataclass(slots=True)
class _Pending:
    """An in-flight request."""

    correlation_id: int
    title: str
    read: Callable[[memoryview], object]
    future: "asyncio.Future[Any]"
    timer: asyncio.TimerHandle


class BrokerConnection:
    """See the module. Made by `open_connection`."""

    def __init__(self, connection: Connection, address: str, client_id: str | None, timeout_ms: int) -> None:
        self.address = address
        self.served: Mapping[int, range] = {}
        """The versions that the broker serves, by API key."""
        self.features: Mapping[str, int] = {}
        """The finalized features and their levels."""
        self.login_lasts_ms = 0
        """Session lifetime of the login; 0 if it is unlimited."""
        self._connection = connection
        self._client_id = client_id
        self._timeout_ms = timeout_ms
        self._loop = asyncio.get_running_loop()
        self._frames = FrameReader(DEFAULT_LIMITS.frame_bytes_max, first_bytes=RECEIVE_BYTES)
        self._first = b""
        self._is_answered = False
        self._correlation_id = 0
        self._pending: deque[_Pending] = deque()
        self._outbox: list[Buffer] = []
        self._sent: list[asyncio.Future[None]] = []
        self._wake: asyncio.Future[None] | None = None
        self._failure: ClientError | None = None
        self._is_retired = False
        self._tasks = (self._loop.create_task(self._read()), self._loop.create_task(self._write()))

    @property
    def is_closed(self) -> bool:
        """Whether the connection accepts no more requests."""
        return self._failure is not None

    @property
    def awaited(self) -> int:
        """Number of in-flight requests."""
        return len(self._pending)

    # --- requests

    async def ask(
        self, request: Request, answer: type[R], *, version: int | None = None, timeout_ms: int | None = None
    ) -> R:
        """Sends a request and returns its response; the default version is the newest that both sides support."""
        return await self.begin(request, answer, version=version, timeout_ms=timeout_ms)

    def begin(
        self, request: Request, answer: type[R], *, version: int | None = None, timeout_ms: int | None = None
    ) -> "asyncio.Future[R]":
        """Sends a request after all that were begun before it; returns the future of its response."""
        chosen = self.version_for(type(request)) if version is None else version
        api = Api(request.KEY)

        def read(frame: memoryview) -> R:
            _, position = read_response_header(api, chosen, frame)
            return decode(answer, chosen, frame, position)

        return self._begin(request, chosen, read, timeout_ms)

    async def tell(self, request: Request, *, version: int | None = None) -> None:
        """Sends a request that has no response (Produce with acks=0); returns when the network has accepted it."""
        chosen = self.version_for(type(request)) if version is None else version
        sent = self._loop.create_future()
        self._send(request_frame(request, chosen, self._next_correlation_id(), self._client_id))
        self._sent.append(sent)
        await sent

    def version_for(self, request: type[Request], most: int | None = None) -> int:
        """The newest version that both sides support, but at most `most`; raises Unsupported if there is none."""
        offered = self.served.get(request.KEY, range(0))
        last = min(request.VERSIONS.last, offered.stop - 1)
        if request.UNSTABLE.first <= last:
            last = request.UNSTABLE.first - 1
        if most is not None:
            last = min(last, most)
        if not offered or last < max(request.VERSIONS.first, offered.start):
            offer = f"versions {offered.start} to {offered.stop - 1}" if offered else "no version at all"
            raise Unsupported(
                f"{self.address} serves {offer} of {Api(request.KEY).title}; this client speaks "
                f"{request.VERSIONS.first} to {request.VERSIONS.last if most is None else most}"
            )
        return last

    def _begin(
        self, request: Request, version: int, read: Callable[[memoryview], object], timeout_ms: int | None
    ) -> "asyncio.Future[Any]":
        correlation_id = self._next_correlation_id()
        self._send(request_frame(request, version, correlation_id, self._client_id))
        future: asyncio.Future[Any] = self._loop.create_future()
        limit_ms = self._timeout_ms if timeout_ms is None else timeout_ms
        title = Api(request.KEY).title
        timer = self._loop.call_later(limit_ms / 1000, self._give_up, correlation_id, title, limit_ms)
        self._pending.append(_Pending(correlation_id, title, read, future, timer))
        return future

    def _next_correlation_id(self) -> int:
        self._correlation_id = (self._correlation_id + 1) & _CORRELATION_MASK
        return self._correlation_id

    def _send(self, frame: bytearray) -> None:
        if self._failure is not None:
            raise _again(self._failure)
        self._outbox.append(frame)
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    # --- version negotiation

    async def negotiate(self) -> None:
        """Queries the API versions of the broker. An older broker refuses our version in a version 0 response."""
        version = ApiVersionsRequest.VERSIONS.last
        response = await self._ask_versions(version)
        if response.error_code is ErrorCode.UNSUPPORTED_VERSION:
            offered = [api.max_version for api in response.api_keys if api.api_key == Api.API_VERSIONS]
            response = await self._ask_versions(min(version - 1, max(offered, default=0)))
        check(response.error_code, subject=self.address)
        self.served = {api.api_key: range(api.min_version, api.max_version + 1) for api in response.api_keys}
        self.features = {each.name: each.max_version_level for each in response.finalized_features}

    async def _ask_versions(self, version: int) -> ApiVersionsResponse:
        request = ApiVersionsRequest(client_software_name=SOFTWARE, client_software_version=__version__)

        def read(frame: memoryview) -> ApiVersionsResponse:
            if len(frame) < _CORRELATION_AND_CODE.size:
                raise MalformedMessage(f"an answer of {len(frame)} bytes")
            _, code = _CORRELATION_AND_CODE.unpack_from(frame)
            in_version = 0 if code == ErrorCode.UNSUPPORTED_VERSION else version
            return decode(ApiVersionsResponse, in_version, frame, _CORRELATION.size)

        answer: ApiVersionsResponse = await self._begin(request, version, read, None)
        return answer

    # --- internals

    async def _read(self) -> None:
        try:
            while True:
                view = self._frames.writable()
                count = await self._connection.receive_into(view)
                if not count:
                    self._fail(self._hung_up())
                    return
                if not self._first:
                    self._first = bytes(view[: min(count, _FIRST_BYTES)])
                self._frames.received(count)
                for frame in self._frames.frames():
                    self._take(frame)
        except FrameTooLarge as error:
            self._fail(unreadable(self.address, self._first, str(error)))
        except OSError as error:
            self._fail(self._hung_up() if isinstance(error, ConnectionResetError) else lost(self.address, error))

    def _hung_up(self) -> ClientError:
        """The error for a connection that the broker closed, depending on how far the exchange had come."""
        if not self.served:
            return closed_at_once(self.address)
        return lost(self.address) if self._is_answered else not_let_in(self.address)

    def _take(self, frame: memoryview) -> None:
        """Completes the oldest in-flight request with its response."""
        expected = self._pending[0].correlation_id if self._pending else None
        found = _CORRELATION.unpack_from(frame)[0] if len(frame) >= _CORRELATION.size else None
        if expected is None or found != expected:
            self._fail(unreadable(self.address, self._first, f"answer {found} where {expected} was expected"))
            return
        pending = self._pending.popleft()
        pending.timer.cancel()
        self._is_answered = bool(self.served)
        if pending.future.done():
            self._close_if_idle()
            return
        try:
            answer = pending.read(frame)
        except ProtocolError as error:
            detail = f"its answer to {pending.title} cannot be read: {error}"
            pending.future.set_exception(unreadable(self.address, self._first, detail))
        else:
            pending.future.set_result(answer)
        self._close_if_idle()

    async def _write(self) -> None:
        try:
            while True:
                if not self._outbox:
                    self._wake = self._loop.create_future()
                    await self._wake
                frames, self._outbox = self._outbox, []
                told = len(self._sent)
                await self._connection.send(frames)
                for each in self._sent[:told]:
                    if not each.done():
                        each.set_result(None)
                del self._sent[:told]
        except OSError as error:
            # Data that the broker sent before it closed explains more than the broken pipe: read it first.
            self._loop.call_later(_LAST_WORDS_S, self._fail, lost(self.address, error))

    def _give_up(self, correlation_id: int, title: str, limit_ms: int) -> None:
        for pending in self._pending:
            if pending.correlation_id == correlation_id and not pending.future.done():
                text = f"{self.address} did not answer {title} within {limit_ms} ms"
                pending.future.set_exception(TimedOut(text))
        self._fail(ConnectionLost(f"{self.address} did not answer {title} within {limit_ms} ms"))

    def _fail(self, failure: ClientError) -> None:
        if self._failure is not None:
            return
        self._failure = failure
        self._connection.close()
        pending, self._pending = self._pending, deque()
        for each in pending:
            each.timer.cancel()
            if not each.future.done():
                each.future.set_exception(_again(failure))
        sent, self._sent = self._sent, []
        for waiter in sent:
            if not waiter.done():
                waiter.set_exception(_again(failure))
        for task in self._tasks:
            task.cancel()

    def close_when_idle(self) -> None:
        """Closes the connection after the last in-flight request. The caller must send no more requests."""
        self._is_retired = True
        self._close_if_idle()

    def _close_if_idle(self) -> None:
        if self._is_retired and not self._pending and not self._outbox:
            self._fail(Closed(f"the connection to {self.address} was closed"))

    def end(self) -> None:
        """Ends the connection at once; in-flight requests fail."""
        self._fail(Closed(f"the connection to {self.address} was closed"))

    async def close(self) -> None:
        """Ends the connection and waits for its tasks."""
        self.end()
        await asyncio.gather(*self._tasks, return_exceptions=True)


_LAST_WORDS_S = 0.05


def _again(failure: ClientError) -> ClientError:
    """Copies a failure for another caller: an exception object keeps the traceback of where it was raised."""
    return type(failure)(*failure.args)


async def open_connection(
    network: Network,
    host: str,
    port: int,
    *,
    address: str,
    client_id: str | None = SOFTWARE,
    login: Login | None = None,
    connect_timeout_ms: int = 10_000,
    timeout_ms: int = TIMEOUT_MS,
) -> BrokerConnection:
    """Connects, negotiates versions, and logs in, all within the `connect_timeout_ms`."""
    deadline_s = asyncio.get_running_loop().time() + connect_timeout_ms / 1000
    try:
        async with asyncio.timeout_at(deadline_s):
            raw = await network.connect(host, port)
    except OSError as error:
        raise cannot_connect(address, error, connect_timeout_ms) from error
    connection = BrokerConnection(raw, address, client_id, timeout_ms)
    try:
        async with asyncio.timeout_at(deadline_s):
            await connection.negotiate()
            if login is not None:
                connection.login_lasts_ms = await login.log_in(connection)
    except TimeoutError:
        await connection.close()
        raise TimedOut(
            f"{address} took the connection but did not answer within {connect_timeout_ms} ms: "
            "it may want TLS, or be too busy"
        ) from None
    except BaseException:
        await connection.close()
        raise
    return connection
