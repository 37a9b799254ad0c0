"""What can happen to a shard, and what it wants. The driver tells the one and carries the other out, in order."""

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

from penstock.model.errors import ErrorCode


class Elected(NamedTuple):
    """This broker leads the partition in this leader epoch; its log can be read from `start_offset` on."""

    epoch: int
    start_offset: int


class Resigned(NamedTuple):
    """As of this leader epoch the broker leads no longer, or has the partition no longer."""

    epoch: int


class LogRead(NamedTuple):
    """What a `ReadLog` found: records from its offset on, and where to go on.

    Where nothing is left to read although the log goes on, because compaction took it, there are no records, and
    `next_offset` is what was asked for, or later.
    """

    epoch: int
    offset: int
    records: Sequence[Any]
    next_offset: int


class ReadFailed(NamedTuple):
    """The log cannot be read: it is offline, or what it holds is not whole."""

    epoch: int


class Committed(NamedTuple):
    """Everything before this offset is committed."""

    offset: int


class Asked(NamedTuple):
    """Somebody asks; the ticket is the driver's name for who waits for the answer."""

    ticket: int
    command: Any


class AskedTogether(NamedTuple):
    """Several ask, and what follows for one does not depend on what follows for another: one append will do."""

    asks: Sequence[Asked]


class Leased(NamedTuple):
    """Until then nobody else leads: a controller has answered. Without any, it answers as long as it thinks to lead."""

    until_ms: int


class TimePassed(NamedTuple):
    """It is `wake_at` or later."""


Event: TypeAlias = Elected | Resigned | LogRead | ReadFailed | Committed | Asked | AskedTogether | Leased | TimePassed


class ReadLog(NamedTuple):
    """Read a piece of the log, then `LogRead` or `ReadFailed`. `end_offset` is where it ended at the election."""

    epoch: int
    offset: int
    end_offset: int


class Answer(NamedTuple):
    """What the asker is told: everything it rests on is committed."""

    ticket: int
    reply: Any


class Refuse(NamedTuple):
    """The asker is to ask elsewhere or later. If leadership was lost or time is up, it may have been carried out."""

    ticket: int
    code: ErrorCode


Effect: TypeAlias = ReadLog | Answer | Refuse
