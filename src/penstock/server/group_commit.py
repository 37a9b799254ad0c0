"""Runs rounds of group commit, one after the other, for as long as there is something to make durable.

A round takes whatever was appended while the one before it was on its way to the disk; so the busier the node, the
larger its rounds, and the cheaper each record. Logs whose appends do not wait for syncs (durability "replicated") are
covered when their time is over: their `flush.ms`, or UNHURRIED_MS.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from penstock.log.directory import DataDirectory
from penstock.log.log import Log
from penstock.model.errors import DiskFull
from penstock.server.timing import Timing

logger = logging.getLogger("penstock.commit")

RETRY_S: Final = 1.0
UNHURRIED_MS: Final = 10_000
"""Until what was appended without waiting is synced all the same, where `flush.ms` says nothing."""


class GroupCommit:
    """The rounds of one data directory. `on_round` is told which logs each covered, also those that failed."""

    def __init__(self, directory: DataDirectory, on_round: Callable[[Sequence[Log]], None]) -> None:
        self._directory = directory
        self._on_round = on_round
        self._dirty = asyncio.Event()
        directory.on_dirty = self._dirty.set
        directory.on_unhurried = self._give_time
        self._timer: asyncio.TimerHandle | None = None
        if directory.is_dirty:
            self._dirty.set()
        self.rounds = 0
        self.timing = Timing()
        """How long they took."""
        self._is_stopping = False

    def stop(self) -> None:
        """Ends `run` between two rounds: never cancel a round, its syncs cannot be taken back."""
        self._is_stopping = True
        self._dirty.set()
        if self._timer is not None:
            self._timer.cancel()

    async def run(self) -> None:
        """Until `stop`."""
        while True:
            await self._dirty.wait()
            if self._is_stopping:
                return
            self._dirty.clear()
            began_s = asyncio.get_running_loop().time()
            try:
                covered = await self._directory.commit()
            except DiskFull as error:
                logger.warning("Nothing can be acknowledged, which is tried again every second: %s.", error)
                covered = list(self._directory.logs.values())  # some may have failed for another reason
                await asyncio.sleep(RETRY_S)
            self.rounds += 1
            self.timing.note(asyncio.get_running_loop().time() - began_s)
            self._on_round(covered)

    def _give_time(self, log: Log) -> None:
        flush_ms = log.settings.flush_ms
        loop = asyncio.get_running_loop()
        if flush_ms is not None:
            loop.call_later(flush_ms / 1000, self._directory.hurry, log)
        elif self._timer is None and not self._is_stopping:
            self._timer = loop.call_later(UNHURRIED_MS / 1000, self._hurry_all)

    def _hurry_all(self) -> None:
        self._timer = None
        self._directory.hurry()
