"""A follower's fetch in a session that waits for changes or its deadline.

The counterpart of `long_poll` for sessions in which changed partitions are marked: starting to wait, waking up and
ending cost nothing for unchanged partitions.
"""

from collections.abc import Callable

from penstock.replication.fetch_sessions import Session
from penstock.server.connections.serving import Buffers
from penstock.server.fetching.poll import Poll
from penstock.server.fetching.reading import Reading


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
        if self._session.changes != self._changes:  # something changed since the last read
            self._look_soon()

    def _unwatch(self) -> None:
        if self._session.on_change == self._look_soon:  # else a later request waits, and this one was abandoned
            self._session.on_change = None
