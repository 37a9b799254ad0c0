"""The shard runtime: decide, append, apply at once, answer when committed; load on election, unload on loss.

Invariants: everything that a reply depends on is committed when it is sent, reads included; a shard that is not loaded
to the end of its log decides nothing; events of another leader epoch are ignored (R26); a loss of leadership, or an
append with an unknown outcome, discards the whole shard, and waiting requests get NOT_COORDINATOR. A refused append
leaves everything as it was, and fails only its request. While another broker may lead, no request is served and no
timer expires.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final, Generic, TypeVar, assert_never

from penstock.coordinator.events import (
    Answer,
    Asked,
    AskedTogether,
    Committed,
    Effect,
    Elected,
    Event,
    Leased,
    LogRead,
    ReadFailed,
    ReadLog,
    Refuse,
    Resigned,
    TimePassed,
    TopicsDeleted,
    TransactionEnded,
)
from penstock.coordinator.ports import AppendLost, AppendRefused, Now, ShardLog
from penstock.coordinator.requests import GroupReply
from penstock.coordinator.shard import Cause, GroupDecision, Observer, Shard
from penstock.model.errors import ErrorCode
from penstock.model.replies import ReplyQueue

RETRY_MS: Final = 500
"""A timer whose decision could not be appended is retried after this."""
TIMERS_PER_STEP_MAX: Final = 100
"""So that a thousand members that time out at once do not delay other requests."""


class Role(Enum):
    """State of a shard on this broker."""

    ELSEWHERE = "elsewhere"
    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"


MOVES: Final = {
    (Role.ELSEWHERE, Role.LOADING): "this broker is elected",
    (Role.LOADING, Role.LOADING): "it is elected again before it has read everything",
    (Role.LOADING, Role.ACTIVE): "the log is read to where it ended at the election",
    (Role.LOADING, Role.FAILED): "the log cannot be read",
    (Role.LOADING, Role.ELSEWHERE): "another leads",
    (Role.ACTIVE, Role.ELSEWHERE): "another leads, or an append was lost",
    (Role.ACTIVE, Role.LOADING): "it is elected again: what was not committed may be gone",
    (Role.FAILED, Role.LOADING): "it is elected again",
    (Role.FAILED, Role.ELSEWHERE): "another leads",
}

REFUSALS: Final = {
    Role.ELSEWHERE: ErrorCode.NOT_COORDINATOR,
    Role.LOADING: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    Role.FAILED: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}


Run = TypeVar("Run", bound=Shard)


class ShardRuntime(Generic[Run]):
    """One partition of an internal topic on one broker. `make` makes an empty shard, which `observer` observes."""

    def __init__(
        self,
        make: Callable[[], Run],
        log: ShardLog,
        commit_timeout_ms: int = 5_000,
        observer: Observer[Run] | None = None,
    ) -> None:
        self._make = make
        self._log = log
        self._observer = observer
        self._commit_timeout_ms = commit_timeout_ms
        self.role = Role.ELSEWHERE
        self.epoch = -1
        """The newest known leader epoch."""
        self.shard: Run | None = None
        self.applied_end = 0
        """Everything before it is applied."""
        self.committed_end = 0
        self._load_end = 0
        self._replies: ReplyQueue[GroupReply, Effect] = ReplyQueue()
        self._effects: list[Effect] = []
        self._leased_until_ms: int | None = None
        self._active_since_ms = 0
        self._is_lease_awaited = False
        """Whether due timers wait for a lease."""

    # --- events ---------------------------------------------------------------------------------------------------

    def step(self, event: Event, now: Now) -> list[Effect]:
        """Handles an event and returns its effects."""
        match event:
            case Asked():
                self._ask((event,), now)
            case AskedTogether():
                self._ask(event.asks, now)
            case Committed():
                if event.offset > self.committed_end:
                    self.committed_end = event.offset
                    self._answer(now)
            case Leased():
                self._extend(event, now)
                self._answer(now)
            case TimePassed():
                self._give_up(now)
                self._expire(now)
            case Elected():
                self._load(event)
            case LogRead():
                self._take_in(event, now)
            case ReadFailed():
                if event.epoch == self.epoch and self.role is Role.LOADING:
                    self._unload(Role.FAILED)
            case Resigned():
                self._resign(event)
            case TopicsDeleted():
                if self.shard is not None:
                    self.shard.topics_deleted(event.names, now)
            case _:
                assert_never(event)
        effects, self._effects = self._effects, []
        return effects

    @property
    def wake_at(self) -> int | None:
        """When TimePassed is due."""
        if self.role is not Role.ACTIVE:
            return None
        assert self.shard is not None
        at = None if self._is_lease_awaited else self.shard.wake_at
        gives_up = self._replies.gives_up_ms
        if gives_up is not None and (at is None or gives_up < at):
            return gives_up
        return at

    # --- loading and unloading ------------------------------------------------------------------------------------

    def _move(self, role: Role) -> None:
        assert (self.role, role) in MOVES, f"no move from {self.role} to {role}"
        self.role = role

    def _load(self, event: Elected) -> None:
        if event.epoch <= self.epoch:
            return
        self._throw_away()
        self._move(Role.LOADING)
        self.epoch = event.epoch
        self.shard = self._make()
        self.applied_end = event.start_offset
        self._load_end = self._log.end_offset
        self._read_on(event.start_offset)

    def _read_on(self, offset: int) -> None:
        self._effects.append(ReadLog(self.epoch, offset, self._load_end))

    def _take_in(self, event: LogRead, now: Now) -> None:
        if self.role is not Role.LOADING or event.epoch != self.epoch or event.offset != self.applied_end:
            return
        assert self.shard is not None
        for record in event.records:
            if isinstance(record, TransactionEnded):
                self.shard.end_transaction(record)
            else:
                self.shard.apply(record)
        is_gap = not event.records and event.next_offset <= event.offset
        self.applied_end = self._load_end if is_gap else event.next_offset
        if self.applied_end < self._load_end:
            self._read_on(self.applied_end)
            return
        self._move(Role.ACTIVE)
        self._active_since_ms = now.ms
        self._carry_out(self.shard.begin(now), now)
        if self._observer is not None:
            self._observer.begun(self.shard, now)

    def _resign(self, event: Resigned) -> None:
        if event.epoch < self.epoch:
            return
        self.epoch = event.epoch
        if self.role is not Role.ELSEWHERE:
            self._unload(Role.ELSEWHERE)

    def _unload(self, role: Role) -> None:
        self._throw_away()
        self._move(role)

    def _throw_away(self) -> None:
        if self._observer is not None:
            self._observer.ended()
        self.shard = None
        self._is_lease_awaited = False
        self._effects += [Refuse(ticket, ErrorCode.NOT_COORDINATOR) for ticket in self._replies.clear()]

    # --- deciding -------------------------------------------------------------------------------------------------

    def _ask(self, asks: Sequence[Asked], now: Now) -> None:
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        if self.role is not Role.ACTIVE or not self._is_leased(now):
            self._effects += [Refuse(each.ticket, REFUSALS.get(self.role, code)) for each in asks]
            return
        assert self.shard is not None
        decisions = []
        for ticket, command in asks:
            self._replies.open(ticket)
            decision = self.shard.decide(command, ticket, now)
            decisions.append(decision)
            self._tell_decided(command, decision)
        try:
            self._carry_out(decisions[0] if len(decisions) == 1 else _together(decisions), now)
        except AppendRefused as refusal:
            if len(asks) == 1:
                self._refuse(asks[0].ticket, refusal.code)
            else:  # a single request may be the cause
                self._carry_out_singly(asks, decisions, now)
            return
        for (_, command), decision in zip(asks, decisions, strict=True):
            self._tell_applied(command, decision, now)

    def _carry_out_singly(self, asks: Sequence[Asked], decisions: Sequence[GroupDecision], now: Now) -> None:
        for (ticket, command), decision in zip(asks, decisions, strict=True):
            if self.role is not Role.ACTIVE:
                return  # an append was lost, and all requests were refused
            try:
                self._carry_out(decision, now)
            except AppendRefused as refusal:
                self._refuse(ticket, refusal.code)
            else:
                self._tell_applied(command, decision, now)

    def _extend(self, event: Leased, now: Now) -> None:
        """Extends the lease; timers do not count the time without one."""
        if self.shard is not None and self.role is Role.ACTIVE and not self._is_leased(now):
            assert self._leased_until_ms is not None
            self.shard.put_off(now.ms - max(self._leased_until_ms, self._active_since_ms))
        self._leased_until_ms = event.until_ms
        self._is_lease_awaited = False

    def _expire(self, now: Now) -> None:
        if self.role is Role.ACTIVE and not self._is_leased(now):
            self._is_lease_awaited = True
            return
        for _ in range(TIMERS_PER_STEP_MAX):
            if self.role is not Role.ACTIVE:
                return
            assert self.shard is not None
            timer = self.shard.due(now)
            if timer is None:
                return
            decision = self.shard.expire(timer, now)
            self._tell_decided(timer, decision)
            try:
                self._carry_out(decision, now)
            except AppendRefused:
                self.shard.postpone(timer, now.ms + RETRY_MS)
            else:
                self._tell_applied(timer, decision, now)

    def _carry_out(self, decision: GroupDecision, now: Now) -> None:
        assert self.shard is not None
        if decision.records:
            try:
                end_offset = self._log.append(self.epoch, decision.records, now)
            except AppendLost:
                self._unload(Role.ELSEWHERE)
                return
            for record in decision.records:
                self.shard.apply(record)
            self.applied_end = end_offset
        for change in decision.changes:
            self.shard.change(change)
        if decision.replies or decision.effects:
            gives_up_ms = now.ms + self._commit_timeout_ms
            self._replies.add(self.applied_end, decision.replies, decision.effects, gives_up_ms)
            self._answer(now)

    def _tell_decided(self, cause: Cause, decision: GroupDecision) -> None:
        if self._observer is not None and self.shard is not None:
            self._observer.decided(self.shard, cause, decision)

    def _tell_applied(self, cause: Cause, decision: GroupDecision, now: Now) -> None:
        """Notifies the observer, unless a lost append has discarded the shard."""
        if self._observer is not None and self.shard is not None:
            self._observer.applied(self.shard, cause, decision, now)

    # --- answering ------------------------------------------------------------------------------------------------

    def _is_leased(self, now: Now) -> bool:
        """Whether no other broker can lead; otherwise the state committed here may be outdated."""
        return self._leased_until_ms is None or now.ms < self._leased_until_ms

    def _answer(self, now: Now) -> None:
        if self._replies and self._is_leased(now):
            replies, effects = self._replies.leave(self.committed_end)
            self._effects += [Answer(ticket, reply) for ticket, reply in replies]
            self._effects += effects

    def _give_up(self, now: Now) -> None:
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        self._effects += [Refuse(ticket, code) for ticket in self._replies.give_up(now.ms)]

    def _refuse(self, ticket: int, code: ErrorCode) -> None:
        if self._replies.withdraw(ticket):
            self._effects.append(Refuse(ticket, code))


def _together(decisions: Sequence[GroupDecision]) -> GroupDecision:
    return GroupDecision(
        tuple(record for each in decisions for record in each.records),
        tuple(change for each in decisions for change in each.changes),
        tuple(reply for each in decisions for reply in each.replies),
        tuple(effect for each in decisions for effect in each.effects),
    )
