"""The shard runtime: decide, append, apply at once, answer when committed; load on election, unload on loss.

What must stay true: whatever a reply rests on is committed when it leaves, reads included; a shard that is not loaded
to the end of its log decides nothing; what is of another leader epoch is nothing (R26); leadership lost, or an append
of which nobody knows what became, throws the whole shard away, and whoever waits is told to ask elsewhere. An append
that was refused leaves everything as it was, but for the one who asked. While another may lead, nobody is heard, and
nobody is judged for that.
"""

from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final, NamedTuple

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
)
from penstock.coordinator.outcome import Outcome, Shard
from penstock.coordinator.ports import AppendLost, AppendRefused, Now, ShardLog
from penstock.model.errors import ErrorCode

RETRY_MS: Final = 500
"""A timer whose consequences could not be recorded is looked at again after this."""
TIMERS_PER_STEP_MAX: Final = 100
"""So that a thousand members that time out at once do not hold everybody up."""


class Role(Enum):
    """What a shard is to its partition on this broker."""

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


class Waiting(NamedTuple):
    """Replies that leave when everything before an offset is committed, or give up."""

    end_offset: int
    gives_up_ms: int
    replies: tuple[tuple[int, object], ...]


class ShardRuntime:
    """One partition of an internal topic on one broker. `make` makes an empty shard."""

    def __init__(self, make: Callable[[], Shard], log: ShardLog, commit_timeout_ms: int = 5_000) -> None:
        self._make = make
        self._log = log
        self._commit_timeout_ms = commit_timeout_ms
        self.role = Role.ELSEWHERE
        self.epoch = -1
        """The newest leader epoch that was heard of."""
        self.shard: Shard | None = None
        self.applied_end = 0
        """Everything before it is in the shard."""
        self.committed_end = 0
        self._load_end = 0
        self._waiting: deque[Waiting] = deque()
        self._open: dict[int, None] = {}
        self._effects: list[Effect] = []
        self._leased_until_ms: int | None = None
        self._active_since_ms = 0
        self._is_lease_awaited = False
        """Whether timers are due that wait for it."""

    # --- events ---------------------------------------------------------------------------------------------------

    def step(self, event: Event, now: Now) -> list[Effect]:
        """Takes an event in; what is wanted then."""
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
        effects, self._effects = self._effects, []
        return effects

    @property
    def wake_at(self) -> int | None:
        """When TimePassed is wanted."""
        if self.role is not Role.ACTIVE:
            return None
        assert self.shard is not None
        at = None if self._is_lease_awaited else self.shard.wake_at
        if self._waiting:
            gives_up = self._waiting[0].gives_up_ms
            at = gives_up if at is None or gives_up < at else at
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
            self.shard.apply(record)
        is_gap = not event.records and event.next_offset <= event.offset
        self.applied_end = self._load_end if is_gap else event.next_offset
        if self.applied_end < self._load_end:
            self._read_on(self.applied_end)
            return
        self._move(Role.ACTIVE)
        self._active_since_ms = now.ms
        self.shard.begin(now)

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
        self.shard = None
        self._is_lease_awaited = False
        self._waiting.clear()
        refused, self._open = self._open, {}
        self._effects += [Refuse(ticket, ErrorCode.NOT_COORDINATOR) for ticket in refused]

    # --- deciding -------------------------------------------------------------------------------------------------

    def _ask(self, asks: Sequence[Asked], now: Now) -> None:
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        if self.role is not Role.ACTIVE or not self._is_leased(now):
            self._effects += [Refuse(each.ticket, REFUSALS.get(self.role, code)) for each in asks]
            return
        assert self.shard is not None
        outcomes = []
        for ticket, command in asks:
            self._open[ticket] = None
            outcomes.append(self.shard.decide(command, ticket, now))
        try:
            self._carry_out(outcomes[0] if len(outcomes) == 1 else _together(outcomes), now)
        except AppendRefused as refusal:
            if len(asks) == 1:
                self._refuse(asks[0].ticket, refusal.code)
            else:  # one of them may be what is wrong
                self._carry_out_singly(asks, outcomes, now)

    def _carry_out_singly(self, asks: Sequence[Asked], outcomes: Sequence[Outcome], now: Now) -> None:
        for (ticket, _), outcome in zip(asks, outcomes, strict=True):
            if self.role is not Role.ACTIVE:
                return  # an append was lost, and everybody was told
            try:
                self._carry_out(outcome, now)
            except AppendRefused as refusal:
                self._refuse(ticket, refusal.code)

    def _extend(self, event: Leased, now: Now) -> None:
        """Time in which nobody could be heard does not count against anybody."""
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
            try:
                self._carry_out(self.shard.expire(timer, now), now)
            except AppendRefused:
                self.shard.postpone(timer, now.ms + RETRY_MS)

    def _carry_out(self, outcome: Outcome, now: Now) -> None:
        assert self.shard is not None
        if outcome.records:
            try:
                end_offset = self._log.append(self.epoch, outcome.records, now)
            except AppendLost:
                self._unload(Role.ELSEWHERE)
                return
            for record in outcome.records:
                self.shard.apply(record)
            self.applied_end = end_offset
        for note in outcome.notes:
            self.shard.note(note)
        if not outcome.replies:
            return
        self._waiting.append(Waiting(self.applied_end, now.ms + self._commit_timeout_ms, outcome.replies))
        self._answer(now)

    # --- answering ------------------------------------------------------------------------------------------------

    def _is_leased(self, now: Now) -> bool:
        """Otherwise another may lead by now, and know more: what is committed here would be old."""
        return self._leased_until_ms is None or now.ms < self._leased_until_ms

    def _answer(self, now: Now) -> None:
        waiting = self._waiting
        if waiting and not self._is_leased(now):
            return
        while waiting and waiting[0].end_offset <= self.committed_end:
            for ticket, reply in waiting.popleft().replies:
                if ticket in self._open:
                    del self._open[ticket]
                    self._effects.append(Answer(ticket, reply))

    def _give_up(self, now: Now) -> None:
        while self._waiting and self._waiting[0].gives_up_ms <= now.ms:
            for ticket, _ in self._waiting.popleft().replies:
                self._refuse(ticket, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def _refuse(self, ticket: int, code: ErrorCode) -> None:
        if ticket in self._open:
            del self._open[ticket]
            self._effects.append(Refuse(ticket, code))


def _together(outcomes: Sequence[Outcome]) -> Outcome:
    return Outcome(
        tuple(record for each in outcomes for record in each.records),
        tuple(note for each in outcomes for note in each.notes),
        tuple(reply for each in outcomes for reply in each.replies),
    )
