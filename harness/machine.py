"""Pins processes to cores and reads their CPU time, memory and disk reads from the kernel's counters.

CPU time is that of all threads, and of children that are alive. On loopback the kernel receives on behalf of the
sender, so the cost of receiving a request is charged to the load and the cost of receiving a response to the broker.
"""

import os
import platform
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
ROOT = Path(__file__).parents[1]


@contextmanager
def pinned(cpus: Sequence[int]) -> Iterator[None]:
    """Pins processes started inside to these cores; restores the caller's affinity afterwards."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


class Cores(NamedTuple):
    """Which cores belong to the broker and which to the load."""

    broker: tuple[int, ...]
    load: tuple[int, ...]


def divided_cores() -> Cores:
    """The first half of the cores for the broker, the second for the load; a single core is shared by both."""
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) == 1:
        return Cores((cpus[0],), (cpus[0],))
    half = len(cpus) // 2
    return Cores(tuple(cpus[:half]), tuple(cpus[half:]))


class Sample(NamedTuple):
    """Cumulative resource use of processes at one moment."""

    at_s: float
    cpu_s: float
    disk_read_bytes: int
    machine_busy_s: float
    """CPU time of all processes on all cores; the excess over ours was used by other programs."""


def sample(*pids: int) -> Sample:
    """The sum over these processes and their descendants, now."""
    members = [each for pid in pids for each in (pid, *_descendants(pid))]
    cpu_s = sum(_cpu_s(each) for each in members)
    return Sample(time.monotonic(), cpu_s, sum(_disk_read_bytes(each) for each in members), _busy_s())


def cpu_seconds(pid: int) -> float:
    """CPU time that a process and its descendants have used so far."""
    return sum(_cpu_s(each) for each in (pid, *_descendants(pid)))


def resident_bytes(*pids: int) -> tuple[int, int]:
    """Peak and current resident memory, summed over these processes and their descendants."""
    peak = now = 0
    for each in [member for pid in pids for member in (pid, *_descendants(pid))]:
        for line in _read(f"/proc/{each}/status").splitlines():
            if line.startswith("VmHWM:"):
                peak += int(line.split()[1]) * 1024
            elif line.startswith("VmRSS:"):
                now += int(line.split()[1]) * 1024
    return peak, now


def resident_parts(pid: int) -> dict[str, int]:
    """Current resident memory of a process and of each of its descendants, by process name and id."""
    found = {}
    for each in (pid, *_descendants(pid)):
        fields = dict(line.split(":", 1) for line in _read(f"/proc/{each}/status").splitlines() if ":" in line)
        if "VmRSS" in fields:
            found[f"{fields['Name'].strip()} {each}"] = int(fields["VmRSS"].split()[0]) * 1024
    return found


def age_s(pid: int) -> float:
    """Time since a process started."""
    began_ticks = int(_stat(pid)[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - began_ticks / TICKS_PER_S


def drop_from_page_cache(paths: Sequence[Path]) -> None:
    """Drops files from the page cache, after a sync because the kernel keeps dirty pages."""
    for path in paths:
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except FileNotFoundError:  # deleted meanwhile
            continue
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def describe() -> dict[str, object]:
    """The shape of the machine, without its name."""
    memory = next(line for line in _read("/proc/meminfo").splitlines() if line.startswith("MemTotal:"))
    models = {line.partition(":")[2].strip() for line in _read("/proc/cpuinfo").splitlines() if "model name" in line}
    return {
        "cores": os.cpu_count(),
        "processor": ", ".join(sorted(models)) or platform.machine(),
        "memory_gib": round(int(memory.split()[1]) / 1024 / 1024),
        "kernel": f"Linux {platform.release().split('-')[0]}",
        "python": platform.python_version(),
        "java": _java_version(),
    }


def commit() -> str:
    """The commit that is measured; `+` means that the working tree differs from it."""
    short = _git("rev-parse", "--short", "HEAD")
    return f"{short}+" if _git("status", "--porcelain", "--", "src", "benchmarks", "pyproject.toml") else short


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _java_version() -> str:
    try:
        done = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return "none"
    return done.stderr.splitlines()[0].replace('"', "")


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in _read(str(path)).split():
            found += [int(child), *_descendants(int(child))]
    return found


def _stat(pid: int) -> list[str]:
    """The fields after the process name, which may itself contain spaces and parentheses."""
    return _read(f"/proc/{pid}/stat").rpartition(")")[2].split()


def _cpu_s(pid: int) -> float:
    fields = _stat(pid)
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S if fields else 0.0


def _disk_read_bytes(pid: int) -> int:
    for line in _read(f"/proc/{pid}/io").splitlines():
        if line.startswith("read_bytes:"):
            return int(line.split()[1])
    return 0


def _busy_s() -> float:
    user, nice, system, _idle, _waiting, irq, softirq, *_ = map(int, _read("/proc/stat").split("\n", 1)[0].split()[1:])
    return (user + nice + system + irq + softirq) / TICKS_PER_S


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return ""
