"""Commands and decisions of a shard: decide, record, apply.

`decide` reads state and changes nothing. State changes only in `apply` (a record of the log) and `change` (state that
need not survive), after the records are appended, records first. Replies and effects leave once everything that was
applied when they were decided is committed.
"""

from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

Record = TypeVar("Record")
Reply = TypeVar("Reply")
Record_co = TypeVar("Record_co", covariant=True)
Reply_co = TypeVar("Reply_co", covariant=True)

ASKER: Final = 0
"""Ticket of the request being decided. Tickets of earlier requests that still wait begin at 1."""


class Command(Generic[Reply_co]):
    """A request to a shard, parameterized by its reply type; subclasses are small frozen dataclasses."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Decision(Generic[Record_co, Reply_co]):
    """Everything that follows from one command or timer. A ticket without a reply keeps waiting."""

    records: tuple[Record_co, ...] = ()
    """Records for the log, appended all or none."""
    changes: tuple[Any, ...] = ()
    """Changes of state that need not survive: timers and waiters."""
    replies: tuple[tuple[int, Reply_co], ...] = ()
    effects: tuple[Any, ...] = ()
    """Effects besides replies, which leave once the records are committed."""

    @property
    def reply(self) -> Reply_co:
        """The reply to the request that was decided."""
        for ticket, reply in self.replies:
            if ticket == ASKER:
                return reply
        raise LookupError("the request goes on waiting")


def answer(records: tuple[Record, ...], reply: Reply, *changes: object) -> Decision[Record, Reply]:
    """A decision with records, and the reply that is sent once they are committed."""
    return Decision(records, changes, ((ASKER, reply),))
