"""How fast a number grows, without a timer: it is noted whenever somebody looks.

Several may look, at whatever times: each is told of the time since a note that is old enough, and no older than needed.
"""

from collections import deque
from typing import Final

APART_MS: Final = 1_000
WINDOW_MS: Final = 30_000


class Window:
    """The last notes of one number."""

    __slots__ = ("_notes",)

    def __init__(self, value: float, now_ms: int) -> None:
        self._notes: deque[tuple[int, float]] = deque([(now_ms, value)])

    def per_second(self, value: float, now_ms: int) -> float:
        """How much it has grown per second, over about the last half minute."""
        notes = self._notes
        while len(notes) > 1 and notes[1][0] <= now_ms - WINDOW_MS:
            notes.popleft()
        began_ms, before = notes[0]
        if now_ms - notes[-1][0] >= APART_MS:
            notes.append((now_ms, value))
        return 1000 * (value - before) / (now_ms - began_ms) if now_ms > began_ms else 0.0
