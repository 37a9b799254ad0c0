"""Interfaces of the shard runtime: the shard of groups and committed offsets, and its observer."""

from collections.abc import Set
from dataclasses import dataclass
from typing import Protocol, TypeAlias, TypeVar

from penstock.coordinator.changes import Change
from penstock.coordinator.events import Effect, TransactionEnded
from penstock.coordinator.ports import Now
from penstock.coordinator.records import GroupRecord
from penstock.coordinator.requests import GroupAsk, GroupReply
from penstock.coordinator.timers import Timer
from penstock.model.shard import Decision

Cause: TypeAlias = GroupAsk | Timer
"""The cause of a decision."""


@dataclass(frozen=True, slots=True)
class GroupDecision(Decision[GroupRecord, GroupReply]):
    """The decision on one request or timer of groups."""

    changes: tuple[Change, ...] = ()
    effects: tuple[Effect, ...] = ()


class Shard(Protocol):
    """Interface of a shard. `decide` and `expire` change nothing; `apply` and `change` carry decisions out."""

    def apply(self, record: GroupRecord) -> None:
        """Applies a record of the log, in the same way on loading and right after the append."""

    def end_transaction(self, end: TransactionEnded) -> None:
        """Applies a control batch of the log."""

    def change(self, change: Change) -> None:
        """Applies a change that is not kept in the log."""

    def begin(self, now: Now) -> GroupDecision:
        """The first decision once the whole log is applied and this broker leads, such as timers."""

    def decide(self, command: GroupAsk, ticket: int, now: Now) -> GroupDecision:
        """Decides on a command."""

    def due(self, now: Now) -> Timer | None:
        """A timer that is due, if there is one."""

    def expire(self, timer: Timer, now: Now) -> GroupDecision:
        """Decides on a timer that is due."""

    def postpone(self, timer: Timer, until_ms: int) -> None:
        """Moves a timer whose decision could not be appended."""

    def put_off(self, by_ms: int) -> None:
        """Delays all timers by a time in which no request was served."""

    def topics_deleted(self, names: Set[str], now: Now) -> None:
        """Discards the offsets that were committed for deleted topics until now."""

    @property
    def wake_at(self) -> int | None:
        """When the first timer is due."""


Observed_contra = TypeVar("Observed_contra", bound=Shard, contravariant=True)


class Observer(Protocol[Observed_contra]):
    """Receives notifications of the runtime about its shard. An observer reads the shard, and never changes it."""

    def begun(self, shard: Observed_contra, now: Now) -> None:
        """The shard has loaded its whole log, and decides from now on."""

    def decided(self, shard: Observed_contra, cause: Cause, decision: GroupDecision) -> None:
        """A decision was made but not applied; a refused append may prevent that."""

    def applied(self, shard: Observed_contra, cause: Cause, decision: GroupDecision, now: Now) -> None:
        """A decision was applied; it may not be committed yet."""

    def ended(self) -> None:
        """The shard was discarded."""
