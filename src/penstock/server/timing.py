"""How long things take: a histogram whose buckets are powers of two of microseconds, so that a note costs an addition.

Whatever is counted is counted for the life of the process; whoever reads it twice knows what came in between.
"""

from collections.abc import Iterator
from typing import Final

BUCKETS: Final = 32
"""The last one takes whatever is longer."""
FIRST_SHOWN: Final = 6
LAST_SHOWN: Final = 25
"""From 64 µs to 33.6 s: what is shorter or longer is not told apart."""


class Timing:
    """The durations of one kind of thing."""

    __slots__ = ("counts", "sum_s")

    def __init__(self) -> None:
        self.counts = [0] * BUCKETS
        """By how many bits the number of whole microseconds has."""
        self.sum_s = 0.0

    def note(self, duration_s: float) -> None:
        """Something took so long."""
        try:
            self.counts[int(duration_s * 1e6).bit_length()] += 1
        except IndexError:
            self.counts[-1] += 1
        self.sum_s += duration_s

    @property
    def count(self) -> int:
        """How many there were."""
        return sum(self.counts)

    def cumulated(self) -> Iterator[tuple[float, int]]:
        """Bounds in seconds, and how many took no longer."""
        for bits in range(FIRST_SHOWN, LAST_SHOWN + 1):
            yield (1 << bits) / 1e6, sum(self.counts[: bits + 1])
