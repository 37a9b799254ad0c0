"""Followers' fetches at a partition: full requests wait once; those in sessions are told of every change.

A session is told by a mark in it, so a request in it looks at what was marked and at nothing else, however many
partitions the session has. Of each follower only the newest session is told: requests of an older one come late, from a
connection that is gone, and must not take its place.
"""

from penstock.replication.fetch_sessions import Wanted
from penstock.server.waiters import Watchers


class Followers(Watchers):
    """Those of one partition."""

    __slots__ = ("standing",)

    def __init__(self) -> None:
        super().__init__()
        self.standing: dict[int, Wanted] = {}
        """What each follower wants in its session."""

    def stand(self, follower_id: int, wanted: Wanted) -> bool:
        """A follower's session is told from now on, unless it has a newer one; whether it is."""
        before = self.standing.get(follower_id)
        if before is wanted:
            return True
        if wanted.session is None:
            return False
        if before is not None and before.session is not None and before.session.number > wanted.session.number:
            return False
        self.standing[follower_id] = wanted
        return True

    def notify(self) -> None:
        """Something changed that is worth an answer."""
        super().notify()
        self.mark(wakes=True)

    def mark(self, *, wakes: bool = False) -> None:
        """Something changed that the next answer is to tell."""
        for follower_id, wanted in list(self.standing.items()):
            session = wanted.session
            if session is None or session.is_over:
                del self.standing[follower_id]
            else:
                session.mark(wanted, wakes=wakes)
