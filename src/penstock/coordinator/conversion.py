"""Between the protocols while a group is at work: classic groups become consumer groups and back, member by member.

Serves    JoinGroup, SyncGroup, Heartbeat and LeaveGroup of classic members in a consumer group; the first
          ConsumerGroupHeartbeat in a classic group (upgrade); the last of the new protocol that goes (downgrade).
Answers   a classic member's generation is its epoch; it leads nothing, joins alone and at once, and is asked to join
          again (REBALANCE_IN_PROGRESS) whenever there is a step to take, or a join whose outcome it has not asked for.
Departs   a group that is meeting while it is converted keeps what its members said they have (Kafka: nothing).
"""

from collections.abc import Iterable, Mapping

from penstock.coordinator import heartbeats, joining
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
from penstock.coordinator.heartbeats import Checked, Draft, Refused
from penstock.coordinator.reconciliation import reconciled
from penstock.coordinator.records import GroupRecord
from penstock.coordinator.subscriptions import assignment, assignment_bytes, subscription, version_of
from penstock.coordinator.timers import JOIN, PENDING, REBALANCE, SYNC, Timer
from penstock.coordinator.topics import Topics
from penstock.coordinator.work import Ask, Replace, Work
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


def upgrade(group: ClassicGroup, ask: Ask, ticket: int, work: Work, checked: Checked) -> None:
    """A member of the new protocol joins a classic group, which becomes a consumer group if it can."""
    request: ConsumerGroupHeartbeatRequest = ask.request
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
    heartbeats.heartbeat(base, ask, ticket, asked, checked)
    work.replies += asked.replies
    if asked.records:
        work.records += [*records, *asked.records]
        work.notes += [*desk.notes, *asked.notes]
        work.replies += desk.replies


def _end_meeting(group: ClassicGroup, work: Work) -> None:
    """Whoever waits is told to come again; timers of the classic group go."""
    for member in group.members.values():
        if member.joining is not None:
            refused = joining.refusal(ErrorCode.REBALANCE_IN_PROGRESS, 0, member.member_id)
            work.reply(member.joining, refused)
        if member.syncing is not None:
            work.reply(member.syncing, joining.sync_refusal(ErrorCode.REBALANCE_IN_PROGRESS))
    work.drop_timer(JOIN, group.group_id)
    work.drop_timer(SYNC, group.group_id)
    for member_id in group.pending:
        work.drop_timer(PENDING, group.group_id, member_id)


def _members_of(group: ClassicGroup, topics: Topics) -> list[Member] | None:
    """The members of a classic group as those of a consumer group; None if one is not what we can read.

    What a member said to have when it joined, and was not assigned, it may be about to give up, and has not yet: only
    its next JoinGroup will tell.
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


def classic_request(group: ConsumerGroup, ask: Ask, ticket: int, work: Work, checked: Checked) -> None:
    """JoinGroup, SyncGroup, Heartbeat or LeaveGroup, and a consumer group under that name."""
    match ask.request:
        case JoinGroupRequest():
            try:
                _join(group, ask, ticket, work, checked)
            except Refused as refused:
                work.records.clear()
                work.notes.clear()
                work.reply(ticket, joining.refusal(refused.code, ask.version, ask.request.member_id))
        case SyncGroupRequest():
            _sync(group, ask, ticket, work)
        case HeartbeatRequest():
            _heartbeat(group, ask, ticket, work)
        case LeaveGroupRequest():
            _leave(group, ask, ticket, work)


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


def _join(group: ConsumerGroup, ask: Ask, ticket: int, work: Work, checked: Checked) -> None:
    request: JoinGroupRequest = ask.request
    settings = work.view.settings
    protocols = tuple((each.name, each.metadata) for each in request.protocols)
    if not settings.session_min_ms <= request.session_timeout_ms <= settings.session_max_ms:
        raise Refused(ErrorCode.INVALID_SESSION_TIMEOUT, "the session is too short or too long")
    told = subscription(protocols[0][1]) if protocols and request.protocol_type == CONSUMER_PROTOCOL else None
    if told is None or not _fit(group, protocols, request.member_id):
        raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "the group reads as consumers do")
    draft = Draft(group, work)
    before = _joining(draft, ask, ticket)
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
    heartbeats.update(draft, before, member, work, checked)
    names = {topic.topic: topic.partitions for topic in told.owned_partitions}
    work.drop_timer(REBALANCE, group.group_id, member.member_id)
    is_old = 0 <= told.generation_id < before.epoch  # what it has been given since, it cannot have given up here
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


def _joining(draft: Draft, ask: Ask, ticket: int) -> Member | None:
    """The member that asks, as it was until now; None if it was given an id, and is to come again with it."""
    request: JoinGroupRequest = ask.request
    group, work = draft.group, draft.work
    if request.group_instance_id is not None:
        holder = group.static.get(request.group_instance_id)
        if holder is not None and not request.member_id:
            member_id = joining.new_member_id(work, request.group_instance_id)
            return heartbeats.take_the_place(draft, holder, member_id)
        if holder is not None and holder != request.member_id:
            raise Refused(ErrorCode.FENCED_INSTANCE_ID, "another member has taken the place")
    member = group.members.get(request.member_id)
    if member is not None:
        return member
    given = Timer(PENDING, group.group_id, request.member_id)
    if request.member_id and work.view.timers.get(given) is None:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"{request.member_id} is no member of {group.group_id}")
    if len(group.members) >= work.view.settings.consumer_members_max:
        raise Refused(ErrorCode.GROUP_MAX_SIZE_REACHED, f"{group.group_id} has as many members as it may have")
    if request.member_id:
        work.drop_timer(PENDING, group.group_id, request.member_id)
        return Member(request.member_id)
    member_id = joining.new_member_id(work, request.group_instance_id or ask.client_id)
    if request.group_instance_id is None and ask.version >= _KNOWN_MEMBERS_SINCE:
        work.set_timer(PENDING, group.group_id, member_id, request.session_timeout_ms)
        work.reply(ticket, joining.refusal(ErrorCode.MEMBER_ID_REQUIRED, ask.version, member_id))
        return None
    return Member(member_id)


def _fit(group: ConsumerGroup, protocols: Protocols, besides: str) -> bool:
    """Whether all classic members, and this one, know a protocol."""
    others = (
        member.classic.protocols
        for member in group.members.values()
        if member.classic is not None and member.member_id != besides
    )
    return bool(known_to_all(protocols, others))


def _protocol(group: ConsumerGroup, member: Member) -> str:
    """One that all classic members know, for the sake of form: assignments come from the coordinator."""
    assert member.classic is not None
    mine = member.classic.protocols
    others = (each.classic.protocols for each in group.members.values() if each.classic is not None)
    return next(iter(known_to_all(mine, others)), mine[0][0])


def _sync(group: ConsumerGroup, ask: Ask, ticket: int, work: Work) -> None:
    request: SyncGroupRequest = ask.request
    code = _admitted(group, request.member_id, request.group_instance_id, request.generation_id)
    if code is not ErrorCode.NONE:
        work.reply(ticket, joining.sync_refusal(code))
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


def _heartbeat(group: ConsumerGroup, ask: Ask, ticket: int, work: Work) -> None:
    request: HeartbeatRequest = ask.request
    code = _admitted(group, request.member_id, request.group_instance_id, request.generation_id)
    if code is ErrorCode.NONE:
        member = group.members[request.member_id]
        assert member.classic is not None
        work.hear(group.group_id, member.member_id, member.classic.session_timeout_ms)
        # Who does not come for what a join gave it does not know of that join: it was held up on the way.
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


def _leave(group: ConsumerGroup, ask: Ask, ticket: int, work: Work) -> None:
    request: LeaveGroupRequest = ask.request
    is_one = ask.version < _MANY_SINCE
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


def join_empty(group: ConsumerGroup, ask: Ask, ticket: int, work: Work) -> None:
    """A classic member joins where nobody is: the group is classic from now on, and its epochs go on."""
    classic = ClassicGroup(
        group.group_id,
        since_wall_ms=max(group.since_wall_ms, 0),
        generation=group.epoch,
        protocol_type=CONSUMER_PROTOCOL,
    )
    joining.join(classic, ask, ticket, work)
    if any(isinstance(note, Replace) for note in work.notes):
        work.records[:0] = [*group.tombstones(), GroupRecord(classic.key(), classic.value())]


# --- downgrade --------------------------------------------------------------------------------------------------------


def downgrade_if_due(group: ConsumerGroup, work: Work) -> None:
    """If the last member of the new protocol has gone, or has been replaced by a classic one, the group is classic."""
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
    joining.begin_rebalance(classic, work)
    for member in classic.members.values():
        work.hear(group.group_id, member.member_id, member.session_timeout_ms)
    work.notes.append(Replace(classic.group_id, classic))


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
                _assignment_of(member, member.owned, work.view.topics),  # what it has not given up yet is not free
                held_bytes=sum(len(metadata) for _, metadata in member.classic.protocols),
            )
        )
    classic.protocol = classic.elected_protocol()
    return classic
