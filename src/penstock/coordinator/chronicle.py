"""What happens to groups, told as events: who joined, left or timed out, when a rebalance began, how long it took.

The shard of groups, watching itself. It decides nothing more: when what was decided is applied, it looks at the group,
compares it with how it looked before, and puts events where the driver takes them. What is told may not be committed
yet; it is for people.
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from penstock.coordinator.classic import ClassicGroup, State
from penstock.coordinator.classic import Member as ClassicMember
from penstock.coordinator.consumer import AWAY_EPOCH, ConsumerGroup, Member, MemberState
from penstock.coordinator.groups import GroupShard
from penstock.coordinator.outcome import Outcome
from penstock.coordinator.pauses import Pauses
from penstock.coordinator.ports import Now
from penstock.coordinator.settings import NEW_MEMBER_JOIN_MS, GroupSettings
from penstock.coordinator.timers import JOIN, REBALANCE, SESSION, SYNC, DropTimer, SetTimer, Timer
from penstock.coordinator.topics import Topics
from penstock.coordinator.work import Ask, Replace
from penstock.model.errors import ErrorCode
from penstock.model.group_events import EventKind, GroupEvent
from penstock.model.ports import Entropy
from penstock.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from penstock.wire.messages.join_group import JoinGroupRequest
from penstock.wire.messages.leave_group import LeaveGroupRequest
from penstock.wire.stored.consumer_offsets import OffsetCommitKey

EVENTS_MAX: Final = 1_000
"""Kept until the driver takes them; the rest is not told."""
FENCED_TOLD_MS: Final = 60_000
"""Somebody who is fenced and goes on asking is told of once in this time."""
SAID_MAX: Final = 255
"""Characters of what a client says why (KIP-800); anybody can say anything."""
NAMED_MAX: Final = 3
"""Members by whom a rebalance is explained; the others are counted."""
_FENCED: Final = (ErrorCode.FENCED_INSTANCE_ID, ErrorCode.FENCED_MEMBER_EPOCH)
_LATE: Final = {
    JOIN: "it did not join in time",
    SYNC: "it did not fetch its assignment in time",
    REBALANCE: "it did not give up partitions in time",
}


class Who(NamedTuple):
    """A member, as people know it."""

    client_id: str
    host: str
    instance: str | None
    is_away: bool
    """A static member that will be back: its place is kept for a session."""
    wish: Hashable
    """What it wants to read."""


@dataclass(frozen=True, slots=True)
class Portrait:
    """How a group looks from outside."""

    protocol: str
    epoch: int
    is_settled: bool
    members: dict[str, Who]


NOBODY: Final = Portrait("classic", 0, True, {})


class Silence(NamedTuple):
    """Of a member that is taken for gone: when it was last heard, and how long it may be silent."""

    heard_ms: int
    limit_ms: int
    is_new: bool = False
    """It has waited to be let in all that time."""


class Looked(NamedTuple):
    """A note: what was decided about a group is applied; look at it."""

    group_id: str
    cause: Any
    now: Now
    fenced: ErrorCode | None = None
    """Why whoever asked is told that it is no member any more."""
    silences: Mapping[str, Silence] = {}
    """Of members whose time may be up."""


def portrait(group: ClassicGroup | ConsumerGroup | None) -> Portrait:
    """Of a group as it is now."""
    if isinstance(group, ClassicGroup):
        members = {
            each.member_id: Who(each.client_id, each.client_host, each.instance_id, False, each.protocols)
            for each in group.members.values()
        }
        return Portrait("classic", group.generation, group.state in (State.STABLE, State.EMPTY), members)
    if isinstance(group, ConsumerGroup):
        members = {
            each.member_id: Who(
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
        return Portrait("consumer", group.epoch, is_settled or not members, members)
    return NOBODY


class ChronicledShard(GroupShard):
    """See the module. `broker` is this one."""

    def __init__(
        self,
        settings: GroupSettings,
        entropy: Entropy,
        topics: Callable[[], Topics],
        of_group: Callable[[str], GroupSettings] | None = None,
        held_by_all: Callable[[], int] | None = None,
        *,
        broker: int,
    ) -> None:
        super().__init__(settings, entropy, topics, of_group, held_by_all)
        self.events: list[GroupEvent] = []
        """What the driver takes, and empties."""
        self._broker = broker
        self._seen: dict[str, Portrait] = {}
        self._begun_ms: dict[str, int] = {}
        self._pauses: dict[str, Pauses] = {}
        self._first_due_ms: dict[Timer, int] = {}
        """Of timers that were put off, to give members another chance."""
        self._fenced_ms: dict[tuple[str, str], int] = {}

    # --- as the runtime sees it -----------------------------------------------------------------------------------

    def note(self, note: Any) -> None:
        """Takes in what the log need not know."""
        if isinstance(note, Looked):
            self._look(note)
            return
        if isinstance(note, SetTimer) and note.chances == 1:
            self._remember_due(note.timer)
        super().note(note)

    def begin(self, now: Now) -> None:
        """All of the log is applied: groups that have members have a new coordinator."""
        super().begin(now)
        for group_id, group in self.groups.items():
            seen = self._seen[group_id] = portrait(group)
            if not seen.is_settled:
                self._begun_ms[group_id] = now.ms
            if seen.members:
                self._pauses_of(group_id).look(group, now.ms, {})
                self._tell(group_id, EventKind.COORDINATOR_CHANGED, seen, now)

    def decide(self, command: Any, ticket: int, now: Now) -> Outcome:
        """What follows from a command."""
        outcome = super().decide(command, ticket, now)
        if not isinstance(command, Ask) or not (group_id := getattr(command.request, "group_id", "")):
            return outcome
        codes = [getattr(reply, "error_code", None) for _, reply in outcome.replies]
        fenced = next((code for code in codes if code in _FENCED), None)
        if fenced is None and not _is_changing(outcome):
            return outcome
        return outcome._replace(notes=(*outcome.notes, Looked(group_id, command, now, fenced)))

    def expire(self, timer: Timer, now: Now) -> Outcome:
        """What follows from a timer that is due."""
        outcome = super().expire(timer, now)
        if not timer.group_id or not _is_changing(outcome):
            return outcome
        looked = Looked(timer.group_id, timer, now, silences=self._silences(timer, outcome))
        return outcome._replace(notes=(*outcome.notes, looked))

    # --- silence --------------------------------------------------------------------------------------------------

    def _remember_due(self, timer: Timer) -> None:
        if len(self._first_due_ms) >= EVENTS_MAX:
            self._first_due_ms.clear()
        due_ms = self.timers.get(timer)
        if due_ms is not None:
            self._first_due_ms[timer] = due_ms

    def _silences(self, cause: Timer, outcome: Outcome) -> dict[str, Silence]:
        """Of members whose sessions end with what was decided."""
        found = {}
        group = self.groups.get(cause.group_id)
        dropped = {each.timer: None for each in outcome.notes if isinstance(each, DropTimer)}
        for timer in [each for each in dropped if each.kind == SESSION]:
            due_ms = self.timers.get(timer)
            if timer == cause:
                due_ms = self._first_due_ms.get(timer, due_ms)
            member = None if group is None else group.members.get(timer.member_id)
            if due_ms is not None and member is not None:
                is_new = not isinstance(member, Member) and member.is_new
                limit_ms = NEW_MEMBER_JOIN_MS if is_new else self._session_ms(cause.group_id, member)
                found[timer.member_id] = Silence(due_ms - limit_ms, limit_ms, is_new)
        return found

    def _session_ms(self, group_id: str, member: ClassicMember | Member) -> int:
        if not isinstance(member, Member):
            return member.session_timeout_ms
        if member.classic is not None:
            return member.classic.session_timeout_ms
        return self._settings_of(group_id).consumer_session_ms

    # --- looking --------------------------------------------------------------------------------------------------

    def _look(self, note: Looked) -> None:
        group_id, cause, now = note.group_id, note.cause, note.now
        if note.fenced is not None:
            self._tell_fenced(group_id, cause, note.fenced, now)
        before = self._seen.get(group_id, NOBODY)
        group = self.groups.get(group_id)
        after = portrait(group)
        if group is None:
            self._forget_group(group_id)
        else:
            self._seen[group_id] = after
            self._look_for_pauses(group, note)
        if before.epoch and group is not None and before.protocol != after.protocol:
            self._tell(group_id, EventKind.CONVERTED, after, now, reason=_why_converted(after, cause))
        reasons = self._tell_members(group_id, before, after, note)
        has_begun = before.is_settled and not after.is_settled
        is_new_epoch = after.protocol == "consumer" and after.epoch != before.epoch and bool(after.members)
        if has_begun or is_new_epoch:
            self._begun_ms.setdefault(group_id, now.ms)
            told = {"reason": _listed(reasons)} if reasons else _without_members(before, after, cause)
            self._tell(group_id, EventKind.REBALANCE_BEGUN, after, now, **told)
        if group_id in self._begun_ms and after.is_settled and not self._does_anybody_wait(group):
            took_ms = now.ms - self._begun_ms.pop(group_id)
            pause_ms = self._pauses_of(group_id).finish(now.ms)
            self._tell(group_id, EventKind.REBALANCE_DONE, after, now, took_ms=took_ms, pause_ms=pause_ms)
        if not after.members:
            self._pauses.pop(group_id, None)

    def _forget_group(self, group_id: str) -> None:
        self._seen.pop(group_id, None)
        self._begun_ms.pop(group_id, None)
        self._pauses.pop(group_id, None)

    def _pauses_of(self, group_id: str) -> Pauses:
        if group_id not in self._pauses:
            self._pauses[group_id] = Pauses(self._topics, self._owes_sync)
        return self._pauses[group_id]

    def _look_for_pauses(self, group: ClassicGroup | ConsumerGroup, note: Looked) -> None:
        pauses = self._pauses_of(note.group_id)
        if note.group_id not in self._begun_ms:
            pauses.begin()
        pauses.look(group, note.now.ms, {each: silence.heard_ms for each, silence in note.silences.items()})

    def _owes_sync(self, group: ConsumerGroup, member: Member) -> bool:
        """Of a classic member in a consumer group."""
        return self.timers.get(Timer(SYNC, group.group_id, member.member_id)) is not None

    def _does_anybody_wait(self, group: ClassicGroup | ConsumerGroup | None) -> bool:
        """Whether somebody has yet to fetch what it is to read."""
        if isinstance(group, ClassicGroup):
            return any(each.owes_sync for each in group.members.values())
        if isinstance(group, ConsumerGroup):
            return any(each.classic is not None and self._owes_sync(group, each) for each in group.members.values())
        return False

    def _tell_members(self, group_id: str, before: Portrait, after: Portrait, note: Looked) -> list[str]:
        """Who came and who went; the same as sentences."""
        cause, now = note.cause, note.now
        reasons = []
        came = {each: who for each, who in after.members.items() if each not in before.members}
        went = {each: who for each, who in before.members.items() if each not in after.members}
        names = [who.instance for who in came.values() if who.instance is not None]
        former = [who.instance for who in went.values() if who.instance is not None]
        for member_id, who in went.items():
            if who.instance in names:
                continue  # the same, under another id
            kind, reason = _how_it_went(member_id, who, note)
            self._tell_of(group_id, kind, after, now, member_id, who, reason)
            reasons.append(f"{_named(member_id, who)} {_VERBS[kind]}")
        for member_id, who in after.members.items():
            if member_id in came:
                is_back = who.instance in former
                reason = "it is back under its name" if is_back else _said_on_joining(cause)
                self._tell_of(group_id, EventKind.JOINED, after, now, member_id, who, reason)
                if not is_back:
                    reasons.append(f"{_named(member_id, who)} joined")
            elif who.is_away and not before.members[member_id].is_away:
                reason = "its place is kept for a session"
                self._tell_of(group_id, EventKind.LEFT, after, now, member_id, who, reason)
        return reasons

    def _tell_fenced(self, group_id: str, ask: Ask, code: ErrorCode, now: Now) -> None:
        member_id = getattr(ask.request, "member_id", "")
        key = (group_id, member_id)
        if now.ms - self._fenced_ms.get(key, -FENCED_TOLD_MS) < FENCED_TOLD_MS:
            return
        if len(self._fenced_ms) >= EVENTS_MAX:
            self._fenced_ms.clear()
        self._fenced_ms[key] = now.ms
        is_instance = code is ErrorCode.FENCED_INSTANCE_ID
        reason = "another process has its instance id" if is_instance else "it came with an epoch that is over"
        who = Who(ask.client_id, ask.client_host, getattr(ask.request, "group_instance_id", None), False, None)
        self._tell_of(group_id, EventKind.FENCED, self._seen.get(group_id, NOBODY), now, member_id, who, reason)

    def _tell_of(
        self,
        group_id: str,
        kind: EventKind,
        seen: Portrait,
        now: Now,
        member_id: str,
        who: Who,
        reason: str | None,
    ) -> None:
        self._tell(group_id, kind, seen, now, **_of(member_id, who, reason))

    def _tell(self, group_id: str, kind: EventKind, seen: Portrait, now: Now, **told: Any) -> None:
        if len(self.events) < EVENTS_MAX:
            members = len(seen.members)
            self.events.append(
                GroupEvent(
                    group_id,
                    kind,
                    now.wall_ms,
                    seen.protocol,
                    seen.epoch,
                    members=members,
                    broker=self._broker,
                    **told,
                )
            )


_VERBS: Final = {EventKind.LEFT: "left", EventKind.TIMED_OUT: "timed out"}


def _is_changing(outcome: Outcome) -> bool:
    """Whether a group may look different afterwards."""
    return any(type(each.key) is not OffsetCommitKey for each in outcome.records) or any(
        isinstance(each, Replace) or (isinstance(each, SetTimer | DropTimer) and each.timer.kind == SYNC)
        for each in outcome.notes
    )


def _how_it_went(member_id: str, who: Who, note: Looked) -> tuple[EventKind, str | None]:
    cause = note.cause
    if isinstance(cause, Timer):
        silence = note.silences.get(member_id)
        if cause.kind == SESSION and silence is not None:
            return EventKind.TIMED_OUT, _silent(silence, note.now)
        return EventKind.TIMED_OUT, _LATE.get(cause.kind)
    request = cause.request
    if isinstance(request, LeaveGroupRequest):
        return EventKind.LEFT, _said_on_leaving(request, member_id, who.instance)
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


def _said_on_joining(cause: Any) -> str | None:
    is_join = isinstance(cause, Ask) and isinstance(cause.request, JoinGroupRequest)
    return _said(cause.request.reason) if is_join else None


def _said(reason: str | None) -> str | None:
    """What a client says (KIP-800), told as its words."""
    return f"it said: {reason[:SAID_MAX]}" if reason else None


def _listed(reasons: list[str]) -> str:
    more = len(reasons) - NAMED_MAX
    return "; ".join(reasons[:NAMED_MAX]) + (f"; and {more} more members" if more > 0 else "")


def _why_converted(after: Portrait, cause: Any) -> str:
    member_id = "" if isinstance(cause, Timer) else getattr(cause.request, "member_id", "")
    who = after.members.get(member_id)
    if after.protocol == "consumer":
        newcomer = "a member" if who is None else _named(member_id, who)
        return f"it became a consumer group, as {newcomer} speaks the new protocol"
    if isinstance(cause, Ask) and isinstance(cause.request, JoinGroupRequest):
        return "it became a classic group, as a classic member joined while nobody was in it"
    return "it became a classic group again, as nobody is left who speaks the new protocol"


def _without_members(before: Portrait, after: Portrait, cause: Any) -> dict[str, Any]:
    """Why a rebalance began although nobody came or went."""
    if before.protocol != after.protocol:
        return {"reason": _why_converted(after, cause)}
    for member_id, who in after.members.items():
        known = before.members.get(member_id)
        if known is not None and known.wish != who.wish:
            return _again(member_id, who, cause, ", with other wishes or partitions")
    if isinstance(cause, Timer):
        return {"reason": "time is up"}
    member_id = getattr(cause.request, "member_id", "")
    who_asked = after.members.get(member_id)
    if after.protocol == "consumer" or who_asked is None:
        return {"reason": "topics have changed, or a member joined again"}
    return _again(member_id, who_asked, cause)


def _again(member_id: str, who: Who, cause: Any, how: str = "") -> dict[str, Any]:
    is_its_own = isinstance(cause, Ask) and getattr(cause.request, "member_id", "") == member_id
    said = _said_on_joining(cause) if is_its_own else None
    reason = f"{_named(member_id, who)} joined again{how}" + (f"; {said}" if said else "")
    return _of(member_id, who, reason)


def _of(member_id: str, who: Who, reason: str | None) -> dict[str, Any]:
    """The fields of an event that tell about whom it is."""
    return {
        "member": member_id,
        "client_id": who.client_id,
        "host": who.host,
        "instance": who.instance,
        "reason": reason,
    }


def _named(member_id: str, who: Who) -> str:
    return who.instance or member_id
