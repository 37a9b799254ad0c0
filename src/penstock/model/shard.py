"""What a shard answers: decide, record, apply.

`decide(command, now) -> Decision` reads state and changes nothing; `apply(record)` is the only place where state
changes. The reply leaves once everything that was applied when it was decided is committed.
"""

from dataclasses import dataclass
from typing import Generic, TypeVar

Record_co = TypeVar("Record_co", covariant=True)
Reply_co = TypeVar("Reply_co", covariant=True)


class Command(Generic[Reply_co]):
    """What a shard may be asked, by the type of its reply: small frozen dataclasses."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Decision(Generic[Record_co, Reply_co]):
    """The records that make it so, all or none of them, and what the asker is told once they are committed."""

    records: tuple[Record_co, ...]
    reply: Reply_co
    wake_at: int | None = None
    """When the shard wants to be asked again, in milliseconds; timers are data."""
