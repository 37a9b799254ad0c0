"""Periodic upkeep of logs: sealing of segments, retention, expiry of idle producers.

One task handles a few logs per turn with a pause between turns, so that ten thousand logs delay no request; between
passes that apply retention, only logs that were written to are checked. Work on a log's segments that is not an append
holds `lock`: this loop, DeleteRecords, the removal of a log, and the cancellation of this task, which therefore never
ends in the middle of work on a log.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

from penstock.log import upkeep
from penstock.log.directory import DataDirectory
from penstock.log.log import Log
from penstock.model.errors import CorruptBatch, ProtocolError
from penstock.model.ports import Clock
from penstock.model.signal import Signal
from penstock.server.partitions.partitions import Partitions
from penstock.server.settings import DEFAULT_UPKEEP, UpkeepSettings

logger = logging.getLogger("penstock.upkeep")


def _log_trouble(log: Log, error: Exception) -> None:
    logger.warning("Upkeep of %s did not succeed: %s", log.path, error)


class Upkeep:
    """The loop over one data directory."""

    def __init__(
        self,
        directory: DataDirectory,
        partitions: Partitions,
        clock: Clock,
        lock: asyncio.Lock,
        settings: UpkeepSettings = DEFAULT_UPKEEP,
        on_trouble: Callable[[Log, Exception], None] = _log_trouble,
    ) -> None:
        self._directory = directory
        self._partitions = partitions
        self._clock = clock
        self._settings = settings
        self._on_trouble = on_trouble
        self.lock = lock
        self._waiting: deque[Log] = deque()
        self._unfinished: dict[int, Log] = {}
        """Logs with segments that could not be sealed yet."""
        self._has_seen_all = False
        self._troubles: dict[int, str] = {}
        self._applies_retention = False
        now_ms = clock.monotonic_ms()
        self._pass_at_ms = now_ms
        self._retention_at_ms = now_ms + settings.retention_ms
        self._tasks: dict[asyncio.Task[None], None] = {}
        self.trimmed: Signal[[Log]] = Signal()
        """Emitted when the start of a log has moved durably."""

    async def run(self) -> None:
        """Runs until cancelled."""
        settings = self._settings
        while True:
            await self.turn()
            await asyncio.sleep((settings.pause_ms if self._waiting else settings.pass_ms) / 1000)

    async def turn(self) -> int:
        """Does a part of the due work; returns the number of logs worked on."""
        now_ms = self._clock.monotonic_ms()
        if not self._waiting and now_ms >= self._pass_at_ms:
            self._begin_pass(now_ms)
            await self._directory.outlast()
        worked = 0
        for _ in range(min(len(self._waiting), self._settings.looks_per_turn_max)):
            log = self._waiting.popleft()
            if not self._has_work(log):
                continue
            async with self.lock:
                await self._work(log)
            worked += 1
            if worked >= self._settings.logs_per_turn_max:
                break
        return worked

    async def delete_before(self, log: Log, offset: int) -> None:
        """Deletes the records before `offset`."""
        async with self.lock:
            await upkeep.delete_before(log, self._directory.disk, offset)
        self._tell_start(log, wakes=True)

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Starts work that outlasts its request."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        del self._tasks[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.critical("Deleting records failed by a mistake of ours: restart the node.", exc_info=error)

    async def stop(self) -> None:
        """Cancels work started by `begin`. The caller holds the lock: no work on a log is interrupted."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _begin_pass(self, now_ms: int) -> None:
        self._pass_at_ms = now_ms + self._settings.pass_ms
        self._applies_retention = now_ms >= self._retention_at_ms
        if self._applies_retention:
            self._retention_at_ms = now_ms + self._settings.retention_ms
        written = {**self._unfinished, **{log.identity.number: log for log in self._directory.take_written()}}
        is_for_all = self._applies_retention or not self._has_seen_all
        self._waiting.extend(self._directory.logs.values() if is_for_all else written.values())
        self._has_seen_all = True
        self._unfinished = {}
        self._directory.keep_room()

    def _has_work(self, log: Log) -> bool:
        return log.offline_reason is None and (self._applies_retention or not _is_sealed(log))

    async def _work(self, log: Log) -> None:
        try:
            if self._applies_retention:  # first: it may free the disk space that sealing needs
                before = log.start_offset
                await upkeep.apply_retention(log, self._directory.disk, self._clock.wall_ms())
                if log.start_offset != before:
                    self._tell_start(log, wakes=False)
            await upkeep.settle(log, self._directory.disk)
            self._troubles.pop(log.identity.number, None)
        except (ProtocolError, OSError) as error:
            if isinstance(error, CorruptBatch):
                log.suspicion = str(error)
            if self._troubles.get(log.identity.number) != str(error):  # a full disk stays full for a while
                self._troubles[log.identity.number] = str(error)
                self._on_trouble(log, error)
        if log.offline_reason is not None:
            self._tell(log)
        elif not _is_sealed(log):
            self._unfinished[log.identity.number] = log

    def _tell_start(self, log: Log, *, wakes: bool) -> None:
        partition = self._partitions.of_log(log.identity.number)
        if partition is not None:
            partition.on_trimmed(wakes=wakes)
        self.trimmed(log)

    def _tell(self, log: Log) -> None:
        """Fails the waiters of a log that is offline."""
        partition = self._partitions.of_log(log.identity.number)
        if partition is not None:
            partition.advance()


def _is_sealed(log: Log) -> bool:
    return len(log.segments) - 1 == log.settled_segments
