"""Runs rounds of group commit, one after the other, while there are appends to make durable.

A round covers all appends made during the sync of the previous round; so the busier the node, the larger its rounds,
and the cheaper each record. Logs whose appends do not wait for syncs (durability "replicated") are covered after a
delay: their `flush.ms`, or UNHURRIED_MS.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from penstock.log.directory import DataDirectory
from penstock.log.log import Log
from penstock.model.errors import DiskFull
from penstock.model.signal import Signal
from penstock.server.loop.timing import Timing

logger = logging.getLogger("penstock.commit")

RETRY_S: Final = 1.0
UNHURRIED_MS: Final = 10_000
"""Delay until appends that do not wait for a sync are synced, where `flush.ms` is not set."""


class GroupCommit:
    """Group commit of one data directory."""

    def __init__(self, directory: DataDirectory) -> None:
        self._directory = directory
        self._dirty = asyncio.Event()
        directory.became_dirty.connect(self._dirty.set)
        directory.was_unhurried.connect(self._give_time)
        self._timer: asyncio.TimerHandle | None = None
        if directory.is_dirty:
            self._dirty.set()
        self.covered: Signal[[Sequence[Log]]] = Signal()
        """Emitted after each round with the logs that it covered, including those that failed."""
        self.rounds = 0
        self.timing = Timing()
        """Durations of the rounds."""
        self._is_stopping = False

    def stop(self) -> None:
        """Ends `run` between two rounds. A round must not be cancelled: its syncs cannot be undone."""
        self._is_stopping = True
        self._dirty.set()
        if self._timer is not None:
            self._timer.cancel()

    async def run(self) -> None:
        """Runs rounds until `stop`."""
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
            self.covered(covered)

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
