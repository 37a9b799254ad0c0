"""The machine's file system below one directory.

Reads and writes end in the page cache and are called directly; syncs and reads from the device run in workers. The
error of a failed sync is kept and raised again: the kernel would report the next one as a success (fsyncgate). A
descriptor is never closed while a worker uses it, even if the waiting task was cancelled.
"""

import asyncio
import ctypes
import errno
import fcntl
import mmap
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from penstock.host.memory import MemoryMap
from penstock.host.paths import split, trouble
from penstock.host.pinned import PinnedFile
from penstock.model.ports import Buffer, File, FileMap, FileSlice, Workers

FILE_MODE = 0o640
DIRECTORY_MODE = 0o750
READ_AHEAD_BYTES = 2 * 1024 * 1024
SCRATCH_BYTES = 256 * 1024
LANES_MAX = 4
BOOT_ID_PATH = "/proc/sys/kernel/random/boot_id"
BOOT_ID_CHARS_MAX = 64


class HostMap:
    """A read-only map. It holds a descriptor of its own, which is counted."""

    __slots__ = ("_disk", "_mmap", "_view")

    def __init__(self, fd: int, size_bytes: int, disk: "HostDisk") -> None:
        self._mmap: mmap.mmap | None = mmap.mmap(fd, size_bytes, prot=mmap.PROT_READ)
        self._view = memoryview(self._mmap)
        self._disk = disk
        disk.open_count += 1

    @property
    def view(self) -> memoryview:
        """The mapped bytes. Reading them after a truncation of the file kills the process: map sealed files only."""
        return self._view

    def close(self) -> None:
        """Releases the mapping, now or with the last slice of the view."""
        if self._mmap is not None:
            self._view.release()
            with suppress(BufferError):
                self._mmap.close()
            self._mmap = None
            self._disk.open_count -= 1


class HostFile(PinnedFile):
    """An open file."""

    __slots__ = ("_disk", "_failure", "fd")

    def __init__(self, path: str, fd: int, disk: "HostDisk") -> None:
        super().__init__(path)
        self.fd = fd
        """For system calls of this room; -1 once it is released."""
        self._disk = disk
        self._failure: int | None = None

    def size(self) -> int:
        """Bytes in the file."""
        try:
            return os.fstat(self.fd).st_size
        except OSError as error:
            raise self._trouble(error) from error

    def read(self, position: int, size_bytes: int) -> bytes:
        """Reads up to `size_bytes` bytes; fewer only at the end of the file."""
        try:
            content = os.pread(self.fd, size_bytes, position)
            while len(content) < size_bytes:
                more = os.pread(self.fd, size_bytes - len(content), position + len(content))
                if not more:
                    break
                content += more
        except OSError as error:
            raise self._trouble(error) from error
        return content

    def write(self, position: int, data: Buffer) -> None:
        """Writes all of the data, or raises OSError."""
        try:
            done = os.pwrite(self.fd, data, position)
            while done < len(data):
                done += os.pwrite(self.fd, memoryview(data)[done:], position + done)
        except OSError as error:
            raise self._trouble(error) from error

    def truncate(self, size_bytes: int) -> None:
        """Truncates the file to that size, or extends it with zeros."""
        try:
            os.ftruncate(self.fd, size_bytes)
        except OSError as error:
            raise self._trouble(error) from error

    def map_readonly(self) -> FileMap:
        """Maps the current content; for an empty file, returns an empty map."""
        size_bytes = self.size()
        return HostMap(self.fd, size_bytes, self._disk) if size_bytes else MemoryMap(b"")

    async def sync(self) -> None:
        """Runs `fdatasync` in a worker. After a failure, every later call fails."""
        if self._is_released:
            raise trouble(errno.EBADF, self._path)
        await _hold([self], self.sync_now, self._disk.workers)
        if (failure := self.failure) is not None:
            raise failure

    @property
    def failure(self) -> OSError | None:
        """The error of the first failed sync, or None."""
        return None if self._failure is None else trouble(self._failure, self._path)

    def sync_now(self) -> None:
        """Runs `fdatasync` in this thread. Never raises; see `failure`."""
        if self._failure is None:
            try:
                os.fdatasync(self.fd)
            except OSError as error:
                self._failure = error.errno or errno.EIO

    def is_resident_at(self, position: int) -> bool:
        """Whether that byte can be read without waiting for the device. True if unknown, and at the end."""
        try:
            os.preadv(self.fd, _PROBE, position, os.RWF_NOWAIT)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise self._trouble(error) from error
        return True

    async def read_ahead(self, position: int, size_bytes: int) -> None:
        """Waits in a worker until these bytes are resident, and requests readahead of the bytes after them."""

        def work() -> None:
            os.posix_fadvise(self.fd, position, size_bytes + READ_AHEAD_BYTES, os.POSIX_FADV_WILLNEED)
            scratch = bytearray(min(size_bytes, SCRATCH_BYTES))
            for start in range(position, position + size_bytes, SCRATCH_BYTES):
                os.preadv(self.fd, [scratch], start)

        await _hold([self], work, self._disk.workers)

    def _trouble(self, error: OSError) -> OSError:
        return trouble(error.errno or errno.EIO, self._path)

    def _release(self) -> None:
        fd, self.fd = self.fd, -1
        self._disk.open_count -= 1
        os.close(fd)


class HostDisk:
    """A directory of the machine; no path leads out of it, unless it contains a symbolic link."""

    def __init__(self, root: str | os.PathLike[str], workers: Workers) -> None:
        self.root = os.fspath(root)
        self.workers = workers
        self.open_count = 0
        """Open descriptors of files and maps, without the disk's own."""
        self.boot_id = _read_boot_id()
        """The kernel's; random if it cannot be read, so that no two processes assume the same page cache."""
        self._failure: int | None = None
        os.makedirs(self.root, DIRECTORY_MODE, exist_ok=True)
        # Held for life: syncfs reports errors since its descriptor was opened.
        self._root_fd = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def claim(self) -> bool:
        """Locks out other processes, and other disks of this one, until `close`; False if it is already locked."""
        try:
            fcntl.flock(self._root_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def open(self, path: str, *, create: bool = False) -> HostFile:
        """Opens a file for reading and writing; `create` creates it if it is missing."""
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        file = HostFile(path, os.open(self._full(path), flags, FILE_MODE), self)
        self.open_count += 1
        return file

    def exists(self, path: str) -> bool:
        """Whether there is a file or directory."""
        return os.path.exists(self._full(path))

    def list(self, path: str) -> list[str]:
        """Names in a directory, sorted."""
        return sorted(os.listdir(self._full(path)))

    def make_dir(self, path: str) -> None:
        """Creates the directory and its parents; no error if it exists."""
        os.makedirs(self._full(path), DIRECTORY_MODE, exist_ok=True)

    def remove_dir(self, path: str) -> None:
        """Removes an empty directory."""
        os.rmdir(self._full(path))

    def rename(self, old: str, new: str) -> None:
        """Moves a file or directory, replacing a file at `new`."""
        os.rename(self._full(old), self._full(new))

    def unlink(self, path: str) -> None:
        """Removes a file; open files stay readable."""
        os.unlink(self._full(path))

    async def sync_many(self, files: Sequence[File]) -> Sequence[OSError | None]:
        """Runs `fdatasync` on each file, in several workers concurrently."""
        ours = [file for file in files if isinstance(file, HostFile) and file.fd >= 0]
        assert len(ours) == len(files), "only open files of this disk"
        lanes = [ours[number::LANES_MAX] for number in range(min(LANES_MAX, len(ours)))]
        for running in [_hold(lane, partial(_sync_each, lane), self.workers) for lane in lanes]:
            await running
        return [file.failure for file in ours]

    async def sync_dir(self, path: str) -> None:
        """Runs `fsync` on the directory, in a worker."""
        full = self._full(path)
        await self.workers.run(lambda: _sync_directory(full))

    async def sync_all(self) -> None:
        """Runs `syncfs` on the whole file system, in a worker. After a failure, every later call fails."""
        if self._failure is None:
            await self.workers.run(self._sync_file_system)
        if self._failure is not None:
            raise trouble(self._failure, self.root)

    def free_bytes(self) -> int:
        """Space of the file system that is available to this process."""
        state = os.fstatvfs(self._root_fd)
        return state.f_bavail * state.f_frsize

    def is_resident(self, part: FileSlice) -> bool:
        """Whether the start of the slice can be read without waiting for the device."""
        return part.file.is_resident_at(part.position) if isinstance(part.file, HostFile) else True

    def close(self) -> None:
        """Closes the disk's own descriptor. Files must have been closed."""
        if self._root_fd >= 0:
            os.close(self._root_fd)
            self._root_fd = -1

    def _full(self, path: str) -> str:
        return "/".join((self.root, *split(path)))

    def _sync_file_system(self) -> None:
        if _syncfs is None:
            os.sync()
        elif _syncfs(self._root_fd) != 0:
            self._failure = ctypes.get_errno() or errno.EIO


def _hold(files: "Sequence[HostFile]", work: Callable[[], None], workers: Workers) -> "asyncio.Future[None]":
    """Runs work that uses the descriptors in a worker. They stay open until it ends, even without a waiter."""
    for file in files:
        file.pin()

    def ended(running: "asyncio.Future[None]") -> None:
        if not running.cancelled():
            running.exception()  # marks the exception as retrieved, even without a waiter
        for file in files:
            file.unpin()

    try:
        running = asyncio.ensure_future(workers.run(work))
    except BaseException:
        for file in files:
            file.unpin()
        raise
    running.add_done_callback(ended)
    return asyncio.shield(running)


def _read_boot_id() -> str:
    with suppress(OSError, ValueError):
        with open(BOOT_ID_PATH, encoding="ascii") as file:
            found = file.read(BOOT_ID_CHARS_MAX).strip()
        if found:
            return found
    return os.urandom(16).hex()


def _sync_each(files: "Sequence[HostFile]") -> None:
    for file in files:
        file.sync_now()


def _sync_directory(full: str) -> None:
    fd = os.open(full, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


_PROBE = [bytearray(1)]
_syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
