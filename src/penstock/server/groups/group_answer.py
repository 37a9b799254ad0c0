"""The pending response to a request about one group, which may take minutes: one object per request, and no task.

When the client disconnects, the response is dropped. The bytes of the request do not count as used while it waits: the
group keeps its own copy of the member's data.
"""

from collections.abc import Callable
from typing import Final, Generic, TypeAlias, TypeVar, overload

from penstock.coordinator.requests import Ask, GroupAsk, GroupRequest, ListSomeGroups, MemberReply, Place, PlacesOf
from penstock.model.errors import ErrorCode, ProtocolError
from penstock.server.connections.advertised import parse_address
from penstock.server.connections.codec_worker import CodecWorker
from penstock.server.connections.serving import Answer, Buffers, Call, Later
from penstock.server.groups.group_coordinator import GroupCoordinator
from penstock.server.groups.group_shard import DrivenShard
from penstock.wire.declare import Response
from penstock.wire.headers import response_frame
from penstock.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from penstock.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from penstock.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from penstock.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from penstock.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from penstock.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from penstock.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from penstock.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from penstock.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from penstock.wire.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup
from penstock.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

CLIENT_ID_CHARACTERS_MAX: Final = 1_000
"""Member ids begin with the client id, and must fit into a field."""


class Overtaken(ProtocolError):
    """A request that arrives after a later request of the same member."""


PromptReply: TypeAlias = MemberReply | OffsetCommitResponse
"""Replies that are encoded as soon as the shard returns them."""
Said = TypeVar("Said", bound=PromptReply)


class GroupAnswer(Later, Generic[Said]):
    """One pending request. A reply that arrives before `begin` is kept."""

    __slots__ = ("_call", "_done", "_fail", "_refused", "_shard", "answer", "error", "ticket")

    holds_input = False

    def __init__(self, call: Call, shard: DrivenShard, refused: Callable[[ErrorCode], Said]) -> None:
        self._call = call
        self._shard = shard
        self._refused = refused
        self._done: Callable[[Buffers], None] | None = None
        self._fail: Callable[[Exception], None] | None = None
        self.ticket = 0
        self.answer: Buffers | None = None
        self.error: Exception | None = None

    def told(self, reply: Said | None, code: ErrorCode) -> None:
        """Takes the shard's reply. A failure to encode it fails this request only."""
        try:
            self.answer = framed(self._call, self._refused(code) if reply is None else reply)
        except Exception as error:
            self.error = error
            if self._fail is not None:
                self._fail(error)
            return
        if self._done is not None:
            self._done(self.answer)

    def begin(self, done: Callable[[Buffers], None], fail: Callable[[Exception], None]) -> None:
        """Delivers the reply, or registers the callbacks that will receive it."""
        if self.answer is not None:
            done(self.answer)
        elif self.error is not None:
            fail(self.error)
        else:
            self._done, self._fail = done, fail

    def cancel(self) -> None:
        """Drops the request, because the client has disconnected."""
        self._done = self._fail = None
        self._shard.forget(self.ticket)


def framed(call: Call, response: Response) -> Buffers:
    """Encodes a response as one frame."""
    return (response_frame(response, call.version, call.correlation_id),)


@overload
def asked_by(call: Call, request: OffsetCommitRequest) -> Ask[OffsetCommitResponse]: ...
@overload
def asked_by(call: Call, request: HeartbeatRequest) -> Ask[HeartbeatResponse]: ...
@overload
def asked_by(call: Call, request: ConsumerGroupHeartbeatRequest) -> Ask[ConsumerGroupHeartbeatResponse]: ...
@overload
def asked_by(call: Call, request: JoinGroupRequest) -> Ask[JoinGroupResponse]: ...
@overload
def asked_by(call: Call, request: SyncGroupRequest) -> Ask[SyncGroupResponse]: ...
@overload
def asked_by(call: Call, request: LeaveGroupRequest) -> Ask[LeaveGroupResponse]: ...
@overload
def asked_by(call: Call, request: OffsetFetchRequestGroup) -> Ask[OffsetFetchResponseGroup]: ...
@overload
def asked_by(call: Call, request: PlacesOf) -> Ask[list[Place]]: ...
@overload
def asked_by(call: Call, request: OffsetDeleteRequest) -> Ask[OffsetDeleteResponse]: ...
@overload
def asked_by(call: Call, request: DescribeGroupsRequest) -> Ask[DescribeGroupsResponse]: ...
@overload
def asked_by(call: Call, request: ConsumerGroupDescribeRequest) -> Ask[ConsumerGroupDescribeResponse]: ...
@overload
def asked_by(call: Call, request: ListGroupsRequest | ListSomeGroups) -> Ask[ListGroupsResponse]: ...
@overload
def asked_by(call: Call, request: DeleteGroupsRequest) -> Ask[DeleteGroupsResponse]: ...
def asked_by(call: Call, request: GroupRequest) -> GroupAsk:
    """A request with its client id and host, as group descriptions show them (Kafka prefixes the host with a slash)."""
    client_id = (call.client_id or "")[:CLIENT_ID_CHARACTERS_MAX]
    return Ask(request, call.version, client_id, f"/{parse_address(call.peer).host}")


def check_latest(groups: GroupCoordinator, call: Call, group_id: str, member_id: str) -> None:
    """Raises Overtaken if the member has sent a request on a later connection."""
    if member_id and not groups.is_latest(group_id, member_id, call.client.number):
        raise Overtaken("the request is older than what its member said on a later connection")


async def framed_by_worker(codec: CodecWorker, call: Call, response: Response) -> Buffers:
    """Encodes a large response as one frame in a worker."""
    return (await codec.encode(response, call.version, call.correlation_id),)


def ask_group(
    groups: GroupCoordinator, call: Call, group_id: str, ask: Ask[Said], refused: Callable[[ErrorCode], Said]
) -> Answer:
    """Passes a request to the group's shard; returns the response, or an object that waits for it.

    `refused` makes the response for an error code.
    """
    shard, code = groups.place(group_id)
    if shard is None:
        return framed(call, refused(code))
    waiting = GroupAnswer(call, shard, refused)
    waiting.ticket = shard.ask(ask, waiting.told)
    if waiting.error is not None:
        raise waiting.error
    return waiting if waiting.answer is None else waiting.answer
