"""Decorators by which a handler declares the APIs that it serves, and the context of a call.

A handler is an object that holds the collaborators it needs; its methods serve one API each. A plain method takes a
decoded request and returns a response; it is a barrier: no other request of its connection is in flight meanwhile. An
overlapping method takes a decoded request and returns buffers, or an object that delivers them later; its first stage,
up to that return, runs in the order in which requests arrived. A framed method (Produce) overlaps, too, and parses its
request from the frame itself.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from types import MethodType
from typing import Any, TypeAlias, TypeVar

from penstock.model.ports import Buffer, FileSlice
from penstock.server.loop.timing import Timing
from penstock.wire.api import Api
from penstock.wire.declare import Range, Request

Buffers: TypeAlias = Sequence[Buffer | FileSlice]


class Later(ABC):
    """A response that is delivered by a callback, without a task that waits for it."""

    __slots__ = ()

    holds_input = True
    """Whether the request's bytes count as used until it is answered; False if the request is kept elsewhere."""

    @abstractmethod
    def begin(self, done: Callable[[Buffers], None], fail: Callable[[Exception], None]) -> None:
        """Starts; calls `done` or `fail` once, maybe at once. Neither may block. `fail` ends the connection."""

    @abstractmethod
    def cancel(self) -> None:
        """Cancels the response: neither callback is called from now on."""


class Unfinished:
    """A first stage that takes many iterations of the loop. Later requests of the connection wait for it."""

    __slots__ = ("rest",)

    def __init__(self, rest: "Coroutine[Any, Any, Answer]") -> None:
        self.rest = rest


Answer: TypeAlias = Buffers | Awaitable[Buffers] | Later | None
"""The result of a framed or an overlapping handler; None when the client expects no response (acks=0).

A pending answer holds no file slice before it begins or runs: if the client disconnects at that moment, it never does.
"""


@dataclass(slots=True)
class Client:
    """The other end of a connection."""

    software_name: str = "unknown"
    software_version: str = "unknown"
    routes: "Mapping[int, Route]" = field(default_factory=dict)
    """APIs of the listener that the client connected to, by API key."""
    listener: str = ""
    """Name of that listener: answers name the addresses of brokers there."""
    on_end: Callable[[], None] | None = None
    """Called when the connection ends."""
    number: int = 0
    """Number of the connection: later connections have higher numbers."""
    is_peer: bool = False
    """Whether the client is a node of this cluster (`peer_connections`)."""
    on_peer: Callable[[], None] | None = None
    """Called when the client is recognized as a node."""

    def recognize(self) -> None:
        """Marks the client as a node of this cluster."""
        if not self.is_peer:
            self.is_peer = True
            if self.on_peer is not None:
                self.on_peer()

    @property
    def is_librdkafka(self) -> bool:
        """Whether it is librdkafka or reports to be built on it (confluent-kafka-python 2.16.1-rdkafka-2.16.0)."""
        return "rdkafka" in self.software_name or "rdkafka" in self.software_version


@dataclass(slots=True)
class Call:
    """The context of a request: everything but its body."""

    api: Api
    version: int
    correlation_id: int
    client_id: str | None
    peer: str
    """Host and port of the client."""
    local: str
    """Host and port that the client reached."""
    client: Client = field(default_factory=Client)
    request_bytes: int = 0
    """The size of the request's frame."""


@dataclass(frozen=True, slots=True)
class Served:
    """One API that a method serves."""

    request: type[Request]
    is_framed: bool = False
    """Whether the method parses requests from their frames."""
    overlaps: bool = False
    """Whether later requests of the connection begin before this one is answered."""
    is_prompt: bool = False
    """Whether the first stage is a plain function: responses to earlier requests may then leave after it."""
    is_for_controller: bool = False
    """Whether only the active controller can answer: brokers forward the request."""

    @property
    def api(self) -> Api:
        """The API key."""
        return Api(self.request.KEY)

    @property
    def versions(self) -> Range:
        """The served versions: all declared ones except unstable ones."""
        declared, unstable = self.request.VERSIONS, self.request.UNSTABLE
        last = min(declared.last, unstable.first - 1) if unstable.last >= 0 else declared.last
        return Range(declared.first, last)


S = TypeVar("S")
Q = TypeVar("Q", bound=Request)
R = TypeVar("R")
Plain: TypeAlias = Callable[[S, Q, Call], Coroutine[Any, Any, R]]
Overlapping: TypeAlias = Callable[[S, Q, Call], R]
Framed: TypeAlias = Callable[[S, Call, memoryview, int], R]


def serves(request: type[Q], *, is_for_controller: bool = False) -> Callable[[Plain[S, Q, R]], Plain[S, Q, R]]:
    """Marks a plain method: `async def method(self, request, call) -> response`."""
    return _mark(Served(request, is_for_controller=is_for_controller))


def serves_overlapping(
    request: type[Q], *, is_prompt: bool = False
) -> Callable[[Overlapping[S, Q, R]], Overlapping[S, Q, R]]:
    """Marks an overlapping method: `async def method(self, request, call) -> answer`; without `async` if prompt."""
    return _mark(Served(request, overlaps=True, is_prompt=is_prompt))


def serves_frames(request: type[Request], *, is_prompt: bool = False) -> Callable[[Framed[S, R]], Framed[S, R]]:
    """Marks a framed method: `async def method(self, call, frame, position) -> answer`; without `async` if prompt.

    A prompt method may return Unfinished.
    """
    return _mark(Served(request, is_framed=True, overlaps=True, is_prompt=is_prompt))


F = TypeVar("F", bound=Callable[..., Any])


def _mark(served: Served) -> Callable[[F], F]:
    def mark(method: F) -> F:
        method.served = served  # type: ignore[attr-defined]
        return method

    return mark


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

    def __init__(self, served: Served, handle: Callable[..., Any]) -> None:
        self.api: Api = served.api
        self.request: type[Request] = served.request
        self.handle = handle
        self.is_framed: bool = served.is_framed
        self.overlaps: bool = served.overlaps
        self.is_prompt: bool = served.is_prompt
        self.is_for_controller: bool = served.is_for_controller
        self.first: int = served.versions.first
        self.last: int = served.versions.last
        self.flexible_first: int = served.request.FLEXIBLE.first
        self.timing = Timing()
        """Durations of its requests."""


def routes_of(handler: object) -> list[Route]:
    """The routes of a handler, in the order of its methods; for a class, those of its instances."""
    is_class = isinstance(handler, type)
    methods = vars(handler if is_class else type(handler)).values()
    return [
        Route(served, method if is_class else MethodType(method, handler))
        for method in methods
        if isinstance(served := getattr(method, "served", None), Served)
    ]
