"""A shard: all groups of one partition of `__consumer_offsets`.

Invariants: a partition belongs to at most one member of a generation or epoch; generations and epochs never go back
(but 1 follows the last generation); an acknowledged offset stays until a later one replaces it, or it is deleted or
expires; `decide` and `expire` change nothing, only `apply` and `change` do, besides `topics_deleted`, which follows
from no decision. A classic group is more than its record: the change that follows the record in the same decision adds
the rest.
"""

from collections.abc import Callable, Set
from typing import Final, assert_never

from penstock.coordinator import conversion, heartbeats, listing, offsets, rebalance, staying
from penstock.coordinator.changes import (
    Change,
    Group,
    OwnershipReports,
    SetClassicGroup,
    SetComparedTopics,
    SetEmptySince,
    SetOwnershipReports,
)
from penstock.coordinator.classic import ClassicGroup, group_of
from penstock.coordinator.consumer import ConsumerGroup, MemberState
from penstock.coordinator.events import TransactionEnded
from penstock.coordinator.heartbeats import Draft, SubscriptionCache
from penstock.coordinator.offsets import Offsets
from penstock.coordinator.ports import Now
from penstock.coordinator.records import ConsumerKey, GroupRecord, value_as
from penstock.coordinator.requests import ClassicRequest, GroupAsk, ListSomeGroups, PlacesOf, group_id_of
from penstock.coordinator.settings import GroupSettings
from penstock.coordinator.shard import GroupDecision
from penstock.coordinator.timers import EXPIRY, REBALANCE, SESSION, SWEEP, SYNC, DropTimer, SetTimer, Timer, Timers
from penstock.coordinator.topics import Topics
from penstock.coordinator.work import View, Work
from penstock.model.errors import ErrorCode
from penstock.model.ports import Entropy
from penstock.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from penstock.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from penstock.wire.messages.delete_groups import DeleteGroupsRequest
from penstock.wire.messages.describe_groups import DescribeGroupsRequest
from penstock.wire.messages.heartbeat import HeartbeatRequest
from penstock.wire.messages.join_group import JoinGroupRequest
from penstock.wire.messages.leave_group import LeaveGroupRequest
from penstock.wire.messages.list_groups import ListGroupsRequest
from penstock.wire.messages.offset_commit import OffsetCommitRequest
from penstock.wire.messages.offset_delete import OffsetDeleteRequest
from penstock.wire.messages.offset_fetch import OffsetFetchRequestGroup
from penstock.wire.messages.sync_group import SyncGroupRequest
from penstock.wire.stored.consumer_groups import ConsumerGroupMetadataKey
from penstock.wire.stored.consumer_offsets import (
    GroupMetadataKey,
    GroupMetadataValue,
    LegacyOffsetCommitKey,
    OffsetCommitKey,
    OffsetCommitValue,
)

EXPIRY_TIMER: Final = Timer(EXPIRY, "")
SWEEP_TIMER: Final = Timer(SWEEP, "")


class GroupShard:
    """See the module. `topics` returns the current topics of the cluster, `of_group` the settings of a group."""

    def __init__(
        self,
        settings: GroupSettings,
        entropy: Entropy,
        topics: Callable[[], Topics],
        of_group: Callable[[str], GroupSettings] | None = None,
        held_by_all: Callable[[], int] | None = None,
    ) -> None:
        """`held_by_all` returns the bytes of member metadata in all shards of this coordinator."""
        self.held_bytes = 0
        """Bytes of member metadata in this shard."""
        self._held_by_all = (lambda: self.held_bytes) if held_by_all is None else held_by_all
        self.settings = settings
        self._of_group = of_group
        self.groups: dict[str, Group] = {}
        self.offsets = Offsets()
        self.timers = Timers()
        self._entropy = entropy
        self._topics = topics
        self._cache = SubscriptionCache()
        self._reports: dict[tuple[str, str], OwnershipReports] = {}
        self._deleted_early: set[str] | None = set()
        """Topics that were deleted while the log was loaded; None after that."""

    @property
    def topics(self) -> Topics:
        """The current topics of the cluster."""
        return self._topics()

    # --- changing -------------------------------------------------------------------------------------------------

    def apply(self, record: GroupRecord) -> None:
        """Applies a record of the log."""
        key, value = record
        match key:
            case OffsetCommitKey():
                assert value is None or isinstance(value, OffsetCommitValue)
                self.offsets.apply(key, value)
            case GroupMetadataKey():
                self._apply_classic(key.group, value_as(GroupMetadataValue, value))
            case LegacyOffsetCommitKey():
                pass  # of obsolete versions
            case _:
                self._apply_consumer(key, record)

    def _apply_classic(self, group_id: str, value: GroupMetadataValue | None) -> None:
        if value is not None:
            self._set(group_id, group_of(group_id, value))
        elif isinstance(self.groups.get(group_id), ClassicGroup):
            self._set(group_id, None)

    def _set(self, group_id: str, group: Group | None) -> None:
        before = self.groups.get(group_id)
        self.held_bytes += (0 if group is None else group.held_bytes) - (0 if before is None else before.held_bytes)
        if group is not None:
            self.groups[group_id] = group
        elif before is not None:
            del self.groups[group_id]

    def _apply_consumer(self, key: ConsumerKey, record: GroupRecord) -> None:
        group_id = key.group_id
        group = self.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            if record.value is None:
                return
            group = ConsumerGroup(group_id)
            self._set(group_id, group)
        if record.value is None and isinstance(key, ConsumerGroupMetadataKey):
            self._set(group_id, None)
            self._cache.groups.pop(group_id, None)
            return
        before_bytes = group.held_bytes
        group.apply(record)
        self.held_bytes += group.held_bytes - before_bytes

    def end_transaction(self, end: TransactionEnded) -> None:
        """Does nothing: commits within transactions are not supported yet."""

    def change(self, change: Change) -> None:
        """Applies a change that is not kept in the log."""
        match change:
            case SetTimer():
                self.timers.set(change.timer, change.due_ms, change.chances)
            case DropTimer():
                self.timers.drop(change.timer)
            case SetClassicGroup():
                if change.group is not None and (not change.group.is_nothing or self.offsets.count_of(change.group_id)):
                    self._set(change.group_id, change.group)
                elif isinstance(self.groups.get(change.group_id), ClassicGroup):
                    self._set(change.group_id, None)
            case SetComparedTopics():
                if change.topics_and_epoch is not None:
                    self._cache.groups[change.group_id] = change.topics_and_epoch
                else:
                    self._cache.groups.pop(change.group_id, None)
            case SetOwnershipReports():
                if change.reports is not None:
                    self._reports[change.group_id, change.member_id] = change.reports
                else:
                    self._reports.pop((change.group_id, change.member_id), None)
            case SetEmptySince():
                group = self.groups.get(change.group_id)
                if isinstance(group, ConsumerGroup):
                    group.since_wall_ms = change.wall_ms
            case _:
                assert_never(change)

    def begin(self, now: Now) -> GroupDecision:
        """Starts a whole session for every member, as no heartbeat could arrive before."""
        deleted, self._deleted_early = self._deleted_early or set(), None
        self.topics_deleted(deleted | (self.offsets.topics() - self._topics().by_name.keys()), now)
        first_look_ms = max(self.settings.retention_check_ms, self.settings.load_grace_ms)
        changes: list[Change] = [SetTimer(EXPIRY_TIMER, now.ms + first_look_ms)]
        # Of a group that no member ever joined, the log has only commits.
        unjoined = [group_id for group_id in self.offsets.groups() if group_id not in self.groups]
        changes += [SetClassicGroup(each, ClassicGroup(each, since_wall_ms=now.wall_ms)) for each in unjoined]
        for group_id, group in self.groups.items():
            if isinstance(group, ClassicGroup):
                changes += [
                    SetTimer(Timer(SESSION, group_id, each.member_id), now.ms + each.session_timeout_ms)
                    for each in group.members.values()
                ]
                continue
            changes.append(SetEmptySince(group_id, now.wall_ms))
            for member in group.members.values():
                session_ms = self.settings_of(group_id).consumer_session_ms
                if member.classic is not None:
                    session_ms = member.classic.session_timeout_ms
                changes.append(SetTimer(Timer(SESSION, group_id, member.member_id), now.ms + session_ms))
                if member.state is MemberState.UNREVOKED:
                    rebalance = Timer(REBALANCE, group_id, member.member_id)
                    changes.append(SetTimer(rebalance, now.ms + member.giving_up_ms))
        return GroupDecision(changes=tuple(changes))

    def topics_deleted(self, names: Set[str], now: Now) -> None:
        """Discards the offsets of deleted topics, even if new topics have the same names by now."""
        if self._deleted_early is not None:
            self._deleted_early |= names
        elif names:
            self.offsets.orphan(names)
            if self.offsets.orphans:
                self.timers.set(SWEEP_TIMER, now.ms)

    # --- deciding -------------------------------------------------------------------------------------------------

    def settings_of(self, group_id: str) -> GroupSettings:
        """The settings of a group, which may have its own."""
        return self.settings if self._of_group is None or not group_id else self._of_group(group_id)

    def _work(self, now: Now, group_id: str) -> Work:
        settings = self.settings_of(group_id)
        view = View(settings, self._entropy, self.timers, self._topics(), self.groups, self._reports, self._held_by_all)
        return Work(view, now)

    def decide(self, command: GroupAsk, ticket: int, now: Now) -> GroupDecision:
        """Decides on a request."""
        request = command.request
        work = self._work(now, group_id_of(request))
        match request:  # the frequent ones first
            case OffsetCommitRequest():
                offsets.commit(self.groups.get(request.group_id), request, ticket, work)
            case ConsumerGroupHeartbeatRequest():
                self._consumer_heartbeat(request, command, ticket, work)
            case HeartbeatRequest() | JoinGroupRequest() | SyncGroupRequest() | LeaveGroupRequest():
                self._classic(request, command, ticket, work)
            case OffsetFetchRequestGroup():
                offsets.fetch(self.groups.get(request.group_id), self.offsets, request, ticket, work)
            case PlacesOf():
                offsets.places(self.offsets, request, ticket, work)
            case OffsetDeleteRequest():
                offsets.delete(self.groups.get(request.group_id), self.offsets, request, ticket, work)
            case DescribeGroupsRequest():
                listing.describe(self.groups, request, command.version, ticket, work)
            case ConsumerGroupDescribeRequest():
                listing.describe_consumer(self.groups, request, ticket, work)
            case ListGroupsRequest() | ListSomeGroups():
                listing.list_groups(self.groups, request, ticket, work)
            case DeleteGroupsRequest():
                listing.delete(self.groups, self.offsets, request, ticket, work)
            case _:
                assert_never(request)
        return work.decision()

    def _classic(self, request: ClassicRequest, ask: GroupAsk, ticket: int, work: Work) -> None:
        group = self.groups.get(request.group_id)
        if isinstance(request, JoinGroupRequest) and not request.group_id:
            work.reply(ticket, rebalance.refusal(ErrorCode.INVALID_GROUP_ID, ask.version, request.member_id))
            return
        if isinstance(group, ConsumerGroup):
            if isinstance(request, JoinGroupRequest) and group.is_empty:
                conversion.join_empty(group, request, ask, ticket, work)
                return
            conversion.classic_request(group, request, ask, ticket, work, self._cache)
            conversion.downgrade_if_due(group, work)
            return
        match request:
            case HeartbeatRequest():
                staying.heartbeat(group, request, ticket, work)
            case JoinGroupRequest():
                rebalance.join(group, request, ask, ticket, work)
            case SyncGroupRequest():
                rebalance.sync(group, request, ticket, work)
            case LeaveGroupRequest():
                staying.leave(group, request, ask.version, ticket, work)
            case _:
                assert_never(request)

    def _consumer_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, ask: GroupAsk, ticket: int, work: Work
    ) -> None:
        group = self.groups.get(request.group_id)
        if isinstance(group, ClassicGroup):
            if request.member_epoch == 0:
                conversion.upgrade(group, request, ask, ticket, work, self._cache)
                return
            group = None
        heartbeats.heartbeat(group, request, ask, ticket, work, self._cache)
        if isinstance(group, ConsumerGroup):
            conversion.downgrade_if_due(group, work)

    # --- timers ---------------------------------------------------------------------------------------------------

    @property
    def wake_at(self) -> int | None:
        """When the first timer is due."""
        return self.timers.wake_at

    def due(self, now: Now) -> Timer | None:
        """The first timer, if it is due."""
        return self.timers.first_due(now.ms)

    def postpone(self, timer: Timer, until_ms: int) -> None:
        """Moves a timer."""
        self.timers.set(timer, until_ms)

    def put_off(self, by_ms: int) -> None:
        """Delays all timers."""
        self.timers.put_off(by_ms)

    def expire(self, timer: Timer, now: Now) -> GroupDecision:
        """Decides on a timer that is due."""
        chance = self.timers.chance(timer, now.ms)
        if chance is not None:
            return GroupDecision(changes=(chance,))
        work = self._work(now, timer.group_id)
        work.changes.append(DropTimer(timer))
        group = self.groups.get(timer.group_id)
        if timer == EXPIRY_TIMER:
            has_more = offsets.expire_some(self.groups, self.offsets, work)
            work.changes.append(SetTimer(timer, now.ms + (1 if has_more else self.settings.retention_check_ms)))
        elif timer == SWEEP_TIMER:
            if offsets.sweep_some(self.offsets, work):
                work.changes.append(SetTimer(timer, now.ms + 1))
        elif isinstance(group, ClassicGroup):
            staying.time_is_up(group, timer, work)
        elif isinstance(group, ConsumerGroup):
            self._consumer_time_is_up(group, timer, work)
        return work.decision()

    def _consumer_time_is_up(self, group: ConsumerGroup, timer: Timer, work: Work) -> None:
        member = group.members.get(timer.member_id)
        if member is None or timer.kind == SYNC:  # its session decides whether it is lost
            return
        if timer.kind == SESSION or member.state is MemberState.UNREVOKED or member.classic is not None:
            heartbeats.remove_member(Draft(group, work), timer.member_id)
            conversion.downgrade_if_due(group, work)
