"""Finds the handler of a request frame: the table of APIs, and the parsing of request headers.

An unknown version of ApiVersions is answered all the same, because newer clients discover the supported versions this
way. Any other unknown or malformed request raises a ProtocolError whose sentence says what to do; the connection is
then closed.
"""

import struct
from collections.abc import Container, Iterable
from copy import copy
from itertools import chain
from typing import NamedTuple

from penstock.model.errors import MalformedMessage, RequestTooCostly, UnsupportedVersion
from penstock.server.connections.serving import Route, routes_of
from penstock.server.loop.timing import Timing
from penstock.wire.api import Api
from penstock.wire.headers import Start, read_request_header

_HEAD = struct.Struct(">hhih")
NO_BODY = -1
"""Position of a body that cannot be decoded: that of an ApiVersions request of an unknown version."""


class Opened(NamedTuple):
    """A request whose header has been parsed."""

    route: Route
    version: int
    correlation_id: int
    client_id: str | None
    position: int
    """Where the body begins, or NO_BODY."""


class Dispatch:
    """The API table, built from handler methods that `serves` and the similar decorators of `serving` mark."""

    __slots__ = ("routes",)

    def __init__(self, handlers: Iterable[object], leaves_out: Container[int] = ()) -> None:
        """`leaves_out` are APIs that these handlers serve only on another listener."""
        self.routes: dict[int, Route] = {}
        for route in chain.from_iterable(map(routes_of, handlers)):
            if route.api not in leaves_out:
                assert route.api not in self.routes, f"two handlers serve {route.api.title}"
                self.routes[route.api] = route
        self.routes = dict(sorted(self.routes.items()))

    def copy(self) -> "Dispatch":
        """The same APIs with durations of their own, for another listener."""
        copied = Dispatch(())
        for api, route in self.routes.items():
            copied.routes[api] = copy(route)
            copied.routes[api].timing = Timing()
        return copied

    def open(self, frame: memoryview) -> Opened:
        """Parses the header of a request. After a ProtocolError the connection must be closed."""
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
