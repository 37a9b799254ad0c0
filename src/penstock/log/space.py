"""Room on the disk. A disk that is full is not one that fails: what it refused may be tried again, and is undone first.

Emptying a full disk takes a little room itself: a deletion is written down before anything goes. So each data directory
keeps a reserve, a file of zeros that gives way to what frees room and to what a start needs, and to nothing else. It is
synced when there is time: a disk may become full while a node that has lost its power is down.
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
    """Whether there was no room, or none left for us."""
    return error.errno in (ENOSPC, EDQUOT)


def full_or(error: OSError) -> Exception:
    """DiskFull if that is what it means, else the error itself."""
    return DiskFull(f"the disk is full: {error}; free space and try again") if is_full(error) else error


class Reserve:
    """Room that is kept back. Zero bytes keep none."""

    def __init__(self, disk: Disk, size_bytes: int) -> None:
        self._disk = disk
        self.size_bytes = size_bytes
        self.held_bytes = 0
        self._synced_bytes = 0
        self._times_spent = 0

    def find(self) -> None:
        """Counts on what an earlier life has left."""
        if self.size_bytes and self._disk.exists(RESERVE):
            file = self._disk.open(RESERVE)
            self.held_bytes = file.size()
            file.close()

    def fill(self) -> None:
        """Takes what is missing, or as much of it as there is."""
        if self.held_bytes >= self.size_bytes:
            return
        with suppress(OSError):  # another time
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
        """Has a power cut leave it there."""
        held_bytes, times_spent = self.held_bytes, self._times_spent
        if held_bytes == self._synced_bytes:
            return
        with suppress(OSError):  # another time
            file = self._disk.open(RESERVE)
            try:
                await file.sync()
            finally:
                file.close()
            await self._disk.sync_dir("")
            if times_spent == self._times_spent:
                self._synced_bytes = held_bytes

    def spend(self, work: Callable[[], T]) -> T:
        """Does something that writes; if the disk is full, once more with the reserve.

        The work must leave nothing behind when it raises DiskFull. Nobody else runs between the reserve's going and its
        coming back, so what the work does not need is not lost to others of this process.
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
