"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup: the life of a member of a classic group.

Serves    JoinGroup 0–9, SyncGroup 0–5, Heartbeat 0–4, LeaveGroup 0–5.
Answers   what the group's coordinator decides (`coordinator/joining.py`, `staying.py`), once all that it rests on is
          committed; NOT_COORDINATOR sends the member to another broker. A join waits for the others, maybe minutes;
          whatever else comes on its connection meanwhile is decided at once, and answered in order.
Departs   from Kafka 4.3: a join that no record could hold is INVALID_REQUEST; a static member that comes back and
          wants other topics starts a rebalance; a coordinator that stood still listens before it takes anybody for
          gone; a join on a connection that is older than the one of the member's last join closes that connection.
"""

from typing import Final

from penstock.coordinator import joining
from penstock.model.errors import ErrorCode
from penstock.model.limits import DEFAULT_LIMITS
from penstock.server.group_answer import ask_group, check_latest, framed
from penstock.server.handlers.needs import node_of
from penstock.server.serving import Answer, Call, serves_overlapping
from penstock.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.wire.messages.join_group import JoinGroupRequest
from penstock.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from penstock.wire.messages.sync_group import SyncGroupRequest

JOIN_BYTES_MAX: Final = DEFAULT_LIMITS.batch_bytes_max
"""What a member says of itself lies in one record."""


@serves_overlapping(JoinGroupRequest, is_prompt=True)
def join_group(request: JoinGroupRequest, call: Call) -> Answer:
    """A member comes, or comes again."""
    if call.request_bytes > JOIN_BYTES_MAX:
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
    return ask_group(node_of(call).groups, call, request.group_id, request, joining.sync_refusal)


@serves_overlapping(HeartbeatRequest, is_prompt=True)
def heartbeat(request: HeartbeatRequest, call: Call) -> Answer:
    """A member lives."""
    return ask_group(
        node_of(call).groups, call, request.group_id, request, lambda code: HeartbeatResponse(error_code=code)
    )


@serves_overlapping(LeaveGroupRequest, is_prompt=True)
def leave_group(request: LeaveGroupRequest, call: Call) -> Answer:
    """Members go."""
    return ask_group(
        node_of(call).groups, call, request.group_id, request, lambda code: LeaveGroupResponse(error_code=code)
    )
