"""Event history of groups: members that joined, left or timed out, and the begin and duration of rebalances.

An observer of a group shard: it decides and changes nothing. When a decision is applied, it compares the group with its
previous summary, and queues events for the driver. Events may describe changes that are not committed yet; they are
for people.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from penstock.coordinator.changes import Group, SetClassicGroup
from penstock.coordinator.classic import ClassicGroup, State
from penstock.coordinator.classic import Member as ClassicMember
from penstock.coordinator.consumer import AWAY_EPOCH, ConsumerGroup, Member, MemberState
from penstock.coordinator.groups import GroupShard
from penstock.coordinator.pauses import Pauses
from penstock.coordinator.ports import Now
from penstock.coordinator.requests import GroupAsk, GroupRequest, MemberReply, group_id_of, member_id_of
from penstock.coordinator.settings import NEW_MEMBER_JOIN_MS
from penstock.coordinator.shard import Cause, GroupDecision
from penstock.coordinator.timers import JOIN, REBALANCE, SESSION, SYNC, DropTimer, SetTimer, Timer
from penstock.model.errors import ErrorCode
from penstock.model.group_events import EventKind, GroupEvent
from penstock.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from penstock.wire.messages.heartbeat import HeartbeatRequest
from penstock.wire.messages.join_group import JoinGroupRequest
from penstock.wire.messages.leave_group import LeaveGroupRequest
from penstock.wire.messages.offset_commit import OffsetCommitRequest
from penstock.wire.messages.sync_group import SyncGroupRequest
from penstock.wire.stored.consumer_offsets import OffsetCommitKey

EVENTS_MAX: Final = 1_000
"""Events kept until the driver takes them; the rest is dropped."""
FENCED_TOLD_MS: Final = 60_000
"""A fenced member that keeps sending requests is reported once in this time."""
SAID_MAX: Final = 255
"""Characters of a client's reason (KIP-800), which may be any text."""
NAMED_MAX: Final = 3
"""Members named as the cause of a rebalance; the others are counted."""
_FENCED: Final = (ErrorCode.FENCED_INSTANCE_ID, ErrorCode.FENCED_MEMBER_EPOCH)
_LATE: Final = {
    JOIN: "it did not join in time",
    SYNC: "it did not fetch its assignment in time",
    REBALANCE: "it did not give up partitions in time",
}


class MemberSummary(NamedTuple):
    """A member, as shown to people."""

    client_id: str
    host: str
    instance: str | None
    is_away: bool
    """A static member that has left temporarily: its place is kept for a session."""
    wish: Hashable
    """Its subscription."""


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """The visible state of a group."""

    protocol: str
    epoch: int
    is_settled: bool
    members: dict[str, MemberSummary]


EMPTY_SUMMARY: Final = GroupSummary("classic", 0, True, {})


class Silence(NamedTuple):
    """Silence of an expired member: its last heartbeat, and how long it may be silent."""

    heard_ms: int
    limit_ms: int
    is_new: bool = False
    """It has waited for its first join all that time."""


class DecisionContext(NamedTuple):
    """The group, cause and time of an applied decision."""

    group_id: str
    cause: Cause
    now: Now
    silences: Mapping[str, Silence]
    """Silences of members that may have expired."""


@dataclass(frozen=True, slots=True)
class EventDetails:
    """The member and the reason of an event."""

    member: str | None = None
    client_id: str | None = None
    host: str | None = None
    instance: str | None = None
    reason: str | None = None


NO_DETAILS: Final = EventDetails()


def summary_of(group: Group | None) -> GroupSummary:
    """The summary of a group as it is now."""
    if isinstance(group, ClassicGroup):
        members = {
            each.member_id: MemberSummary(each.client_id, each.client_host, each.instance_id, False, each.protocols)
            for each in group.members.values()
        }
        return GroupSummary("classic", group.generation, group.state in (State.STABLE, State.EMPTY), members)
    if isinstance(group, ConsumerGroup):
        members = {
            each.member_id: MemberSummary(
                each.client_id,
                each.client_host,
                each.instance_id,
                each.epoch == AWAY_EPOCH,
                (each.topics, each.pattern),
            )
            for each in group.members.values()
        }
        is_settled = group.epoch == group.target_epoch and all(
            each.epoch == AWAY_EPOCH or (each.epoch == group.target_epoch and each.state is MemberState.STABLE)
            for each in group.members.values()
        )
        return GroupSummary("consumer", group.epoch, is_settled or not members, members)
    return EMPTY_SUMMARY


class GroupHistory:
    """See the module. `broker` is the coordinator. The history starts over with every shard."""

    def __init__(self, broker: int) -> None:
        self.events: list[GroupEvent] = []
        """Events, which the driver takes and clears."""
        self._broker = broker
        self._seen: dict[str, GroupSummary] = {}
        self._begun_ms: dict[str, int] = {}
        self._pauses: dict[str, Pauses] = {}
        self._first_due_ms: dict[Timer, int] = {}
        """Original due time of timers that were given another chance."""
        self._silences: dict[str, Silence] = {}
        """Silences of members that may have expired by the last decision on a timer."""
        self._fenced_ms: dict[tuple[str, str], int] = {}

    # --- interface to the runtime ---------------------------------------------------------------------------------

    def begun(self, shard: GroupShard, now: Now) -> None:
        """Reports a new coordinator of groups that have members."""
        for group_id, group in shard.groups.items():
            seen = self._seen[group_id] = summary_of(group)
            if not seen.is_settled:
                self._begun_ms[group_id] = now.ms
            if seen.members:
                self._pauses_of(shard, group_id).look(group, now.ms, {})
                self._tell(group_id, EventKind.COORDINATOR_CHANGED, seen, now)

    def decided(self, shard: GroupShard, cause: Cause, decision: GroupDecision) -> None:
        """Saves data of a due timer that is gone once the decision is applied."""
        if isinstance(cause, Timer):
            self._remember_due(shard, decision)
            self._silences = _silences(shard, cause, decision, self._first_due_ms)

    def applied(self, shard: GroupShard, cause: Cause, decision: GroupDecision, now: Now) -> None:
        """Compares the group that was decided about, if it may have changed."""
        fenced = None
        if isinstance(cause, Timer):
            group_id = cause.group_id
        else:
            group_id = group_id_of(cause.request)
            fenced = _fenced(decision)
            if group_id and fenced is not None:
                self._tell_fenced(group_id, cause, fenced, now)
        if group_id and (fenced is not None or _is_changing(decision)):
            silences = self._silences if isinstance(cause, Timer) else {}
            self._look(shard, DecisionContext(group_id, cause, now, silences))

    def ended(self) -> None:
        """Clears everything: the next shard may have less state, or more."""
        self.events = []
        for each in (self._seen, self._begun_ms, self._pauses, self._first_due_ms, self._silences, self._fenced_ms):
            each.clear()

    def _remember_due(self, shard: GroupShard, decision: GroupDecision) -> None:
        """Saves when a timer was due before its first chance."""
        for change in decision.changes:
            if isinstance(change, SetTimer) and change.chances == 1:
                if len(self._first_due_ms) >= EVENTS_MAX:
                    self._first_due_ms.clear()
                due_ms = shard.timers.get(change.timer)
                if due_ms is not None:
                    self._first_due_ms[change.timer] = due_ms

    # --- comparing ------------------------------------------------------------------------------------------------

    def _look(self, shard: GroupShard, context: DecisionContext) -> None:
        group_id, cause, now = context.group_id, context.cause, context.now
        before = self._seen.get(group_id, EMPTY_SUMMARY)
        group = shard.groups.get(group_id)
        after = summary_of(group)
        if group is None:
            self._forget_group(group_id)
        else:
            self._seen[group_id] = after
            self._look_for_pauses(shard, group, context)
        if before.epoch and group is not None and before.protocol != after.protocol:
            self._tell(group_id, EventKind.CONVERTED, after, now, EventDetails(reason=_why_converted(after, cause)))
        reasons = self._tell_members(group_id, before, after, context)
        has_begun = before.is_settled and not after.is_settled
        is_new_epoch = after.protocol == "consumer" and after.epoch != before.epoch and bool(after.members)
        if has_begun or is_new_epoch:
            self._begun_ms.setdefault(group_id, now.ms)
            details = EventDetails(reason=_listed(reasons)) if reasons else _without_members(before, after, cause)
            self._tell(group_id, EventKind.REBALANCE_BEGUN, after, now, details)
        if group_id in self._begun_ms and after.is_settled and not _does_anybody_wait(shard, group):
            took_ms = now.ms - self._begun_ms.pop(group_id)
            pause_ms = self._pauses_of(shard, group_id).finish(now.ms)
            self._tell(group_id, EventKind.REBALANCE_DONE, after, now, took_ms=took_ms, pause_ms=pause_ms)
        if not after.members:
            self._pauses.pop(group_id, None)

    def _forget_group(self, group_id: str) -> None:
        self._seen.pop(group_id, None)
        self._begun_ms.pop(group_id, None)
        self._pauses.pop(group_id, None)

    def _pauses_of(self, shard: GroupShard, group_id: str) -> Pauses:
        if group_id not in self._pauses:
            self._pauses[group_id] = Pauses(lambda: shard.topics, lambda group, each: _owes_sync(shard, group, each))
        return self._pauses[group_id]

    def _look_for_pauses(self, shard: GroupShard, group: Group, context: DecisionContext) -> None:
        pauses = self._pauses_of(shard, context.group_id)
        if context.group_id not in self._begun_ms:
            pauses.begin()
        pauses.look(group, context.now.ms, {each: silence.heard_ms for each, silence in context.silences.items()})

    def _tell_members(
        self, group_id: str, before: GroupSummary, after: GroupSummary, context: DecisionContext
    ) -> list[str]:
        """Reports members that joined or left; returns the same as sentences."""
        cause, now = context.cause, context.now
        reasons = []
        came = {each: member for each, member in after.members.items() if each not in before.members}
        went = {each: member for each, member in before.members.items() if each not in after.members}
        names = [member.instance for member in came.values() if member.instance is not None]
        former = [member.instance for member in went.values() if member.instance is not None]
        for member_id, member in went.items():
            if member.instance in names:
                continue  # the same static member, under another id
            kind, reason = _how_it_went(member_id, member, context)
            self._tell(group_id, kind, after, now, _of(member_id, member, reason))
            reasons.append(f"{_named(member_id, member)} {_VERBS[kind]}")
        for member_id, member in after.members.items():
            if member_id in came:
                is_back = member.instance in former
                reason = "it is back under its name" if is_back else _said_on_joining(cause)
                self._tell(group_id, EventKind.JOINED, after, now, _of(member_id, member, reason))
                if not is_back:
                    reasons.append(f"{_named(member_id, member)} joined")
            elif member.is_away and not before.members[member_id].is_away:
                reason = "its place is kept for a session"
                self._tell(group_id, EventKind.LEFT, after, now, _of(member_id, member, reason))
        return reasons

    def _tell_fenced(self, group_id: str, ask: GroupAsk, code: ErrorCode, now: Now) -> None:
        member_id = member_id_of(ask.request)
        key = (group_id, member_id)
        if now.ms - self._fenced_ms.get(key, -FENCED_TOLD_MS) < FENCED_TOLD_MS:
            return
        if len(self._fenced_ms) >= EVENTS_MAX:
            self._fenced_ms.clear()
        self._fenced_ms[key] = now.ms
        is_instance = code is ErrorCode.FENCED_INSTANCE_ID
        reason = "another process has its instance id" if is_instance else "it came with an epoch that is over"
        member = MemberSummary(ask.client_id, ask.client_host, _instance_of(ask.request), False, None)
        seen = self._seen.get(group_id, EMPTY_SUMMARY)
        self._tell(group_id, EventKind.FENCED, seen, now, _of(member_id, member, reason))

    def _tell(
        self,
        group_id: str,
        kind: EventKind,
        seen: GroupSummary,
        now: Now,
        details: EventDetails = NO_DETAILS,
        *,
        took_ms: int | None = None,
        pause_ms: int | None = None,
    ) -> None:
        if len(self.events) < EVENTS_MAX:
            self.events.append(
                GroupEvent(
                    group_id,
                    kind,
                    now.wall_ms,
                    seen.protocol,
                    seen.epoch,
                    details.member,
                    details.client_id,
                    details.host,
                    details.instance,
                    details.reason,
                    len(seen.members),
                    took_ms,
                    pause_ms,
                    self._broker,
                )
            )


# --- silence ----------------------------------------------------------------------------------------------------------


def _silences(
    shard: GroupShard, cause: Timer, decision: GroupDecision, first_due_ms: Mapping[Timer, int]
) -> dict[str, Silence]:
    """Silences of members whose sessions end with the decision."""
    found = {}
    group = shard.groups.get(cause.group_id)
    dropped = {each.timer: None for each in decision.changes if isinstance(each, DropTimer)}
    for timer in [each for each in dropped if each.kind == SESSION]:
        due_ms = shard.timers.get(timer)
        if timer == cause:
            due_ms = first_due_ms.get(timer, due_ms)
        member = None if group is None else group.members.get(timer.member_id)
        if due_ms is not None and member is not None:
            is_new = not isinstance(member, Member) and member.is_new
            limit_ms = NEW_MEMBER_JOIN_MS if is_new else _session_ms(shard, cause.group_id, member)
            found[timer.member_id] = Silence(due_ms - limit_ms, limit_ms, is_new)
    return found


def _session_ms(shard: GroupShard, group_id: str, member: ClassicMember | Member) -> int:
    if not isinstance(member, Member):
        return member.session_timeout_ms
    if member.classic is not None:
        return member.classic.session_timeout_ms
    return shard.settings_of(group_id).consumer_session_ms


def _owes_sync(shard: GroupShard, group: ConsumerGroup, member: Member) -> bool:
    """Whether a classic member in a consumer group has yet to sync."""
    return shard.timers.get(Timer(SYNC, group.group_id, member.member_id)) is not None


def _does_anybody_wait(shard: GroupShard, group: Group | None) -> bool:
    """Whether a member has yet to fetch its assignment."""
    if isinstance(group, ClassicGroup):
        return any(each.owes_sync for each in group.members.values())
    if isinstance(group, ConsumerGroup):
        return any(each.classic is not None and _owes_sync(shard, group, each) for each in group.members.values())
    return False


# --- in words ---------------------------------------------------------------------------------------------------------

_VERBS: Final = {EventKind.LEFT: "left", EventKind.TIMED_OUT: "timed out"}


def _is_changing(decision: GroupDecision) -> bool:
    """Whether a decision may change the visible state of a group."""
    return any(type(each.key) is not OffsetCommitKey for each in decision.records) or any(
        isinstance(each, SetClassicGroup) or (isinstance(each, SetTimer | DropTimer) and each.timer.kind == SYNC)
        for each in decision.changes
    )


def _fenced(decision: GroupDecision) -> ErrorCode | None:
    """The error by which a reply fences a member, if any does."""
    for _, reply in decision.replies:
        if isinstance(reply, MemberReply) and reply.error_code in _FENCED:
            return reply.error_code
    return None


def _instance_of(request: GroupRequest) -> str | None:
    if isinstance(request, JoinGroupRequest | SyncGroupRequest | HeartbeatRequest | OffsetCommitRequest):
        return request.group_instance_id
    return None


def _how_it_went(member_id: str, member: MemberSummary, context: DecisionContext) -> tuple[EventKind, str | None]:
    cause = context.cause
    if isinstance(cause, Timer):
        silence = context.silences.get(member_id)
        if cause.kind == SESSION and silence is not None:
            return EventKind.TIMED_OUT, _silent(silence, context.now)
        return EventKind.TIMED_OUT, _LATE.get(cause.kind)
    request = cause.request
    if isinstance(request, LeaveGroupRequest):
        return EventKind.LEFT, _said_on_leaving(request, member_id, member.instance)
    if isinstance(request, ConsumerGroupHeartbeatRequest) and request.member_epoch < 0:
        return EventKind.LEFT, None
    return EventKind.TIMED_OUT, _LATE[JOIN]


def _silent(silence: Silence, now: Now) -> str:
    limit = f"{silence.limit_ms / 1000:g} s"
    if silence.is_new:
        return f"it waited for {limit} to be let in"
    return f"not heard for {(now.ms - silence.heard_ms) / 1000:.1f} s (its session: {limit})"


def _said_on_leaving(request: LeaveGroupRequest, member_id: str, instance: str | None) -> str | None:
    for each in request.members:
        if each.member_id == member_id or (not each.member_id and each.group_instance_id == instance):
            return _said(each.reason)
    return None


def _said_on_joining(cause: Cause) -> str | None:
    request = None if isinstance(cause, Timer) else cause.request
    return _said(request.reason) if isinstance(request, JoinGroupRequest) else None


def _said(reason: str | None) -> str | None:
    """A client's reason (KIP-800), marked as its words."""
    return f"it said: {reason[:SAID_MAX]}" if reason else None


def _listed(reasons: list[str]) -> str:
    more = len(reasons) - NAMED_MAX
    return "; ".join(reasons[:NAMED_MAX]) + (f"; and {more} more members" if more > 0 else "")


def _why_converted(after: GroupSummary, cause: Cause) -> str:
    member_id = "" if isinstance(cause, Timer) else member_id_of(cause.request)
    member = after.members.get(member_id)
    if after.protocol == "consumer":
        newcomer = "a member" if member is None else _named(member_id, member)
        return f"it became a consumer group, as {newcomer} speaks the new protocol"
    if not isinstance(cause, Timer) and isinstance(cause.request, JoinGroupRequest):
        return "it became a classic group, as a classic member joined while nobody was in it"
    return "it became a classic group again, as nobody is left who speaks the new protocol"


def _without_members(before: GroupSummary, after: GroupSummary, cause: Cause) -> EventDetails:
    """The reason of a rebalance without members that joined or left."""
    if before.protocol != after.protocol:
        return EventDetails(reason=_why_converted(after, cause))
    for member_id, member in after.members.items():
        known = before.members.get(member_id)
        if known is not None and known.wish != member.wish:
            return _again(member_id, member, cause, ", with other wishes or partitions")
    if isinstance(cause, Timer):
        return EventDetails(reason="time is up")
    member_id = member_id_of(cause.request)
    sender = after.members.get(member_id)
    if after.protocol == "consumer" or sender is None:
        return EventDetails(reason="topics have changed, or a member joined again")
    return _again(member_id, sender, cause)


def _again(member_id: str, member: MemberSummary, cause: Cause, how: str = "") -> EventDetails:
    is_its_own = not isinstance(cause, Timer) and member_id_of(cause.request) == member_id
    said = _said_on_joining(cause) if is_its_own else None
    reason = f"{_named(member_id, member)} joined again{how}" + (f"; {said}" if said else "")
    return _of(member_id, member, reason)


def _of(member_id: str, member: MemberSummary, reason: str | None) -> EventDetails:
    return EventDetails(member_id, member.client_id, member.host, member.instance, reason)


def _named(member_id: str, member: MemberSummary) -> str:
    return member.instance or member_id
