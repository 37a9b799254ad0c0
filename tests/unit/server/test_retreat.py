"""Three whole nodes on virtual time: one with a full disk or a failed log hands over leadership, and returns."""

import asyncio
import errno
from collections.abc import Callable

import pytest

from penstock.client.cluster import Cluster
from penstock.client.errors import ClientError
from penstock.client.producer.producer import Producer
from penstock.host.lossy import LossyDisk
from penstock.model.errors import StorageError
from penstock.records.check import Rules
from penstock.server.node import Node
from penstock.server.replicas.failed_logs import FailedLogs
from penstock.simulator.disk import LifeDisk
from tests.simulation.three_servers.world import NODES
from tests.unit.server.full_disks import settings_of
from tests.unit.server.handlers.bare_node import a_batch
from tests.unit.server.replicated_topic import TOPIC, make_topic, placed, publish, read_all
from tests.unit.server.town import Town, cluster_of, tell

RETREAT_S = 3.0
SLACK_BYTES = 4_096
"""Margin for space that a node frees in passing."""
ALL = list(NODES)


def disk_of(node: Node) -> LossyDisk:
    assert isinstance(node.ports.disk, LifeDisk)
    return node.ports.disk._disk


def fill(town: Town, node_id: int) -> None:
    disk = disk_of(town.nodes[node_id])
    disk.faults.capacity_bytes = 0
    disk.faults.capacity_bytes = disk._used() - SLACK_BYTES


def empty(town: Town, node_id: int) -> None:
    disk_of(town.nodes[node_id]).faults.capacity_bytes = None


def is_led_elsewhere(town: Town, node_id: int) -> Callable[[], bool]:
    return lambda: placed(town).leader not in (node_id, -1) and node_id not in placed(town).isr


def test_others_lead_for_a_full_disk_until_there_is_room() -> None:
    async def story(town: Town) -> None:
        await make_topic(town, (2, 3, 1))
        cluster = cluster_of(town)
        values = await publish(cluster, 50, "before")
        fill(town, 2)
        loop = asyncio.get_running_loop()
        began = loop.time()
        values += await publish(cluster, 50, "without it")
        assert loop.time() - began < RETREAT_S
        assert (placed(town).leader, sorted(placed(town).isr)) == (3, [1, 3])
        assert not town.nodes[2].member.controller.image.brokers[2].is_fenced
        epoch = placed(town).leader_epoch
        await asyncio.sleep(10)
        values += await publish(cluster, 50, "still without it")
        assert placed(town).leader_epoch == epoch, "it was not made the leader meanwhile"
        empty(town, 2)
        await town.until(lambda: placed(town).leader == 2 and sorted(placed(town).isr) == ALL)
        values += await publish(cluster, 50, "after")
        assert await read_all(cluster) == values
        assert {node.storage.directory.logs[f"{TOPIC}-0"].written_end for node in town.nodes.values()} == {200}
        await cluster.close()

    tell(story, settings_of)


def test_a_follower_without_room_is_not_waited_for() -> None:
    async def story(town: Town) -> None:
        await make_topic(town, (2, 3, 1))
        cluster = cluster_of(town)
        await publish(cluster, 5)
        fill(town, 1)
        loop = asyncio.get_running_loop()
        began = loop.time()
        await publish(cluster, 5)  # the follower may still have space for these records
        await town.until(lambda: sorted(placed(town).isr) == [2, 3])
        await publish(cluster, 5)
        assert loop.time() - began < RETREAT_S
        assert placed(town).leader == 2
        empty(town, 1)
        await town.until(lambda: sorted(placed(town).isr) == ALL)
        assert placed(town).leader_epoch == 0
        await cluster.close()

    tell(story, settings_of)


def test_an_idle_partition_goes_once_and_not_to_and_fro() -> None:
    """The full broker has all records: only its own report keeps it from leading."""

    async def story(town: Town) -> None:
        await make_topic(town, (2, 3, 1))
        cluster = cluster_of(town)
        await publish(cluster, 5)
        fill(town, 2)
        await town.until(is_led_elsewhere(town, 2))
        epoch = placed(town).partition_epoch
        await asyncio.sleep(30)
        assert placed(town).partition_epoch == epoch
        town.kill(2)
        town.start(2)
        await town.until(lambda: 2 in town.nodes and town.nodes[2].health.is_serving)
        await asyncio.sleep(30)
        assert 2 not in placed(town).isr, "it has started on a full disk"
        empty(town, 2)
        await town.until(lambda: placed(town).leader == 2)
        await cluster.close()

    tell(story, settings_of)


def test_where_nobody_else_could_lead_it_is_read_and_refuses() -> None:
    async def story(town: Town) -> None:
        await town.admin(1).create_topic(TOPIC, assignments=[(2,)])
        cluster = cluster_of(town)
        values = await publish(cluster, 5)
        fill(town, 2)
        await town.until(lambda: not town.nodes[1].member.controller.image.brokers[2].can_write)
        assert (placed(town).leader, placed(town).leader_epoch) == (2, 0)
        with pytest.raises(ClientError, match="not delivered"):
            await refused(cluster)
        assert await read_all(cluster) == values
        empty(town, 2)
        values += await publish(cluster, 5)
        assert await read_all(cluster) == values
        await cluster.close()

    tell(story, settings_of)


async def refused(cluster: Cluster) -> None:
    producer = Producer(cluster, delivery_timeout_ms=2_000)
    try:
        await (await producer.send(TOPIC, bytes(1000), partition=0))
    finally:
        await producer.close()


# --- failed logs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", ["write", "sync"])
def test_a_leader_whose_log_has_failed_gives_way(operation: str) -> None:
    async def story(town: Town) -> None:
        await make_topic(town, (2, 3, 1))
        cluster = cluster_of(town)
        values = await publish(cluster, 50, "before")
        log = town.nodes[2].storage.directory.logs[f"{TOPIC}-0"]
        disk_of(town.nodes[2]).fail_next(operation, log.path_of(log.active, "log"), code=errno.EIO)
        loop = asyncio.get_running_loop()
        began = loop.time()
        values += await publish(cluster, 50, "without it")
        assert loop.time() - began < RETREAT_S
        assert log.offline_reason is not None
        assert (placed(town).leader, sorted(placed(town).isr)) == (3, [1, 3])
        assert town.nodes[2].broker.partitions.named(TOPIC, 0) is None, "whoever asks there is sent to the leader"
        await asyncio.sleep(10)
        assert 2 not in placed(town).isr
        town.kill(2)
        town.start(2)
        await town.until(lambda: 2 in town.nodes and placed(town).leader == 2)
        assert sorted(placed(town).isr) == ALL
        assert await read_all(cluster) == values
        await cluster.close()

    tell(story, settings_of)


def test_the_core_is_told_of_a_failed_append_at_once() -> None:
    async def story(town: Town) -> None:
        await make_topic(town, (2, 3, 1))
        node = town.nodes[2]
        await town.until(lambda: node.broker.partitions.named(TOPIC, 0) is not None)
        partition = node.broker.partitions.named(TOPIC, 0)
        assert partition is not None
        key = (partition.topic_id, 0)
        assert node.broker.replicas.leader(key) is not None
        log = partition.log
        disk_of(node).fail_next("write", log.path_of(log.active, "log"), code=errno.EIO)
        with pytest.raises(StorageError, match="offline"):
            partition.append(a_batch(), now_ms=node.ports.clock.wall_ms(), rules=Rules(timestamp_after_ms_max=None))
        assert node.broker.replicas.leader(key) is None
        await town.until(is_led_elsewhere(town, 2))

    tell(story, settings_of)


def test_a_failed_log_that_nobody_else_has_says_so() -> None:
    async def story(town: Town) -> None:
        await make_topic(town, (2, 3))
        cluster = cluster_of(town)
        await publish(cluster, 5)
        town.kill(3)
        await town.until(lambda: placed(town).isr == (2,))
        log = town.nodes[2].storage.directory.logs[f"{TOPIC}-0"]
        log.take_offline("a write failed: planted")
        await asyncio.sleep(5)
        assert (placed(town).leader, placed(town).leader_epoch) == (2, 0)
        assert town.nodes[2].broker.partitions.named(TOPIC, 0) is not None
        with pytest.raises(ClientError, match="KAFKA_STORAGE_ERROR"):
            await read_all(Cluster("node-2:9092", ports=town.ports, timeout_ms=2_000))
        town.start(3)
        await asyncio.sleep(5)
        assert placed(town).leader == 2, "the other has never been told what is missing"
        await cluster.close()

    tell(story, settings_of)


def test_a_log_that_is_damaged_at_a_start_is_not_in_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """With durability=replicated every written record counts as kept, so its fetches would acknowledge all of them."""
    monkeypatch.setattr(FailedLogs, "_may_go", lambda *_: False)  # otherwise it is fetched again: see test_bit_rot

    async def story(town: Town) -> None:
        await town.admin(1).create_topic(
            TOPIC, configs={"min.insync.replicas": "1", "durability": "replicated"}, assignments=[(2, 3)]
        )
        cluster = cluster_of(town)
        values = await publish(cluster, 50)
        log = town.nodes[2].storage.directory.logs[f"{TOPIC}-0"]
        log.roll()
        values += await publish(cluster, 50)
        town.nodes[2].storage.directory.hurry()
        await town.until(lambda: log.settled_segments == 1 and log.synced_end == 100)
        file = disk_of(town.nodes[2]).open(log.path_of(log.segments[0], "log"))
        file.truncate(file.size() - 1)
        await file.sync()
        town.kill(2)
        town.start(2)
        await town.until(lambda: 2 in town.nodes and town.nodes[2].health.is_serving)
        assert town.nodes[2].storage.directory.logs[f"{TOPIC}-0"].offline_reason is not None
        assert town.nodes[2].storage.directory.logs[f"{TOPIC}-0"].written_end == 100, "nothing seems to be missing"
        await asyncio.sleep(10)
        assert (placed(town).leader, placed(town).isr) == (3, (3,))
        values += await publish(cluster, 50, "after")
        assert await read_all(cluster) == values
        await cluster.close()

    tell(story, settings_of)
