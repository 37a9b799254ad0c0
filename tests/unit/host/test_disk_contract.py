"""The contract of the Disk port, checked on every implementation."""

import asyncio
import errno
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from penstock.host import files
from penstock.host.files import HostDisk
from penstock.host.lossy import LossyDisk
from penstock.host.memory import MemoryDisk
from penstock.host.workers import ThreadWorkers
from penstock.model.ports import Disk, FileSlice
from tests.unit.host.drive import refused


@pytest.fixture(params=["memory", "lossy", "host", "lossy host"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    match request.param:
        case "memory":
            yield MemoryDisk()
        case "lossy":
            yield LossyDisk(MemoryDisk(), Random(1))
        case kind:
            workers = ThreadWorkers()
            host = HostDisk(tmp_path / "root", workers)
            yield host if kind == "host" else LossyDisk(host, Random(1))
            host.close()
            workers.close()


def test_what_is_written_is_read(disk: Disk) -> None:
    file = disk.open("a", create=True)
    file.write(0, b"hello")
    file.write(5, bytearray(b" wor"))
    file.write(9, memoryview(b"xld!")[1:])
    assert file.path == "a"
    assert file.size() == 12
    assert file.read(0, 100) == b"hello world!"
    assert file.read(6, 3) == b"wor"
    assert file.read(12, 5) == b""
    assert file.read(100, 5) == b""
    assert file.read(3, 0) == b""
    file.write(1, b"")
    file.write(50, b"")
    assert file.size() == 12
    file.close()


def test_a_write_past_the_end_leaves_zeros(disk: Disk) -> None:
    file = disk.open("a", create=True)
    file.write(20_000, b"x")
    assert file.size() == 20_001
    assert file.read(0, 20_001) == bytes(20_000) + b"x"
    file.close()


def test_large_writes_and_overwrites(disk: Disk) -> None:
    content = bytearray(Random(2).randbytes(300_000))
    file = disk.open("a", create=True)
    file.write(0, content)
    asyncio.run(sync(disk, "a"))
    for position, size in ((0, 1), (16_383, 2), (100_000, 70_000), (299_999, 1), (299_990, 100)):
        patch = Random(size).randbytes(size)
        file.write(position, patch)
        content[position : position + size] = patch
        assert file.read(position - 5 if position else 0, size + 10) == content[max(0, position - 5) :][: size + 10]
    assert file.read(0, 1_000_000) == content
    file.close()


async def sync(disk: Disk, path: str) -> None:
    file = disk.open(path)
    await file.sync()
    file.close()


def test_truncate_cuts_and_fills(disk: Disk) -> None:
    file = disk.open("a", create=True)
    file.write(0, b"x" * 50_000)
    asyncio.run(sync(disk, "a"))
    file.truncate(10)
    assert (file.size(), file.read(0, 99)) == (10, b"x" * 10)
    file.truncate(40_000)
    assert file.read(0, 99_999) == b"x" * 10 + bytes(39_990)
    file.write(39_000, b"y")
    file.truncate(39_001)
    assert file.read(38_999, 99) == b"\0y"
    asyncio.run(sync(disk, "a"))
    assert file.read(0, 99_999) == b"x" * 10 + bytes(38_990) + b"y"
    file.truncate(0)
    assert (file.size(), file.read(0, 9)) == (0, b"")
    file.close()


def test_a_name_has_at_most_255_bytes(disk: Disk) -> None:
    longest = "n" * 253 + "é"
    assert len(longest) == 254
    disk.make_dir(longest)
    disk.open(f"{longest}/{longest}", create=True).close()
    assert disk.list(longest) == [longest]
    for name in (longest + "n", "n" * 256):
        assert not disk.exists(name)
        for call in (
            lambda name=name: disk.make_dir(name),
            lambda name=name: disk.open(name, create=True),
            lambda name=name: disk.rename(longest, name),
        ):
            with refused(errno.ENAMETOOLONG):
                call()
    assert disk.list("") == [longest]


def test_negative_positions_are_refused(disk: Disk) -> None:
    file = disk.open("a", create=True)
    for call in (lambda: file.read(-1, 1), lambda: file.write(-1, b"x"), lambda: file.truncate(-1)):
        with refused(errno.EINVAL):
            call()
    file.close()


def test_two_openings_share_one_file(disk: Disk) -> None:
    one, two = disk.open("a", create=True), disk.open("a", create=True)
    one.write(0, b"abc")
    assert two.read(0, 9) == b"abc"
    one.close()
    two.write(3, b"d")
    assert two.read(0, 9) == b"abcd"
    two.close()
    again = disk.open("a")
    assert again.read(0, 9) == b"abcd"
    again.close()


def test_a_map_shows_the_content(disk: Disk) -> None:
    file = disk.open("a", create=True)
    empty = file.map_readonly()
    assert bytes(empty.view) == b""
    empty.close()
    file.write(0, b"abc")
    mapped = file.map_readonly()
    asyncio.run(file.sync())
    synced = file.map_readonly()
    file.close()
    assert bytes(mapped.view) == bytes(synced.view) == b"abc"
    assert mapped.view.readonly
    mapped.close()
    synced.close()


def test_closed_files_are_closed(disk: Disk) -> None:
    file = disk.open("a", create=True)
    file.close()
    file.close()
    for call in (file.size, lambda: file.read(0, 1), lambda: file.write(0, b"x"), file.pin, file.map_readonly):
        with refused(errno.EBADF):
            call()


def test_a_pinned_file_outlives_close_and_unlink(disk: Disk) -> None:
    file = disk.open("a", create=True)
    file.write(0, b"abc")
    part = FileSlice(file, 1, 2)
    file.pin()
    file.close()
    disk.unlink("a")
    assert part.read() == b"bc"
    part.release()
    part.release()
    assert file.read(0, 9) == b"abc"
    assert disk.open_count == 1  # type: ignore[attr-defined]
    file.unpin()
    assert disk.open_count == 0  # type: ignore[attr-defined]
    with refused(errno.EBADF):
        file.read(0, 1)


def test_open_count_counts(disk: Disk) -> None:
    files = [disk.open("a", create=True) for _ in range(3)]
    assert disk.open_count == 3  # type: ignore[attr-defined]
    for file in files:
        file.close()
    assert disk.open_count == 0  # type: ignore[attr-defined]


def test_an_unlinked_file_stays_readable(disk: Disk) -> None:
    file = disk.open("a", create=True)
    file.write(0, b"old")
    disk.unlink("a")
    assert not disk.exists("a")
    new = disk.open("a", create=True)
    new.write(0, b"new")
    file.write(3, b"er")
    assert (file.read(0, 9), new.read(0, 9)) == (b"older", b"new")
    asyncio.run(file.sync())
    asyncio.run(disk.sync_dir(""))
    assert (file.read(0, 9), new.read(0, 9)) == (b"older", b"new")
    file.close()
    new.close()


def test_directories(disk: Disk) -> None:
    disk.make_dir("x/y")
    disk.make_dir("x/y")
    for name in ("b", "a", "c"):
        disk.open(f"x/{name}", create=True).close()
    assert disk.list("x") == ["a", "b", "c", "y"]
    assert disk.list("") == disk.list(".") == ["x"]
    assert disk.exists("x/y")
    assert disk.exists("x/a")
    assert disk.exists("")
    assert not disk.exists("x/z")
    assert not disk.exists("x/a/z")
    disk.remove_dir("x/y")
    assert not disk.exists("x/y")


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda disk: disk.open("none"), errno.ENOENT),
        (lambda disk: disk.open("none/a", create=True), errno.ENOENT),
        (lambda disk: disk.open("file/a", create=True), errno.ENOTDIR),
        (lambda disk: disk.open("full"), errno.EISDIR),
        (lambda disk: disk.open(""), errno.EISDIR),
        (lambda disk: disk.list("none"), errno.ENOENT),
        (lambda disk: disk.list("file"), errno.ENOTDIR),
        (lambda disk: disk.make_dir("file"), errno.EEXIST),
        (lambda disk: disk.make_dir("file/a"), errno.ENOTDIR),
        (lambda disk: disk.remove_dir("none"), errno.ENOENT),
        (lambda disk: disk.remove_dir("file"), errno.ENOTDIR),
        (lambda disk: disk.remove_dir("full"), errno.ENOTEMPTY),
        (lambda disk: disk.unlink("none"), errno.ENOENT),
        (lambda disk: disk.unlink("full"), errno.EISDIR),
        (lambda disk: disk.rename("none", "b"), errno.ENOENT),
        (lambda disk: disk.rename("file", "none/b"), errno.ENOENT),
        (lambda disk: disk.rename("file", "full"), errno.EISDIR),
        (lambda disk: disk.rename("full", "file"), errno.ENOTDIR),
        (lambda disk: disk.rename("empty", "full"), errno.ENOTEMPTY),
        (lambda disk: disk.rename("full", "full/b"), errno.EINVAL),
        (lambda disk: asyncio.run(disk.sync_dir("none")), errno.ENOENT),
        *((lambda disk, path=path: disk.open(path, create=True), errno.EINVAL) for path in
          ("/etc/passwd", "../a", "full/../a", "full//a", "./a", "a/", "a\0b")),
    ],
)  # fmt: skip
def test_errors_are_the_kernels(disk: Disk, call: object, code: int) -> None:
    disk.open("file", create=True).close()
    disk.make_dir("full/inner")
    disk.make_dir("empty")
    with refused(code):
        call(disk)  # type: ignore[operator]
    assert disk.list("") == ["empty", "file", "full"]


def test_rename_moves_and_replaces(disk: Disk) -> None:
    for name in ("a", "b"):
        file = disk.open(name, create=True)
        file.write(0, name.encode())
        file.close()
    replaced = disk.open("b")
    disk.rename("a", "b")
    disk.rename("b", "b")
    assert disk.list("") == ["b"]
    file = disk.open("b")
    assert (file.read(0, 9), replaced.read(0, 9)) == (b"a", b"b")
    file.close()
    replaced.close()
    disk.make_dir("x/y")
    disk.rename("b", "x/y/c")
    disk.rename("x", "z")
    assert disk.list("z/y") == ["c"]
    disk.make_dir("empty")
    disk.rename("z", "empty")
    assert disk.list("empty/y") == ["c"]
    file = disk.open("empty/y/c")
    assert file.read(0, 9) == b"a"
    file.close()


def test_syncs_return(disk: Disk) -> None:
    async def story() -> None:
        disk.make_dir("x")
        file = disk.open("x/a", create=True)
        file.write(0, b"abc")
        await file.sync()
        await disk.sync_dir("x")
        await disk.sync_dir("")
        await disk.sync_all()
        assert file.read(0, 9) == b"abc"
        file.close()

    asyncio.run(story())


def test_there_is_room_and_it_is_resident(disk: Disk) -> None:
    assert disk.free_bytes() > 0
    file = disk.open("a", create=True)
    file.write(0, b"abc")
    part = FileSlice(file, 0, 3)
    file.close()
    assert disk.is_resident(part)
    part.release()


# --- the boot id --------------------------------------------------------------------------------------------------


def test_processes_of_one_boot_have_the_same_id(tmp_path: Path) -> None:
    workers = ThreadWorkers()
    disks = [HostDisk(tmp_path / name, workers) for name in ("a", "b")]
    assert disks[0].boot_id == disks[1].boot_id == Path(files.BOOT_ID_PATH).read_text(encoding="ascii").strip()
    for disk in disks:
        disk.close()
    workers.close()


@pytest.mark.parametrize("content", [None, b"", b"\xff\xfe"])
def test_where_the_kernel_gives_no_boot_id_each_process_has_its_own(
    content: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "BOOT_ID_PATH", str(tmp_path / "boot_id"))
    if content is not None:
        (tmp_path / "boot_id").write_bytes(content)
    workers = ThreadWorkers()
    disks = [HostDisk(tmp_path / name, workers) for name in ("a", "b")]
    assert disks[0].boot_id != disks[1].boot_id
    assert all(disk.boot_id for disk in disks)
    for disk in disks:
        disk.close()
    workers.close()


def test_a_lossy_disk_keeps_its_boot_id_until_the_power_is_cut() -> None:
    disk = LossyDisk(MemoryDisk(), Random(1))
    seen = {disk.boot_id}
    disk.kill_process()
    assert {disk.boot_id} == seen
    for _ in range(3):
        disk = disk.power_cut()
        assert disk.boot_id not in seen
        seen.add(disk.boot_id)
    assert LossyDisk(MemoryDisk(), Random(2)).boot_id not in seen, "the next process around a directory"
