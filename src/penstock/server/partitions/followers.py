"""Followers' fetches from a partition: full requests wait once; fetch sessions are notified of every change.

A session is notified by a mark in it, so a request in it reads the marked partitions and no others, however many
partitions the session has. Of each follower only the newest session is notified: requests of an older one arrive late,
from a closed connection, and must not replace it.
"""

from penstock.replication.fetch_sessions import RequestedPartition
from penstock.server.loop.waiters import Watchers


class Followers(Watchers):
    """The followers of one partition."""

    __slots__ = ("standing",)

    def __init__(self) -> None:
        super().__init__()
        self.standing: dict[int, RequestedPartition] = {}
        """The entry of this partition in each follower's session."""

    def stand(self, follower_id: int, requested: RequestedPartition) -> bool:
        """Registers a follower's session for changes unless a newer one is; returns whether it is registered."""
        before = self.standing.get(follower_id)
        if before is requested:
            return True
        if requested.session is None:
            return False
        if before is not None and before.session is not None and before.session.number > requested.session.number:
            return False
        self.standing[follower_id] = requested
        return True

    def notify(self) -> None:
        """Wakes waiting fetches after a change that is worth a response."""
        super().notify()
        self.mark(wakes=True)

    def mark(self, *, wakes: bool = False) -> None:
        """Marks a change that the next response of each session reports; `wakes` if waiting requests are answered."""
        for follower_id, requested in list(self.standing.items()):
            session = requested.session
            if session is None or session.is_over:
                del self.standing[follower_id]
            else:
                session.mark(requested, wakes=wakes)
