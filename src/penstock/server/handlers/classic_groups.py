"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup: the life of a member of a classic group.

Serves    JoinGroup 0–9, SyncGroup 0–5, Heartbeat 0–4, LeaveGroup 0–5.
Answers   what the group's coordinator decides (`coordinator/joining.py`, `staying.py`), once all that it rests on is
          committed; NOT_COORDINATOR sends the member to another broker. A join waits for the others, maybe minutes;
          whatever else comes on its connection meanwhile is decided at once, and answered in order.
Departs   from Kafka 4.3: a join that no record could hold is INVALID_REQUEST; a static member that comes back and
          wants other topics starts a rebalance; a coordinator that stood still listens before it takes anybody for
          gone; a join on a connection that is older than the one of the member's last join closes that connection. More
          than PROTOCOLS_MAX protocols of a member, or ASSIGNMENTS_MAX assignments of a leader, are INVALID_REQUEST.
          Many members leave in parts; one that is named several times is answered once.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from penstock.coordinator import joining
from penstock.model.errors import ErrorCode
from penstock.model.limits import DEFAULT_LIMITS
from penstock.server.group_answer import ask_group, asked_by, check_latest, framed, framed_by_worker
from penstock.server.handlers.needs import node_of
from penstock.server.pieces import Turns, by_name, cut
from penstock.server.serving import Answer, Buffers, Call, Unfinished, serves_overlapping
from penstock.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.wire.messages.join_group import JoinGroupRequest
from penstock.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from penstock.wire.messages.sync_group import SyncGroupRequest

JOIN_BYTES_MAX: Final = DEFAULT_LIMITS.batch_bytes_max
"""What a member says of itself lies in one record."""
PROTOCOLS_MAX: Final = 1_000
"""Of one member; consumers name one per assignor."""
ASSIGNMENTS_MAX: Final = 10_000
"""Of one generation; they lie in one record."""
LEAVING_AT_ONCE: Final = 250
"""Members whose leaving is one decision."""


@serves_overlapping(JoinGroupRequest, is_prompt=True)
def join_group(request: JoinGroupRequest, call: Call) -> Answer:
    """A member comes, or comes again."""
    if call.request_bytes > JOIN_BYTES_MAX or len(request.protocols) > PROTOCOLS_MAX:
        return framed(call, joining.refusal(ErrorCode.INVALID_REQUEST, call.version, request.member_id))
    groups = node_of(call).groups
    check_latest(groups, call, request.group_id, request.member_id)
    return ask_group(
        groups,
        call,
        request.group_id,
        request,
        lambda code: joining.refusal(code, call.version, request.member_id),
    )


@serves_overlapping(SyncGroupRequest, is_prompt=True)
def sync_group(request: SyncGroupRequest, call: Call) -> Answer:
    """A member asks for what it is to read; the leader says who reads what."""
    if len(request.assignments) > ASSIGNMENTS_MAX:
        return framed(call, joining.sync_refusal(ErrorCode.INVALID_REQUEST))
    return ask_group(node_of(call).groups, call, request.group_id, request, joining.sync_refusal)


@serves_overlapping(HeartbeatRequest, is_prompt=True)
def heartbeat(request: HeartbeatRequest, call: Call) -> Answer:
    """A member lives."""
    return ask_group(
        node_of(call).groups, call, request.group_id, request, lambda code: HeartbeatResponse(error_code=code)
    )


@serves_overlapping(LeaveGroupRequest, is_prompt=True)
def leave_group(request: LeaveGroupRequest, call: Call) -> Answer | Unfinished:
    """Members go."""
    if len(request.members) > LEAVING_AT_ONCE:
        return Unfinished(_leave_in_parts(call, request))
    return ask_group(
        node_of(call).groups, call, request.group_id, request, lambda code: LeaveGroupResponse(error_code=code)
    )


async def _leave_in_parts(call: Call, request: LeaveGroupRequest) -> Answer:
    shard, code = node_of(call).groups.place(request.group_id)
    if shard is None:
        return framed(call, LeaveGroupResponse(error_code=code))
    turns = Turns()
    named = await by_name((((each.member_id, each.group_instance_id), each) for each in request.members), turns)
    parts = list(cut([found[0] for found in named.values()], LEAVING_AT_ONCE))
    asked = []
    for part in parts:
        command = LeaveGroupRequest(group_id=request.group_id, members=part)
        asked.append(node_of(call).groups.begin(shard, asked_by(call, command), len(part)))
        await turns.after(len(part))
    return _left(call, asked)


async def _left(call: Call, asked: "Sequence[asyncio.Future[tuple[LeaveGroupResponse | None, ErrorCode]]]") -> Buffers:
    members: list[MemberResponse] = []
    refusal = ErrorCode.NONE
    for each in asked:
        reply, code = await each
        refusal = refusal or code or (ErrorCode.NONE if reply is None else reply.error_code)
        members += () if reply is None else reply.members
    return await framed_by_worker(call, LeaveGroupResponse(error_code=refusal, members=() if refusal else members))
