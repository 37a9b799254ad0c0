"""Measures how late the event loop is: long computation or blocking on the loop delays every client.

A ticker sleeps for a fixed interval and records how late it wakes up. The last few hundred measurements are kept.
"""

import asyncio
import logging
from collections import deque

logger = logging.getLogger("penstock.loop")

TICK_MS = 100
NOTES_MAX = 600
QUIET_MS = 10_000
"""After a warning, no other is logged for this long, unless the lateness more than doubles."""


class StallMeter:
    """The lateness of the loop that runs it."""

    __slots__ = ("_notes", "_quiet_until_ms", "_said_ms", "limit_ms", "stalls")

    def __init__(self, limit_ms: int) -> None:
        self.limit_ms = limit_ms
        self.stalls = 0
        """Number of times the limit was exceeded."""
        self._notes: deque[float] = deque(maxlen=NOTES_MAX)
        self._quiet_until_ms = 0.0
        self._said_ms = 0.0

    @property
    def max_ms(self) -> float:
        """Maximum lateness in the last minute."""
        return max(self._notes, default=0.0)

    @property
    def p99_ms(self) -> float:
        """99th percentile of the lateness in the last minute."""
        notes = sorted(self._notes)
        return notes[min(len(notes) - 1, len(notes) * 99 // 100)] if notes else 0.0

    async def run(self) -> None:
        """Measures until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due_s = loop.time() + TICK_MS / 1000
            await asyncio.sleep(TICK_MS / 1000)
            self.note(max(0.0, (loop.time() - due_s) * 1000), loop.time() * 1000)

    def note(self, late_ms: float, now_ms: float) -> None:
        """Records the lateness of a tick."""
        self._notes.append(late_ms)
        if late_ms <= self.limit_ms:
            return
        self.stalls += 1
        if now_ms >= self._quiet_until_ms or late_ms > 2 * self._said_ms:
            self._quiet_until_ms, self._said_ms = now_ms + QUIET_MS, late_ms
            logger.warning(
                "The event loop stood still for %.0f ms (limit %d ms), and every client waited: "
                "give the node more CPU, or look for a slow disk or for requests that are too large.",
                late_ms,
                self.limit_ms,
            )
