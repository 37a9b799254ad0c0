"""How fast replicas on their way to this broker are copied, all together: a bucket that fills as time passes."""

from typing import Final

BURST_MS: Final = 1_000
"""What was not used of this much time may be used later."""


class Throttle:
    """So many bytes per second. What is taken may exceed what is there; then there is nothing for as long as it takes.

    An answer comes whole, however large it is.
    """

    __slots__ = ("_filled_ms", "_rate", "_thousandths")

    def __init__(self, bytes_per_second_max: int, now: int) -> None:
        self._rate = max(1, bytes_per_second_max)
        self._thousandths = self._rate * BURST_MS
        """Thousandths of bytes that are there: a rate times milliseconds, without fractions."""
        self._filled_ms = now

    def set_rate(self, bytes_per_second_max: int, now: int) -> None:
        """From now on so many."""
        self._fill(now)
        self._rate = max(1, bytes_per_second_max)
        self._thousandths = min(self._thousandths, self._rate * BURST_MS)

    def take(self, size_bytes: int, now: int) -> None:
        """So many bytes came in."""
        self._fill(now)
        self._thousandths -= size_bytes * 1_000

    def opens_at(self, now: int) -> int:
        """When something may be copied again: now, or when the bucket is no longer empty."""
        self._fill(now)
        if self._thousandths > 0:
            return now
        return now + -self._thousandths // self._rate + 1

    def _fill(self, now: int) -> None:
        passed_ms = max(0, now - self._filled_ms)
        self._filled_ms = max(now, self._filled_ms)
        self._thousandths = min(self._rate * BURST_MS, self._thousandths + passed_ms * self._rate)
