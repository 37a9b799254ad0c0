"""A disk in memory, without faults: the simplest Disk, and the inner disk of a simulated lossy disk.

Written data is durable at once, so `sync` has nothing to do; it returns without suspending unless a `delay` is given,
which is awaited with the operation and the path.
"""

import errno
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from penstock.host.paths import trouble
from penstock.host.pinned import PinnedFile
from penstock.host.syncing import sync_in_turn
from penstock.host.tree import Directory, Tree, files_below
from penstock.model.ports import Buffer, File, FileSlice

Delay: TypeAlias = Callable[[str, str], Awaitable[None]]

CAPACITY_BYTES = 1 << 40


class MemoryMap:
    """A copy of a file's bytes that behaves like a map."""

    __slots__ = ("_view",)

    def __init__(self, content: bytes) -> None:
        self._view = memoryview(content)

    @property
    def view(self) -> memoryview:
        """The bytes."""
        return self._view

    def close(self) -> None:
        """Releases the copy."""
        self._view.release()


class MemoryFile(PinnedFile):
    """An open file of a MemoryDisk. Files opened at the same path share their content."""

    __slots__ = ("_content", "_disk")

    def __init__(self, path: str, content: bytearray, disk: "MemoryDisk | None" = None) -> None:
        super().__init__(path)
        self._content = content
        self._disk = disk

    def size(self) -> int:
        """Bytes in the file."""
        self._check()
        return len(self._content)

    def read(self, position: int, size_bytes: int) -> bytes:
        """Reads up to `size_bytes` bytes; fewer only at the end of the file."""
        self._check(position)
        return bytes(memoryview(self._content)[position : position + size_bytes])

    def write(self, position: int, data: Buffer) -> None:
        """Writes all of the data."""
        self._check(position)
        content = self._content
        if position > len(content) and len(data):
            content.extend(bytes(position - len(content)))
        content[position : position + len(data)] = data

    def truncate(self, size_bytes: int) -> None:
        """Truncates the file to that size, or extends it with zeros."""
        self._check(size_bytes)
        content = self._content
        if size_bytes < len(content):
            del content[size_bytes:]
        else:
            content.extend(bytes(size_bytes - len(content)))

    def map_readonly(self) -> MemoryMap:
        """A copy of the current content."""
        self._check()
        return MemoryMap(bytes(self._content))

    async def sync(self) -> None:
        """Nothing to do but the delay."""
        self._check()
        if self._disk is not None and self._disk.delay is not None:
            await self._disk.delay("sync", self._path)

    def _check(self, position: int = 0) -> None:
        if self._is_released:
            raise trouble(errno.EBADF, self._path)
        if position < 0:
            raise trouble(errno.EINVAL, self._path)

    def _release(self) -> None:
        if self._disk is not None:
            self._disk.open_count -= 1


class MemoryDisk:
    """A directory tree in memory."""

    def __init__(self, *, capacity_bytes: int = CAPACITY_BYTES, delay: Delay | None = None) -> None:
        self.capacity_bytes = capacity_bytes
        self.delay = delay
        self.open_count = 0
        self._tree: Tree[bytearray] = Tree()

    @property
    def boot_id(self) -> str:
        """Always the same: nothing is ever lost."""
        return "memory"

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        """Opens a file for reading and writing; `create` creates it if it is missing."""
        directory, name = self._tree.place(path)
        content = directory.entries.get(name)
        if content is None:
            if not create:
                raise trouble(errno.ENOENT, path)
            content = directory.entries[name] = bytearray()
        if isinstance(content, Directory):
            raise trouble(errno.EISDIR, path)
        self.open_count += 1
        return MemoryFile(path, content, self)

    def exists(self, path: str) -> bool:
        """Whether there is a file or directory."""
        return self._tree.find(path) is not None

    def list(self, path: str) -> list[str]:
        """Names in a directory, sorted."""
        return self._tree.names(path)

    def make_dir(self, path: str) -> None:
        """Creates the directory and its parents; no error if it exists."""
        self._tree.make_dir(path)

    def remove_dir(self, path: str) -> None:
        """Removes an empty directory."""
        self._tree.remove_dir(path)

    def rename(self, old: str, new: str) -> None:
        """Moves a file or directory, replacing a file at `new`."""
        self._tree.rename(old, new)

    def unlink(self, path: str) -> None:
        """Removes a file; open files stay readable."""
        self._tree.unlink(path)

    async def sync_many(self, files: Sequence[File]) -> Sequence[OSError | None]:
        """Syncs one file after the other."""
        return await sync_in_turn(files)

    async def sync_dir(self, path: str) -> None:
        """Nothing to do but the delay."""
        self._tree.directory(path)
        if self.delay is not None:
            await self.delay("sync_dir", path)

    async def sync_all(self) -> None:
        """Nothing to do but the delay."""
        if self.delay is not None:
            await self.delay("sync_all", "")

    def free_bytes(self) -> int:
        """Capacity minus the size of all files. The capacity is reported, not enforced."""
        held_bytes = sum(len(content) for _, content in files_below(self._tree.root, ""))
        return max(0, self.capacity_bytes - held_bytes)

    def is_resident(self, part: FileSlice) -> bool:  # noqa: ARG002 - memory is always there
        """Always true."""
        return True
