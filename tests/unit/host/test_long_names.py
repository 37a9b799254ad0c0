"""Logs with the longest topic names, on a real file system."""

import asyncio
from pathlib import Path

import pytest

from penstock.host.files import HostDisk
from penstock.host.workers import ThreadWorkers
from penstock.log.directory import DataDirectory, open_directory
from tests.simulation.log.histories import ZeroEntropy
from tests.unit.log.place import a_batch


@pytest.mark.parametrize("length", [240, 247, 249])
def test_a_log_with_a_long_name_is_deleted_and_made_anew(length: int, tmp_path: Path) -> None:
    topic = "t" * length
    workers = ThreadWorkers()
    disk = HostDisk(tmp_path, workers)

    async def opened() -> DataDirectory:
        return await open_directory(disk, cluster_id="c", node_id=1, entropy=ZeroEntropy(), now_ms=0)

    async def run() -> None:
        directory = await opened()
        log = await directory.create(topic, "id", 0)
        log.append(a_batch(), leader_epoch=0, now_ms=0)
        await directory.commit()
        await directory.delete(log)
        assert disk.list("logs") == []
        log = await directory.create(topic, "id", 0)
        assert log.written_end == 0
        await directory.close()
        directory = await opened()
        assert list(directory.logs) == [f"{topic}-0"]
        await directory.close()

    asyncio.run(run())
    disk.close()
    workers.close()
