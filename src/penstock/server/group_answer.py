"""The answer to a request about one group, which may take minutes: one object per request, and no task.

A client that goes is told nothing, and nobody keeps anything for it. The request's own bytes are not counted as used
meanwhile: what a group keeps of a member it keeps anyway.
"""

from collections.abc import Callable
from typing import Any, Final

from penstock.coordinator.work import Ask
from penstock.model.errors import ErrorCode, ProtocolError
from penstock.server.advertised import parse_address
from penstock.server.group_coordinator import GroupCoordinator
from penstock.server.group_shard import DrivenShard
from penstock.server.serving import Answer, Buffers, Call, Later
from penstock.wire.declare import Request, Response
from penstock.wire.headers import response_frame

CLIENT_ID_CHARACTERS_MAX: Final = 1_000
"""Member ids begin with it, and have to fit into a field."""


class Overtaken(ProtocolError):
    """A request that was sent before others of the same member, and comes after them."""


class GroupAnswer(Later):
    """One request on its way. What was told before anybody began to wait is kept."""

    __slots__ = ("_call", "_done", "_fail", "_refused", "_shard", "answer", "error", "ticket")

    holds_input = False

    def __init__(self, call: Call, shard: DrivenShard, refused: Callable[[ErrorCode], Response]) -> None:
        self._call = call
        self._shard = shard
        self._refused = refused
        self._done: Callable[[Buffers], None] | None = None
        self._fail: Callable[[Exception], None] | None = None
        self.ticket = 0
        self.answer: Buffers | None = None
        self.error: Exception | None = None

    def told(self, reply: Any, code: ErrorCode) -> None:
        """The shard has answered. What is wrong with one answer is nobody else's trouble."""
        try:
            response = self._refused(code) if code else reply
            self.answer = framed(self._call, response)
        except Exception as error:
            self.error = error
            if self._fail is not None:
                self._fail(error)
            return
        if self._done is not None:
            self._done(self.answer)

    def begin(self, done: Callable[[Buffers], None], fail: Callable[[Exception], None]) -> None:
        """Waits."""
        if self.answer is not None:
            done(self.answer)
        elif self.error is not None:
            fail(self.error)
        else:
            self._done, self._fail = done, fail

    def cancel(self) -> None:
        """The client is gone."""
        self._done = self._fail = None
        self._shard.forget(self.ticket)


def framed(call: Call, response: Response) -> Buffers:
    """A whole answer."""
    return (response_frame(response, call.version, call.correlation_id),)


def asked_by(call: Call, request: Any) -> Ask:
    """A request with who sent it, as groups are shown (Kafka writes addresses with a slash)."""
    client_id = (call.client_id or "")[:CLIENT_ID_CHARACTERS_MAX]
    return Ask(request, call.version, client_id, f"/{parse_address(call.peer).host}")


def check_latest(groups: GroupCoordinator, call: Call, group_id: str, member_id: str) -> None:
    """Raises Overtaken if the member has spoken on a later connection."""
    if member_id and not groups.is_latest(group_id, member_id, call.client.number):
        raise Overtaken("the request is older than what its member said on a later connection")


async def framed_by_worker(call: Call, response: Response) -> Buffers:
    """A whole answer that takes long to encode."""
    return (await call.node.codec.encode(response, call.version, call.correlation_id),)


def ask_group(
    groups: GroupCoordinator, call: Call, group_id: str, request: Request, refused: Callable[[ErrorCode], Response]
) -> Answer:
    """Has the group's shard decide now; the answer, or what waits for it. `refused` says why there is none."""
    shard, code = groups.place(group_id)
    if shard is None:
        return framed(call, refused(code))
    waiting = GroupAnswer(call, shard, refused)
    waiting.ticket = shard.ask(asked_by(call, request), waiting.told)
    if waiting.error is not None:
        raise waiting.error
    return waiting if waiting.answer is None else waiting.answer
