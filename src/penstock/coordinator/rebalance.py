"""Rebalance of a classic group, by JoinGroup and SyncGroup: members join a generation and receive their assignments.

Serves    JoinGroup 0–9, SyncGroup 0–5.
Answers   MEMBER_ID_REQUIRED first, from version 4 on (KIP-394); FENCED_INSTANCE_ID if another member has taken the
          instance id of a static member (KIP-345); GROUP_MAX_SIZE_REACHED.
Departs   a static member that returns starts a rebalance if it wants other topics or was revoking partitions, or leads
          a group that leaves partitions unassigned; Kafka compares the selected protocol only. A waiting request that
          another of the same member overtakes is answered REBALANCE_IN_PROGRESS. The size of member metadata is
          bounded: GROUP_MAX_SIZE_REACHED for one group, COORDINATOR_NOT_AVAILABLE for all groups of a coordinator.
"""

from typing import Final

from penstock.coordinator.changes import SetClassicGroup
from penstock.coordinator.classic import ClassicGroup, Member, State
from penstock.coordinator.requests import GroupAsk
from penstock.coordinator.settings import (
    GROUP_BYTES_MAX,
    GROUPS_BYTES_MAX,
    NEW_MEMBER_JOIN_MS,
    SMALL_MEMBER_BYTES,
)
from penstock.coordinator.subscriptions import asks_for_the_same, gives_up, leaves_some_unread
from penstock.coordinator.timers import JOIN, PENDING, SESSION, SYNC
from penstock.coordinator.work import Work
from penstock.model.epochs import INT32_EPOCH_MAX
from penstock.model.errors import ErrorCode
from penstock.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from penstock.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

_NULL_PROTOCOL_SINCE: Final = 7
_SKIP_ASSIGNMENT_SINCE: Final = 9
_KNOWN_MEMBERS_SINCE: Final = 4


def new_member_id(work: Work, prefix: str) -> str:
    """A unique member id."""
    token = work.view.entropy.token(16).hex()
    return f"{prefix}-{token[:8]}-{token[8:12]}-{token[12:16]}-{token[16:20]}-{token[20:]}"


def refusal(code: ErrorCode, version: int, member_id: str = "") -> JoinGroupResponse:
    """The JoinGroup response with an error."""
    protocol = None if version >= _NULL_PROTOCOL_SINCE else ""
    return JoinGroupResponse(error_code=code, protocol_name=protocol, leader="", member_id=member_id, members=())


def sync_refusal(code: ErrorCode) -> SyncGroupResponse:
    """The SyncGroup response with an error."""
    return SyncGroupResponse(error_code=code, assignment=b"")


def admitted(group: ClassicGroup, member_id: str, instance_id: str | None) -> ErrorCode:
    """Whether the member exists, and still holds its instance id."""
    if instance_id is not None:
        holder = group.static.get(instance_id)
        if holder is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if holder != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    return ErrorCode.NONE if member_id in group.members else ErrorCode.UNKNOWN_MEMBER_ID


# --- joining ----------------------------------------------------------------------------------------------------------


def join(group: ClassicGroup | None, request: JoinGroupRequest, ask: GroupAsk, ticket: int, work: Work) -> None:
    """Handles JoinGroup; `group` is the classic group of that name, or None."""
    settings = work.view.settings
    if not settings.session_min_ms <= request.session_timeout_ms <= settings.session_max_ms:
        work.reply(ticket, refusal(ErrorCode.INVALID_SESSION_TIMEOUT, ask.version, request.member_id))
        return
    if group is None:
        if request.member_id:
            work.reply(ticket, refusal(ErrorCode.UNKNOWN_MEMBER_ID, ask.version, request.member_id))
            return
        group = ClassicGroup(request.group_id, since_wall_ms=work.now.wall_ms)
    else:
        group = group.copy()
    code = _join(group, request, ask, ticket, work)
    if code is not ErrorCode.NONE:
        work.reply(ticket, refusal(code, ask.version, request.member_id))
        return
    work.changes.append(SetClassicGroup(group.group_id, group))


def _join(group: ClassicGroup, request: JoinGroupRequest, ask: GroupAsk, ticket: int, work: Work) -> ErrorCode:
    protocols = tuple((each.name, each.metadata) for each in request.protocols)
    known = request.member_id
    if not known and request.group_instance_id is not None:
        known = group.static.get(request.group_instance_id, "")
    if not _has_room(group, known, work):
        return ErrorCode.GROUP_MAX_SIZE_REACHED
    code = _may_hold(group, known, _bytes_of(request), work)
    if code is not ErrorCode.NONE:
        return code
    if not group.would_take(request.protocol_type, protocols, known):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if request.member_id:
        return _join_again(group, request, ask, ticket, work)
    prefix = request.group_instance_id or ask.client_id
    member_id = new_member_id(work, prefix)
    if request.group_instance_id is not None:
        if known:
            _take_the_place(group, known, member_id, request, ask, ticket, work)
        else:
            _add(group, member_id, request, ask, ticket, work)
    elif ask.version >= _KNOWN_MEMBERS_SINCE:
        group.pending[member_id] = None
        work.set_timer(PENDING, group.group_id, member_id, request.session_timeout_ms)
        work.reply(ticket, refusal(ErrorCode.MEMBER_ID_REQUIRED, ask.version, member_id))
    else:
        _add(group, member_id, request, ask, ticket, work)
    return ErrorCode.NONE


def _has_room(group: ClassicGroup, member_id: str, work: Work) -> bool:
    """Whether a member may join; pending member ids count as well, or requests for many would pass the limit (R27)."""
    if member_id in group.members or member_id in group.pending:
        return True
    return len(group.members) + len(group.pending) < work.view.settings.members_max


def _may_hold(group: ClassicGroup, member_id: str, size_bytes: int, work: Work) -> ErrorCode:
    """Whether a member's metadata may be so large: the coordinator holds it for as long as the member stays."""
    before = group.members.get(member_id)
    more_bytes = size_bytes - (0 if before is None else before.held_bytes)
    if more_bytes <= 0:
        return ErrorCode.NONE
    if group.held_bytes + more_bytes > GROUP_BYTES_MAX:
        return ErrorCode.GROUP_MAX_SIZE_REACHED
    if size_bytes > SMALL_MEMBER_BYTES and work.view.held_bytes() + more_bytes > GROUPS_BYTES_MAX:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return ErrorCode.NONE


def _join_again(group: ClassicGroup, request: JoinGroupRequest, ask: GroupAsk, ticket: int, work: Work) -> ErrorCode:
    member_id = request.member_id
    if member_id in group.pending:
        if request.group_instance_id is not None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        work.drop_timer(PENDING, group.group_id, member_id)
        _add(group, member_id, request, ask, ticket, work)
        return ErrorCode.NONE
    code = admitted(group, member_id, request.group_instance_id)
    if code is not ErrorCode.NONE:
        return code
    member = group.members[member_id]
    is_same = member.protocols == tuple((each.name, each.metadata) for each in request.protocols)
    match group.state:
        case State.PREPARING:
            _wait_to_join(group, _told(member, request, ask), ticket, work)
        case State.COMPLETING if is_same:
            # It has not received the reply to its first request.
            work.hear(group.group_id, member_id, member.session_timeout_ms)
            work.reply(ticket, _welcome(group, member))
        case State.STABLE if is_same and (member_id != group.leader or member.owes_sync):
            work.hear(group.group_id, member_id, member.session_timeout_ms)
            work.reply(ticket, _welcome(group, member))
        case State.COMPLETING | State.STABLE:
            _wait_to_join(group, _told(member, request, ask), ticket, work)
        case State.EMPTY:
            return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE


def _told(member: Member, request: JoinGroupRequest, ask: GroupAsk) -> Member:
    """A member with the fields of its request."""
    rebalance_ms = request.rebalance_timeout_ms
    return member._replace(
        client_id=ask.client_id,
        client_host=ask.client_host,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.session_timeout_ms if rebalance_ms < 0 else rebalance_ms,
        protocols=tuple((each.name, each.metadata) for each in request.protocols),
        held_bytes=_bytes_of(request),
    )


def _bytes_of(request: JoinGroupRequest) -> int:
    return sum(len(each.metadata) for each in request.protocols)


def _add(
    group: ClassicGroup, member_id: str, request: JoinGroupRequest, ask: GroupAsk, ticket: int, work: Work
) -> None:
    member = Member(member_id, request.group_instance_id, "", "", 0, 0, (), is_new=True)
    if group.state is State.EMPTY:
        group.protocol_type = request.protocol_type
    group.grown_ms = work.now.ms
    _wait_to_join(group, _told(member, request, ask), ticket, work)


def _take_the_place(
    group: ClassicGroup,
    old_id: str,
    member_id: str,
    request: JoinGroupRequest,
    ask: GroupAsk,
    ticket: int,
    work: Work,
) -> None:
    """A static member returns without its member id (KIP-345): it gets a new one, and the old one's place."""
    old = group.members[old_id]
    protocol = group.protocol
    _let_go(old, ErrorCode.FENCED_INSTANCE_ID, work)
    work.drop_timer(SESSION, group.group_id, old_id)
    was_leader = group.leader == old_id
    member = _told(old, request, ask)._replace(member_id=member_id, joining=None, syncing=None)
    group.members = {
        (member_id if known == old_id else known): (member if known == old_id else each)
        for known, each in group.members.items()
    }
    group.held_bytes += member.held_bytes - old.held_bytes
    assert old.instance_id is not None
    group.static[old.instance_id] = member_id
    if was_leader:
        group.leader = member_id
    told = old.metadata(protocol)
    # A cooperative member that was revoking partitions would have joined again; no other member will.
    is_same = asks_for_the_same(told, member.metadata(protocol)) and not gives_up(told, old.assignment)
    if was_leader and is_same:  # it would take partitions added in its absence for assigned
        is_same = not leaves_some_unread(group, work.view.topics)
    if group.state is State.STABLE and is_same and group.elected_protocol() == protocol:
        group.members[member_id] = member._replace(owes_sync=True)
        work.record(group.key(), group.value())
        work.hear(group.group_id, member_id, member.session_timeout_ms)
        work.set_timer(SYNC, group.group_id, "", group.rebalance_timeout_ms())
        # It must not compute an assignment: no member would fetch it. Before version 9 the reply hides that it leads.
        can_skip = ask.version >= _SKIP_ASSIGNMENT_SINCE
        leader = None if can_skip or not was_leader else old_id
        work.reply(ticket, _welcome(group, member, leader=leader, skip=was_leader and can_skip))
        return
    _wait_to_join(group, member, ticket, work)


def _let_go(member: Member, code: ErrorCode, work: Work) -> None:
    """Answers a member's waiting requests with an error."""
    if member.joining is not None:
        work.reply(member.joining, refusal(code, _NULL_PROTOCOL_SINCE - 1, member.member_id))
    if member.syncing is not None:
        work.reply(member.syncing, sync_refusal(code))


def _wait_to_join(group: ClassicGroup, member: Member, ticket: int, work: Work) -> None:
    """Holds a member's join until the others have joined."""
    before = group.members.get(member.member_id)
    if before is not None:
        _let_go(before, ErrorCode.REBALANCE_IN_PROGRESS, work)
    group.put(member._replace(joining=ticket, syncing=None, owes_sync=False))
    if member.is_new:
        work.hear(group.group_id, member.member_id, NEW_MEMBER_JOIN_MS)
    else:
        work.drop_timer(SESSION, group.group_id, member.member_id)
    begin_rebalance(group, work)
    try_to_complete(group, work)


def begin_rebalance(group: ClassicGroup, work: Work) -> None:
    """Starts a rebalance, unless the group is preparing one already."""
    if group.state is State.PREPARING:
        return
    if group.state is State.COMPLETING:
        for member in list(group.members.values()):
            if member.syncing is not None:
                work.reply(member.syncing, sync_refusal(ErrorCode.REBALANCE_IN_PROGRESS))
                work.hear(group.group_id, member.member_id, member.session_timeout_ms)
            group.members[member.member_id] = member._replace(assignment=b"", syncing=None)
    work.drop_timer(SYNC, group.group_id)
    rebalance_ms = group.rebalance_timeout_ms()
    if group.state is State.EMPTY:
        delay_ms = min(work.view.settings.initial_delay_ms, rebalance_ms)
        group.is_gathering = True
        group.gathering_left_ms = max(0, rebalance_ms - delay_ms)
        work.set_timer(JOIN, group.group_id, "", delay_ms)
    else:
        group.is_gathering = False
        work.set_timer(JOIN, group.group_id, "", rebalance_ms)
    group.move(State.PREPARING, work.now.wall_ms)


def try_to_complete(group: ClassicGroup, work: Work) -> None:
    """Starts the next generation if all members have joined."""
    if group.state is State.PREPARING and not group.is_gathering and group.have_all_joined():
        complete(group, work)


def join_time_is_up(group: ClassicGroup, work: Work) -> None:
    """The JOIN timer: removes absent members; in the initial delay, waits longer if a member has joined recently."""
    if group.is_gathering:
        quiet_ms = work.now.ms - group.grown_ms
        delay_ms = min(work.view.settings.initial_delay_ms - quiet_ms, group.gathering_left_ms)
        if delay_ms > 0:
            group.gathering_left_ms -= delay_ms
            work.set_timer(JOIN, group.group_id, "", delay_ms)
            return
    group.is_gathering = False
    complete(group, work)


def next_generation(generation: int) -> int:
    """The generation after this one. The last is followed by 1: a member that has missed all others has timed out."""
    return 1 if generation >= INT32_EPOCH_MAX else generation + 1


def complete(group: ClassicGroup, work: Work) -> None:
    """Starts the next generation, of members that have joined and of static members, which may be away."""
    group.is_gathering = False
    work.drop_timer(JOIN, group.group_id)
    for member in list(group.members.values()):
        if member.joining is None and member.instance_id is None:
            group.remove(member.member_id)
            work.drop_timer(SESSION, group.group_id, member.member_id)
    if not group.members:
        group.generation = next_generation(group.generation)
        group.protocol, group.leader = None, None
        group.move(State.EMPTY, work.now.wall_ms)
        work.record(group.key(), group.value())
        return
    here = [member for member in group.members.values() if member.joining is not None]
    if not here:
        work.set_timer(JOIN, group.group_id, "", group.rebalance_timeout_ms())
        return
    if group.leader not in {member.member_id for member in here}:
        group.leader = here[0].member_id
    group.generation = next_generation(group.generation)
    group.protocol = group.elected_protocol()
    group.move(State.COMPLETING, work.now.wall_ms)
    for member in list(group.members.values()):
        is_here = member.joining is not None
        group.members[member.member_id] = member._replace(
            joining=None, is_new=member.is_new and not is_here, owes_sync=is_here, assignment=b""
        )
    for member in here:
        assert member.joining is not None
        work.hear(group.group_id, member.member_id, member.session_timeout_ms)
        work.reply(member.joining, _welcome(group, member))
    work.set_timer(SYNC, group.group_id, "", group.rebalance_timeout_ms())


def _welcome(
    group: ClassicGroup, member: Member, *, leader: str | None = None, skip: bool = False
) -> JoinGroupResponse:
    """The JoinGroup response of a generation; the leader's lists all members."""
    shown = leader or group.leader or ""
    members = [
        JoinGroupResponseMember(
            member_id=each.member_id, group_instance_id=each.instance_id, metadata=each.metadata(group.protocol)
        )
        for each in (group.members.values() if shown == member.member_id else ())
    ]
    return JoinGroupResponse(
        error_code=ErrorCode.NONE,
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        leader=shown,
        skip_assignment=skip,
        member_id=member.member_id,
        members=members,
    )


# --- syncing ----------------------------------------------------------------------------------------------------------


def sync(group: ClassicGroup | None, request: SyncGroupRequest, ticket: int, work: Work) -> None:
    """A member requests its assignment; the leader submits all assignments."""
    code = _may_sync(group, request)
    if code is not ErrorCode.NONE or group is None:
        work.reply(ticket, sync_refusal(code))
        return
    group = group.copy()
    member = group.members[request.member_id]
    if member.syncing is not None:
        work.reply(member.syncing, sync_refusal(ErrorCode.REBALANCE_IN_PROGRESS))
    group.members[member.member_id] = member._replace(owes_sync=False, syncing=ticket)
    if group.state is State.COMPLETING:
        work.drop_timer(SESSION, group.group_id, member.member_id)
        if member.member_id == group.leader:
            assigned = {each.member_id: each.assignment for each in request.assignments}
            for each in list(group.members.values()):
                group.members[each.member_id] = each._replace(assignment=assigned.get(each.member_id, b""))
            group.move(State.STABLE, work.now.wall_ms)
            work.record(group.key(), group.value())
    if group.state is State.STABLE:
        _hand_out(group, work)
    if not any(each.owes_sync for each in group.members.values()):
        work.drop_timer(SYNC, group.group_id)
    work.changes.append(SetClassicGroup(group.group_id, group))


def _may_sync(group: ClassicGroup | None, request: SyncGroupRequest) -> ErrorCode:
    if group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    code = admitted(group, request.member_id, request.group_instance_id)
    if code is not ErrorCode.NONE:
        return code
    if request.generation_id != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if request.protocol_type not in (None, group.protocol_type) or request.protocol_name not in (None, group.protocol):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.state is State.PREPARING:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.UNKNOWN_MEMBER_ID if group.state is State.EMPTY else ErrorCode.NONE


def _hand_out(group: ClassicGroup, work: Work) -> None:
    for member in list(group.members.values()):
        if member.syncing is not None:
            work.hear(group.group_id, member.member_id, member.session_timeout_ms)
            work.reply(
                member.syncing,
                SyncGroupResponse(
                    error_code=ErrorCode.NONE,
                    protocol_type=group.protocol_type,
                    protocol_name=group.protocol,
                    assignment=member.assignment,
                ),
            )
            group.members[member.member_id] = member._replace(syncing=None)


def sync_time_is_up(group: ClassicGroup, work: Work) -> None:
    """The SYNC timer: removes members that joined the generation and did not fetch their assignment."""
    late = [member.member_id for member in group.members.values() if member.owes_sync]
    for member_id in late:
        remove_member(group, member_id, work, ErrorCode.UNKNOWN_MEMBER_ID, settles=False)
    if late:
        settle(group, work)


# --- removing members -------------------------------------------------------------------------------------------------


def remove_member(group: ClassicGroup, member_id: str, work: Work, code: ErrorCode, *, settles: bool = True) -> None:
    """Removes a member; the others rebalance."""
    member = group.remove(member_id)
    _let_go(member, code, work)
    work.drop_timer(SESSION, group.group_id, member_id)
    if settles:
        settle(group, work)


def settle(group: ClassicGroup, work: Work) -> None:
    """Starts or completes a rebalance after a removal."""
    if group.state in (State.STABLE, State.COMPLETING):
        begin_rebalance(group, work)
    try_to_complete(group, work)
