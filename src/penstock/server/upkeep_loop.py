"""What logs have done to them now and then: sealing, retention, forgetting idle producers.

One task, a few logs per turn with a pause between turns, so that ten thousand logs hold nobody up; between passes that
apply retention, only logs that were written to are looked at. Work on a log's
segments that is not an append holds `lock`: this loop, DeleteRecords, whoever removes a log, and whoever cancels this
task, which therefore never ends in the middle of something.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from penstock.log import upkeep
from penstock.log.directory import DataDirectory
from penstock.log.log import Log
from penstock.model.errors import CorruptBatch, ProtocolError
from penstock.model.ports import Clock
from penstock.server.partitions import Partitions

logger = logging.getLogger("penstock.upkeep")


@dataclass(frozen=True, slots=True)
class UpkeepSettings:
    """How often, and how much at once."""

    pause_ms: int = 20
    """Between two turns, while there is work."""
    pass_ms: int = 1_000
    """Between two passes over all logs that look for segments to seal."""
    retention_ms: int = 300_000
    """Between two passes that apply retention and forget idle producers (Kafka: log.retention.check.interval.ms)."""
    looks_per_turn_max: int = 1_000
    logs_per_turn_max: int = 32


DEFAULT_UPKEEP = UpkeepSettings()


class Upkeep:
    """The loop over one data directory."""

    def __init__(
        self,
        directory: DataDirectory,
        partitions: Partitions,
        clock: Clock,
        settings: UpkeepSettings = DEFAULT_UPKEEP,
        on_trouble: Callable[[Log, Exception], None] = lambda _log, _error: None,
    ) -> None:
        self._directory = directory
        self._partitions = partitions
        self._clock = clock
        self._settings = settings
        self._on_trouble = on_trouble
        self.lock = asyncio.Lock()
        self._waiting: deque[Log] = deque()
        self._unfinished: dict[int, Log] = {}
        """What is left to be sealed, but could not be yet."""
        self._has_seen_all = False
        self._troubles: dict[int, str] = {}
        self._applies_retention = False
        now_ms = clock.monotonic_ms()
        self._pass_at_ms = now_ms
        self._retention_at_ms = now_ms + settings.retention_ms
        self._tasks: dict[asyncio.Task[None], None] = {}
        self.on_trimmed: Callable[[Log], None] = lambda _log: None
        """Called when the start of a log has moved, durably."""

    async def run(self) -> None:
        """Until cancelled."""
        settings = self._settings
        while True:
            await self.turn()
            await asyncio.sleep((settings.pause_ms if self._waiting else settings.pass_ms) / 1000)

    async def turn(self) -> int:
        """A little of what is due; the number of logs that something was done to."""
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
        """Deletes records from the front."""
        async with self.lock:
            await upkeep.delete_before(log, self._directory.disk, offset)
        self._tell_start(log, wakes=True)

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs work that outlasts the request that it is for."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        del self._tasks[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.critical("Deleting records failed by a mistake of ours: restart the node.", exc_info=error)

    async def stop(self) -> None:
        """Ends what was begun. The lock is held: nothing stops in the middle of work on a log."""
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
            if self._applies_retention:  # first: it may free the room that sealing needs
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
        self.on_trimmed(log)

    def _tell(self, log: Log) -> None:
        """Whoever waits on a log that is offline learns it now."""
        partition = self._partitions.of_log(log.identity.number)
        if partition is not None:
            partition.advance()


def _is_sealed(log: Log) -> bool:
    return len(log.segments) - 1 == log.settled_segments
