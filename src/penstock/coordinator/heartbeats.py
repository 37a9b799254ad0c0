"""ConsumerGroupHeartbeat: a member of a consumer group joins, stays, leaves, and receives what it is to read (KIP-848).

Serves    ConsumerGroupHeartbeat 0–1.
Answers   FENCED_MEMBER_EPOCH and UNKNOWN_MEMBER_ID have the member drop everything and join again;
          UNRELEASED_INSTANCE_ID where a static member's place is still taken; INVALID_REGULAR_EXPRESSION,
          UNSUPPORTED_ASSIGNOR.
Departs   a member of a group that is not there is UNKNOWN_MEMBER_ID (Kafka: GROUP_ID_NOT_FOUND, which clients take for
          fatal). Who joins again although it is a member begins a new epoch: what it had before is void for sure.
          A static member may go for a moment without its instance id, as franz-go's do: Kafka refuses that, and has
          no place for it when it is back. Members that wait are to come again after a second, not five. What a member
          says not to have counts as given up if it was told to give it up, and has said before that it has it.
"""

import hashlib
from typing import Any, Final, NamedTuple

from penstock.coordinator.assignors import ASSIGNORS, Wish
from penstock.coordinator.consumer import (
    AWAY_EPOCH,
    LEAVING_EPOCH,
    NOTHING,
    ConsumerGroup,
    Member,
    MemberState,
    Partitions,
    Pattern,
    by_topic,
    current_record,
    epoch_record,
    member_record,
    member_tombstones,
    partitions_of,
    pattern_record,
    target_epoch_record,
    target_record,
)
from penstock.coordinator.joining import new_member_id
from penstock.coordinator.patterns import InvalidPattern, Regex
from penstock.coordinator.reconciliation import reconciled
from penstock.coordinator.records import GroupRecord
from penstock.coordinator.settings import (
    GROUP_BYTES_MAX,
    GROUPS_BYTES_MAX,
    JOINABLE_EPOCH_MAX,
    PATTERN_REFRESH_MS,
    SMALL_MEMBER_BYTES,
    WAITING_MS,
)
from penstock.coordinator.timers import REBALANCE, SESSION, SYNC
from penstock.coordinator.work import Ask, Work
from penstock.model.epochs import next_epoch
from penstock.model.errors import ErrorCode
from penstock.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatResponseTopicPartitions,
)

_OWN_IDS_SINCE: Final = 1


class Refused(Exception):
    """The member is told why not."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class Compared(NamedTuple):
    """A note: a consumer group was held against topics; None if it has to be again."""

    group_id: str
    topics_and_epoch: tuple[int, int] | None


class Saying(NamedTuple):
    """What a member has said of what it has, to this coordinator."""

    owned: Partitions | None
    """As it said last."""
    proven: Partitions
    """What it has said to have, of that which it was given."""
    told_ms: int
    """When it was told what to give up."""


class Said(NamedTuple):
    """A note: a member has spoken, or was told; None if it is gone, or begins anew."""

    group_id: str
    member_id: str
    saying: Saying | None


class Emptied(NamedTuple):
    """A note: the last member of a consumer group has gone."""

    group_id: str
    wall_ms: int


class Draft:
    """A group with what was decided so far; the group itself is copied when the first record comes."""

    __slots__ = ("_is_copy", "group", "work")

    def __init__(self, group: ConsumerGroup, work: Work) -> None:
        self.group = group
        self.work = work
        self._is_copy = False

    def put(self, *records: GroupRecord) -> None:
        """Decides on records, and sees them applied."""
        if not self._is_copy:
            self.group = self.group.draft()
            self._is_copy = True
        for record in records:
            self.group.apply(record)
        self.work.records += records

    def bump(self, metadata_hash: int | None = None) -> None:
        """A new epoch of the group: what was meant until now is out of date."""
        group = self.group
        seen = group.metadata_hash if metadata_hash is None else metadata_hash
        self.put(epoch_record(group.group_id, next_epoch(group.epoch, f"group {group.group_id}"), seen))


class Checked:
    """What can be found out anew: which groups were held against which topics; compiled patterns."""

    PATTERNS_MAX: Final = 100

    def __init__(self) -> None:
        self.groups: dict[str, tuple[int, int]] = {}
        self._compiled: dict[str, Regex] = {}

    def compiled(self, pattern: str) -> Regex:
        """Raises InvalidPattern."""
        known = self._compiled.get(pattern)
        if known is None:
            if len(self._compiled) >= self.PATTERNS_MAX:
                self._compiled.clear()
            known = self._compiled[pattern] = Regex(pattern)
        return known


# --- the request ------------------------------------------------------------------------------------------------------


def heartbeat(group: ConsumerGroup | None, ask: Ask, ticket: int, work: Work, checked: Checked) -> None:
    """`group` is the consumer group of that name; None where there is none."""
    try:
        work.reply(ticket, _heartbeat(group, ask, work, checked))
    except Refused as refused:
        work.records.clear()
        work.notes.clear()
        request: ConsumerGroupHeartbeatRequest = ask.request
        work.reply(
            ticket,
            ConsumerGroupHeartbeatResponse(
                throttle_time_ms=0,
                error_code=refused.code,
                error_message=str(refused),
                member_id=request.member_id,
                member_epoch=0,
                heartbeat_interval_ms=0,
            ),
        )


def _heartbeat(group: ConsumerGroup | None, ask: Ask, work: Work, checked: Checked) -> ConsumerGroupHeartbeatResponse:
    request: ConsumerGroupHeartbeatRequest = ask.request
    _check(request, ask.version, work)
    if request.member_epoch < 0:
        return _leave(group, request, work)
    if group is None:
        if request.member_epoch:
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"there is no group {request.group_id}")
        group = ConsumerGroup(request.group_id)
    draft = Draft(group, work)
    member, is_rejoining = _recognised(draft, ask)
    before = member
    member = _updated(member, ask)
    update(draft, before, member, work, checked, is_rejoining=is_rejoining)
    owned = None if request.topic_partitions is None else partitions_of(request.topic_partitions)
    if request.member_epoch == 0:
        step(draft, member.member_id, owned, is_joining=True)
    else:
        _step_as_said(draft, member.member_id, owned)
    after = draft.group.members[member.member_id]
    work.hear(group.group_id, member.member_id, work.view.settings.consumer_session_ms)
    is_full = request.member_epoch == 0 or owned is not None
    shows = is_full or request.member_epoch != after.epoch or after.assigned != before.assigned
    return ConsumerGroupHeartbeatResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        member_id=member.member_id,
        member_epoch=after.epoch,
        heartbeat_interval_ms=_interval_ms(draft.group, after, work),
        assignment=_shown(after.assigned) if shows else None,
    )


def _interval_ms(group: ConsumerGroup, member: Member, work: Work) -> int:
    """Who waits for an assignment, or is to give up, or waits for that, comes again soon: only then it can be told."""
    usual_ms = work.view.settings.consumer_heartbeat_ms
    is_waiting = member.state is not MemberState.STABLE or group.target_epoch < group.epoch
    return min(usual_ms, WAITING_MS) if is_waiting else usual_ms


def _shown(assigned: Partitions) -> Assignment:
    return Assignment(
        topic_partitions=[
            ConsumerGroupHeartbeatResponseTopicPartitions(topic_id=topic_id, partitions=numbers)
            for topic_id, numbers in by_topic(assigned).items()
        ]
    )


def _check(request: ConsumerGroupHeartbeatRequest, version: int, work: Work) -> None:
    invalid = ErrorCode.INVALID_REQUEST
    if not request.group_id.strip():
        raise Refused(invalid, "GroupId can't be empty.")
    if not request.member_id and (request.member_epoch or version >= _OWN_IDS_SINCE):
        raise Refused(invalid, "MemberId can't be empty.")
    if request.member_epoch < AWAY_EPOCH:
        raise Refused(invalid, f"MemberEpoch is {request.member_epoch}, it cannot be less than {AWAY_EPOCH}.")
    if request.instance_id == "" or request.rack_id == "":
        raise Refused(invalid, "InstanceId and RackId can't be empty.")
    if request.member_epoch == 0:
        if request.rebalance_timeout_ms == -1:
            raise Refused(invalid, "RebalanceTimeoutMs must be provided in first request.")
        if request.topic_partitions is None or request.topic_partitions:
            raise Refused(invalid, "TopicPartitions must be empty when (re-)joining.")
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            raise Refused(invalid, "Either SubscribedTopicNames or SubscribedTopicRegex must be provided.")
    assignor = request.server_assignor
    if assignor is not None and assignor not in work.view.settings.assignors:
        known = ", ".join(work.view.settings.assignors)
        raise Refused(
            ErrorCode.UNSUPPORTED_ASSIGNOR, f"ServerAssignor {assignor} is not supported. Supported: {known}."
        )


def _recognised(draft: Draft, ask: Ask) -> tuple[Member, bool]:
    """The member that asks, as it was until now; and whether it was one before, but joins again."""
    request: ConsumerGroupHeartbeatRequest = ask.request
    group = draft.group
    if request.instance_id is not None:
        holder = group.static.get(request.instance_id)
        if holder is not None and holder != request.member_id:
            if request.member_epoch:
                raise Refused(ErrorCode.FENCED_INSTANCE_ID, f"{request.instance_id} is another member's now")
            other = group.members[holder]
            if other.classic is None and other.epoch != AWAY_EPOCH:
                raise Refused(ErrorCode.UNRELEASED_INSTANCE_ID, f"{request.instance_id} is a member's that is here")
            return take_the_place(draft, holder, request.member_id), False
        if holder is None and request.member_epoch:
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"{request.instance_id} is no member's")
    member = group.members.get(request.member_id)
    if request.member_epoch == 0:
        return _joining(draft, member, ask)
    if member is None:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"{request.member_id} is no member of {group.group_id}")
    if member.classic is not None:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"{request.member_id} speaks the classic protocol")
    _check_epoch(member, request)
    return member, False


def _joining(draft: Draft, member: Member | None, ask: Ask) -> tuple[Member, bool]:
    group, work = draft.group, draft.work
    if member is None:
        if len(group.members) >= work.view.settings.consumer_members_max:
            raise Refused(ErrorCode.GROUP_MAX_SIZE_REACHED, f"{group.group_id} has as many members as it may have")
        return Member(ask.request.member_id or new_member_id(work, ask.client_id)), False
    was_here = member.epoch > 0
    fresh = member._replace(epoch=0, previous_epoch=0, state=MemberState.STABLE, revoking=NOTHING, classic=None)
    if fresh != member:
        draft.put(current_record(group.group_id, fresh))
        work.drop_timer(REBALANCE, group.group_id, member.member_id)
        work.notes.append(Said(group.group_id, member.member_id, None))
    return fresh._replace(classic=member.classic), was_here


def take_the_place(draft: Draft, old_id: str, member_id: str) -> Member:
    """A static member is back under another member id: what the old one was meant to read and has is its."""
    group, work = draft.group, draft.work
    old = group.members[old_id]
    target = group.targets.get(old_id, NOTHING)
    member = old._replace(member_id=member_id, epoch=0, previous_epoch=0, state=MemberState.STABLE, revoking=NOTHING)
    draft.put(
        *member_tombstones(group.group_id, old_id),
        member_record(group.group_id, member),
        target_record(group.group_id, member_id, target),
        current_record(group.group_id, member),
    )
    _forget_member(group.group_id, old_id, work)
    return member


def _forget_member(group_id: str, member_id: str, work: Work) -> None:
    for kind in (SESSION, REBALANCE, SYNC):
        work.drop_timer(kind, group_id, member_id)
    work.notes.append(Said(group_id, member_id, None))


def _check_epoch(member: Member, request: ConsumerGroupHeartbeatRequest) -> None:
    """An older epoch passes only as a lost answer: the one before, with nothing that is not the member's."""
    if request.member_epoch == member.epoch:
        return
    is_answer_lost = (
        request.member_epoch == member.previous_epoch
        and request.member_epoch < member.epoch
        and request.topic_partitions is not None
        and partitions_of(request.topic_partitions) <= member.assigned
    )
    if not is_answer_lost:
        raise Refused(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"{member.member_id} comes with epoch {request.member_epoch} and is in {member.epoch}",
        )


def _updated(member: Member, ask: Ask) -> Member:
    """The member with what the request tells anew."""
    request: ConsumerGroupHeartbeatRequest = ask.request
    told: dict[str, Any] = {"client_id": ask.client_id, "client_host": ask.client_host, "classic": None}
    if request.instance_id is not None:
        told["instance_id"] = request.instance_id
    if request.rack_id is not None:
        told["rack_id"] = request.rack_id
    if request.rebalance_timeout_ms >= 0:
        told["rebalance_timeout_ms"] = request.rebalance_timeout_ms
    if request.subscribed_topic_names is not None:
        told["topics"] = tuple(sorted(set(request.subscribed_topic_names)))
    if request.subscribed_topic_regex is not None:
        told["pattern"] = request.subscribed_topic_regex
    if request.server_assignor is not None:
        told["assignor"] = request.server_assignor
    return member._replace(**told)


# --- what follows -----------------------------------------------------------------------------------------------------


def update(
    draft: Draft, before: Member, member: Member, work: Work, checked: Checked, *, is_rejoining: bool = False
) -> None:
    """Takes in what a member tells; a new epoch and a new target follow where they must."""
    group_id = draft.group.group_id
    is_new = member.member_id not in draft.group.members
    if is_new or not member.says_the_same(before):
        _check_room(draft.group, member, work)
    if is_new or member != before:
        draft.put(member_record(group_id, member))
    if is_new:
        draft.put(current_record(group_id, member))
    has_changed = is_new or is_rejoining or _wants(before) != _wants(member)
    if has_changed and draft.group.epoch >= JOINABLE_EPOCH_MAX:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"The group has reached epoch {draft.group.epoch}, which is nearly the last. Stop its members, delete it, "
            "and let them join again.",
        )
    if before.pattern != member.pattern and before.pattern:
        drop_patterns(draft)
    seen, is_fresh = _topics_seen(draft, member, work, checked, has_changed=has_changed)
    if has_changed or seen != draft.group.metadata_hash:
        draft.bump(seen)
    group = draft.group
    compared = (work.view.topics.version, group.epoch) if is_fresh else None
    if checked.groups.get(group_id) != compared:
        work.notes.append(Compared(group_id, compared))
    if group.target_epoch < group.epoch and (is_rejoining or _is_time_to_assign(group, work)):
        assign(draft)


def _check_room(group: ConsumerGroup, member: Member, work: Work) -> None:
    """Refuses a member that says more of itself than the coordinator may hold."""
    known = group.members.get(member.member_id)
    more_bytes = member.held_bytes - (0 if known is None else known.held_bytes)
    if more_bytes <= 0:
        return
    if group.held_bytes + more_bytes > GROUP_BYTES_MAX:
        raise Refused(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The subscriptions of group {group.group_id} would take more than {GROUP_BYTES_MAX:,} bytes.",
        )
    if member.held_bytes > SMALL_MEMBER_BYTES and work.view.held_bytes() + more_bytes > GROUPS_BYTES_MAX:
        raise Refused(
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            f"The subscriptions of all groups here would take more than {GROUPS_BYTES_MAX:,} bytes.",
        )


def _wants(member: Member) -> tuple[Any, ...]:
    return member.topics, member.pattern, member.rack_id, member.assignor


def _topics_seen(draft: Draft, member: Member, work: Work, checked: Checked, *, has_changed: bool) -> tuple[int, bool]:
    """What the topics that the group reads are like now, as one number; and whether its patterns were up to date."""
    group, topics = draft.group, work.view.topics
    if not has_changed and checked.groups.get(group.group_id) == (topics.version, group.epoch):
        return group.metadata_hash, True
    is_fresh = _match_patterns(draft, member, work, checked)
    digest = hashlib.blake2b(digest_size=8)
    for name in draft.group.subscribed_names():
        topic = topics.by_name.get(name)
        if topic is not None:
            digest.update(repr(topic).encode())
    return int.from_bytes(digest.digest(), signed=True), is_fresh


def _match_patterns(draft: Draft, member: Member, work: Work, checked: Checked) -> bool:
    """Finds the topics of new patterns at once, those of others again at times; whether all are up to date."""
    group, topics = draft.group, work.view.topics
    is_fresh = True
    for pattern in sorted({each.pattern for each in group.members.values() if each.pattern}):
        known = group.patterns.get(pattern)
        if known is not None and known.names_hash == topics.names_hash:
            continue
        if known is not None and 0 <= work.now.wall_ms - known.wall_ms < PATTERN_REFRESH_MS:
            is_fresh = False
            continue
        try:
            found = checked.compiled(pattern).found_in(topics.by_name)
        except InvalidPattern as trouble:
            if pattern == member.pattern:
                raise Refused(ErrorCode.INVALID_REGULAR_EXPRESSION, f"{pattern}: {trouble}") from None
            found = known.topics if known is not None else ()
        draft.put(pattern_record(group.group_id, pattern, Pattern(found, topics.names_hash, work.now.wall_ms)))
    return is_fresh


def drop_patterns(draft: Draft) -> None:
    """Patterns that nobody asks for any more are forgotten."""
    used = {member.pattern for member in draft.group.members.values()}
    for pattern in [each for each in draft.group.patterns if each not in used]:
        draft.put(pattern_record(draft.group.group_id, pattern, None))


def _is_time_to_assign(group: ConsumerGroup, work: Work) -> bool:
    if not group.target_epoch:
        return True
    passed_ms = work.now.wall_ms - group.assigned_wall_ms
    return passed_ms < 0 or passed_ms >= work.view.settings.assignment_interval_ms


def assign(draft: Draft) -> None:
    """Computes what everybody is meant to read in the group's epoch."""
    group, work = draft.group, draft.work
    name = group.assignor(work.view.settings.assignors[0])
    wishes = [
        Wish(
            member.member_id,
            member.instance_id,
            member.rack_id,
            group.topics_of(member),
            group.targets.get(member.member_id, NOTHING),
        )
        for member in group.members.values()
    ]
    targets = ASSIGNORS.get(name, ASSIGNORS["uniform"])(wishes, work.view.topics.by_name)
    changed = [
        target_record(group.group_id, member_id, target)
        for member_id, target in targets.items()
        if group.targets.get(member_id) != target
    ]
    draft.put(*changed, target_epoch_record(group.group_id, group.epoch, work.now.wall_ms))


def _step_as_said(draft: Draft, member_id: str, owned: Partitions | None) -> None:
    """A step of a member that stays. It has given up what it was told to, has said to have, and now says not to have.

    What it never said to have it may only not have yet: it was given it a moment ago, and its program is about to take
    it. The same is true of all that it says to a new coordinator, which therefore tells it again. For such partitions
    it is given some time to speak up.
    """
    work, key = draft.work, (draft.group.group_id, member_id)
    before, known = draft.group.members[member_id], work.view.said.get(key)
    saying: Saying = Saying(None, NOTHING, work.now.ms) if known is None else known
    if owned is not None:
        saying = saying._replace(owned=owned, proven=saying.proven | owned)
    has = None
    if known is not None and before.state is MemberState.UNREVOKED:
        # It is to be out of doubt before it is out.
        taking_ms = min(work.view.settings.taking_ms, before.giving_up_ms // 2)
        is_time_up = work.now.ms - saying.told_ms >= taking_ms
        has = saying.owned if is_time_up or before.revoking <= saying.proven else None
    step(draft, member_id, has)
    after = draft.group.members[member_id]
    if after.state is MemberState.UNREVOKED and after.revoking != before.revoking:
        saying = saying._replace(told_ms=work.now.ms)
    proven = saying.proven if has is None else has  # what was given up may have been given again
    saying = saying._replace(proven=proven & after.owned)
    if saying != known:
        work.notes.append(Said(*key, saying))


def step(draft: Draft, member_id: str, owned: Partitions | None, *, is_joining: bool = False) -> None:
    """Takes one member a step further, as far as others let it."""
    group, work = draft.group, draft.work
    member = group.members[member_id]
    after = reconciled(group, member, owned, is_joining=is_joining)
    if after == member:
        return
    draft.put(current_record(group.group_id, after))
    if after.state is MemberState.UNREVOKED:
        work.set_timer(REBALANCE, group.group_id, member_id, member.giving_up_ms)
    elif member.state is MemberState.UNREVOKED:
        work.drop_timer(REBALANCE, group.group_id, member_id)


# --- going ------------------------------------------------------------------------------------------------------------


def _leave(
    group: ConsumerGroup | None, request: ConsumerGroupHeartbeatRequest, work: Work
) -> ConsumerGroupHeartbeatResponse:
    member = None if group is None else group.members.get(request.member_id)
    told = request.instance_id if member is None else request.instance_id or member.instance_id
    if request.member_epoch == AWAY_EPOCH and told is None:
        raise Refused(ErrorCode.INVALID_REQUEST, "InstanceId can't be null.")
    if group is None or member is None:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"{request.member_id} is no member of {request.group_id}")
    if request.instance_id is not None and group.static.get(request.instance_id) != request.member_id:
        raise Refused(ErrorCode.FENCED_INSTANCE_ID, f"{request.instance_id} is another member's now")
    draft = Draft(group, work)
    if request.member_epoch == AWAY_EPOCH:
        away = member._replace(epoch=AWAY_EPOCH, state=MemberState.STABLE, revoking=NOTHING)
        draft.put(current_record(group.group_id, away))
        work.drop_timer(REBALANCE, group.group_id, member.member_id)
        work.hear(group.group_id, member.member_id, work.view.settings.consumer_session_ms)
    else:
        remove_member(draft, member.member_id)
    return ConsumerGroupHeartbeatResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        member_id=request.member_id,
        member_epoch=LEAVING_EPOCH if request.member_epoch == LEAVING_EPOCH else AWAY_EPOCH,
        heartbeat_interval_ms=0,
    )


def remove_member(draft: Draft, member_id: str) -> None:
    """A member is gone: what it had is free, and the group in a new epoch."""
    group, work = draft.group, draft.work
    draft.put(*member_tombstones(group.group_id, member_id))
    drop_patterns(draft)
    draft.bump()
    _forget_member(group.group_id, member_id, work)
    if not draft.group.members:
        work.notes.append(Emptied(group.group_id, work.now.wall_ms))
