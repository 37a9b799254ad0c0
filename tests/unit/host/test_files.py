"""Behaviour of real files only: failed syncs that stay failed, short writes, descriptors, residency."""

import asyncio
import errno
import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from penstock.host import files
from penstock.host.files import HostDisk, HostFile
from penstock.host.workers import ThreadWorkers
from penstock.model.ports import FileSlice
from tests.unit.host.drive import refused


@pytest.fixture
def workers() -> Iterator[ThreadWorkers]:
    workers = ThreadWorkers()
    yield workers
    workers.close()


@pytest.fixture
def disk(tmp_path: Path, workers: ThreadWorkers) -> Iterator[HostDisk]:
    disk = HostDisk(tmp_path, workers)
    yield disk
    disk.close()
    disk.close()
    assert disk.open_count == 0
    assert descriptors_below(tmp_path) == []


def descriptors_below(folder: Path) -> list[str]:
    """Returns this process's open files in a folder; descriptors of other tests' loops are not counted."""
    held = []
    for fd in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            held.append(os.readlink(f"/proc/self/fd/{fd}"))
    return [path for path in held if Path(path).is_relative_to(folder)]


def make(disk: HostDisk, size_bytes: int = 3, path: str = "a") -> HostFile:
    file = disk.open(path, create=True)
    file.write(0, b"x" * size_bytes)
    return file


def test_a_failed_sync_is_never_retried(disk: HostDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    file, other = make(disk), make(disk, path="b")
    calls = []

    def fail(fd: int) -> None:
        calls.append(fd)
        if fd == file.fd and len(calls) == 1:
            raise OSError(errno.EIO, "device")

    monkeypatch.setattr(os, "fdatasync", fail)
    for _ in range(3):
        with refused(errno.EIO):
            asyncio.run(file.sync())
    assert calls == [file.fd], "the kernel would have called the second one a success"
    asyncio.run(other.sync())
    outcomes = asyncio.run(disk.sync_many([other, file, other]))
    assert [outcome and outcome.errno for outcome in outcomes] == [None, errno.EIO, None]
    assert asyncio.run(disk.sync_many([])) == []
    file.close()
    other.close()


def test_a_failed_sync_of_everything_is_never_retried(disk: HostDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_syncfs", lambda fd: -1)
    with refused(errno.EIO):
        asyncio.run(disk.sync_all())
    monkeypatch.setattr(files, "_syncfs", lambda fd: 0)
    with refused(errno.EIO):
        asyncio.run(disk.sync_all())


def test_everything_is_synced_without_syncfs_too(disk: HostDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_syncfs", None)
    called = []
    monkeypatch.setattr(os, "sync", lambda: called.append(True))
    asyncio.run(disk.sync_all())
    assert called == [True]


def test_a_cancelled_sync_keeps_the_descriptor_until_the_worker_is_done(
    disk: HostDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, go = threading.Event(), threading.Event()
    synced = []

    def slow(fd: int) -> None:
        started.set()
        go.wait()
        synced.append(os.fstat(fd).st_size)

    monkeypatch.setattr(os, "fdatasync", slow)

    async def story() -> None:
        file = make(disk)
        task = asyncio.create_task(file.sync())
        while not started.is_set():
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        file.close()
        assert disk.open_count == 1
        go.set()
        while disk.open_count:
            await asyncio.sleep(0.001)
        assert synced == [3]

    asyncio.run(story())


def test_a_sync_after_close_is_refused(disk: HostDisk) -> None:
    file = make(disk)
    file.close()
    with refused(errno.EBADF):
        asyncio.run(file.sync())


def test_closed_workers_leave_no_pin(tmp_path: Path) -> None:
    workers = ThreadWorkers()
    disk = HostDisk(tmp_path, workers)
    file = make(disk)
    workers.close()
    with pytest.raises(RuntimeError):
        asyncio.run(file.sync())
    file.close()
    assert disk.open_count == 0
    disk.close()


def test_short_reads_and_writes_are_completed(disk: HostDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    pwrite, pread = os.pwrite, os.pread
    monkeypatch.setattr(os, "pwrite", lambda fd, data, position: pwrite(fd, bytes(data)[:3], position))
    monkeypatch.setattr(os, "pread", lambda fd, size, position: pread(fd, min(size, 2), position))
    file = disk.open("a", create=True)
    file.write(1, b"abcdefgh")
    assert file.read(0, 100) == b"\0abcdefgh"
    file.close()


def test_errors_name_the_file(disk: HostDisk) -> None:
    file = make(disk)
    with pytest.raises(OSError, match="'a'"):
        file.read(-1, 1)
    file.close()


def test_maps_hold_descriptors(disk: HostDisk) -> None:
    file = make(disk, 10_000)
    mapped = file.map_readonly()
    assert disk.open_count == 2
    file.close()
    part = mapped.view[5_000:5_003]
    mapped.close()
    mapped.close()
    assert bytes(part) == b"xxx", "whoever still holds a slice keeps the mapping"
    part.release()


def test_residency_is_seen_and_made(disk: HostDisk) -> None:
    size_bytes = 8 * 1024 * 1024
    file = make(disk, size_bytes)
    part = FileSlice(file, 4096, 100)
    assert disk.is_resident(part)
    asyncio.run(file.sync())
    os.posix_fadvise(file.fd, 0, 0, os.POSIX_FADV_DONTNEED)
    if disk.is_resident(part):
        pytest.skip("this file system does not say what is resident")
    asyncio.run(file.read_ahead(4096, 1024 * 1024))
    assert all(file.is_resident_at(position) for position in range(4096, 1024 * 1024, 65536))
    assert file.is_resident_at(size_bytes), "there is nothing to wait for at the end"
    part.release()
    file.close()


def test_nobody_knows_what_is_resident(disk: HostDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    file = make(disk)
    code = errno.EOPNOTSUPP

    def preadv(*_: object) -> int:
        raise OSError(code, "probe")

    monkeypatch.setattr(os, "preadv", preadv)
    assert file.is_resident_at(0)
    code = errno.EIO
    with refused(errno.EIO):
        file.is_resident_at(0)
    file.close()


def test_modes_keep_strangers_out(disk: HostDisk, tmp_path: Path) -> None:
    disk.make_dir("x")
    make(disk, path="x/a").close()
    assert (tmp_path / "x").stat().st_mode & 0o007 == 0
    assert (tmp_path / "x" / "a").stat().st_mode & 0o007 == 0
