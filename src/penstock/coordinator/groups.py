"""All groups of one partition of `__consumer_offsets`: a shard.

Invariants: a partition belongs to at most one member of a generation or epoch; generations and epochs never go back; an
offset that was acknowledged is there until a later one is, or it is deleted or expires; `decide` and `expire` change
nothing, `apply` and `note` are the only places that do, besides `begin` and `topics_deleted`, which follow from no
decision. A classic group is more than its record: the note that follows the record in the same decision brings the
rest.
"""

from collections.abc import Callable, Set
from typing import Any, Final

from penstock.coordinator import conversion, heartbeats, joining, listing, offsets, staying
from penstock.coordinator.classic import ClassicGroup, group_of
from penstock.coordinator.consumer import OF_CONSUMER_GROUPS, ConsumerGroup, MemberState
from penstock.coordinator.heartbeats import Checked, Compared, Draft, Emptied, Said, Saying
from penstock.coordinator.offsets import Group, Offsets
from penstock.coordinator.outcome import Outcome
from penstock.coordinator.ports import Now
from penstock.coordinator.records import GroupRecord
from penstock.coordinator.settings import GroupSettings
from penstock.coordinator.timers import EXPIRY, REBALANCE, SESSION, SWEEP, SYNC, DropTimer, SetTimer, Timer, Timers
from penstock.coordinator.topics import Topics
from penstock.coordinator.work import Ask, Replace, View, Work
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
from penstock.wire.stored.consumer_offsets import GroupMetadataKey, OffsetCommitKey

EXPIRY_TIMER: Final = Timer(EXPIRY, "")
SWEEP_TIMER: Final = Timer(SWEEP, "")


class GroupShard:
    """See the module. `topics` gives the topics of the cluster as they are now, `of_group` settings of its own."""

    def __init__(
        self,
        settings: GroupSettings,
        entropy: Entropy,
        topics: Callable[[], Topics],
        of_group: Callable[[str], GroupSettings] | None = None,
        held_by_all: Callable[[], int] | None = None,
    ) -> None:
        """`held_by_all` tells what members of all shards of this coordinator say of themselves, in bytes."""
        self.held_bytes = 0
        """What members of groups of this shard say of themselves."""
        self._held_by_all = (lambda: self.held_bytes) if held_by_all is None else held_by_all
        self.settings = settings
        self._of_group = of_group
        self.groups: dict[str, Group] = {}
        self.offsets = Offsets()
        self.timers = Timers()
        self._entropy = entropy
        self._topics = topics
        self._checked = Checked()
        self._said: dict[tuple[str, str], Saying] = {}
        self._deleted_early: set[str] | None = set()
        """Topics that were deleted while the log was being read; None since it is."""

    @property
    def topics(self) -> Topics:
        """The topics of the cluster as they are now."""
        return self._topics()

    # --- changing -------------------------------------------------------------------------------------------------

    def apply(self, record: GroupRecord) -> None:
        """Takes in what the log says."""
        key, value = record
        kind = type(key)
        if kind is OffsetCommitKey:
            self.offsets.apply(key, value)  # type: ignore[arg-type]
        elif kind in OF_CONSUMER_GROUPS:
            self._apply_consumer(record)
        elif kind is GroupMetadataKey:
            group_id = key.group  # type: ignore[attr-defined]
            if value is not None:
                self._set(group_id, group_of(group_id, value))  # type: ignore[arg-type]
            elif isinstance(self.groups.get(group_id), ClassicGroup):
                self._set(group_id, None)

    def _set(self, group_id: str, group: Group | None) -> None:
        before = self.groups.get(group_id)
        self.held_bytes += (0 if group is None else group.held_bytes) - (0 if before is None else before.held_bytes)
        if group is not None:
            self.groups[group_id] = group
        elif before is not None:
            del self.groups[group_id]

    def _apply_consumer(self, record: GroupRecord) -> None:
        group_id: str = record.key.group_id  # type: ignore[attr-defined]
        group = self.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            if record.value is None:
                return
            group = ConsumerGroup(group_id)
            self._set(group_id, group)
        if record.value is None and isinstance(record.key, ConsumerGroupMetadataKey):
            self._set(group_id, None)
            self._checked.groups.pop(group_id, None)
            return
        before_bytes = group.held_bytes
        group.apply(record)
        self.held_bytes += group.held_bytes - before_bytes

    def note(self, note: Any) -> None:
        """Takes in what the log need not know."""
        match note:
            case SetTimer():
                self.timers.set(note.timer, note.due_ms, note.chances)
            case DropTimer():
                self.timers.drop(note.timer)
            case Replace():
                if note.group is not None and (not note.group.is_nothing or self.offsets.count_of(note.group_id)):
                    self._set(note.group_id, note.group)
                elif isinstance(self.groups.get(note.group_id), ClassicGroup):
                    self._set(note.group_id, None)
            case Compared():
                if note.topics_and_epoch is not None:
                    self._checked.groups[note.group_id] = note.topics_and_epoch
                else:
                    self._checked.groups.pop(note.group_id, None)
            case Said():
                if note.saying is not None:
                    self._said[note.group_id, note.member_id] = note.saying
                else:
                    self._said.pop((note.group_id, note.member_id), None)
            case Emptied():
                group = self.groups.get(note.group_id)
                if isinstance(group, ConsumerGroup):
                    group.since_wall_ms = note.wall_ms

    def begin(self, now: Now) -> None:
        """Everybody who is a member has a whole session from now on: nobody could be heard before."""
        self.timers.set(EXPIRY_TIMER, now.ms + max(self.settings.retention_check_ms, self.settings.load_grace_ms))
        deleted, self._deleted_early = self._deleted_early or set(), None
        self.topics_deleted(deleted | (self.offsets.topics() - self._topics().by_name.keys()), now)
        for group_id in self.offsets.groups():
            if group_id not in self.groups:  # nobody ever joined it: its commits are all that the log has
                self.groups[group_id] = ClassicGroup(group_id, since_wall_ms=now.wall_ms)
        for group_id, group in self.groups.items():
            if isinstance(group, ClassicGroup):
                for each in group.members.values():
                    self.timers.set(Timer(SESSION, group_id, each.member_id), now.ms + each.session_timeout_ms)
                continue
            group.since_wall_ms = now.wall_ms
            for member in group.members.values():
                session_ms = self._settings_of(group_id).consumer_session_ms
                if member.classic is not None:
                    session_ms = member.classic.session_timeout_ms
                self.timers.set(Timer(SESSION, group_id, member.member_id), now.ms + session_ms)
                if member.state is MemberState.UNREVOKED:
                    self.timers.set(Timer(REBALANCE, group_id, member.member_id), now.ms + member.giving_up_ms)

    def topics_deleted(self, names: Set[str], now: Now) -> None:
        """What was read of them counts no longer from now on, whether or not others have their names by now."""
        if self._deleted_early is not None:
            self._deleted_early |= names
        elif names:
            self.offsets.orphan(names)
            if self.offsets.orphans:
                self.timers.set(SWEEP_TIMER, now.ms)

    # --- deciding -------------------------------------------------------------------------------------------------

    def _settings_of(self, group_id: str) -> GroupSettings:
        return self.settings if self._of_group is None or not group_id else self._of_group(group_id)

    def _work(self, now: Now, group_id: str) -> Work:
        settings = self._settings_of(group_id)
        view = View(settings, self._entropy, self.timers, self._topics(), self.groups, self._said, self._held_by_all)
        return Work(view, now)

    def decide(self, command: Any, ticket: int, now: Now) -> Outcome:
        """What follows from a request."""
        request = command.request
        work = self._work(now, getattr(request, "group_id", ""))
        match request:
            case ConsumerGroupHeartbeatRequest():
                self._consumer_heartbeat(command, ticket, work)
            case OffsetCommitRequest():
                offsets.commit(self.groups.get(request.group_id), command, ticket, work)
            case OffsetFetchRequestGroup():
                offsets.fetch(self.groups.get(request.group_id), self.offsets, command, ticket, work)
            case offsets.PlacesOf():
                offsets.places(self.offsets, command, ticket, work)
            case HeartbeatRequest() | JoinGroupRequest() | SyncGroupRequest() | LeaveGroupRequest():
                self._classic(command, ticket, work)
            case OffsetDeleteRequest():
                offsets.delete(self.groups.get(request.group_id), self.offsets, command, ticket, work)
            case DescribeGroupsRequest():
                listing.describe(self.groups, command, ticket, work)
            case ConsumerGroupDescribeRequest():
                listing.describe_consumer(self.groups, command, ticket, work)
            case ListGroupsRequest() | listing.ListSome():
                listing.list_groups(self.groups, command, ticket, work)
            case DeleteGroupsRequest():
                listing.delete(self.groups, self.offsets, command, ticket, work)
            case _:
                raise TypeError(f"{request} is nothing that groups can be asked")
        return work.outcome()

    def _classic(self, ask: Ask, ticket: int, work: Work) -> None:
        request = ask.request
        group = self.groups.get(request.group_id)
        if isinstance(request, JoinGroupRequest) and not request.group_id:
            work.reply(ticket, joining.refusal(ErrorCode.INVALID_GROUP_ID, ask.version, request.member_id))
            return
        if isinstance(group, ConsumerGroup):
            if not (isinstance(request, JoinGroupRequest) and group.is_empty):
                conversion.classic_request(group, ask, ticket, work, self._checked)
                conversion.downgrade_if_due(group, work)
                return
            conversion.join_empty(group, ask, ticket, work)
            return
        match request:
            case HeartbeatRequest():
                staying.heartbeat(group, ask, ticket, work)
            case JoinGroupRequest():
                joining.join(group, ask, ticket, work)
            case SyncGroupRequest():
                joining.sync(group, ask, ticket, work)
            case _:
                staying.leave(group, ask, ticket, work)

    def _consumer_heartbeat(self, ask: Ask, ticket: int, work: Work) -> None:
        request: ConsumerGroupHeartbeatRequest = ask.request
        group = self.groups.get(request.group_id)
        if isinstance(group, ClassicGroup):
            if request.member_epoch == 0:
                conversion.upgrade(group, ask, ticket, work, self._checked)
                return
            group = None
        heartbeats.heartbeat(group, ask, ticket, work, self._checked)
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
        """Later."""
        self.timers.set(timer, until_ms)

    def put_off(self, by_ms: int) -> None:
        """All timers are due so much later."""
        self.timers.put_off(by_ms)

    def expire(self, timer: Timer, now: Now) -> Outcome:
        """What follows from a timer that is due."""
        chance = self.timers.chance(timer, now.ms)
        if chance is not None:
            return Outcome(notes=(chance,))
        work = self._work(now, timer.group_id)
        work.notes.append(DropTimer(timer))
        group = self.groups.get(timer.group_id)
        if timer == EXPIRY_TIMER:
            has_more = offsets.expire_some(self.groups, self.offsets, work)
            work.notes.append(SetTimer(timer, now.ms + (1 if has_more else self.settings.retention_check_ms)))
        elif timer == SWEEP_TIMER:
            if offsets.sweep_some(self.offsets, work):
                work.notes.append(SetTimer(timer, now.ms + 1))
        elif isinstance(group, ClassicGroup):
            staying.time_is_up(group, timer, work)
        elif isinstance(group, ConsumerGroup):
            self._consumer_time_is_up(group, timer, work)
        return work.outcome()

    def _consumer_time_is_up(self, group: ConsumerGroup, timer: Timer, work: Work) -> None:
        member = group.members.get(timer.member_id)
        if member is None or timer.kind == SYNC:  # its session tells whether it is there
            return
        if timer.kind == SESSION or member.state is MemberState.UNREVOKED or member.classic is not None:
            heartbeats.remove_member(Draft(group, work), timer.member_id)
            conversion.downgrade_if_due(group, work)
