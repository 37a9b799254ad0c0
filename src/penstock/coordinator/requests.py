"""Requests to a group shard, and its replies, as closed unions: the type checker finds a missing case.

The reply type of each request is declared once, where requests enter (`asked_by` in
`server/groups/group_answer.py`).
"""

from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeAlias, TypeVar, assert_never

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

Place: TypeAlias = tuple[str, int]
"""A topic and a partition."""


class PlacesOf(NamedTuple):
    """Requests the partitions with committed offsets of a group; the reply is a list."""

    group_id: str


class ListSomeGroups(NamedTuple):
    """ListGroups for some groups of a shard."""

    request: ListGroupsRequest
    group_ids: Sequence[str]


ClassicRequest: TypeAlias = HeartbeatRequest | JoinGroupRequest | SyncGroupRequest | LeaveGroupRequest
"""Requests of the classic protocol."""
GroupRequest: TypeAlias = (
    ClassicRequest
    | ConsumerGroupHeartbeatRequest
    | OffsetCommitRequest
    | OffsetFetchRequestGroup
    | OffsetDeleteRequest
    | PlacesOf
    | DescribeGroupsRequest
    | ConsumerGroupDescribeRequest
    | ListGroupsRequest
    | ListSomeGroups
    | DeleteGroupsRequest
)

MemberReply: TypeAlias = (
    HeartbeatResponse | JoinGroupResponse | SyncGroupResponse | LeaveGroupResponse | ConsumerGroupHeartbeatResponse
)
"""Replies to members about their membership."""
GroupReply: TypeAlias = (
    MemberReply
    | OffsetCommitResponse
    | OffsetFetchResponseGroup
    | OffsetDeleteResponse
    | list[Place]
    | DescribeGroupsResponse
    | ConsumerGroupDescribeResponse
    | ListGroupsResponse
    | DeleteGroupsResponse
)

Reply_co = TypeVar("Reply_co", bound=GroupReply, covariant=True)


class Ask(NamedTuple, Generic[Reply_co]):
    """A request about groups of one shard, with its version and client; `Reply_co` is its reply type."""

    request: GroupRequest
    version: int
    client_id: str = ""
    client_host: str = ""


GroupAsk: TypeAlias = Ask[GroupReply]


def group_id_of(request: GroupRequest) -> str:
    """The group that a request is about; "" if it is about several."""
    match request:
        case (
            OffsetCommitRequest()
            | ConsumerGroupHeartbeatRequest()
            | HeartbeatRequest()
            | JoinGroupRequest()
            | SyncGroupRequest()
            | LeaveGroupRequest()
            | OffsetFetchRequestGroup()
            | OffsetDeleteRequest()
            | PlacesOf()
        ):
            return request.group_id
        case (
            DescribeGroupsRequest()
            | ConsumerGroupDescribeRequest()
            | ListGroupsRequest()
            | ListSomeGroups()
            | DeleteGroupsRequest()
        ):
            return ""
        case _:
            assert_never(request)


def member_id_of(request: GroupRequest) -> str:
    """The member that a request comes from; "" if it names none."""
    match request:
        case (
            OffsetCommitRequest()
            | ConsumerGroupHeartbeatRequest()
            | HeartbeatRequest()
            | JoinGroupRequest()
            | SyncGroupRequest()
            | LeaveGroupRequest()
        ):
            return request.member_id
        case OffsetFetchRequestGroup():
            return request.member_id or ""
        case (
            OffsetDeleteRequest()
            | PlacesOf()
            | DescribeGroupsRequest()
            | ConsumerGroupDescribeRequest()
            | ListGroupsRequest()
            | ListSomeGroups()
            | DeleteGroupsRequest()
        ):
            return ""
        case _:
            assert_never(request)
