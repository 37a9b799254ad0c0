"""The machine's clocks."""

from time import monotonic_ns, time_ns

NS_PER_MS = 1_000_000


class HostClock:
    """Current time."""

    __slots__ = ()

    def wall_ms(self) -> int:
        """Milliseconds since 1970; may jump."""
        return time_ns() // NS_PER_MS

    def monotonic_ms(self) -> int:
        """Milliseconds since an arbitrary origin; never goes back."""
        return monotonic_ns() // NS_PER_MS
