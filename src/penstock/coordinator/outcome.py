"""What a shard answers to a command or to a timer: records, notes, replies.

Records go into the log. Notes are what need not survive: timers, and who waits for whom. Both are applied once the
append has succeeded, records first, and nothing changes before. Replies go out when everything applied is committed.
"""

from collections.abc import Hashable
from typing import Any, NamedTuple, Protocol

from penstock.coordinator.ports import Now


class Outcome(NamedTuple):
    """Everything that follows from one command; a ticket without a reply goes on waiting."""

    records: tuple[Any, ...] = ()
    notes: tuple[Any, ...] = ()
    replies: tuple[tuple[int, Any], ...] = ()


class Shard(Protocol):
    """What the runtime runs: `decide` and `expire` change nothing, `apply` and `note` are the only places that do."""

    def apply(self, record: Any) -> None:
        """Takes in what the log says; the same on election and right after the append."""

    def note(self, note: Any) -> None:
        """Takes in what the log need not know."""

    def begin(self, now: Now) -> None:
        """All of the log is applied, and this broker leads: timers start."""

    def decide(self, command: Any, ticket: int, now: Now) -> Outcome:
        """What follows from a command."""

    def due(self, now: Now) -> Hashable | None:
        """The timer that is to be looked at now, if there is one."""

    def expire(self, timer: Any, now: Now) -> Outcome:
        """What follows from a timer that is due."""

    def postpone(self, timer: Any, until_ms: int) -> None:
        """What followed could not be recorded: later."""

    def put_off(self, by_ms: int) -> None:
        """All timers are due so much later: for so long nobody could be heard."""

    @property
    def wake_at(self) -> int | None:
        """When the first timer is due."""
