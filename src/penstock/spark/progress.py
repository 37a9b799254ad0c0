"""How far a query is, told to a consumer group, so that everything that shows the lag of groups shows the query's.

Nobody joins the group, and nothing is ever read from it: only the checkpoint says where a query goes on. A commit runs
beside the query, which waits for it a moment at most. Of several that are due only the last is made. One that fails is
said, and made again when the query comes by. What does not change is committed again from time to time, because
brokers forget the offsets of groups that nobody is in.
"""

import logging
import time
from concurrent.futures import Future, wait

from penstock.client.blocking import SyncClient
from penstock.client.cluster import Cluster
from penstock.client.commits import commit_offsets
from penstock.client.coordinator_link import CoordinatorLink
from penstock.spark.offsets import Offsets

WAIT_S = 0.5
"""As long as a query waits for a commit: a hundred times what it takes when all is well."""
COMMIT_TIMEOUT_MS = 10_000
RETRY_S = 5.0
AGAIN_S = 600.0
"""Brokers keep such offsets for days."""

log = logging.getLogger("penstock.spark")


class Progress:
    """See the module. One for each query and group; `client` is always the same."""

    def __init__(self, group: str) -> None:
        self._group = group
        self._asked: Offsets | None = None
        self._due_s = 0.0
        self._works: list[Future[None]] = []
        # Below is the client's loop's.
        self._link: CoordinatorLink | None = None
        self._wanted: Offsets = {}
        self._is_busy = False
        self._said = ""

    def reached(self, client: SyncClient, offsets: Offsets) -> None:
        """Everything before these offsets is done. Never fails."""
        now_s = time.monotonic()
        if offsets == self._asked and now_s < self._due_s:
            return
        self._asked = dict(offsets)
        self._due_s = now_s + AGAIN_S
        self._works = [each for each in self._works if not each.done()]
        is_behind = bool(self._works)
        self._works.append(client.start(self._reach(client.admin.cluster, self._asked)))
        if not is_behind:
            self.wait(WAIT_S)

    def wait(self, wait_s: float) -> None:
        """Until what was begun is through, or for so long."""
        wait(self._works, wait_s)

    def close(self) -> None:
        """Gives up what takes too long."""
        self.wait(WAIT_S)
        for each in self._works:
            each.cancel()

    async def _reach(self, cluster: Cluster, offsets: Offsets) -> None:
        self._wanted = offsets
        if self._is_busy:
            return  # whoever is at it goes on with these
        self._is_busy = True
        self._link = self._link or CoordinatorLink(cluster, self._group)
        try:
            while True:
                committing = self._wanted
                await commit_offsets(self._link, committing, timeout_ms=COMMIT_TIMEOUT_MS)
                if committing is self._wanted:
                    break
            self._said = ""
        except Exception as error:  # the query must go on, whatever it is
            self._due_s = min(self._due_s, time.monotonic() + RETRY_S)
            self._say(str(error))
        finally:
            self._is_busy = False

    def _say(self, reason: str) -> None:
        """The same only once in a row."""
        if reason != self._said:
            log.warning(
                "group %s is not told how far the query is, and its lag is not true meanwhile: %s. The query goes on.",
                self._group,
                reason.rstrip("."),
            )
            self._said = reason
