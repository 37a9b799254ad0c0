"""Ten thousand logs of three segments in one process: the time to open them, and the memory to hold them.

    python -m benchmarks.micro.bench_scale [--logs 10000]

Opens them after a clean shutdown and after a crash, each in a process of its own, and reports memory, descriptors and
maps held, and bytes scanned.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
from time import perf_counter

from penstock.host.entropy import HostEntropy
from penstock.host.files import HostDisk
from penstock.host.workers import ThreadWorkers
from penstock.log.directory import CLEAN, DataDirectory, open_directory
from penstock.log.settings import LogSettings
from penstock.records.builder import BatchBuilder
from penstock.records.header import seal

SEGMENTS = 3
OPEN_SECONDS_MAX = 10.0
RSS_MB_MAX = 300.0
SETTINGS = LogSettings(segment_bytes=4096, index_interval_bytes=1024, retention_ms=None)


class HastyDisk(HostDisk):
    """A disk that makes the logs quickly: it does not sync directories, and files are synced once, at the end."""

    async def sync_dir(self, path: str) -> None:
        """Does nothing."""


async def open_it(disk: HostDisk) -> DataDirectory:
    return await open_directory(
        disk, cluster_id="c", node_id=1, entropy=HostEntropy(), now_ms=0, settings_for=lambda _t, _p: SETTINGS
    )


async def make(folder: str, count: int) -> None:
    disk = HastyDisk(folder, ThreadWorkers())
    directory = await open_it(disk)
    builder = BatchBuilder(producer_id=1, producer_epoch=0, base_sequence=0)
    for _ in range(10):
        builder.append(b"key", bytes(110), timestamp_ms=1_000)
    started = perf_counter()
    for number in range(count):
        log = await directory.create("bench", "id", number, SETTINGS)
        for sequence in range(SEGMENTS):
            for part in range(2):
                batch = builder.build()
                batch[53:57] = (20 * sequence + 10 * part).to_bytes(4, "big")
                seal(batch)
                log.append(batch, leader_epoch=0, now_ms=0)
            if sequence < SEGMENTS - 1:
                log.roll()
        if number % 500 == 0:
            print(f"\rmaking logs {number:>6} of {count}", end="", file=sys.stderr, flush=True)
    await directory.commit()
    await directory.settle()
    await directory.close()
    print(f"\rmade {count} logs in {perf_counter() - started:.0f} s     ", file=sys.stderr)


def peak_mb(field: str) -> float:
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith(field):
                return int(line.split()[1]) / 1024
    return 0.0


async def measure(folder: str) -> dict[str, float]:
    before = peak_mb("VmRSS")
    disk = HostDisk(folder, ThreadWorkers())
    started = perf_counter()
    directory = await open_it(disk)
    seconds = perf_counter() - started
    assert not directory.findings.damage, directory.findings.damage[:3]
    return {
        "logs": len(directory.logs),
        "seconds": round(seconds, 2),
        "rss_mb": round(peak_mb("VmRSS"), 1),
        "grown_mb": round(peak_mb("VmRSS") - before, 1),
        "scanned_bytes": directory.findings.scanned_bytes,
        "files_open": directory.pool.files_open,
        "maps_open": directory.pool.maps_open,
    }


def in_a_process(*arguments: str) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.micro.bench_scale", *arguments]
    found: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--logs", type=int, default=10_000)
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(asyncio.run(measure(options.measure))))
        return
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(make(folder, options.logs))
        clean = in_a_process("--measure", folder)
        print("after a clean shutdown:", clean)
        # The process above did not shut down cleanly: the marker is gone, so this one sees a crash.
        assert not HostDisk(folder, ThreadWorkers()).exists(CLEAN)
        crashed = in_a_process("--measure", folder)
        print("after a crash:         ", crashed)
    if clean["seconds"] > OPEN_SECONDS_MAX or clean["rss_mb"] > RSS_MB_MAX:
        raise SystemExit(f"opening must take at most {OPEN_SECONDS_MAX} s and {RSS_MB_MAX} MB")


if __name__ == "__main__":
    main()
