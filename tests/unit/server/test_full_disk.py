"""A node with a full disk reports it, serves reads, and can be emptied; a failed metadata log is reported too."""

import asyncio
import errno
import logging
from dataclasses import replace

import pytest

from penstock.host.lossy import LossyDisk
from penstock.log.log import Log
from penstock.metadata.commands import CreateTopics, DeleteTopics, NewTopic, TopicRef
from penstock.model.errors import ErrorCode, StorageError
from penstock.server.node import Node
from penstock.server.partitions.partition import Partition
from penstock.server.partitions.upkeep_loop import Upkeep
from penstock.server.quorum.metadata_log import METADATA_LOG
from penstock.server.settings import ListenerSettings, NodeSettings, UpkeepSettings
from penstock.simulator.node import Ports
from penstock.simulator.world import World
from tests.unit.server.handlers.bare_node import FSYNC, REPLICATED, BareNode, a_batch, only, running, to_produce
from tests.unit.server.handlers.cluster import Cluster, a_disk, clustered, on_virtual_time

SEGMENT = f"logs/{METADATA_LOG}/{0:020d}-0.log"
NONE = ErrorCode.NONE
FULL = ErrorCode.KAFKA_STORAGE_ERROR


def crowd(disk: LossyDisk) -> None:
    """Fills the disk to the last byte."""
    disk.faults.capacity_bytes = 0
    disk.faults.capacity_bytes = disk._used()


def partition_of(cluster: Cluster, topic: str) -> Partition:
    found = cluster.partitions.named(topic, 0)
    assert found is not None
    return found


async def produce(node: BareNode, topic: str = "t", timeout_ms: int = 30_000) -> ErrorCode:
    request = to_produce((topic, 0, a_batch(3, value=bytes(700))), timeout_ms=timeout_ms)
    return ErrorCode(only(await node.produce(request)).error_code)


def test_a_ledger_without_room_acknowledges_nothing_until_there_is_some(caplog: pytest.LogCaptureFixture) -> None:
    async def story(node: BareNode) -> None:
        partition = await node.add(settings=FSYNC)
        assert await produce(node) is NONE
        node.disk.fail_next("write", "ledger-1", count=3, code=errno.ENOSPC)
        assert await produce(node, timeout_ms=1_500) is ErrorCode.REQUEST_TIMED_OUT
        assert partition.log.high_watermark == 3
        assert partition.log.offline_reason is None
        began = asyncio.get_running_loop().time()
        assert await produce(node) is NONE
        assert asyncio.get_running_loop().time() - began < 3
        assert partition.log.high_watermark == 9
        assert "Nothing can be acknowledged, which is tried again every second" in caplog.text

    running(story)


def test_a_topic_can_be_deleted_from_a_full_disk_and_others_go_on() -> None:
    async def story(cluster: Cluster) -> None:
        disk = cluster.disk
        await cluster.create("kept", "gone")
        assert [await produce(cluster, name) for name in ("kept", "gone")] == [NONE, NONE]
        crowd(disk)
        assert [await produce(cluster, name) for name in ("kept", "gone")] == [FULL, FULL]
        assert cluster.controller.offline_reason is None
        (reply,) = await cluster.controller.ask(DeleteTopics((TopicRef("gone"),)))
        assert reply.code is NONE
        await cluster.arrivals.settled(["gone"])
        assert await produce(cluster, "kept") is NONE
        assert partition_of(cluster, "kept").log.high_watermark == 6
        disk.faults.capacity_bytes = None

    clustered(story)


def test_a_topic_that_finds_no_room_for_its_log_is_there_when_there_is_some() -> None:
    async def story(cluster: Cluster) -> None:
        crowd(cluster.disk)
        (reply,) = await cluster.controller.ask(CreateTopics((NewTopic("t"),)))
        assert reply.code is NONE, "the reserve is for the metadata log"
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(cluster.arrivals.settled(["t"]), 3)
        assert "t-0" not in cluster.directory.logs
        cluster.disk.faults.capacity_bytes = None
        await asyncio.wait_for(cluster.arrivals.settled(["t"]), 3)
        assert await produce(cluster) is NONE

    clustered(story)


def test_a_node_starts_on_a_full_disk_and_serves_what_it_has() -> None:
    async def story() -> None:
        disk = a_disk()
        cluster = Cluster(disk)
        await cluster.start()
        await cluster.create("t")
        assert await produce(cluster) is NONE
        await cluster.crash()
        crowd(disk)
        for life in range(2, 5):
            disk.kill_process()
            cluster = Cluster(disk, seed=life)
            await cluster.start()
            assert partition_of(cluster, "t").log.high_watermark == 3
            assert [topic.name for topic in (await cluster.metadata(None)).topics] == ["t"]
            assert await produce(cluster) is FULL
            await cluster.crash()
        disk.kill_process()
        disk.faults.capacity_bytes = None
        cluster = Cluster(disk, seed=9)
        await cluster.start()
        assert await produce(cluster) is NONE
        await cluster.stop()

    on_virtual_time(story)


def test_upkeep_tells_of_a_full_disk_once_and_makes_up_for_it() -> None:
    troubles: list[str] = []

    def on_trouble(log: Log, error: Exception) -> None:
        troubles.append(f"{log.path}: {error}")

    async def story(node: BareNode) -> None:
        partition = await node.add(settings=replace(REPLICATED, segment_bytes=len(a_batch()) * 2))
        for _ in range(9):
            node.append(partition)
        lock = asyncio.Lock()
        upkeep = Upkeep(node.directory, node.partitions, node.clock, lock, UpkeepSettings(), on_trouble)
        task = asyncio.get_running_loop().create_task(upkeep.run())
        crowd(node.disk)
        await asyncio.sleep(5)
        assert len(troubles) == 1
        assert "the disk is full" in troubles[0]
        node.disk.faults.capacity_bytes = None
        await asyncio.sleep(2)
        assert partition.log.settled_segments == 4
        assert len(troubles) == 1
        task.cancel()

    running(story)


def test_a_node_whose_metadata_log_fails_says_that_it_should_be_stopped(caplog: pytest.LogCaptureFixture) -> None:
    failures: list[str] = []
    ends: list[str] = []

    async def main(ports: Ports) -> None:
        disk = ports.disk._disk
        node = Node(ports, NodeSettings("c", listeners=(ListenerSettings(port=0),)), on_failure=failures.append)
        await node.start()
        assert failures == []
        disk.fail_next("sync", SEGMENT)
        with pytest.raises(StorageError, match="the controller is offline"):
            await node.member.controller.ask(CreateTopics((NewTopic("t"),)))
        await node.stop()
        ends.append("well")

    with World(3) as world, caplog.at_level(logging.CRITICAL):
        world.add("a", main)
        world.start("a")
        world.run(60.0)
    assert ends == ["well"]
    (sentence,) = failures
    assert sentence.startswith("This node can take no part in the metadata quorum any more: a sync failed")
    assert sentence.endswith("See to the disk, then start the node again.")
