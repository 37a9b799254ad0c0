"""Watches free disk space: a full broker hands over leadership and leaves the ISR.

A disk counts as full once it has refused writes or was nearly full for PATIENCE_MS. It counts as writable again once
there has been enough free space for a while, which is longer each time the disk fills up again soon. So a broker whose
disk is emptied slowly does not change its state all the time. Partitions that no other broker can lead stay here: they
can be read, and are written as far as space allows.
"""

import asyncio
import logging
from typing import Final

from penstock.log.directory import DataDirectory
from penstock.model.ports import Clock
from penstock.server.membership.membership import Membership

logger = logging.getLogger("penstock.room")

LOOK_S: Final = 0.25
PATIENCE_MS: Final = 1_000
"""How long the signs of a full disk must last."""
SIGNS_APART_MS: Final = 2_500
"""Signs further apart than this are unrelated; a follower retries every second."""
RETURN_MS: Final = 5_000
"""How long there must be free space before the disk counts as writable."""
RETURN_MS_MAX: Final = 300_000
CALM_MS: Final = 600_000
"""If the disk fills up again within this time, the next wait for free space is twice as long."""
ROOM_TIMES: Final = 8
"""A full disk has space again when this many times the minimum is free."""


class Room:
    """Decides whether the disk is full. Less than `least_bytes` free counts as nearly full."""

    def __init__(self, least_bytes: int, *, is_full: bool, now: int) -> None:
        self._least_bytes = least_bytes
        self.is_full = is_full
        self._refusals = 0
        self._first_ms = now - SIGNS_APART_MS
        """When the current signs began."""
        self._last_ms = now if is_full else now - 2 * SIGNS_APART_MS
        self._return_ms = RETURN_MS
        self._returned_ms = now - CALM_MS

    def look(self, free_bytes: int, refusals: int, now: int) -> bool:
        """Takes the free space and the total number of refused writes; returns whether `is_full` changed."""
        least_bytes = self._least_bytes * (ROOM_TIMES if self.is_full else 1)
        is_sign = refusals > self._refusals or free_bytes < least_bytes
        self._refusals = refusals
        before = self.is_full
        if is_sign:
            if now - self._last_ms > SIGNS_APART_MS:
                self._first_ms = now
            self._last_ms = now
            if not before and now - self._first_ms >= PATIENCE_MS:
                self._fill(now)
        elif before and now - self._last_ms >= self._return_ms:
            self.is_full = False
            self._returned_ms = now
        return self.is_full != before

    def _fill(self, now: int) -> None:
        self.is_full = True
        is_soon = now - self._returned_ms < CALM_MS
        self._return_ms = min(2 * self._return_ms, RETURN_MS_MAX) if is_soon else RETURN_MS


class DiskSpaceWatch:
    """Checks the disk periodically and reports changes through the heartbeat."""

    def __init__(self, directory: DataDirectory, membership: Membership, clock: Clock) -> None:
        self._directory = directory
        self._membership = membership
        self._clock = clock
        least_bytes = directory.pool.reserve.size_bytes
        is_full = self._free_bytes() < least_bytes
        self.room = Room(least_bytes, is_full=is_full, now=clock.monotonic_ms())
        membership.can_write = not is_full

    async def run(self) -> None:
        """Runs until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            self.look()

    def _free_bytes(self) -> int:
        try:
            return self._directory.disk.free_bytes()
        except OSError:  # a disk that does not respond counts as full
            return 0

    def look(self) -> None:
        """Checks once."""
        directory, room = self._directory, self.room
        if directory.offline_reason is not None or (room.is_full and not directory.takes_files()):
            directory.pool.refusals += 1
        if not room.look(self._free_bytes(), directory.pool.refusals, self._clock.monotonic_ms()):
            return
        if room.is_full:
            logger.warning(
                "The disk is full: until there is room, others lead what was led here, where there are such, and what "
                "is still led here can only be read. Free space, or move replicas to brokers that have some."
            )
        else:
            logger.warning("There is room on the disk again: this broker catches up, and may lead again.")
        self._membership.tell_disk(can_write=not room.is_full)
