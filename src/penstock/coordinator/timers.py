"""Timers as data. A heartbeat moves a timer without touching the heap.

Patient timers get chances: a coordinator that was stalled has not read the heartbeats that members sent meanwhile. So
it reads for GRACE_MS before it lets them expire; the number of chances is limited, for a coordinator that is always
late.
"""

from heapq import heappop, heappush
from typing import Final, NamedTuple

GRACE_MS: Final = 250
CHANCES: Final = 3

SESSION: Final = "session"
"""A member without a heartbeat until then is removed."""
PENDING: Final = "pending"
"""A member id that was handed out expires, if no member joins with it."""
JOIN: Final = "join"
"""A classic group stops waiting for members to join."""
SYNC: Final = "sync"
"""A group stops waiting for classic members to fetch their assignment."""
REBALANCE: Final = "rebalance"
"""A consumer group stops waiting for a member to revoke partitions, or for a classic one to join again."""
EXPIRY: Final = "expiry"
"""Offsets of empty groups are checked for expiry."""
SWEEP: Final = "sweep"
"""Offsets of deleted topics are deleted."""

PATIENT: Final = frozenset({SESSION, REBALANCE})


class Timer(NamedTuple):
    """Identifies a timer."""

    kind: str
    group_id: str
    member_id: str = ""


class SetTimer(NamedTuple):
    """A change: sets a timer."""

    timer: Timer
    due_ms: int
    chances: int = 0


class DropTimer(NamedTuple):
    """A change: drops a timer."""

    timer: Timer


class Timers:
    """All timers of a shard."""

    def __init__(self) -> None:
        self._due: dict[Timer, tuple[int, int]] = {}
        self._heap: list[tuple[int, Timer]] = []
        self._on_heap: dict[Timer, int] = {}

    def set(self, timer: Timer, due_ms: int, chances: int = 0) -> None:
        """Sets or moves a timer."""
        self._due[timer] = (due_ms, chances)
        on_heap = self._on_heap.get(timer)
        if on_heap is None or due_ms < on_heap:
            self._on_heap[timer] = due_ms
            heappush(self._heap, (due_ms, timer))

    def drop(self, timer: Timer) -> None:
        """Drops a timer."""
        self._due.pop(timer, None)

    def put_off(self, by_ms: int) -> None:
        """Delays all timers."""
        for timer, (due_ms, chances) in self._due.items():
            self._due[timer] = (due_ms + by_ms, chances)

    def get(self, timer: Timer) -> int | None:
        """When a timer is due; None if it is not set."""
        found = self._due.get(timer)
        return None if found is None else found[0]

    def chance(self, timer: Timer, now_ms: int) -> SetTimer | None:
        """Another chance for a patient timer, if one is left and due."""
        due_ms, chances = self._due[timer]
        is_late = now_ms - due_ms > GRACE_MS
        if timer.kind not in PATIENT or chances >= CHANCES or (chances and not is_late):
            return None
        return SetTimer(timer, now_ms + GRACE_MS, chances + 1)

    @property
    def wake_at(self) -> int | None:
        """When the first timer is due."""
        heap, due = self._heap, self._due
        while heap:
            at, timer = heap[0]
            if self._on_heap.get(timer) != at:
                heappop(heap)
                continue
            found = due.get(timer)
            if found is not None and found[0] == at:
                return at
            heappop(heap)
            del self._on_heap[timer]
            if found is not None:
                self._on_heap[timer] = found[0]
                heappush(heap, (found[0], timer))
        return None

    def first_due(self, now_ms: int) -> Timer | None:
        """The first timer, if it is due."""
        at = self.wake_at
        return self._heap[0][1] if at is not None and at <= now_ms else None
