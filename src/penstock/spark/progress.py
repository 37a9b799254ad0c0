"""Commits a query's progress to a consumer group, so that every tool that shows group lag shows the query's.

The group has no members, and its offsets are never read: a query resumes from its checkpoint alone. Commits run beside
the query, which waits for one at most WAIT_S. Of several pending commits only the last is made. A failed commit is
logged, and retried on a later call of the query. Unchanged offsets are committed again from time to time, because
brokers expire the offsets of empty groups.
"""

import logging
import time
from concurrent.futures import Future, wait

from penstock.client.blocking import SyncClient
from penstock.client.cluster import Cluster
from penstock.client.groups.commits import commit_offsets
from penstock.client.groups.coordinator_link import CoordinatorLink
from penstock.spark.offsets import Offsets

WAIT_S = 0.5
"""How long a query waits for a commit: a hundred times its normal duration."""
COMMIT_TIMEOUT_MS = 10_000
RETRY_S = 5.0
AGAIN_S = 600.0
"""Brokers keep the offsets of empty groups for days."""

log = logging.getLogger("penstock.spark")


class Progress:
    """See the module. One for each query and group; `client` must always be the same."""

    def __init__(self, group: str) -> None:
        self._group = group
        self._asked: Offsets | None = None
        self._due_s = 0.0
        self._works: list[Future[None]] = []
        # The attributes below belong to the client's event loop.
        self._link: CoordinatorLink | None = None
        self._wanted: Offsets = {}
        self._is_busy = False
        self._said = ""

    def reached(self, client: SyncClient, offsets: Offsets) -> None:
        """Commits offsets: all records before them are processed. Never raises."""
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
        """Waits for the commits under way, at most `wait_s`."""
        wait(self._works, wait_s)

    def close(self) -> None:
        """Waits briefly for the commits under way, then cancels them."""
        self.wait(WAIT_S)
        for each in self._works:
            each.cancel()

    async def _reach(self, cluster: Cluster, offsets: Offsets) -> None:
        self._wanted = offsets
        if self._is_busy:
            return  # the commit loop under way picks these up
        self._is_busy = True
        self._link = self._link or CoordinatorLink(cluster, self._group)
        try:
            while True:
                committing = self._wanted
                await commit_offsets(self._link, committing, timeout_ms=COMMIT_TIMEOUT_MS)
                if committing is self._wanted:
                    break
            self._said = ""
        except Exception as error:  # no error may stop the query
            self._due_s = min(self._due_s, time.monotonic() + RETRY_S)
            self._say(str(error))
        finally:
            self._is_busy = False

    def _say(self, reason: str) -> None:
        """Logs a failure, the same one only once in a row."""
        if reason != self._said:
            log.warning(
                "group %s is not told how far the query is, and its lag is not true meanwhile: %s. The query goes on.",
                self._group,
                reason.rstrip("."),
            )
            self._said = reason
