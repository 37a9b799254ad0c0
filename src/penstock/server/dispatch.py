"""Which handler serves a frame: the table of APIs, and the reading of request headers.

An unknown version of ApiVersions is answered all the same, because that is how a newer client learns what is spoken
here. Everything else that is unknown or malformed is a ProtocolError, whose sentence says what to do; the connection
ends with it.
"""

import struct
from collections.abc import Callable, Container, Sequence
from types import ModuleType
from typing import Any, NamedTuple

from penstock.model.errors import MalformedMessage, RequestTooCostly, UnsupportedVersion
from penstock.server.serving import Served
from penstock.server.timing import Timing
from penstock.wire.api import Api
from penstock.wire.declare import Request
from penstock.wire.headers import Start, read_request_header

_HEAD = struct.Struct(">hhih")
NO_BODY = -1
"""Stands for the position of a body that nobody can read: an ApiVersions request of an unknown version."""


class Route:
    """A served API, laid out for quick access."""

    __slots__ = (
        "api",
        "first",
        "flexible_first",
        "handle",
        "is_for_controller",
        "is_framed",
        "is_prompt",
        "last",
        "overlaps",
        "request",
        "timing",
    )

    def __init__(self, served: Served) -> None:
        self.api: Api = served.api
        self.request: type[Request] = served.request
        self.handle: Callable[..., Any] = served.handle
        self.is_framed: bool = served.is_framed
        self.overlaps: bool = served.overlaps
        self.is_prompt: bool = served.is_prompt
        self.is_for_controller: bool = served.is_for_controller
        self.first: int = served.versions.first
        self.last: int = served.versions.last
        self.flexible_first: int = served.request.FLEXIBLE.first
        self.timing = Timing()
        """How long its requests took."""


class Opened(NamedTuple):
    """A request whose header is read."""

    route: Route
    version: int
    correlation_id: int
    client_id: str | None
    position: int
    """Where the body begins, or NO_BODY."""


class Dispatch:
    """The table, made of modules whose functions are marked by `serves` and its likes in `serving`."""

    __slots__ = ("routes",)

    def __init__(self, handlers: Sequence[ModuleType], leaves_out: Container[int] = ()) -> None:
        """`leaves_out` are APIs that these handlers serve elsewhere."""
        self.routes: dict[int, Route] = {}
        for module in handlers:
            for function in vars(module).values():
                served = getattr(function, "served", None)
                if not isinstance(served, Served) or function.__module__ != module.__name__:
                    continue
                if served.api not in leaves_out:
                    assert served.api not in self.routes, f"two handlers serve {served.api.title}"
                    self.routes[served.api] = Route(served)
        self.routes = dict(sorted(self.routes.items()))

    def open(self, frame: memoryview) -> Opened:
        """Reads the header of a request. A ProtocolError means that the connection cannot go on."""
        try:
            key, version, correlation_id, client_size = _HEAD.unpack_from(frame)
        except struct.error:
            raise MalformedMessage(f"it sent a request of {len(frame)} bytes, shorter than any") from None
        route = self.routes.get(key)
        if route is None:
            raise UnsupportedVersion(_unserved(Start(key, version, correlation_id)))
        if not route.first <= version <= route.last:
            if route.api == Api.API_VERSIONS:
                return Opened(route, version, correlation_id, None, NO_BODY)
            raise UnsupportedVersion(_wrong_version(route, version))
        is_flexible = version >= route.flexible_first
        end = 10 + client_size
        if client_size < 0 or end + is_flexible > len(frame) or (is_flexible and frame[end]):
            try:
                header, position = read_request_header(route.api, version, frame)
            except MalformedMessage as error:
                raise MalformedMessage(f"the header of its {route.api.title} request is malformed: {error}") from None
            except RequestTooCostly as error:
                raise RequestTooCostly(f"the header of its {route.api.title} request costs too much: {error}") from None
            return Opened(route, version, correlation_id, header.client_id, position)
        try:
            client_id = str(frame[10:end], "utf-8")
        except UnicodeDecodeError:
            raise MalformedMessage("it sent a client id that is not UTF-8") from None
        return Opened(route, version, correlation_id, client_id, end + is_flexible)


def _unserved(start: Start) -> str:
    try:
        name = Api(start.key).title
    except ValueError:
        return (
            f"it asked for API key {start.key} version {start.version}, which nobody knows: "
            "check that it speaks Kafka's protocol"
        )
    return f"it asked for {name} version {start.version}, which is not served: have it ask ApiVersions first"


def _wrong_version(route: Route, version: int) -> str:
    advice = "upgrade the client" if version < route.first else "have it ask ApiVersions first"
    return f"it asked for {route.api.title} version {version}, but {route.first} to {route.last} are served: {advice}"
