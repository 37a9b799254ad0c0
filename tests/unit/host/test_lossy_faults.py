"""Injected and random errors, syncs that fail or lie, flipped bits, a full disk, a killed process."""

import asyncio
import cProfile
import errno
import pstats
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from penstock.host.faults import Faults
from penstock.host.lossy import LossyDisk, LossyFile
from penstock.host.memory import MemoryDisk
from tests.unit.host.drive import drive, refused


def start(faults: Faults | None = None, seed: int = 1) -> tuple[LossyDisk, LossyFile]:
    disk = LossyDisk(MemoryDisk(), Random(seed), faults)
    file = disk.open("a", create=True)
    drive(disk.sync_dir(""))
    return disk, file


def content_after_power_cut(disk: LossyDisk) -> bytes:
    file = disk.power_cut().open("a")
    content = file.read(0, 1 << 20)
    file.close()
    return content


def test_a_failed_sync_drops_the_data_and_the_next_one_succeeds() -> None:
    """Linux marks pages clean whose write failed: readers see them, but they are never written (fsyncgate)."""
    disk, file = start()
    file.write(0, b"first ")
    drive(file.sync())
    file.write(6, b"second ")
    disk.fail_next("sync")
    with refused(errno.EIO):
        drive(file.sync())
    drive(file.sync())
    assert file.read(0, 99) == b"first second "
    file.write(13, b"third")
    drive(file.sync())
    assert file.read(0, 99) == b"first second third"
    assert content_after_power_cut(disk) == b"first " + bytes(7) + b"third"


def test_a_failed_sync_of_everything_drops_too() -> None:
    disk, file = start()
    file.write(0, b"x")
    disk.fail_next("sync_all")
    with refused(errno.EIO):
        drive(disk.sync_all())
    drive(disk.sync_all())
    assert content_after_power_cut(disk) == b""


def test_a_failed_sync_of_a_directory_makes_nothing_durable() -> None:
    disk, _ = start()
    disk.open("b", create=True).close()
    disk.fail_next("sync_dir")
    with refused(errno.EIO):
        drive(disk.sync_dir(""))
    assert disk.power_cut().list("") == ["a"]


def test_a_sync_may_lie() -> None:
    disk, file = start()
    file.write(0, b"true")
    drive(file.sync())
    disk.faults.sync_lies = True
    file.write(0, b"lies")
    disk.open("b", create=True).close()
    drive(file.sync())
    drive(disk.sync_dir(""))
    drive(disk.sync_all())
    assert disk.list("") == ["a", "b"]
    after = disk.power_cut()
    assert after.list("") == ["a"]
    assert after.open("a").read(0, 9) == b"true"


@pytest.mark.parametrize("operation", ["read", "write", "truncate", "sync"])
def test_errors_come_on_command(operation: str) -> None:
    disk, file = start()
    calls: dict[str, Callable[[], object]] = {
        "read": lambda: file.read(0, 1),
        "write": lambda: file.write(0, b"x"),
        "truncate": lambda: file.truncate(0),
        "sync": lambda: drive(file.sync()),
    }
    disk.fail_next(operation, "b")
    calls[operation]()
    disk.fail_next(operation, "a", count=2, code=errno.ENOSPC)
    for _ in range(2):
        with refused(errno.ENOSPC):
            calls[operation]()
    calls[operation]()
    disk.fail_next("open")
    with refused(errno.EIO):
        disk.open("a")


@pytest.mark.parametrize("operation", ["open", "read", "write", "sync"])
def test_errors_come_by_chance(operation: str) -> None:
    disk, file = start()
    setattr(disk.faults, f"{operation}_error", 0.3)
    calls: dict[str, Callable[[], object]] = {
        "open": lambda: disk.open("a"),
        "read": lambda: file.read(0, 1),
        "write": lambda: file.write(0, b"x"),
        "sync": lambda: drive(file.sync()),
    }
    failed = 0
    for _ in range(300):
        try:
            calls[operation]()
        except OSError as error:
            failed += error.errno == errno.EIO
    assert 50 < failed < 130


def test_a_failed_write_leaves_a_part_behind() -> None:
    left = set()
    for seed in range(100):
        disk, file = start(seed=seed)
        disk.fail_next("write")
        with refused(errno.EIO):
            file.write(0, b"abc")
        left.add(file.read(0, 9))
    assert left == {b"", b"a", b"ab", b"abc"}


def test_a_disk_fills_up_and_empties() -> None:
    disk, file = start(Faults(capacity_bytes=10))
    assert disk.free_bytes() == 10
    file.write(0, b"12345678")
    with refused(errno.ENOSPC):
        file.write(8, b"abc")
    assert 8 <= file.size() <= 10
    file.truncate(8)
    file.write(4, b"5678")
    file.write(8, b"90")
    assert disk.free_bytes() == 0
    with refused(errno.ENOSPC):
        disk.open("b", create=True)
    with refused(errno.ENOSPC):
        file.truncate(11)
    disk.unlink("a")
    assert disk.free_bytes() == 0, "somebody still has it open"
    file.close()
    assert disk.free_bytes() == 10
    disk.open("b", create=True).write(0, b"1")
    assert disk.free_bytes() == 9
    disk.open("c", create=True).write(0, b"22")
    disk.rename("c", "b")
    disk.kill_process()
    assert disk.free_bytes() == 8
    drive(disk.sync_all())
    assert disk.power_cut().free_bytes() == 8


def test_bits_flip_at_rest() -> None:
    disk, file = start()
    file.write(0, b"aaaa")
    drive(file.sync())
    disk.flip_bit("a", 1, 1)
    assert file.read(0, 9) == b"acaa"
    file.close()
    disk.flip_bit("a", 1, 1)
    assert disk.open("a").read(0, 9) == b"aaaa"
    with refused(errno.EINVAL):
        disk.flip_bit("a", 4, 0)
    with refused(errno.ENOENT):
        disk.flip_bit("b", 0, 0)
    place = disk.flip_random_bit()
    assert place is not None
    path, position, bit = place
    expected = bytearray(b"aaaa")
    expected[position] ^= 1 << bit
    assert disk.power_cut().open(path).read(0, 9) == expected
    assert LossyDisk(MemoryDisk(), Random(1)).flip_random_bit() is None


def test_bits_flip_on_the_way() -> None:
    disk, file = start(Faults(flip_on_read=0.5))
    file.write(0, b"aaaa")
    contents = [file.read(0, 4) for _ in range(100)]
    wrong = [content for content in contents if content != b"aaaa"]
    assert 20 < len(wrong) < 80
    assert all((int.from_bytes(content, "big") ^ int.from_bytes(b"aaaa", "big")).bit_count() == 1 for content in wrong)
    disk.faults.flip_on_read = 0
    assert file.read(0, 4) == b"aaaa"


def test_files_are_dead_after_a_power_cut() -> None:
    disk, file = start()
    file.pin()
    after = disk.power_cut()
    calls: list[Callable[[], object]] = [file.size, lambda: file.read(0, 1), lambda: file.write(0, b"x")]
    calls += [lambda: drive(file.sync()), lambda: disk.open("a"), lambda: disk.make_dir("x")]
    calls += [disk.power_cut, disk.free_bytes]
    for call in calls:
        with refused(errno.EIO):
            call()
    file.close()
    file.unpin()
    assert after.open_count == 0
    assert disk.inner.open_count == 0  # type: ignore[attr-defined]


def test_a_killed_process_loses_its_files_and_no_data() -> None:
    disk, file = start()
    file.write(0, b"abc")
    disk.kill_process()
    with refused(errno.EIO):
        file.write(0, b"x")
    file.close()
    assert disk.open_count == 0
    again = disk.open("a")
    assert again.read(0, 9) == b"abc"
    drive(again.sync())
    assert content_after_power_cut(disk) == b"abc"


KILLED = """
import asyncio, os, random, signal, sys
from penstock.host.files import HostDisk
from penstock.host.lossy import LossyDisk
from penstock.host.workers import ThreadWorkers

async def story():
    disk = LossyDisk(HostDisk(sys.argv[1], ThreadWorkers()), random.Random(1))
    file = disk.open("a", create=True)
    await disk.sync_dir("")
    file.write(0, b"synced")
    await file.sync()
    file.write(6, b", not synced")
    disk.open("b", create=True).write(0, b"b")
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(story())
"""


def test_sigkill_is_a_power_cut(tmp_path: Path) -> None:
    ended = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a": b"synced"}


def test_a_file_opened_again_is_still_unsynced() -> None:
    disk, file = start()
    file.write(0, b"abc")
    file.close()
    again = disk.open("a")
    assert again.read(0, 9) == b"abc"
    again.close()
    assert content_after_power_cut(disk) == b""


def test_a_delay_is_awaited_and_the_power_may_fail_meanwhile() -> None:
    async def story() -> None:
        asked: list[tuple[str, str]] = []
        gate = asyncio.Event()

        async def delay(operation: str, path: str) -> None:
            asked.append((operation, path))
            await gate.wait()

        disk = LossyDisk(MemoryDisk(), Random(1), delay=delay)
        gate.set()
        file = disk.open("a", create=True)
        await disk.sync_dir("")
        gate.clear()
        file.write(0, b"abc")
        one = asyncio.create_task(file.sync())
        await asyncio.sleep(0)
        file.write(3, b"def")
        gate.set()
        await one
        assert disk.inner.open("a").read(0, 9) == b"abc", "a sync covers what was written before it"
        assert file.read(0, 9) == b"abcdef"
        gate.clear()
        syncs = [asyncio.create_task(work) for work in (file.sync(), disk.sync_dir(""), disk.sync_all())]
        await asyncio.sleep(0)
        after = disk.power_cut()
        gate.set()
        for sync in syncs:
            with refused(errno.EIO):
                await sync
        assert after.open("a").read(0, 9) == b"abc"
        assert asked == [("sync_dir", ""), ("sync", "a"), ("sync", "a"), ("sync_dir", ""), ("sync_all", "")]

    asyncio.run(story())


def test_a_history_is_cheap() -> None:
    """The log's power-cut machine plays tens of thousands of histories; the bound counts calls, not seconds."""
    profile = cProfile.Profile()
    profile.enable()
    disk, file = start(Faults(is_torn=True))
    for number in range(30):
        file.write(number * 100, b"x" * 100)
        if number % 3 == 0:
            drive(file.sync())
        assert len(file.read(0, 4000)) == (number + 1) * 100
    disk.power_cut()
    profile.disable()
    assert pstats.Stats(profile).total_calls < 2500  # type: ignore[attr-defined]
