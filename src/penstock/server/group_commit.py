"""Runs rounds of group commit, one after the other, for as long as there is something to make durable.

A round takes whatever was appended while the one before it was on its way to the disk; so the busier the node, the
larger its rounds, and the cheaper each record.
"""

import asyncio
from collections.abc import Callable, Sequence

from penstock.log.directory import DataDirectory
from penstock.log.log import Log


class GroupCommit:
    """The rounds of one data directory. `on_round` is told which logs each covered, also those that failed."""

    def __init__(self, directory: DataDirectory, on_round: Callable[[Sequence[Log]], None]) -> None:
        self._directory = directory
        self._on_round = on_round
        self._dirty = asyncio.Event()
        directory.on_dirty = self._dirty.set
        if directory.is_dirty:
            self._dirty.set()
        self.rounds = 0
        self._is_stopping = False

    def stop(self) -> None:
        """Ends `run` between two rounds: never cancel a round, its syncs cannot be taken back."""
        self._is_stopping = True
        self._dirty.set()

    async def run(self) -> None:
        """Until `stop`."""
        while True:
            await self._dirty.wait()
            if self._is_stopping:
                return
            self._dirty.clear()
            covered = await self._directory.commit()
            self.rounds += 1
            self._on_round(covered)
