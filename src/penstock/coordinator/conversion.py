"""Online conversion of classic groups to consumer groups and back; classic members in consumer groups.

Serves    JoinGroup, SyncGroup, Heartbeat and LeaveGroup of classic members in a consumer group; the first
          ConsumerGroupHeartbeat in a classic group (upgrade); the departure of the last KIP-848 member (downgrade).
Answers   a classic member's generation is its epoch; it is never the leader, its join waits for no others, and it must
          join again (REBALANCE_IN_PROGRESS) to take a reconciliation step, or if it has not synced after its last join.
Departs   a group that is converted during a rebalance keeps the partitions that its members reported (Kafka: none).
"""

from collections.abc import Iterable, Mapping
from typing import assert_never

from penstock.coordinator import heartbeats, rebalance
from penstock.coordinator.changes import SetClassicGroup
from penstock.coordinator.classic import CONSUMER_PROTOCOL, ClassicGroup, Protocols, State, known_to_all
from penstock.coordinator.classic import Member as ClassicMember
from penstock.coordinator.consumer import (
    ClassicSide,
    ConsumerGroup,
    Member,
    MemberState,
    Partitions,
    by_topic,
    current_record,
    epoch_record,
    member_record,
    target_epoch_record,
    target_record,
)
from penstock.coordinator.heartbeats import Draft, MemberRequestRefused, SubscriptionCache
from penstock.coordinator.reconciliation import reconciled
from penstock.coordinator.records import GroupRecord
from penstock.coordinator.requests import ClassicRequest, GroupAsk
from penstock.coordinator.subscriptions import assignment, assignment_bytes, subscription, version_of
from penstock.coordinator.timers import JOIN, PENDING, REBALANCE, SYNC, Timer
from penstock.coordinator.topics import Topics
from penstock.coordinator.work import Work
from penstock.model.errors import ErrorCode
from penstock.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from penstock.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from penstock.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from penstock.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

_KNOWN_MEMBERS_SINCE = 4
_MANY_SINCE = 3


# --- upgrade ----------------------------------------------------------------------------------------------------------


def upgrade(
    group: ClassicGroup,
    request: ConsumerGroupHeartbeatRequest,
    ask: GroupAsk,
    ticket: int,
    work: Work,
    cache: SubscriptionCache,
) -> None:
    """A KIP-848 member joins a classic group, which becomes a consumer group if possible."""
    base, records, desk = ConsumerGroup(group.group_id), [], Work(work.view, work.now)
    base.epoch = group.generation
    if group.generation:
        records.append(GroupRecord(group.key(), None))
    if group.members:
        members = _members_of(group, work.view.topics)
        if members is None or work.view.settings.migration not in ("bidirectional", "upgrade"):
            message = f"Group {group.group_id} is not a consumer group."
            work.reply(
                ticket,
                ConsumerGroupHeartbeatResponse(
                    throttle_time_ms=0,
                    error_code=ErrorCode.GROUP_ID_NOT_FOUND,
                    error_message=message,
                    member_id=request.member_id,
                    member_epoch=0,
                    heartbeat_interval_ms=0,
                ),
            )
            return
        converted = _converted(group, members, work)
        for record in converted:
            base.apply(record)
        records += converted
    _end_meeting(group, desk)
    for member in group.members.values():
        desk.hear(group.group_id, member.member_id, member.session_timeout_ms)
    asked = Work(work.view, work.now)
    heartbeats.heartbeat(base, request, ask, ticket, asked, cache)
    work.replies += asked.replies
    if asked.records:
        work.records += [*records, *asked.records]
        work.changes += [*desk.changes, *asked.changes]
        work.replies += desk.replies


def _end_meeting(group: ClassicGroup, work: Work) -> None:
    """Answers waiting requests with REBALANCE_IN_PROGRESS; drops timers of the classic group."""
    for member in group.members.values():
        if member.joining is not None:
            refused = rebalance.refusal(ErrorCode.REBALANCE_IN_PROGRESS, 0, member.member_id)
            work.reply(member.joining, refused)
        if member.syncing is not None:
            work.reply(member.syncing, rebalance.sync_refusal(ErrorCode.REBALANCE_IN_PROGRESS))
    work.drop_timer(JOIN, group.group_id)
    work.drop_timer(SYNC, group.group_id)
    for member_id in group.pending:
        work.drop_timer(PENDING, group.group_id, member_id)


def _members_of(group: ClassicGroup, topics: Topics) -> list[Member] | None:
    """The members of a classic group as those of a consumer group; None if one cannot be decoded.

    Partitions that a member reported when it joined, and was not assigned, count as not yet revoked until its next
    JoinGroup.
    """
    if group.protocol_type != CONSUMER_PROTOCOL:
        return None
    found: list[tuple[Member, Partitions]] = []
    taken: set[tuple[bytes, int]] = set()
    for member in group.members.values():
        told = subscription(member.protocols[0][1]) if member.protocols else None
        if told is None:
            return None
        claimed = _by_id({topic.topic: topic.partitions for topic in told.owned_partitions}, topics)
        has = assignment(member.assignment)
        assigned = claimed
        if has is not None:
            assigned = _by_id({topic.topic: topic.partitions for topic in has.assigned_partitions}, topics)
        assigned -= taken
        taken |= assigned
        converted = Member(
            member.member_id,
            member.instance_id,
            told.rack_id,
            member.client_id,
            member.client_host,
            tuple(sorted(set(told.topics))),
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            classic=ClassicSide(member.session_timeout_ms, member.protocols),
            epoch=group.generation,
            previous_epoch=group.generation,
            assigned=assigned,
        )
        found.append((converted, claimed))
    members: list[Member] = []
    for converted, claimed in found:
        revoking = claimed - taken
        taken |= revoking
        state = MemberState.UNREVOKED if revoking else MemberState.STABLE
        members.append(converted._replace(state=state, revoking=revoking))
    return members


def _by_id(names: Mapping[str, Iterable[int]], topics: Topics) -> Partitions:
    return frozenset(
        (topics.by_name[name].topic_id, number)
        for name, numbers in names.items()
        if name in topics.by_name
        for number in numbers
    )


def _converted(group: ClassicGroup, members: list[Member], work: Work) -> list[GroupRecord]:
    group_id = group.group_id
    records = [member_record(group_id, member) for member in members]
    records.append(epoch_record(group_id, group.generation, 0))
    records += [target_record(group_id, member.member_id, member.assigned) for member in members]
    records.append(target_epoch_record(group_id, group.generation, work.now.wall_ms))
    records += [current_record(group_id, member) for member in members]
    return records


# --- classic members in a consumer group ------------------------------------------------------------------------------


def classic_request(
    group: ConsumerGroup, request: ClassicRequest, ask: GroupAsk, ticket: int, work: Work, cache: SubscriptionCache
) -> None:
    """Handles JoinGroup, SyncGroup, Heartbeat or LeaveGroup in a consumer group."""
    match request:
        case HeartbeatRequest():
            _heartbeat(group, request, ticket, work)
        case JoinGroupRequest():
            try:
                _join(group, request, ask, ticket, work, cache)
            except MemberRequestRefused as refused:
                work.records.clear()
                work.changes.clear()
                work.reply(ticket, rebalance.refusal(refused.code, ask.version, request.member_id))
        case SyncGroupRequest():
            _sync(group, request, ticket, work)
        case LeaveGroupRequest():
            _leave(group, request, ask.version, ticket, work)
        case _:
            assert_never(request)


def _admitted(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int | None = None
) -> ErrorCode:
    if instance_id is not None:
        holder = group.static.get(instance_id)
        if holder is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if holder != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    member = group.members.get(member_id)
    if member is None or member.classic is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE if generation in (None, member.epoch) else ErrorCode.ILLEGAL_GENERATION


def _join(
    group: ConsumerGroup, request: JoinGroupRequest, ask: GroupAsk, ticket: int, work: Work, cache: SubscriptionCache
) -> None:
    settings = work.view.settings
    protocols = tuple((each.name, each.metadata) for each in request.protocols)
    if not settings.session_min_ms <= request.session_timeout_ms <= settings.session_max_ms:
        raise MemberRequestRefused(ErrorCode.INVALID_SESSION_TIMEOUT, "the session is too short or too long")
    told = subscription(protocols[0][1]) if protocols and request.protocol_type == CONSUMER_PROTOCOL else None
    if told is None or not _fit(group, protocols, request.member_id):
        raise MemberRequestRefused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "the group reads as consumers do")
    draft = Draft(group, work)
    before = _joining(draft, request, ask, ticket)
    if before is None:
        return
    rebalance_ms = request.rebalance_timeout_ms
    member = before._replace(
        instance_id=request.group_instance_id,
        rack_id=told.rack_id,
        client_id=ask.client_id,
        client_host=ask.client_host,
        topics=tuple(sorted(set(told.topics))),
        rebalance_timeout_ms=request.session_timeout_ms if rebalance_ms < 0 else rebalance_ms,
        classic=ClassicSide(request.session_timeout_ms, protocols),
    )
    heartbeats.update(draft, before, member, work, cache)
    names = {topic.topic: topic.partitions for topic in told.owned_partitions}
    work.drop_timer(REBALANCE, group.group_id, member.member_id)
    is_old = 0 <= told.generation_id < before.epoch  # it cannot have revoked partitions assigned since
    owned = None if is_old else _by_id(names, work.view.topics)
    heartbeats.step(draft, member.member_id, owned, is_joining=True)
    after = draft.group.members[member.member_id]
    work.hear(group.group_id, member.member_id, request.session_timeout_ms)
    work.set_timer(SYNC, group.group_id, member.member_id, member.rebalance_timeout_ms)
    work.reply(
        ticket,
        JoinGroupResponse(
            error_code=ErrorCode.NONE,
            generation_id=after.epoch,
            protocol_type=CONSUMER_PROTOCOL,
            protocol_name=_protocol(draft.group, after),
            leader="",
            member_id=member.member_id,
            members=(),
        ),
    )


def _joining(draft: Draft, request: JoinGroupRequest, ask: GroupAsk, ticket: int) -> Member | None:
    """The joining member, as it was until now; None if it got a member id and must join again with it."""
    group, work = draft.group, draft.work
    if request.group_instance_id is not None:
        holder = group.static.get(request.group_instance_id)
        if holder is not None and not request.member_id:
            member_id = rebalance.new_member_id(work, request.group_instance_id)
            return heartbeats.take_the_place(draft, holder, member_id)
        if holder is not None and holder != request.member_id:
            raise MemberRequestRefused(ErrorCode.FENCED_INSTANCE_ID, "another member has taken the place")
    member = group.members.get(request.member_id)
    if member is not None:
        return member
    given = Timer(PENDING, group.group_id, request.member_id)
    if request.member_id and work.view.timers.get(given) is None:
        raise MemberRequestRefused(ErrorCode.UNKNOWN_MEMBER_ID, f"{request.member_id} is no member of {group.group_id}")
    if len(group.members) >= work.view.settings.consumer_members_max:
        raise MemberRequestRefused(
            ErrorCode.GROUP_MAX_SIZE_REACHED, f"{group.group_id} has as many members as it may have"
        )
    if request.member_id:
        work.drop_timer(PENDING, group.group_id, request.member_id)
        return Member(request.member_id)
    member_id = rebalance.new_member_id(work, request.group_instance_id or ask.client_id)
    if request.group_instance_id is None and ask.version >= _KNOWN_MEMBERS_SINCE:
        work.set_timer(PENDING, group.group_id, member_id, request.session_timeout_ms)
        work.reply(ticket, rebalance.refusal(ErrorCode.MEMBER_ID_REQUIRED, ask.version, member_id))
        return None
    return Member(member_id)


def _fit(group: ConsumerGroup, protocols: Protocols, besides: str) -> bool:
    """Whether all classic members, and this one, share a protocol."""
    others = (
        member.classic.protocols
        for member in group.members.values()
        if member.classic is not None and member.member_id != besides
    )
    return bool(known_to_all(protocols, others))


def _protocol(group: ConsumerGroup, member: Member) -> str:
    """A protocol that all classic members support, as a formality: the coordinator computes assignments."""
    assert member.classic is not None
    mine = member.classic.protocols
    others = (each.classic.protocols for each in group.members.values() if each.classic is not None)
    return next(iter(known_to_all(mine, others)), mine[0][0])


def _sync(group: ConsumerGroup, request: SyncGroupRequest, ticket: int, work: Work) -> None:
    code = _admitted(group, request.member_id, request.group_instance_id, request.generation_id)
    if code is not ErrorCode.NONE:
        work.reply(ticket, rebalance.sync_refusal(code))
        return
    member = group.members[request.member_id]
    assert member.classic is not None
    work.hear(group.group_id, member.member_id, member.classic.session_timeout_ms)
    work.drop_timer(SYNC, group.group_id, member.member_id)
    work.reply(
        ticket,
        SyncGroupResponse(
            error_code=ErrorCode.NONE,
            protocol_type=CONSUMER_PROTOCOL,
            protocol_name=_protocol(group, member),
            assignment=_assignment_of(member, member.assigned, work.view.topics),
        ),
    )


def _assignment_of(member: Member, partitions: Partitions, topics: Topics) -> bytes:
    assert member.classic is not None
    names = {
        topics.by_id[topic_id].name: numbers
        for topic_id, numbers in by_topic(partitions).items()
        if topic_id in topics.by_id
    }
    return assignment_bytes(names, version_of(member.classic.protocols[0][1]))


def _heartbeat(group: ConsumerGroup, request: HeartbeatRequest, ticket: int, work: Work) -> None:
    code = _admitted(group, request.member_id, request.group_instance_id, request.generation_id)
    if code is ErrorCode.NONE:
        member = group.members[request.member_id]
        assert member.classic is not None
        work.hear(group.group_id, member.member_id, member.classic.session_timeout_ms)
        # A member that has not synced may not know of its last join, if that request was delayed.
        owes_sync = work.view.timers.get(Timer(SYNC, group.group_id, member.member_id)) is not None
        has_step = (
            member.epoch < group.epoch
            or member.state is MemberState.UNREVOKED
            or reconciled(group, member, None) != member
            or owes_sync
        )
        if has_step:
            code = ErrorCode.REBALANCE_IN_PROGRESS
            if work.view.timers.get(Timer(REBALANCE, group.group_id, member.member_id)) is None:
                work.set_timer(REBALANCE, group.group_id, member.member_id, member.rebalance_timeout_ms)
    work.reply(ticket, HeartbeatResponse(error_code=code))


def _leave(group: ConsumerGroup, request: LeaveGroupRequest, version: int, ticket: int, work: Work) -> None:
    is_one = version < _MANY_SINCE
    draft = Draft(group, work)
    answers = []
    for each in (MemberIdentity(member_id=request.member_id),) if is_one else request.members:
        member_id = each.member_id
        if not member_id and each.group_instance_id is not None:
            member_id = draft.group.static.get(each.group_instance_id, "")
        code = _admitted(draft.group, member_id, each.group_instance_id)
        if code is ErrorCode.NONE:
            heartbeats.remove_member(draft, member_id)
        answers.append(
            MemberResponse(member_id=each.member_id, group_instance_id=each.group_instance_id, error_code=code)
        )
    if is_one:
        work.reply(ticket, LeaveGroupResponse(error_code=answers[0].error_code))
    else:
        work.reply(ticket, LeaveGroupResponse(error_code=ErrorCode.NONE, members=answers))


def join_empty(group: ConsumerGroup, request: JoinGroupRequest, ask: GroupAsk, ticket: int, work: Work) -> None:
    """A classic member joins an empty group, which becomes classic; its generations continue the epochs."""
    classic = ClassicGroup(
        group.group_id,
        since_wall_ms=max(group.since_wall_ms, 0),
        generation=group.epoch,
        protocol_type=CONSUMER_PROTOCOL,
    )
    rebalance.join(classic, request, ask, ticket, work)
    if any(isinstance(change, SetClassicGroup) for change in work.changes):
        work.records[:0] = [*group.tombstones(), GroupRecord(classic.key(), classic.value())]


# --- downgrade --------------------------------------------------------------------------------------------------------


def downgrade_if_due(group: ConsumerGroup, work: Work) -> None:
    """Makes the group classic if its last KIP-848 member has left, or was replaced by a classic one."""
    if not work.records or work.view.settings.migration not in ("bidirectional", "downgrade"):
        return
    if all(member.classic is not None for member in group.members.values()):
        return
    after = group.draft()
    for record in work.records:
        after.apply(record)
    if not after.members or any(member.classic is None for member in after.members.values()):
        return
    classic = _classic_of(after, work)
    work.records += after.tombstones()
    work.record(classic.key(), classic.value())
    for member_id in after.members:
        work.drop_timer(REBALANCE, group.group_id, member_id)
        work.drop_timer(SYNC, group.group_id, member_id)
    rebalance.begin_rebalance(classic, work)
    for member in classic.members.values():
        work.hear(group.group_id, member.member_id, member.session_timeout_ms)
    work.changes.append(SetClassicGroup(classic.group_id, classic))


def _classic_of(group: ConsumerGroup, work: Work) -> ClassicGroup:
    classic = ClassicGroup(group.group_id, State.STABLE, work.now.wall_ms, group.epoch, CONSUMER_PROTOCOL)
    for member in group.members.values():
        assert member.classic is not None
        classic.put(
            ClassicMember(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.classic.session_timeout_ms,
                member.rebalance_timeout_ms,
                member.classic.protocols,
                _assignment_of(member, member.owned, work.view.topics),  # unrevoked partitions are not free
                held_bytes=sum(len(metadata) for _, metadata in member.classic.protocols),
            )
        )
    classic.protocol = classic.elected_protocol()
    return classic
