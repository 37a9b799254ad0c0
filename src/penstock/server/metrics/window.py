"""Growth rate of a number, without a timer: the number is sampled whenever the rate is read.

Several readers may read at any times: each gets the rate since the newest sample that is at least WINDOW_MS old.
"""

from collections import deque
from typing import Final

APART_MS: Final = 1_000
WINDOW_MS: Final = 30_000


class Window:
    """Recent samples of one number."""

    __slots__ = ("_notes",)

    def __init__(self, value: float, now_ms: int) -> None:
        self._notes: deque[tuple[int, float]] = deque([(now_ms, value)])

    def per_second(self, value: float, now_ms: int) -> float:
        """Growth per second over about the last half minute."""
        notes = self._notes
        while len(notes) > 1 and notes[1][0] <= now_ms - WINDOW_MS:
            notes.popleft()
        began_ms, before = notes[0]
        if now_ms - notes[-1][0] >= APART_MS:
            notes.append((now_ms, value))
        return 1000 * (value - before) / (now_ms - began_ms) if now_ms > began_ms else 0.0
