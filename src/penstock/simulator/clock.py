"""The Clock port of one node: a wall clock that may be wrong in every way, a monotonic one that may drift.

Wrong ways: an offset from the start, linear drift, a step, and a strobe (a square wave, as Jepsen's strobe does). The
monotonic clock starts afresh with every boot, so that nobody can keep its values across one.
"""

from collections.abc import Callable

WALL_START_MS = 1_800_000_000_000
"""What a right wall clock shows when the world begins."""

BOOT_MONOTONIC_MS = 5_000
"""What the monotonic clock shows when a machine boots."""


class SimulatedClock:
    """A clock that is right until told otherwise."""

    def __init__(self, time_s: Callable[[], float]) -> None:
        self._time_s = time_s
        self._began_s = time_s()
        self._anchor_s = self._began_s
        self._ahead_ms = 0.0
        """How far linear drift had taken us when the rate last changed."""
        self._drift_ppm = 0.0
        self._step_ms = 0.0
        self._strobe_ms = 0.0
        self._strobe_period_s = 1.0
        self._boot_local_ms = self._local_ms()
        self._monotonic_ms = 0

    def wall_ms(self) -> int:
        """Milliseconds since 1970, as this node believes."""
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
        """From now on both clocks run that many millionths too fast; 0 makes them run right, though not be right."""
        self._ahead_ms = self._local_ms() - self._true_ms()
        self._anchor_s = self._time_s()
        self._drift_ppm = ppm

    def step(self, ms: float) -> None:
        """The wall clock jumps forth or back."""
        self._step_ms += ms

    def strobe(self, ms: float, period_s: float) -> None:
        """The wall clock is off by `ms` in every second period; 0 ends that."""
        self._strobe_ms = ms
        self._strobe_period_s = period_s

    def set_right(self) -> None:
        """Somebody runs NTP: no error is left in the wall clock, and both run right."""
        self.drift(0.0)
        self.strobe(0.0, 1.0)
        self._step_ms = -self._ahead_ms

    def reboot(self) -> None:
        """The monotonic clock starts again."""
        self._boot_local_ms = self._local_ms()
        self._monotonic_ms = 0

    def _true_ms(self) -> float:
        return (self._time_s() - self._began_s) * 1000.0

    def _local_ms(self) -> float:
        drifted_ms = (self._time_s() - self._anchor_s) * self._drift_ppm / 1000.0
        return self._true_ms() + self._ahead_ms + drifted_ms
