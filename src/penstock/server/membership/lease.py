"""The lease of this broker: until it expires, no other broker can lead in its place because its session ended.

An answered heartbeat extends the lease to two thirds of a session. After it expires this broker may be a stale leader,
which must not report the end of a log. The lease of a node that is the whole cluster never expires.
"""

from typing import Final

from penstock.model.ports import Clock
from penstock.model.signal import Signal
from penstock.server.controller.controller_runner import ControllerRunner

FOREVER_MS: Final = 1 << 62
LEASE_PART: Final = 2 / 3
"""Share of a session: a replaced controller may answer for a while before it learns of its successor."""


class Lease:
    """See the module."""

    def __init__(self, controller: ControllerRunner, clock: Clock) -> None:
        self._controller = controller
        self._clock = clock
        self._end_ms = 0
        self._is_own = False
        """Whether this node's own controller answered; its answer is valid only while it is active."""
        self.extended: Signal[[]] = Signal()
        """Emitted when the lease is extended."""

    def extend(self, asked_ms: int, session_ms: int) -> None:
        """Extends the lease after a controller answered a heartbeat that was sent at `asked_ms`."""
        self._end_ms = asked_ms + int(session_ms * LEASE_PART)
        self._is_own = self._controller.is_active
        self.extended()

    @property
    def until_ms(self) -> int:
        """The end of the lease on the monotonic clock; 0 if there is none."""
        if self._controller.is_alone:
            return FOREVER_MS
        if self._is_own and not self._controller.is_active:
            return 0
        return self._end_ms

    @property
    def is_in_touch(self) -> bool:
        """Whether the lease is running."""
        return self._clock.monotonic_ms() < self.until_ms
