"""A follower's fetch in a session that waits until there is something for it, or its time is up.

The twin of `long_poll` for sessions in which whoever changes a partition marks it: beginning to wait, being woken and
ending cost nothing for partitions to which nothing happens.
"""

from collections.abc import Callable

from penstock.replication.fetch_sessions import Session
from penstock.server.poll import Poll
from penstock.server.reading import Reading
from penstock.server.serving import Buffers


class SessionPoll(Poll):
    """One waiting fetch."""

    __slots__ = ("_changes", "_session")

    def __init__(
        self, reading: Reading, session: Session, bytes_min: int, deadline_s: float, answer: Callable[[], Buffers]
    ) -> None:
        """See `Poll`."""
        self._session = session
        self._changes = session.changes
        super().__init__(reading, bytes_min, deadline_s, answer)

    def _watch(self) -> None:
        self._session.on_change = self._look_soon
        if self._session.changes != self._changes:  # something came since the look
            self._look_soon()

    def _unwatch(self) -> None:
        if self._session.on_change == self._look_soon:  # else a later request waits, and this one was given up
            self._session.on_change = None
