"""Queue of replies, each sent once the records that it rests on are committed; the controller and shards use it.

Invariants: a ticket gets one reply, or none if it was withdrawn; replies leave in the order in which they were decided;
effects leave even if the replies queued with them were given up.
"""

from collections import deque
from collections.abc import Iterable
from typing import Final, Generic, NamedTuple, TypeVar

NEVER: Final = 1 << 62

Reply = TypeVar("Reply")
Effect = TypeVar("Effect")


class Waiting(NamedTuple, Generic[Reply, Effect]):
    """Replies and effects that leave once everything before an offset is committed."""

    end_offset: int
    gives_up_ms: int
    replies: tuple[tuple[int, Reply], ...]
    effects: tuple[Effect, ...]


class ReplyQueue(Generic[Reply, Effect]):
    """The open tickets and the decided replies."""

    __slots__ = ("_open", "_waiting")

    def __init__(self) -> None:
        self._open: dict[int, None] = {}
        self._waiting: deque[Waiting[Reply, Effect]] = deque()

    def open(self, ticket: int) -> None:
        """Registers a ticket that waits for a reply."""
        self._open[ticket] = None

    def withdraw(self, ticket: int) -> bool:
        """Closes a ticket that needs no reply from this queue; returns whether it was open."""
        if ticket in self._open:
            del self._open[ticket]
            return True
        return False

    def add(
        self,
        end_offset: int,
        replies: Iterable[tuple[int, Reply]],
        effects: tuple[Effect, ...] = (),
        gives_up_ms: int = NEVER,
    ) -> None:
        """Queues them until everything before `end_offset` is committed; replies are given up at `gives_up_ms`."""
        self._waiting.append(Waiting(end_offset, gives_up_ms, tuple(replies), effects))

    def leave(self, committed_end: int) -> tuple[list[tuple[int, Reply]], list[Effect]]:
        """Removes and returns the replies and effects that depend only on committed records."""
        replies: list[tuple[int, Reply]] = []
        effects: list[Effect] = []
        while self._waiting and self._waiting[0].end_offset <= committed_end:
            done = self._waiting.popleft()
            replies += [each for each in done.replies if self.withdraw(each[0])]
            effects += done.effects
        return replies, effects

    def give_up(self, now_ms: int) -> list[int]:
        """Drops replies whose time is up and returns their tickets; effects stay queued."""
        given_up: list[int] = []
        for at, each in enumerate(self._waiting):
            if each.gives_up_ms > now_ms:
                break
            given_up += [ticket for ticket, _ in each.replies if self.withdraw(ticket)]
            self._waiting[at] = each._replace(gives_up_ms=NEVER, replies=())
        while self._waiting and not self._waiting[0].replies and not self._waiting[0].effects:
            self._waiting.popleft()
        return given_up

    @property
    def gives_up_ms(self) -> int | None:
        """Time at which the next reply is given up."""
        return next((each.gives_up_ms for each in self._waiting if each.gives_up_ms != NEVER), None)

    @property
    def end_offset(self) -> int | None:
        """End offset of the last queued entry; None if the queue is empty."""
        return self._waiting[-1].end_offset if self._waiting else None

    def clear(self) -> list[int]:
        """Drops everything, because decisions may be undone; returns the open tickets."""
        tickets = list(self._open)
        self._open.clear()
        self._waiting.clear()
        return tickets

    def __bool__(self) -> bool:
        return bool(self._waiting)
