"""Events and effects of a shard. The driver passes events in and carries effects out, in order."""

from collections.abc import Sequence, Set
from typing import NamedTuple, TypeAlias

from penstock.coordinator.ports import Producer
from penstock.coordinator.records import GroupRecord
from penstock.coordinator.requests import GroupAsk, GroupReply
from penstock.model.errors import ErrorCode


class Elected(NamedTuple):
    """This broker leads the partition in this leader epoch; its log can be read from `start_offset` on."""

    epoch: int
    start_offset: int


class Resigned(NamedTuple):
    """As of this leader epoch the broker no longer leads, or no longer has the partition."""

    epoch: int


class TransactionEnded(NamedTuple):
    """A control batch among the records of a log, which ends a transaction."""

    producer: Producer
    is_committed: bool


class LogRead(NamedTuple):
    """The result of a `ReadLog`: records and ends of transactions from its offset on, and the next offset to read.

    If compaction has removed all records up to the log's end, there are no records, and `next_offset` is the requested
    offset, or later.
    """

    epoch: int
    offset: int
    records: Sequence[GroupRecord | TransactionEnded]
    next_offset: int


class ReadFailed(NamedTuple):
    """The log cannot be read: it is offline or damaged."""

    epoch: int


class Committed(NamedTuple):
    """Everything before this offset is committed."""

    offset: int


class Asked(NamedTuple):
    """A request; the ticket is the driver's id of the client that waits for the reply."""

    ticket: int
    command: GroupAsk


class AskedTogether(NamedTuple):
    """Several requests whose decisions do not depend on each other, so that one append is enough."""

    asks: Sequence[Asked]


class Leased(NamedTuple):
    """No other broker leads until then, by a controller's reply. Without leases, a shard answers until it resigns."""

    until_ms: int


class TopicsDeleted(NamedTuple):
    """These topics were deleted, even if others have the same names from now on."""

    names: Set[str]


class TimePassed(NamedTuple):
    """It is `wake_at` or later."""


Event: TypeAlias = (
    Elected | Resigned | LogRead | ReadFailed | Committed | Asked | AskedTogether | Leased | TopicsDeleted | TimePassed
)


class ReadLog(NamedTuple):
    """Reads a piece of the log, then reports `LogRead` or `ReadFailed`. `end_offset` is its end at the election."""

    epoch: int
    offset: int
    end_offset: int


class Answer(NamedTuple):
    """Sends a reply; everything that it depends on is committed."""

    ticket: int
    reply: GroupReply


class Refuse(NamedTuple):
    """Refuses a request. After a loss of leadership or a time-out, the request may have been carried out."""

    ticket: int
    code: ErrorCode


Effect: TypeAlias = ReadLog | Answer | Refuse
