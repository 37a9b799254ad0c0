"""ConsumerGroupHeartbeat: a member of a consumer group joins, stays, leaves, and receives its assignment (KIP-848).

Serves    ConsumerGroupHeartbeat 0–1.
Answers   after FENCED_MEMBER_EPOCH and UNKNOWN_MEMBER_ID the member must drop its partitions and join again;
          UNRELEASED_INSTANCE_ID if another member still holds the instance id; INVALID_REGULAR_EXPRESSION,
          UNSUPPORTED_ASSIGNOR.
Departs   a member of an unknown group gets UNKNOWN_MEMBER_ID (Kafka: GROUP_ID_NOT_FOUND, which is fatal to clients). A
          member that joins again starts a new epoch, so that its former state is void for sure. A static member may
          leave temporarily without its instance id, as franz-go's do: Kafka refuses that, and has no place for the
          member when it returns. Members that wait send the next heartbeat after a second, not five. A partition that
          a member does not report counts as revoked if it was told to revoke it, and has reported it before.
"""

import hashlib
from typing import Final

from penstock.coordinator.assignors import ASSIGNORS, Wish
from penstock.coordinator.changes import OwnershipReports, SetComparedTopics, SetEmptySince, SetOwnershipReports
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
from penstock.coordinator.patterns import InvalidPattern, Regex
from penstock.coordinator.rebalance import new_member_id
from penstock.coordinator.reconciliation import reconciled
from penstock.coordinator.records import GroupRecord
from penstock.coordinator.requests import GroupAsk
from penstock.coordinator.settings import (
    CONSUMER_GROUP_BYTES_MAX,
    GROUPS_BYTES_MAX,
    JOINABLE_EPOCH_MAX,
    PATTERN_REFRESH_MS,
    SMALL_MEMBER_BYTES,
    WAITING_MS,
)
from penstock.coordinator.timers import REBALANCE, SESSION, SYNC
from penstock.coordinator.work import Work
from penstock.model.epochs import next_epoch
from penstock.model.errors import ErrorCode
from penstock.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatResponseTopicPartitions,
)

_OWN_IDS_SINCE: Final = 1


class MemberRequestRefused(Exception):
    """The request is refused, with an error code and a message."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class Draft:
    """A group with the records decided so far; the group is copied at the first record."""

    __slots__ = ("_is_copy", "group", "work")

    def __init__(self, group: ConsumerGroup, work: Work) -> None:
        self.group = group
        self.work = work
        self._is_copy = False

    def put(self, *records: GroupRecord) -> None:
        """Adds records to the decision, and applies them to the draft."""
        if not self._is_copy:
            self.group = self.group.draft()
            self._is_copy = True
        for record in records:
            self.group.apply(record)
        self.work.records += records

    def bump(self, metadata_hash: int | None = None) -> None:
        """Starts a new group epoch: the target assignment is out of date."""
        group = self.group
        seen = group.metadata_hash if metadata_hash is None else metadata_hash
        self.put(epoch_record(group.group_id, next_epoch(group.epoch, f"group {group.group_id}"), seen))


class SubscriptionCache:
    """Caches: the topics that each group was last compared with; compiled patterns."""

    PATTERNS_MAX: Final = 100

    def __init__(self) -> None:
        self.groups: dict[str, tuple[int, int]] = {}
        self._compiled: dict[str, Regex] = {}

    def compiled(self, pattern: str) -> Regex:
        """The compiled pattern. Raises InvalidPattern."""
        known = self._compiled.get(pattern)
        if known is None:
            if len(self._compiled) >= self.PATTERNS_MAX:
                self._compiled.clear()
            known = self._compiled[pattern] = Regex(pattern)
        return known


# --- the request ------------------------------------------------------------------------------------------------------


def heartbeat(
    group: ConsumerGroup | None,
    request: ConsumerGroupHeartbeatRequest,
    ask: GroupAsk,
    ticket: int,
    work: Work,
    cache: SubscriptionCache,
) -> None:
    """Handles a heartbeat; `group` is the consumer group of that name, or None."""
    try:
        work.reply(ticket, _heartbeat(group, request, ask, work, cache))
    except MemberRequestRefused as refused:
        work.records.clear()
        work.changes.clear()
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


def _heartbeat(
    group: ConsumerGroup | None,
    request: ConsumerGroupHeartbeatRequest,
    ask: GroupAsk,
    work: Work,
    cache: SubscriptionCache,
) -> ConsumerGroupHeartbeatResponse:
    _check(request, ask.version, work)
    if request.member_epoch < 0:
        return _leave(group, request, work)
    if group is None:
        if request.member_epoch:
            raise MemberRequestRefused(ErrorCode.UNKNOWN_MEMBER_ID, f"there is no group {request.group_id}")
        group = ConsumerGroup(request.group_id)
    draft = Draft(group, work)
    member, is_rejoining = _recognised(draft, request, ask)
    before = member
    member = _updated(member, request, ask)
    update(draft, before, member, work, cache, is_rejoining=is_rejoining)
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
    """The heartbeat interval; short for a member that waits or must revoke, as it learns of changes only by a reply."""
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
        raise MemberRequestRefused(invalid, "GroupId can't be empty.")
    if not request.member_id and (request.member_epoch or version >= _OWN_IDS_SINCE):
        raise MemberRequestRefused(invalid, "MemberId can't be empty.")
    if request.member_epoch < AWAY_EPOCH:
        raise MemberRequestRefused(
            invalid, f"MemberEpoch is {request.member_epoch}, it cannot be less than {AWAY_EPOCH}."
        )
    if request.instance_id == "" or request.rack_id == "":
        raise MemberRequestRefused(invalid, "InstanceId and RackId can't be empty.")
    if request.member_epoch == 0:
        if request.rebalance_timeout_ms == -1:
            raise MemberRequestRefused(invalid, "RebalanceTimeoutMs must be provided in first request.")
        if request.topic_partitions is None or request.topic_partitions:
            raise MemberRequestRefused(invalid, "TopicPartitions must be empty when (re-)joining.")
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            raise MemberRequestRefused(invalid, "Either SubscribedTopicNames or SubscribedTopicRegex must be provided.")
    assignor = request.server_assignor
    if assignor is not None and assignor not in work.view.settings.assignors:
        known = ", ".join(work.view.settings.assignors)
        raise MemberRequestRefused(
            ErrorCode.UNSUPPORTED_ASSIGNOR, f"ServerAssignor {assignor} is not supported. Supported: {known}."
        )


def _recognised(draft: Draft, request: ConsumerGroupHeartbeatRequest, ask: GroupAsk) -> tuple[Member, bool]:
    """The sender, as it was until now; and whether it is a member that joins again."""
    group = draft.group
    if request.instance_id is not None:
        holder = group.static.get(request.instance_id)
        if holder is not None and holder != request.member_id:
            if request.member_epoch:
                raise MemberRequestRefused(
                    ErrorCode.FENCED_INSTANCE_ID, f"{request.instance_id} is another member's now"
                )
            other = group.members[holder]
            if other.classic is None and other.epoch != AWAY_EPOCH:
                raise MemberRequestRefused(
                    ErrorCode.UNRELEASED_INSTANCE_ID, f"{request.instance_id} is a member's that is here"
                )
            return take_the_place(draft, holder, request.member_id), False
        if holder is None and request.member_epoch:
            raise MemberRequestRefused(ErrorCode.UNKNOWN_MEMBER_ID, f"{request.instance_id} is no member's")
    member = group.members.get(request.member_id)
    if request.member_epoch == 0:
        return _joining(draft, member, request, ask)
    if member is None:
        raise MemberRequestRefused(ErrorCode.UNKNOWN_MEMBER_ID, f"{request.member_id} is no member of {group.group_id}")
    if member.classic is not None:
        raise MemberRequestRefused(ErrorCode.UNKNOWN_MEMBER_ID, f"{request.member_id} speaks the classic protocol")
    _check_epoch(member, request)
    return member, False


def _joining(
    draft: Draft, member: Member | None, request: ConsumerGroupHeartbeatRequest, ask: GroupAsk
) -> tuple[Member, bool]:
    group, work = draft.group, draft.work
    if member is None:
        if len(group.members) >= work.view.settings.consumer_members_max:
            raise MemberRequestRefused(
                ErrorCode.GROUP_MAX_SIZE_REACHED, f"{group.group_id} has as many members as it may have"
            )
        return Member(request.member_id or new_member_id(work, ask.client_id)), False
    was_here = member.epoch > 0
    fresh = member._replace(epoch=0, previous_epoch=0, state=MemberState.STABLE, revoking=NOTHING, classic=None)
    if fresh != member:
        draft.put(current_record(group.group_id, fresh))
        work.drop_timer(REBALANCE, group.group_id, member.member_id)
        work.changes.append(SetOwnershipReports(group.group_id, member.member_id, None))
    return fresh._replace(classic=member.classic), was_here


def take_the_place(draft: Draft, old_id: str, member_id: str) -> Member:
    """A static member returns under another member id, and inherits the target and current assignment."""
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
    work.changes.append(SetOwnershipReports(group_id, member_id, None))


def _check_epoch(member: Member, request: ConsumerGroupHeartbeatRequest) -> None:
    """Accepts an older epoch only after a lost reply: the previous one, with no partition but the member's own."""
    if request.member_epoch == member.epoch:
        return
    is_answer_lost = (
        request.member_epoch == member.previous_epoch
        and request.member_epoch < member.epoch
        and request.topic_partitions is not None
        and partitions_of(request.topic_partitions) <= member.assigned
    )
    if not is_answer_lost:
        raise MemberRequestRefused(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"{member.member_id} comes with epoch {request.member_epoch} and is in {member.epoch}",
        )


def _updated(member: Member, request: ConsumerGroupHeartbeatRequest, ask: GroupAsk) -> Member:
    """The member with the fields that the request updates."""
    names, pattern, rebalance_ms = (
        request.subscribed_topic_names,
        request.subscribed_topic_regex,
        request.rebalance_timeout_ms,
    )
    return member._replace(
        client_id=ask.client_id,
        client_host=ask.client_host,
        classic=None,
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if rebalance_ms < 0 else rebalance_ms,
        topics=member.topics if names is None else tuple(sorted(set(names))),
        pattern=member.pattern if pattern is None else pattern,
        assignor=member.assignor if request.server_assignor is None else request.server_assignor,
    )


# --- updates and steps ------------------------------------------------------------------------------------------------


def update(
    draft: Draft, before: Member, member: Member, work: Work, cache: SubscriptionCache, *, is_rejoining: bool = False
) -> None:
    """Records a member's changes; starts a new epoch and computes a new target if needed."""
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
        raise MemberRequestRefused(
            ErrorCode.INVALID_REQUEST,
            f"The group has reached epoch {draft.group.epoch}, which is nearly the last. Stop its members, delete it, "
            "and let them join again.",
        )
    if before.pattern != member.pattern and before.pattern:
        drop_patterns(draft)
    seen, is_fresh = _topics_seen(draft, member, work, cache, has_changed=has_changed)
    if has_changed or seen != draft.group.metadata_hash:
        draft.bump(seen)
    group = draft.group
    compared = (work.view.topics.version, group.epoch) if is_fresh else None
    if cache.groups.get(group_id) != compared:
        work.changes.append(SetComparedTopics(group_id, compared))
    if group.target_epoch < group.epoch and (is_rejoining or _is_time_to_assign(group, work)):
        assign(draft)


def _check_room(group: ConsumerGroup, member: Member, work: Work) -> None:
    """Refuses a member whose metadata exceeds the coordinator's limits."""
    known = group.members.get(member.member_id)
    more_bytes = member.held_bytes - (0 if known is None else known.held_bytes)
    if more_bytes <= 0:
        return
    if group.held_bytes + more_bytes > CONSUMER_GROUP_BYTES_MAX:
        raise MemberRequestRefused(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The subscriptions of group {group.group_id} would take more than {CONSUMER_GROUP_BYTES_MAX:,} bytes.",
        )
    if member.held_bytes > SMALL_MEMBER_BYTES and work.view.held_bytes() + more_bytes > GROUPS_BYTES_MAX:
        raise MemberRequestRefused(
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            f"The subscriptions of all groups here would take more than {GROUPS_BYTES_MAX:,} bytes.",
        )


def _wants(member: Member) -> tuple[tuple[str, ...], str, str | None, str | None]:
    return member.topics, member.pattern, member.rack_id, member.assignor


def _topics_seen(
    draft: Draft, member: Member, work: Work, cache: SubscriptionCache, *, has_changed: bool
) -> tuple[int, bool]:
    """Hash of the group's subscribed topics as they are now; and whether its patterns were up to date."""
    group, topics = draft.group, work.view.topics
    if not has_changed and cache.groups.get(group.group_id) == (topics.version, group.epoch):
        return group.metadata_hash, True
    is_fresh = _match_patterns(draft, member, work, cache)
    digest = hashlib.blake2b(digest_size=8)
    for name in draft.group.subscribed_names():
        topic = topics.by_name.get(name)
        if topic is not None:
            digest.update(repr(topic).encode())
    return int.from_bytes(digest.digest(), signed=True), is_fresh


def _match_patterns(draft: Draft, member: Member, work: Work, cache: SubscriptionCache) -> bool:
    """Matches new patterns at once, others again at intervals; returns whether all are up to date."""
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
            found = cache.compiled(pattern).found_in(topics.by_name)
        except InvalidPattern as trouble:
            if pattern == member.pattern:
                raise MemberRequestRefused(ErrorCode.INVALID_REGULAR_EXPRESSION, f"{pattern}: {trouble}") from None
            found = known.topics if known is not None else ()
        draft.put(pattern_record(group.group_id, pattern, Pattern(found, topics.names_hash, work.now.wall_ms)))
    return is_fresh


def drop_patterns(draft: Draft) -> None:
    """Deletes patterns that no member uses any more."""
    used = {member.pattern for member in draft.group.members.values()}
    for pattern in [each for each in draft.group.patterns if each not in used]:
        draft.put(pattern_record(draft.group.group_id, pattern, None))


def _is_time_to_assign(group: ConsumerGroup, work: Work) -> bool:
    if not group.target_epoch:
        return True
    passed_ms = work.now.wall_ms - group.assigned_wall_ms
    return passed_ms < 0 or passed_ms >= work.view.settings.assignment_interval_ms


def assign(draft: Draft) -> None:
    """Computes the target assignment of the group's epoch."""
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
    """A step of a member that stays. A partition to revoke is revoked once it was reported and no longer is.

    A partition that the member never reported may be one that it has not taken yet: it was assigned a moment ago. The
    same is true of all reports to a new coordinator, which therefore sends the assignment again. The member has some
    time (`taking_ms`) to report such partitions.
    """
    work, key = draft.work, (draft.group.group_id, member_id)
    before, known = draft.group.members[member_id], work.view.reports.get(key)
    reports: OwnershipReports = OwnershipReports(None, NOTHING, work.now.ms) if known is None else known
    if owned is not None:
        reports = reports._replace(owned=owned, proven=reports.proven | owned)
    has = None
    if known is not None and before.state is MemberState.UNREVOKED:
        # The doubt must end before the member is removed.
        taking_ms = min(work.view.settings.taking_ms, before.giving_up_ms // 2)
        is_time_up = work.now.ms - reports.told_ms >= taking_ms
        has = reports.owned if is_time_up or before.revoking <= reports.proven else None
    step(draft, member_id, has)
    after = draft.group.members[member_id]
    if after.state is MemberState.UNREVOKED and after.revoking != before.revoking:
        reports = reports._replace(told_ms=work.now.ms)
    proven = reports.proven if has is None else has  # revoked partitions may have been assigned again
    # A report may name thousands of partitions that are not the member's; they are not kept.
    said = None if reports.owned is None else reports.owned & (before.owned | after.owned)
    reports = reports._replace(owned=said, proven=proven & after.owned)
    if reports != known:
        work.changes.append(SetOwnershipReports(*key, reports))


def step(draft: Draft, member_id: str, owned: Partitions | None, *, is_joining: bool = False) -> None:
    """Advances one member by a reconciliation step, if others allow it."""
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


# --- leaving ----------------------------------------------------------------------------------------------------------


def _leave(
    group: ConsumerGroup | None, request: ConsumerGroupHeartbeatRequest, work: Work
) -> ConsumerGroupHeartbeatResponse:
    member = None if group is None else group.members.get(request.member_id)
    told = request.instance_id if member is None else request.instance_id or member.instance_id
    if request.member_epoch == AWAY_EPOCH and told is None:
        raise MemberRequestRefused(ErrorCode.INVALID_REQUEST, "InstanceId can't be null.")
    if group is None or member is None:
        raise MemberRequestRefused(
            ErrorCode.UNKNOWN_MEMBER_ID, f"{request.member_id} is no member of {request.group_id}"
        )
    if request.instance_id is not None and group.static.get(request.instance_id) != request.member_id:
        raise MemberRequestRefused(ErrorCode.FENCED_INSTANCE_ID, f"{request.instance_id} is another member's now")
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
    """Removes a member: its partitions are free, and the group is in a new epoch."""
    group, work = draft.group, draft.work
    draft.put(*member_tombstones(group.group_id, member_id))
    drop_patterns(draft)
    draft.bump()
    _forget_member(group.group_id, member_id, work)
    if not draft.group.members:
        work.changes.append(SetEmptySince(group.group_id, work.now.wall_ms))
