"""Histogram of durations whose buckets are powers of two of microseconds, so that recording costs an addition.

Counts are kept for the life of the process; the difference of two reads covers the interval between them.
"""

from collections.abc import Iterator
from typing import Final

BUCKETS: Final = 32
"""The last bucket takes all longer durations."""
FIRST_SHOWN: Final = 6
LAST_SHOWN: Final = 25
"""From 64 µs to 33.6 s: shorter or longer durations are not distinguished."""


class Timing:
    """The durations of one kind of operation."""

    __slots__ = ("counts", "sum_s")

    def __init__(self) -> None:
        self.counts = [0] * BUCKETS
        """By the bit length of the number of whole microseconds."""
        self.sum_s = 0.0

    def note(self, duration_s: float) -> None:
        """Records a duration."""
        try:
            self.counts[int(duration_s * 1e6).bit_length()] += 1
        except IndexError:
            self.counts[-1] += 1
        self.sum_s += duration_s

    @property
    def count(self) -> int:
        """Number of recorded durations."""
        return sum(self.counts)

    def cumulated(self) -> Iterator[tuple[float, int]]:
        """Bounds in seconds, each with the number of durations up to it."""
        for bits in range(FIRST_SHOWN, LAST_SHOWN + 1):
            yield (1 << bits) / 1e6, sum(self.counts[: bits + 1])
