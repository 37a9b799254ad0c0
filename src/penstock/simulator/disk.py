"""The Disk port of one life of a node: the node's lossy disk, until that life ends.

Open files die with the process (see `host.lossy`); this wrapper keeps the tasks of a killed process from opening new
ones while they are unwound.
"""

import errno
from collections.abc import Sequence

from penstock.host.lossy import LossyDisk, LossyFile
from penstock.model.ports import File, FileSlice


class LifeDisk:
    """A LossyDisk that can be revoked."""

    def __init__(self, disk: LossyDisk) -> None:
        self._disk = disk
        self.is_revoked = False

    def _inner(self) -> LossyDisk:
        if self.is_revoked:
            raise OSError(errno.EIO, "this life is over")
        return self._disk

    @property
    def boot_id(self) -> str:
        """Identifies the page cache."""
        return self._inner().boot_id

    def open(self, path: str, *, create: bool = False) -> LossyFile:
        """Opens a file for reading and writing; `create` creates it if it is missing."""
        return self._inner().open(path, create=create)

    def exists(self, path: str) -> bool:
        """Whether there is a file or directory."""
        return self._inner().exists(path)

    def list(self, path: str) -> list[str]:
        """Names in a directory, sorted."""
        return self._inner().list(path)

    def make_dir(self, path: str) -> None:
        """Creates the directory and its parents; no error if it exists."""
        self._inner().make_dir(path)

    def remove_dir(self, path: str) -> None:
        """Removes an empty directory."""
        self._inner().remove_dir(path)

    def rename(self, old: str, new: str) -> None:
        """Moves a file or directory, replacing a file at `new`."""
        self._inner().rename(old, new)

    def unlink(self, path: str) -> None:
        """Removes a file; open files stay readable."""
        self._inner().unlink(path)

    async def sync_many(self, files: Sequence[File]) -> Sequence[OSError | None]:
        """Syncs files; returns an error or None for each."""
        return await self._inner().sync_many(files)

    async def sync_dir(self, path: str) -> None:
        """Returns when the names in the directory are on stable storage."""
        await self._inner().sync_dir(path)

    async def sync_all(self) -> None:
        """Returns when everything written to this disk so far is on stable storage."""
        await self._inner().sync_all()

    def free_bytes(self) -> int:
        """Free space on the disk."""
        return self._inner().free_bytes()

    def is_resident(self, part: FileSlice) -> bool:
        """Whether the start of the slice can be read without waiting for the device."""
        return self._inner().is_resident(part)
