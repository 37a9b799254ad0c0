"""Heartbeat, LeaveGroup, and timers of classic groups.

Serves    Heartbeat 0–4, LeaveGroup 0–5 (several members at once from version 3 on).
Answers   REBALANCE_IN_PROGRESS: the member must join again; FENCED_INSTANCE_ID: another member has taken the instance
          id of a static member.
Departs   a coordinator that was stalled reads waiting heartbeats before it expires members (`timers`).
"""

from penstock.coordinator.changes import SetClassicGroup
from penstock.coordinator.classic import ClassicGroup, State
from penstock.coordinator.rebalance import (
    admitted,
    join_time_is_up,
    remove_member,
    settle,
    sync_time_is_up,
    try_to_complete,
)
from penstock.coordinator.timers import JOIN, PENDING, SESSION, Timer
from penstock.coordinator.work import Work
from penstock.model.errors import ErrorCode
from penstock.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)

_MANY_SINCE = 3


def heartbeat(group: ClassicGroup | None, request: HeartbeatRequest, ticket: int, work: Work) -> None:
    """Restarts a member's session; the reply says whether it must join again."""
    work.reply(ticket, HeartbeatResponse(error_code=_heard(group, request, work)))


def _heard(group: ClassicGroup | None, request: HeartbeatRequest, work: Work) -> ErrorCode:
    if group is None or group.state is State.EMPTY:
        return ErrorCode.UNKNOWN_MEMBER_ID
    code = admitted(group, request.member_id, request.group_instance_id)
    if code is not ErrorCode.NONE:
        return code
    if request.generation_id != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    member = group.members[request.member_id]
    if member.joining is None and member.syncing is None:
        work.hear(group.group_id, member.member_id, member.session_timeout_ms)
    return ErrorCode.REBALANCE_IN_PROGRESS if group.state is State.PREPARING else ErrorCode.NONE


def leave(group: ClassicGroup | None, request: LeaveGroupRequest, version: int, ticket: int, work: Work) -> None:
    """Removes members at once, before they time out."""
    is_one = version < _MANY_SINCE
    leaving = (MemberIdentity(member_id=request.member_id),) if is_one else request.members
    changed = None if group is None else group.copy()
    answers = [
        MemberResponse(
            member_id=each.member_id, group_instance_id=each.group_instance_id, error_code=_leave(changed, each, work)
        )
        for each in leaving
    ]
    if changed is not None and any(each.error_code is ErrorCode.NONE for each in answers):
        if group is not None and len(changed.members) < len(group.members):
            settle(changed, work)
        else:  # a pending member id is no member yet
            try_to_complete(changed, work)
        work.changes.append(SetClassicGroup(changed.group_id, changed))
    if is_one:
        work.reply(ticket, LeaveGroupResponse(error_code=answers[0].error_code))
    else:
        work.reply(ticket, LeaveGroupResponse(error_code=ErrorCode.NONE, members=answers))


def _leave(group: ClassicGroup | None, who: MemberIdentity, work: Work) -> ErrorCode:
    if group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    member_id = who.member_id
    if not member_id and who.group_instance_id is not None:  # an operator may give only the instance id
        member_id = group.static.get(who.group_instance_id, "")
    elif member_id in group.pending:
        del group.pending[member_id]
        work.drop_timer(PENDING, group.group_id, member_id)
        return ErrorCode.NONE
    code = admitted(group, member_id, who.group_instance_id)
    if code is ErrorCode.NONE:
        remove_member(group, member_id, work, ErrorCode.UNKNOWN_MEMBER_ID, settles=False)
    return code


def time_is_up(group: ClassicGroup, timer: Timer, work: Work) -> None:
    """Handles a due timer of the group."""
    group = group.copy()
    match timer.kind:
        case _ if timer.kind == JOIN:
            if group.state is State.PREPARING:
                join_time_is_up(group, work)
        case _ if timer.kind == PENDING:
            group.pending.pop(timer.member_id, None)
            try_to_complete(group, work)
        case _ if timer.kind == SESSION:
            if timer.member_id in group.members:
                remove_member(group, timer.member_id, work, ErrorCode.UNKNOWN_MEMBER_ID)
        case _:
            if group.state in (State.COMPLETING, State.STABLE):
                sync_time_is_up(group, work)
    work.changes.append(SetClassicGroup(group.group_id, group))
