"""How far a pipeline is: what it has read, what it lacks, how fast it goes, and when it will be there. Numbers only."""

from collections import deque
from dataclasses import dataclass

from penstock.spark.offsets import Stored

WINDOW_S = 60.0
Ends = dict[str, dict[str, int]]


@dataclass(frozen=True, slots=True)
class Reading:
    """What is shown."""

    done: int
    """Records read in this run."""
    lag: int
    lag_s: float | None
    """How old the newest record in the table is, while there are newer ones; 0 when there are none."""
    rows_per_s: float
    eta_s: float | None
    """None while it does not get nearer."""

    @property
    def percent(self) -> int:
        """Of what there is to do in this run; 100 only when there is nothing left."""
        total = self.done + self.lag
        return 100 if not self.lag else min(99, 100 * self.done // total)


class Gauge:
    """Takes in positions as they become known."""

    def __init__(self, position: Stored) -> None:
        self._first = position
        self._position = position
        self._latest: Stored = {}
        self._newest_us: int | None = None
        self._rows: deque[tuple[float, int]] = deque()
        self._lags: deque[tuple[float, int]] = deque()

    def wrote(self, now_s: float, position: Stored, rows: int, newest_us: int | None) -> None:
        """A batch is in."""
        self._position = position
        self._rows.append((now_s, rows))
        if newest_us is not None:
            self._newest_us = max(newest_us, self._newest_us or newest_us)

    def saw(self, now_s: float, latest: Stored) -> None:
        """Where the topic ends."""
        self._latest = latest
        self._lags.append((now_s, self._lag()))

    def read(self, now_s: float, wall_us: int) -> Reading:
        """How things stand."""
        self._forget(now_s)
        lag = self._lag()
        rows_per_s = self._rate(now_s)
        return Reading(
            between(self._first, self._position), lag, self._lag_s(lag, wall_us), rows_per_s, self._eta_s(lag)
        )

    def _lag(self) -> int:
        return between(self._position, self._latest)

    def _lag_s(self, lag: int, wall_us: int) -> float | None:
        if not lag:
            return 0.0
        return None if self._newest_us is None else max(0.0, (wall_us - self._newest_us) / 1_000_000)

    def _rate(self, now_s: float) -> float:
        """The first batch of the window says only when it began."""
        if len(self._rows) < 2:
            return 0.0
        begun_s = self._rows[0][0]
        return sum(rows for _, rows in list(self._rows)[1:]) / max(now_s - begun_s, 0.001)

    def _eta_s(self, lag: int) -> float | None:
        """By how fast the lag has shrunk: what comes in meanwhile is in it."""
        if not lag:
            return 0.0
        if len(self._lags) < 2:
            return None
        (begun_s, before), (ended_s, after) = self._lags[0], self._lags[-1]
        if after >= before or ended_s <= begun_s:
            return None
        return after * (ended_s - begun_s) / (before - after)

    def _forget(self, now_s: float) -> None:
        for history in (self._rows, self._lags):
            while len(history) > 2 and now_s - history[0][0] > WINDOW_S:
                history.popleft()


def between(start: Stored, end: Stored) -> int:
    """How many offsets lie between them. An unknown start (or -2, the earliest) counts as the first offset."""
    return sum(
        max(0, offset - max(0, start.get(topic, {}).get(partition, 0)))
        for topic, offsets in end.items()
        for partition, offset in offsets.items()
    )
