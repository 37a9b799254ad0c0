"""A pipeline's progress: records read, lag, rate, and time until it has caught up. Numbers only.

The lag is known only while the topic's end offsets are: a broker that stopped responding may hold new records, or none.
"""

from collections import deque
from dataclasses import dataclass

from penstock.spark.offsets import Stored

WINDOW_S = 60.0
FRESH_S = 4.0
"""How old end offsets may be. They are polled every second."""
Ends = dict[str, dict[str, int]]


@dataclass(frozen=True, slots=True)
class Reading:
    """The progress at one moment."""

    done: int
    """Records read in this run."""
    lag: int | None
    """None while the end offsets of the topic are not known."""
    lag_s: float | None
    """The age of the newest record in the table while there is lag, None if unknown; 0 without lag."""
    rows_per_s: float
    eta_s: float | None
    """None while the lag is not known, or does not shrink."""
    is_broker_away: bool = False
    """Whether the broker has not answered for some seconds."""

    @property
    def percent(self) -> int | None:
        """The part of this run's work that is done; 100 only if there is no lag, None if the lag is not known."""
        if self.lag is None:
            return None
        return 100 if not self.lag else min(99, 100 * self.done // (self.done + self.lag))


class Gauge:
    """Computes readings from positions as they become known."""

    def __init__(self, position: Stored) -> None:
        self._first = position
        self._position = position
        self._latest: Stored | None = None
        self._answered_s: float | None = None
        """When the broker answered last; at first, when that was first of interest."""
        self._is_broker_away = False
        self._newest_us: int | None = None
        self._rows: deque[tuple[float, int]] = deque()
        self._lags: deque[tuple[float, int]] = deque()

    def wrote(self, now_s: float, position: Stored, rows: int, newest_us: int | None) -> None:
        """Records a committed batch."""
        self._position = position
        self._rows.append((now_s, rows))
        if newest_us is not None:
            self._newest_us = max(newest_us, self._newest_us or newest_us)

    def saw(self, now_s: float, latest: Stored) -> None:
        """Records the end offsets of the topic."""
        self._latest = latest
        self._answered_s, self._is_broker_away = now_s, False
        self._lags.append((now_s, between(self._position, latest)))

    def missed(self, now_s: float, *, is_broker_away: bool) -> None:
        """Records that the end offsets could not be determined: no broker answers, or one refuses to name them."""
        self._latest = None
        self._is_broker_away = is_broker_away
        if not is_broker_away:
            self._answered_s = now_s

    def read(self, now_s: float, wall_us: int) -> Reading:
        """The current reading."""
        self._forget(now_s)
        is_away = self._is_away(now_s)
        lag = None if is_away or self._latest is None else between(self._position, self._latest)
        done = between(self._first, self._position)
        return Reading(done, lag, self._lag_s(lag, wall_us), self._rate(now_s), self._eta_s(lag), is_away)

    def _is_away(self, now_s: float) -> bool:
        if self._answered_s is None:
            self._answered_s = now_s
        return self._is_broker_away or now_s - self._answered_s > FRESH_S

    def _lag_s(self, lag: int | None, wall_us: int) -> float | None:
        if lag == 0:
            return 0.0
        return None if lag is None or self._newest_us is None else max(0.0, (wall_us - self._newest_us) / 1_000_000)

    def _rate(self, now_s: float) -> float:
        """Rows per second. The first batch of the window only marks its start."""
        if len(self._rows) < 2:
            return 0.0
        begun_s = self._rows[0][0]
        return sum(rows for _, rows in list(self._rows)[1:]) / max(now_s - begun_s, 0.001)

    def _eta_s(self, lag: int | None) -> float | None:
        """Time until the lag is gone, at the rate at which it shrank; new records are accounted for."""
        if lag == 0:
            return 0.0
        if lag is None or len(self._lags) < 2:
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
    """How many offsets lie between `start` and `end`. An unknown start (or -2, the earliest) counts as 0."""
    return sum(
        max(0, offset - max(0, start.get(topic, {}).get(partition, 0)))
        for topic, offsets in end.items()
        for partition, offset in offsets.items()
    )
