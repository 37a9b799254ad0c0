"""The Clock port of one node: a wall clock with all kinds of errors, and a monotonic clock that may drift.

Kinds of errors: linear drift, a step, and a strobe (a square wave, as in Jepsen). The monotonic clock restarts with
every boot, so that its values cannot be used across one.
"""

from collections.abc import Callable

WALL_START_MS = 1_800_000_000_000
"""Time of a correct wall clock when the world begins."""

BOOT_MONOTONIC_MS = 5_000
"""Time of the monotonic clock when a machine boots."""


class SimulatedClock:
    """A clock that is correct until a fault is set."""

    def __init__(self, time_s: Callable[[], float]) -> None:
        self._time_s = time_s
        self._began_s = time_s()
        self._anchor_s = self._began_s
        self._ahead_ms = 0.0
        """Error due to linear drift when the rate last changed."""
        self._drift_ppm = 0.0
        self._step_ms = 0.0
        self._strobe_ms = 0.0
        self._strobe_period_s = 1.0
        self._boot_local_ms = self._local_ms()
        self._monotonic_ms = 0

    def wall_ms(self) -> int:
        """Milliseconds since 1970 by this node's clock."""
        strobe_ms = 0.0
        if self._strobe_ms and int((self._time_s() - self._began_s) / self._strobe_period_s) % 2:
            strobe_ms = self._strobe_ms
        return WALL_START_MS + int(self._local_ms() + self._step_ms + strobe_ms)

    def monotonic_ms(self) -> int:
        """Milliseconds since shortly before the boot."""
        now_ms = BOOT_MONOTONIC_MS + int(self._local_ms() - self._boot_local_ms)
        self._monotonic_ms = max(self._monotonic_ms, now_ms)
        return self._monotonic_ms

    def drift(self, ppm: float) -> None:
        """Makes both clocks run `ppm` millionths too fast; 0 corrects the rate, but not the time."""
        self._ahead_ms = self._local_ms() - self._true_ms()
        self._anchor_s = self._time_s()
        self._drift_ppm = ppm

    def step(self, ms: float) -> None:
        """Moves the wall clock forward or back."""
        self._step_ms += ms

    def strobe(self, ms: float, period_s: float) -> None:
        """Shifts the wall clock by `ms` in every second period; 0 ends that."""
        self._strobe_ms = ms
        self._strobe_period_s = period_s

    def set_right(self) -> None:
        """Corrects the wall clock, and the rate of both clocks, as NTP does."""
        self.drift(0.0)
        self.strobe(0.0, 1.0)
        self._step_ms = -self._ahead_ms

    def reboot(self) -> None:
        """Restarts the monotonic clock."""
        self._boot_local_ms = self._local_ms()
        self._monotonic_ms = 0

    def _true_ms(self) -> float:
        return (self._time_s() - self._began_s) * 1000.0

    def _local_ms(self) -> float:
        drifted_ms = (self._time_s() - self._anchor_s) * self._drift_ppm / 1000.0
        return self._true_ms() + self._ahead_ms + drifted_ms
