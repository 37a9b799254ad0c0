"""Opens a copy of a data directory with the present code, on real files, and records everything visible to a reader."""

import asyncio
import hashlib
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from penstock.host.entropy import HostEntropy
from penstock.host.files import HostDisk
from penstock.host.workers import ThreadWorkers
from penstock.log import times
from penstock.log.directory import DataDirectory, open_directory
from penstock.log.log import Log
from penstock.log.scrub import scrub
from penstock.log.settings import LogSettings
from penstock.model.limits import DEFAULT_LIMITS
from penstock.records.header import BatchView, batches
from penstock.records.rows import rows

LEDGER_BYTES = 1024
SETTINGS = LogSettings(segment_bytes=1500, index_interval_bytes=200, retention_ms=None)


@contextmanager
def copy_of(folder: Path) -> Iterator[HostDisk]:
    """A disk with a copy of a directory; the original stays unchanged."""
    workers = ThreadWorkers()
    with tempfile.TemporaryDirectory() as place:
        shutil.copytree(folder, f"{place}/data")
        disk = HostDisk(Path(place) / "data", workers)
        try:
            yield disk
        finally:
            disk.close()
            workers.close()


async def opened(disk: HostDisk) -> DataDirectory:
    return await open_directory(
        disk,
        cluster_id="golden",
        node_id=3,
        entropy=HostEntropy(),
        now_ms=0,
        settings_for=lambda _topic, _partition: SETTINGS,
        ledger_bytes=LEDGER_BYTES,
    )


def portrait(folder: Path) -> dict[str, Any]:
    """The content of a directory."""

    async def look(disk: HostDisk) -> dict[str, Any]:
        directory = await opened(disk)
        try:
            return describe(directory, disk)
        finally:
            await directory.close()

    with copy_of(folder) as disk:
        return asyncio.run(look(disk))


def describe(directory: DataDirectory, disk: HostDisk) -> dict[str, Any]:
    findings = directory.findings
    return {
        "identity": directory.identity,
        "scanned_bytes": findings.scanned_bytes,
        "cut": findings.cut,
        "damage": findings.damage + findings.rebuilt,
        "scrub": [sentence for log in directory.logs.values() for sentence in scrub(log, disk)],
        "logs": {name: describe_log(log) for name, log in sorted(directory.logs.items())},
    }


def describe_log(log: Log) -> dict[str, Any]:
    found = [(data, BatchView(data)) for data in stored(log)]
    records = [r for _, b in found for r in rows(b, DEFAULT_LIMITS.batch_decompressed_bytes_max)]
    times = sorted({r.timestamp_ms for r in records if r.offset >= log.start_offset})[::5]
    return {
        "identity": list(log.identity),
        "start": log.start_offset,
        "end": log.written_end,
        "high_watermark": log.high_watermark,
        "last_stable": log.last_stable_offset,
        "segments": [segment.to_list() for segment in log.segments],
        "epochs": log.epochs.to_list(),
        "aborted": [list(t) for t in log.aborted_between(log.start_offset, log.written_end)],
        "producers": [
            [i, p.epoch, p.coordinator_epoch, p.transaction_start, [list(seen) for seen in p.seen]]
            for i, p in sorted(log.producers.producers.items())
        ],
        "batches": [[b.base_offset, b.last_offset, b.codec.name, digest(data)] for data, b in found],
        "records": len(records),
        "records_digest": digest(repr([tuple(record) for record in records]).encode()),
        "by_time": [[time_ms, _offset_for(log, time_ms)] for time_ms in times],
    }


def _offset_for(log: Log, time_ms: int) -> list[int] | None:
    found = times.offset_for_time(log, time_ms, limit=log.written_end)
    return None if found is None else list(found)


def stored(log: Log) -> list[bytes]:
    """Every batch, read as a consumer reads: each read continues where the last one ended."""
    found: list[bytes] = []
    offset = log.start_offset
    while (part := log.read(offset, 1, limit=log.written_end)) is not None:
        data = part.read()
        part.release()
        (batch,) = batches(data)
        assert batch.is_intact
        found.append(data)
        offset = batch.last_offset + 1
    return found


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]
