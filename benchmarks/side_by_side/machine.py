"""The machine that is measured on: who runs on which core, and what a process has cost, as the kernel counts it.

CPU time is that of all threads, and of children that are alive. On loopback the kernel receives on behalf of whoever
sends, so the cost of receiving a request is charged to the load and the cost of receiving an answer to the broker.
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
ROOT = Path(__file__).parents[2]


@contextmanager
def pinned(cpus: Sequence[int]) -> Iterator[None]:
    """Processes started inside stay on these cores; the caller returns to its own."""
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
    """The first half is the broker's, the second the load's; both get the only one if there is no other."""
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) == 1:
        return Cores((cpus[0],), (cpus[0],))
    half = len(cpus) // 2
    return Cores(tuple(cpus[:half]), tuple(cpus[half:]))


class Sample(NamedTuple):
    """What a process had used at a moment."""

    at_s: float
    cpu_s: float
    disk_read_bytes: int
    machine_busy_s: float
    """All processes on all cores together: what is more than ours was somebody else."""


def sample(*pids: int) -> Sample:
    """Of these processes together, now."""
    members = [each for pid in pids for each in (pid, *_descendants(pid))]
    cpu_s = sum(_cpu_s(each) for each in members)
    return Sample(time.monotonic(), cpu_s, sum(_disk_read_bytes(each) for each in members), _busy_s())


def cpu_seconds(pid: int) -> float:
    """What a process has used so far."""
    return sum(_cpu_s(each) for each in (pid, *_descendants(pid)))


def resident_bytes(*pids: int) -> tuple[int, int]:
    """Memory at its peak and now, of these processes together."""
    peak = now = 0
    for each in [member for pid in pids for member in (pid, *_descendants(pid))]:
        for line in _read(f"/proc/{each}/status").splitlines():
            if line.startswith("VmHWM:"):
                peak += int(line.split()[1]) * 1024
            elif line.startswith("VmRSS:"):
                now += int(line.split()[1]) * 1024
    return peak, now


def resident_parts(pid: int) -> dict[str, int]:
    """Memory now of a process and each of its descendants, by name and number of the process."""
    found = {}
    for each in (pid, *_descendants(pid)):
        fields = dict(line.split(":", 1) for line in _read(f"/proc/{each}/status").splitlines() if ":" in line)
        if "VmRSS" in fields:
            found[f"{fields['Name'].strip()} {each}"] = int(fields["VmRSS"].split()[0]) * 1024
    return found


def age_s(pid: int) -> float:
    """How long ago a process began."""
    began_ticks = int(_stat(pid)[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - began_ticks / TICKS_PER_S


def drop_from_page_cache(paths: Sequence[Path]) -> None:
    """Makes the files cold: written back first, because the kernel keeps what is dirty."""
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
    """The commit that is measured; `+` says that the code differs from it."""
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
    """The fields behind the name, which may itself hold spaces and brackets."""
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
