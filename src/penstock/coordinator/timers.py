"""Timers as data: what is due when. A heartbeat moves a timer without touching the heap.

A timer that is patient is given chances: a coordinator that stood still has not read what members sent meanwhile, and
that says nothing about them. So it listens for GRACE_MS before it judges; but one that is always late must judge.
"""

from heapq import heappop, heappush
from typing import Final, NamedTuple

GRACE_MS: Final = 250
CHANCES: Final = 3

SESSION: Final = "session"
"""A member that is not heard of for so long is gone."""
PENDING: Final = "pending"
"""A member id that was given out and with which nobody joins."""
JOIN: Final = "join"
"""A classic group waits no longer for members to join."""
SYNC: Final = "sync"
"""A classic group waits no longer for members to fetch their assignment."""
REBALANCE: Final = "rebalance"
"""A member of a consumer group, or a classic one in it, has not given up what it was asked to."""
EXPIRY: Final = "expiry"
"""Offsets of empty groups are looked at."""
SWEEP: Final = "sweep"
"""Offsets of deleted topics are taken back."""

PATIENT: Final = frozenset({SESSION, REBALANCE})


class Timer(NamedTuple):
    """Names a timer."""

    kind: str
    group_id: str
    member_id: str = ""


class SetTimer(NamedTuple):
    """A note: the timer is due then."""

    timer: Timer
    due_ms: int
    chances: int = 0


class DropTimer(NamedTuple):
    """A note: the timer is no more."""

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
        """Forgets a timer."""
        self._due.pop(timer, None)

    def put_off(self, by_ms: int) -> None:
        """Everything is due so much later."""
        for timer, (due_ms, chances) in self._due.items():
            self._due[timer] = (due_ms + by_ms, chances)

    def get(self, timer: Timer) -> int | None:
        """When it is due."""
        found = self._due.get(timer)
        return None if found is None else found[0]

    def chance(self, timer: Timer, now_ms: int) -> SetTimer | None:
        """Another chance for whom a patient timer is about, if one is left and due."""
        due_ms, chances = self._due[timer]
        is_late = now_ms - due_ms > GRACE_MS
        if timer.kind not in PATIENT or chances >= CHANCES or (chances and not is_late):
            return None
        return SetTimer(timer, now_ms + GRACE_MS, chances + 1)

    @property
    def wake_at(self) -> int | None:
        """When the first is due."""
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
        """The first, if it is due."""
        at = self.wake_at
        return self._heap[0][1] if at is not None and at <= now_ms else None
