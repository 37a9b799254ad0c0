"""What happens to groups, told as events: who joined, left or timed out, when a rebalance began and how long it took.

The shard of groups, watching itself. It decides nothing more: when what was decided is applied, it looks at the group,
compares it with how it looked before, and puts events where the driver takes them. What is told may not be committed
yet; it is for people.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from penstock.coordinator.classic import ClassicGroup, State
from penstock.coordinator.consumer import AWAY_EPOCH, ConsumerGroup, MemberState
from penstock.coordinator.groups import GroupShard
from penstock.coordinator.outcome import Outcome
from penstock.coordinator.ports import Now
from penstock.coordinator.settings import GroupSettings
from penstock.coordinator.timers import JOIN, REBALANCE, SESSION, SYNC, Timer
from penstock.coordinator.topics import Topics
from penstock.coordinator.work import Ask, Replace
from penstock.model.errors import ErrorCode
from penstock.model.group_events import EventKind, GroupEvent
from penstock.model.ports import Entropy
from penstock.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from penstock.wire.messages.leave_group import LeaveGroupRequest
from penstock.wire.stored.consumer_offsets import OffsetCommitKey

EVENTS_MAX: Final = 1_000
"""Kept until the driver takes them; the rest is not told."""
FENCED_TOLD_MS: Final = 60_000
"""Somebody who is fenced and goes on asking is told of once in this time."""
_FENCED: Final = (ErrorCode.FENCED_INSTANCE_ID, ErrorCode.FENCED_MEMBER_EPOCH)
_LATE: Final = {
    SESSION: "it was not heard for a session",
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


class Looked(NamedTuple):
    """A note: what was decided about a group is applied; look at it."""

    group_id: str
    cause: Any
    fenced: ErrorCode | None
    """Why whoever asked is told that it is no member any more."""
    now: Now


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
        *,
        broker: int,
    ) -> None:
        super().__init__(settings, entropy, topics, of_group)
        self.events: list[GroupEvent] = []
        """What the driver takes, and empties."""
        self._broker = broker
        self._seen: dict[str, Portrait] = {}
        self._begun_ms: dict[str, int] = {}
        self._fenced_ms: dict[tuple[str, str], int] = {}

    # --- as the runtime sees it -----------------------------------------------------------------------------------

    def note(self, note: Any) -> None:
        """Takes in what the log need not know."""
        if isinstance(note, Looked):
            self._look(note)
        else:
            super().note(note)

    def begin(self, now: Now) -> None:
        """All of the log is applied: groups that have members have a new coordinator."""
        super().begin(now)
        for group_id, group in self.groups.items():
            seen = self._seen[group_id] = portrait(group)
            if not seen.is_settled:
                self._begun_ms[group_id] = now.ms
            if seen.members:
                self._tell(group_id, EventKind.COORDINATOR_CHANGED, seen, now, broker=self._broker)

    def decide(self, command: Any, ticket: int, now: Now) -> Outcome:
        """What follows from a command."""
        outcome = super().decide(command, ticket, now)
        if not isinstance(command, Ask) or not (group_id := getattr(command.request, "group_id", "")):
            return outcome
        return _looked(outcome, group_id, command, now)

    def expire(self, timer: Timer, now: Now) -> Outcome:
        """What follows from a timer that is due."""
        return _looked(super().expire(timer, now), timer.group_id, timer, now)

    # --- looking --------------------------------------------------------------------------------------------------

    def _look(self, note: Looked) -> None:
        group_id, cause, fenced, now = note
        if fenced is not None:
            self._tell_fenced(group_id, cause, fenced, now)
        before = self._seen.get(group_id, NOBODY)
        after = portrait(self.groups.get(group_id))
        if after is NOBODY:
            self._seen.pop(group_id, None)
            self._begun_ms.pop(group_id, None)
        else:
            self._seen[group_id] = after
        reasons = self._tell_members(group_id, before, after, cause, now)
        has_begun = before.is_settled and not after.is_settled
        is_new_epoch = after.protocol == "consumer" and after.epoch != before.epoch and bool(after.members)
        if has_begun or is_new_epoch:
            self._begun_ms.setdefault(group_id, now.ms)
            reason = "; ".join(reasons) or _without_members(before, after, cause)
            self._tell(group_id, EventKind.REBALANCE_BEGUN, after, now, reason=reason)
        if after.is_settled and group_id in self._begun_ms:
            pause_ms = now.ms - self._begun_ms.pop(group_id)
            self._tell(group_id, EventKind.REBALANCE_DONE, after, now, pause_ms=pause_ms)

    def _tell_members(self, group_id: str, before: Portrait, after: Portrait, cause: Any, now: Now) -> list[str]:
        """Who came and who went; the same as sentences."""
        reasons = []
        came = {each: who for each, who in after.members.items() if each not in before.members}
        went = {each: who for each, who in before.members.items() if each not in after.members}
        names = [who.instance for who in came.values() if who.instance is not None]
        former = [who.instance for who in went.values() if who.instance is not None]
        for member_id, who in went.items():
            if who.instance in names:
                continue  # the same, under another id
            kind, reason = _how_it_went(cause)
            self._tell_of(group_id, kind, after, now, member_id, who, reason)
            reasons.append(f"{_named(member_id, who)} {_VERBS[kind]}")
        for member_id, who in after.members.items():
            if member_id in came:
                is_back = who.instance in former
                reason = "it is back under its name" if is_back else None
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
        self._tell(
            group_id,
            kind,
            seen,
            now,
            member=member_id,
            client_id=who.client_id,
            host=who.host,
            instance=who.instance,
            reason=reason,
        )

    def _tell(self, group_id: str, kind: EventKind, seen: Portrait, now: Now, **told: Any) -> None:
        if len(self.events) < EVENTS_MAX:
            members = len(seen.members)
            self.events.append(
                GroupEvent(group_id, kind, now.wall_ms, seen.protocol, seen.epoch, members=members, **told)
            )


_VERBS: Final = {EventKind.LEFT: "left", EventKind.TIMED_OUT: "timed out"}


def _looked(outcome: Outcome, group_id: str, cause: Any, now: Now) -> Outcome:
    """With a look at the group behind it, if there can be something to tell."""
    codes = [getattr(reply, "error_code", None) for _, reply in outcome.replies]
    fenced = next((code for code in codes if code in _FENCED), None) if isinstance(cause, Ask) else None
    is_changed = any(type(each.key) is not OffsetCommitKey for each in outcome.records) or any(
        isinstance(each, Replace) for each in outcome.notes
    )
    if not group_id or not (is_changed or fenced is not None):
        return outcome
    return outcome._replace(notes=(*outcome.notes, Looked(group_id, cause, fenced, now)))


def _how_it_went(cause: Any) -> tuple[EventKind, str | None]:
    if isinstance(cause, Timer):
        return EventKind.TIMED_OUT, _LATE.get(cause.kind)
    request = cause.request
    is_leaving = isinstance(request, LeaveGroupRequest) or (
        isinstance(request, ConsumerGroupHeartbeatRequest) and request.member_epoch < 0
    )
    return (EventKind.LEFT, None) if is_leaving else (EventKind.TIMED_OUT, _LATE[JOIN])


def _without_members(before: Portrait, after: Portrait, cause: Any) -> str:
    """Why a rebalance began although nobody came or went."""
    for member_id, who in after.members.items():
        known = before.members.get(member_id)
        if known is not None and known.wish != who.wish:
            return f"{_named(member_id, who)} joined again, with other wishes or partitions"
    if isinstance(cause, Timer):
        return "time is up"
    who_asked = after.members.get(getattr(cause.request, "member_id", ""))
    if after.protocol == "consumer" or who_asked is None:
        return "topics have changed, or a member joined again"
    return f"{_named(cause.request.member_id, who_asked)} joined again"


def _named(member_id: str, who: Who) -> str:
    return who.instance or member_id
