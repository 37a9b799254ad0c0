"""A minimal HTTP server: GET and HEAD of a few pages, for Prometheus and for people.

Clients do not authenticate, so their use of time and memory is bounded: a request consists of its head only, of bounded
size, and must arrive within a bounded time; a connection carries one request; few connections are open at once, and a
response that is not read in time is dropped. On a loopback address, a Host header must name a loopback address: a web
page whose own name resolves to this address (DNS rebinding) reads nothing.
"""

import asyncio
import errno
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, TypeAlias

from penstock.model.limits import Limits
from penstock.model.loopback import is_loopback
from penstock.model.ports import Connection, Listener
from penstock.server.connections.client_warnings import ClientWarnings
from penstock.server.connections.connection import part
from penstock.server.connections.listener import RETRY_MS

logger = logging.getLogger("penstock.http")

PLAIN: Final = "text/plain; charset=utf-8"
REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
    505: "HTTP Version Not Supported",
}
_END: Final = b"\r\n\r\n"


class Answer(NamedTuple):
    """The response of a page."""

    code: int
    body: Sequence[bytes]
    content_type: str = PLAIN


Answering: TypeAlias = Callable[[], Awaitable[Answer]]


class HttpError(Exception):
    """A request is refused; the sentence is sent to the client."""

    def __init__(self, code: int, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


class Request(NamedTuple):
    """The parts of a request head that are used."""

    method: str
    path: str
    host: str | None


class HttpListener:
    """The connections of one listening address."""

    def __init__(
        self,
        listener: Listener,
        pages: Mapping[str, Answering],
        limits: Limits,
        client_warnings: ClientWarnings,
        *,
        is_on_loopback: bool,
    ) -> None:
        """`pages` maps each path to its page."""
        self._listener = listener
        self._pages = pages
        self._limits = limits
        self._client_warnings = client_warnings
        self._accepting: asyncio.Task[None] | None = None
        self._serving: dict[asyncio.Task[None], Connection] = {}
        self._is_on_loopback = is_on_loopback

    def __len__(self) -> int:
        return len(self._serving)

    @property
    def address(self) -> str:
        """Host and port that the socket is bound to."""
        return self._listener.address

    def start(self) -> None:
        """Starts accepting connections."""
        self._accepting = asyncio.get_running_loop().create_task(self._accept())

    async def stop(self) -> None:
        """Stops accepting and drops open connections."""
        self._listener.close()
        tasks = [*filter(None, [self._accepting]), *self._serving]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- connections ----------------------------------------------------------------------------------------------

    async def _accept(self) -> None:
        while True:
            try:
                connection = await self._listener.accept()
            except OSError as error:
                if error.errno == errno.EBADF:
                    return
                self._client_warnings.say("http accept", f"{self.address} cannot accept connections: {error}.")
                await asyncio.sleep(RETRY_MS / 1000)
                continue
            if len(self._serving) >= self._limits.http_connections_max:
                self._client_warnings.say(
                    "http connections",
                    f"Refused a connection from {connection.peer} to {self.address}: "
                    f"{self._limits.http_connections_max} are open; let fewer look at once.",
                )
                connection.close()
                await asyncio.sleep(0)
                continue
            task = asyncio.get_running_loop().create_task(self._serve(connection))
            self._serving[task] = connection
            task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._serving.pop(task).close()  # it may have been cancelled before it began
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("A page could not be sent by a mistake of ours: please report this.", exc_info=error)

    async def _serve(self, connection: Connection) -> None:
        request: Request | None = None
        with suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout((self._limits.http_head_ms + self._limits.http_answer_ms) / 1000):
                try:
                    request = await self._receive(connection)
                    if request is None:
                        return
                    answer = await self._answer(request)
                except HttpError as refusal:
                    answer = Answer(refusal.code, [f"{refusal}\n".encode()])
                    has_body = request is None or request.method != "HEAD"
                    await part(connection, _written(answer, has_body=has_body))  # the rest of its input is discarded
                else:
                    await connection.send(_written(answer, has_body=request.method == "GET"))

    async def _answer(self, request: Request) -> Answer:
        if request.method not in ("GET", "HEAD"):
            raise HttpError(405, f"{request.method} is not served here, only GET and HEAD are.")
        if self._is_on_loopback and request.host is not None and not is_loopback(_name_of(request.host)):
            raise HttpError(403, f"This is {self.address}, not {request.host}: ask for it by that address.")
        answering = self._pages.get(request.path)
        if answering is None:
            raise HttpError(404, f"There is no such page here; there are {', '.join(self._pages)}.")
        try:
            return await answering()
        except (ConnectionError, TimeoutError):
            raise
        except Exception as error:
            logger.error("%s failed by a mistake of ours: please report this.", request.path, exc_info=error)
            raise HttpError(500, "This page failed by a mistake of ours; the node's log says more.") from error

    # --- reading --------------------------------------------------------------------------------------------------

    async def _receive(self, connection: Connection) -> Request | None:
        """Receives the head; returns None if the client disconnects before it is complete."""
        head = memoryview(bytearray(self._limits.http_head_bytes_max))
        filled, end = 0, -1
        try:
            async with asyncio.timeout(self._limits.http_head_ms / 1000):
                while end < 0:
                    if filled == len(head):
                        raise HttpError(431, f"The head of a request may have {len(head)} bytes.")
                    count = await connection.receive_into(head[filled:])
                    if count == 0:
                        return None
                    looked, filled = max(0, filled - len(_END)), filled + count
                    end = bytes(head[looked:filled]).find(_END)
                    end = end if end < 0 else end + looked
        except TimeoutError:
            raise HttpError(408, f"The head of a request must be here in {self._limits.http_head_ms} ms.") from None
        if filled > end + len(_END):
            raise HttpError(400, "A request here is its head, and nothing follows it.")
        return parse_head(bytes(head[:end]))


def parse_head(head: bytes) -> Request:
    """Parses a head without its empty line. Raises HttpError with the reason."""
    try:
        first, *rest = head.decode("ascii").split("\r\n")
    except UnicodeDecodeError:
        raise HttpError(400, "The head of a request is ASCII.") from None
    words = first.split(" ")
    if len(words) != 3:
        raise HttpError(400, "A request begins with a method, a path and a version.")
    method, target, version = words
    if version not in ("HTTP/1.1", "HTTP/1.0"):
        raise HttpError(505, "HTTP/1.1 is spoken here.")
    if not target.startswith("/"):
        raise HttpError(400, "A path begins with a slash.")
    host = None
    for line in rest:
        name, colon, value = line.partition(":")
        if not colon or not name or not name.isprintable() or " " in name:
            raise HttpError(400, "A line of the head is no header.")
        match name.lower():
            case "host":
                if host is not None:
                    raise HttpError(400, "There are two Host headers.")
                host = value.strip()
            case "content-length" if value.strip() != "0":
                raise HttpError(400, "A request here has no body.")
            case "transfer-encoding":
                raise HttpError(400, "A request here has no body.")
    return Request(method, target.partition("?")[0], host)


def _name_of(host: str) -> str:
    """A Host header without its port."""
    return host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]


def _written(answer: Answer, *, has_body: bool) -> Sequence[bytes]:
    lines = [
        f"HTTP/1.1 {answer.code} {REASONS[answer.code]}",
        f"Content-Type: {answer.content_type}",
        f"Content-Length: {sum(map(len, answer.body))}",
        "Cache-Control: no-store",
        "X-Content-Type-Options: nosniff",
        "Connection: close",
    ]
    if answer.code == 405:
        lines.append("Allow: GET, HEAD")
    head = ("\r\n".join(lines) + "\r\n\r\n").encode()
    return [head, *answer.body] if has_body else [head]
