"""Disk space. A full disk is not a failed disk: a refused write is undone and may be retried.

Freeing space on a full disk needs a little space itself: a deletion is recorded before any file is removed. So each
data directory keeps a reserve, a file of zeros that is released only for operations that free space or that a start
needs. It is synced when there is time: a disk may become full while a node that has lost its power is down.
"""

from collections.abc import Callable
from contextlib import suppress
from errno import EDQUOT, ENOSPC
from typing import TypeVar

from penstock.model.errors import DiskFull
from penstock.model.limits import MIB
from penstock.model.ports import Disk

T = TypeVar("T")

RESERVE = "reserve"
RESERVE_BYTES = MIB
_PIECE_BYTES_MIN = 512


def is_full(error: OSError) -> bool:
    """Whether the disk or the quota is full."""
    return error.errno in (ENOSPC, EDQUOT)


def full_or(error: OSError) -> Exception:
    """DiskFull if the error means a full disk, otherwise the error itself."""
    return DiskFull(f"the disk is full: {error}; free space and try again") if is_full(error) else error


class Reserve:
    """Reserved disk space. A size of zero reserves none."""

    def __init__(self, disk: Disk, size_bytes: int) -> None:
        self._disk = disk
        self.size_bytes = size_bytes
        self.held_bytes = 0
        self._synced_bytes = 0
        self._times_spent = 0

    def find(self) -> None:
        """Adopts the reserve of an earlier run."""
        if self.size_bytes and self._disk.exists(RESERVE):
            file = self._disk.open(RESERVE)
            self.held_bytes = file.size()
            file.close()

    def fill(self) -> None:
        """Allocates the missing part of the reserve, as far as there is space."""
        if self.held_bytes >= self.size_bytes:
            return
        with suppress(OSError):  # retried later
            file = self._disk.open(RESERVE, create=True)
            try:
                self.held_bytes = file.size()
                piece_bytes = self.size_bytes
                while (missing := self.size_bytes - self.held_bytes) > 0 and piece_bytes >= _PIECE_BYTES_MIN:
                    with suppress(OSError):
                        file.write(self.held_bytes, bytes(min(missing, piece_bytes)))
                    self.held_bytes = file.size()
                    piece_bytes //= 2
            finally:
                file.close()

    async def outlast(self) -> None:
        """Makes the reserve survive a power cut."""
        held_bytes, times_spent = self.held_bytes, self._times_spent
        if held_bytes == self._synced_bytes:
            return
        with suppress(OSError):  # retried later
            file = self._disk.open(RESERVE)
            try:
                await file.sync()
            finally:
                file.close()
            await self._disk.sync_dir("")
            if times_spent == self._times_spent:
                self._synced_bytes = held_bytes

    def spend(self, work: Callable[[], T]) -> T:
        """Runs work that writes; if the disk is full, runs it once more with the reserve released.

        The work must leave nothing behind when it raises DiskFull. No other task runs while the reserve is released, so
        space that the work does not need is not lost to other tasks of this process.
        """
        try:
            return work()
        except DiskFull:
            if not self.held_bytes:
                raise
        self._give_way()
        try:
            return work()
        finally:
            self.fill()

    def _give_way(self) -> None:
        self.held_bytes = self._synced_bytes = 0
        self._times_spent += 1
        with suppress(OSError):
            file = self._disk.open(RESERVE)
            try:
                file.truncate(0)
            finally:
                file.close()
