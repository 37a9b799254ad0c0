"""Virtual time in worlds of cores: a heap of pending events, and the clock that they advance.

Worlds of whole servers use an event loop in virtual time instead, `penstock.simulator`.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, ClassVar, Final

from tests.simulation.kit.invariants import CONVERGENCE, broken

_MASK: Final = (1 << 64) - 1


class Timeline:
    """The base class of worlds of cores."""

    EVENTS_MAX: ClassVar[int] = 100_000
    """A world with more events is assumed not to terminate."""

    def __init__(self) -> None:
        self.time_ms = 0.0
        self.events = 0
        self.trace_hash = 0
        """A hash of the times and numbers of all events: equal in two runs of one seed."""
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._pushed = 0

    def at(self, time_ms: float, work: Callable[..., None], *arguments: Any) -> None:
        self._pushed += 1
        heappush(self._heap, (time_ms, self._pushed, work, arguments))

    def after(self, delay_ms: float, work: Callable[..., None], *arguments: Any) -> None:
        self._pushed += 1
        heappush(self._heap, (self.time_ms + delay_ms, self._pushed, work, arguments))

    def run(self, until_ms: float, *, stop: Callable[[], bool] | None = None) -> None:
        """Runs the events up to `until_ms`, or until `stop` returns true after an event."""
        heap = self._heap
        while heap and heap[0][0] <= until_ms:
            time_ms, number, work, arguments = heappop(heap)
            self.time_ms = time_ms
            self.events += 1
            self.trace_hash = (self.trace_hash * 1_000_003 ^ int(time_ms * 1000) ^ (number << 40)) & _MASK
            work(*arguments)
            if self.events % 100 == 0:
                self.sweep()
            if stop is not None and stop():
                return
            if self.events > self.EVENTS_MAX:
                broken(CONVERGENCE, f"{self.EVENTS_MAX} events and no end: somebody turns in circles")
        self.time_ms = until_ms

    def sweep(self) -> None:
        """Called after every hundredth event, for checks that are too expensive after each."""
