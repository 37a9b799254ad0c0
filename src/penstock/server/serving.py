"""How a handler says what it serves, and what it is told about the call.

A plain handler takes a decoded request and returns a response; it is a barrier: no other request of its connection is
under way meanwhile. An overlapping handler takes a decoded request and returns buffers, or something to await that
gives them; its first stage, up to that return, runs in the order in which requests arrived. A framed handler (Produce)
overlaps, too, and reads its request from the frame itself.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from penstock.model.ports import Buffer, FileSlice
from penstock.wire.api import Api
from penstock.wire.declare import Range, Request

if TYPE_CHECKING:
    from penstock.server.dispatch import Route
    from penstock.server.node import Node

Buffers: TypeAlias = Sequence[Buffer | FileSlice]


class Later(ABC):
    """An answer that comes by itself, without a task that waits for it."""

    __slots__ = ()

    holds_input = True
    """Whether the request's bytes count as used until it is answered; what is kept elsewhere meanwhile need not."""

    @abstractmethod
    def begin(self, done: Callable[[Buffers], None], fail: Callable[[Exception], None]) -> None:
        """Starts; `done` or `fail` is called once, maybe at once, and must not wait. Failing ends the connection."""

    @abstractmethod
    def cancel(self) -> None:
        """Nobody wants it any more: nothing is called from now on."""


class Unfinished:
    """A first stage that takes many turns of the loop. Later requests of the connection wait for it."""

    __slots__ = ("rest",)

    def __init__(self, rest: "Coroutine[Any, Any, Answer]") -> None:
        self.rest = rest


Answer: TypeAlias = Buffers | Awaitable[Buffers] | Later | None
"""What a framed or an overlapping handler returns; None when the client wants no answer (acks=0).

What is still to come holds no file slice before it begins or runs: if the client goes at that moment, it never does.
"""


@dataclass(slots=True)
class Client:
    """What is known about the other end of a connection."""

    software_name: str = "unknown"
    software_version: str = "unknown"
    routes: "Mapping[int, Route]" = field(default_factory=dict)
    """What the listener serves that it came to, by API key."""
    on_end: Callable[[], None] | None = None
    """Called when the connection ends."""
    number: int = 0
    """Of the connection: later ones have higher numbers."""
    is_peer: bool = False
    """Whether it is a node of this cluster (`peer_connections`)."""
    on_peer: Callable[[], None] | None = None
    """Called when that turns out."""

    def recognize(self) -> None:
        """It is a node of this cluster."""
        if not self.is_peer:
            self.is_peer = True
            if self.on_peer is not None:
                self.on_peer()

    @property
    def is_librdkafka(self) -> bool:
        """Or something that is built on it, and says so (confluent-kafka-python 2.16.1-rdkafka-2.16.0)."""
        return "rdkafka" in self.software_name or "rdkafka" in self.software_version


@dataclass(slots=True)
class Call:
    """Everything about a request but its body."""

    node: "Node"
    api: Api
    version: int
    correlation_id: int
    client_id: str | None
    peer: str
    """Host and port that the client came from."""
    local: str
    """Host and port that it reached."""
    client: Client = field(default_factory=Client)
    request_bytes: int = 0
    """The size of the request's frame."""


@dataclass(frozen=True, slots=True)
class Served:
    """One API that this node serves."""

    request: type[Request]
    handle: Callable[..., Any]
    is_framed: bool
    """Whether it reads its requests from their frames."""
    overlaps: bool = False
    """Whether later requests of the connection begin before it is answered."""
    is_prompt: bool = False
    """Whether its first stage is a plain function: answers to requests before it may then leave after it."""
    is_for_controller: bool = False
    """Whether only the active controller can answer it: brokers pass it on."""

    @property
    def api(self) -> Api:
        """Its key."""
        return Api(self.request.KEY)

    @property
    def versions(self) -> Range:
        """What is served: everything declared but unstable versions."""
        declared, unstable = self.request.VERSIONS, self.request.UNSTABLE
        last = min(declared.last, unstable.first - 1) if unstable.last >= 0 else declared.last
        return Range(declared.first, last)


H = TypeVar("H", bound=Callable[..., Any])


def serves(request: type[Request], *, is_for_controller: bool = False) -> Callable[[H], H]:
    """Marks a plain handler: `async def handler(request, call) -> response`."""
    return _mark(request, is_for_controller=is_for_controller)


def serves_overlapping(request: type[Request], *, is_prompt: bool = False) -> Callable[[H], H]:
    """Marks an overlapping handler: `async def handler(request, call) -> answer`; without `async` if prompt."""
    return _mark(request, overlaps=True, is_prompt=is_prompt)


def serves_frames(request: type[Request], *, is_prompt: bool = False) -> Callable[[H], H]:
    """Marks a framed handler: `async def handler(call, frame, position) -> answer`; without `async` if prompt.

    A prompt handler may return Unfinished.
    """
    return _mark(request, is_framed=True, overlaps=True, is_prompt=is_prompt)


def _mark(
    request: type[Request],
    *,
    is_framed: bool = False,
    overlaps: bool = False,
    is_prompt: bool = False,
    is_for_controller: bool = False,
) -> Callable[[H], H]:
    def mark(handle: H) -> H:
        handle.served = Served(  # type: ignore[attr-defined]
            request, handle, is_framed, overlaps, is_prompt, is_for_controller
        )
        return handle

    return mark
