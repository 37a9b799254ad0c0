"""Rate limit for copying all replicas that are being moved to this broker: a token bucket."""

from typing import Final

BURST_MS: Final = 1_000
"""Unused capacity of this much time may be used later."""


class Throttle:
    """A token bucket in bytes per second. It may be overdrawn, and is then closed until it has refilled.

    A response arrives whole, however large it is.
    """

    __slots__ = ("_filled_ms", "_rate", "_thousandths")

    def __init__(self, bytes_per_second_max: int, now: int) -> None:
        self._rate = max(1, bytes_per_second_max)
        self._thousandths = self._rate * BURST_MS
        """Available thousandths of bytes: a rate times milliseconds, without fractions."""
        self._filled_ms = now

    def set_rate(self, bytes_per_second_max: int, now: int) -> None:
        """Changes the rate."""
        self._fill(now)
        self._rate = max(1, bytes_per_second_max)
        self._thousandths = min(self._thousandths, self._rate * BURST_MS)

    def take(self, size_bytes: int, now: int) -> None:
        """Subtracts received bytes."""
        self._fill(now)
        self._thousandths -= size_bytes * 1_000

    def opens_at(self, now: int) -> int:
        """When copying may continue: now, or when the bucket is no longer empty."""
        self._fill(now)
        if self._thousandths > 0:
            return now
        return now + -self._thousandths // self._rate + 1

    def _fill(self, now: int) -> None:
        passed_ms = max(0, now - self._filled_ms)
        self._filled_ms = max(now, self._filled_ms)
        self._thousandths = min(self._rate * BURST_MS, self._thousandths + passed_ms * self._rate)
