"""Log appends in microseconds: 64 KiB batches against a bare loop of CRC32C and pwrite on the same bytes.

    python -m benchmarks.micro.bench_log [--json]

The limit: at least 0.6 of the bare loop's rate, that is at most 1.67 times its time per batch.
"""

import asyncio
import os
import tempfile
from time import perf_counter_ns

from crc32c import crc32c

from benchmarks.micro.timing import Row, report
from penstock.host.entropy import HostEntropy
from penstock.host.files import HostDisk
from penstock.host.workers import ThreadWorkers
from penstock.log.directory import open_directory
from penstock.log.settings import Durability, LogSettings
from penstock.records.builder import BatchBuilder

BATCHES_PER_ROUND = 200
ROUNDS = 25
BATCH_BYTES = 64 * 1024
RATE_MIN = 0.6


def a_batch(size_bytes: int) -> bytearray:
    builder = BatchBuilder()
    while builder.size_bytes < size_bytes - 200:
        builder.append(b"key-12345678", os.urandom(50) * 2, timestamp_ms=1_700_000_000_000)
    return builder.build()


async def measure(folder: str, size_bytes: int) -> Row:
    disk = HostDisk(folder, ThreadWorkers())
    directory = await open_directory(disk, cluster_id="c", node_id=1, entropy=HostEntropy(), now_ms=0)
    settings = LogSettings(durability=Durability.REPLICATED, retention_ms=None)
    log = await directory.create(f"bench-{size_bytes}", "id", 0, settings)
    batch = a_batch(size_bytes)
    bare = os.open(os.path.join(folder, f"bare-{size_bytes}"), os.O_RDWR | os.O_CREAT)
    position = 0
    ours_us = bare_us = float("inf")
    for _ in range(ROUNDS):
        started = perf_counter_ns()
        for _ in range(BATCHES_PER_ROUND):
            batch[0:8] = bytes(8)  # a client sends base offset 0
            log.append(batch, leader_epoch=0, now_ms=1_700_000_000_000)
        ours_us = min(ours_us, (perf_counter_ns() - started) / BATCHES_PER_ROUND / 1000)
        view = memoryview(batch)[21:]
        started = perf_counter_ns()
        for _ in range(BATCHES_PER_ROUND):
            crc32c(view)
            os.pwrite(bare, batch, position)
            position += len(batch)
        bare_us = min(bare_us, (perf_counter_ns() - started) / BATCHES_PER_ROUND / 1000)
    os.close(bare)
    limit_us = bare_us / RATE_MIN if size_bytes == BATCH_BYTES else None
    return Row(f"append {len(batch) / 1024:.0f} KiB", ours_us, bare_us, "bare crc + pwrite", limit_us)


async def measure_all() -> list[Row]:
    rows = []
    for size_bytes in (1024, 16 * 1024, BATCH_BYTES, 1024 * 1024 - 2048):
        with tempfile.TemporaryDirectory() as folder:
            rows.append(await measure(folder, size_bytes))
    return rows


def main() -> None:
    rows = asyncio.run(measure_all())
    report(rows)
    if any(row.limit_us is not None and row.ours_us > row.limit_us for row in rows):
        raise SystemExit("appending is slower than 0.6 of the bare loop")


if __name__ == "__main__":
    main()
