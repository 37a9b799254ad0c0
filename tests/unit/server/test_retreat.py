"""Three whole nodes on virtual time: one whose disk is full, or whose log has failed, gives way, and comes back."""

import asyncio
import errno
from collections.abc import Callable
from dataclasses import replace

import pytest

from penstock.client.cluster import Cluster
from penstock.client.errors import ClientError
from penstock.client.producer import Producer
from penstock.host.lossy import LossyDisk
from penstock.metadata.settings.layers import BrokerSettings
from penstock.model.errors import StorageError
from penstock.records.check import Rules
from penstock.server.failed_logs import FailedLogs
from penstock.server.node import Node
from penstock.server.settings import NodeSettings
from penstock.simulator.disk import LifeDisk
from tests.simulation.servers_world import NODES, settings_for
from tests.unit.server.handlers.stand import a_batch
from tests.unit.server.test_cluster import Town, tell
from tests.unit.server.test_replication import TOPIC, cluster_of, make_topic, placed, publish, read_all

RETREAT_S = 3.0
RESERVE_BYTES = 100_000
SLACK_BYTES = 4_096
"""What a node gives back in passing makes no room."""
ALL = list(NODES)


def settings_of(node_id: int) -> NodeSettings:
    """A broker that is late is taken out long after what is waited for here."""
    settings = settings_for(node_id)
    given = {
        **settings.broker.static,
        "leader.imbalance.check.interval.seconds": "2",
        "replica.lag.time.max.ms": "60000",
    }
    return replace(settings, reserve_bytes=RESERVE_BYTES, broker=BrokerSettings(given))


def disk_of(node: Node) -> LossyDisk:
    assert isinstance(node.disk, LifeDisk)
    return node.disk._disk


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
        assert not town.nodes[2].controller.image.brokers[2].is_fenced
        epoch = placed(town).leader_epoch
        await asyncio.sleep(10)
        values += await publish(cluster, 50, "still without it")
        assert placed(town).leader_epoch == epoch, "it was not made the leader meanwhile"
        empty(town, 2)
        await town.until(lambda: placed(town).leader == 2 and sorted(placed(town).isr) == ALL)
        values += await publish(cluster, 50, "after")
        assert await read_all(cluster) == values
        assert {node.directory.logs[f"{TOPIC}-0"].written_end for node in town.nodes.values()} == {200}
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
        await publish(cluster, 5)  # which the follower may still have found room for
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
    """Nothing is missing on the full disk: only what it says of itself keeps it from leading."""

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
        await town.until(lambda: 2 in town.nodes and town.nodes[2].is_serving)
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
        await town.until(lambda: not town.nodes[1].controller.image.brokers[2].can_write)
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


# --- a log that has failed --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", ["write", "sync"])
def test_a_leader_whose_log_has_failed_gives_way(operation: str) -> None:
    async def story(town: Town) -> None:
        await make_topic(town, (2, 3, 1))
        cluster = cluster_of(town)
        values = await publish(cluster, 50, "before")
        log = town.nodes[2].directory.logs[f"{TOPIC}-0"]
        disk_of(town.nodes[2]).fail_next(operation, log.path_of(log.active, "log"), code=errno.EIO)
        loop = asyncio.get_running_loop()
        began = loop.time()
        values += await publish(cluster, 50, "without it")
        assert loop.time() - began < RETREAT_S
        assert log.offline_reason is not None
        assert (placed(town).leader, sorted(placed(town).isr)) == (3, [1, 3])
        assert town.nodes[2].partitions.named(TOPIC, 0) is None, "whoever asks there is sent to the leader"
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
        await town.until(lambda: node.partitions.named(TOPIC, 0) is not None)
        partition = node.partitions.named(TOPIC, 0)
        assert partition is not None
        key = (partition.topic_id, 0)
        assert node.replicas.leader(key) is not None
        log = partition.log
        disk_of(node).fail_next("write", log.path_of(log.active, "log"), code=errno.EIO)
        with pytest.raises(StorageError, match="offline"):
            partition.append(a_batch(), now_ms=node.clock.wall_ms(), rules=Rules(timestamp_after_ms_max=None))
        assert node.replicas.leader(key) is None
        await town.until(is_led_elsewhere(town, 2))

    tell(story, settings_of)


def test_a_failed_log_that_nobody_else_has_says_so() -> None:
    async def story(town: Town) -> None:
        await make_topic(town, (2, 3))
        cluster = cluster_of(town)
        await publish(cluster, 5)
        town.kill(3)
        await town.until(lambda: placed(town).isr == (2,))
        log = town.nodes[2].directory.logs[f"{TOPIC}-0"]
        log.take_offline("a write failed: planted")
        await asyncio.sleep(5)
        assert (placed(town).leader, placed(town).leader_epoch) == (2, 0)
        assert town.nodes[2].partitions.named(TOPIC, 0) is not None
        with pytest.raises(ClientError, match="KAFKA_STORAGE_ERROR"):
            await read_all(Cluster("node-2:9092", ports=town.ports, timeout_ms=2_000))
        town.start(3)
        await asyncio.sleep(5)
        assert placed(town).leader == 2, "the other has never been told what is missing"
        await cluster.close()

    tell(story, settings_of)


def test_a_log_that_is_damaged_at_a_start_is_not_in_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under durability=replicated whatever is written counts as kept, so that its fetches would acknowledge it all."""
    monkeypatch.setattr(FailedLogs, "_may_go", lambda *_: False)  # else it is fetched anew: see test_bit_rot

    async def story(town: Town) -> None:
        await town.admin(1).create_topic(
            TOPIC, configs={"min.insync.replicas": "1", "durability": "replicated"}, assignments=[(2, 3)]
        )
        cluster = cluster_of(town)
        values = await publish(cluster, 50)
        log = town.nodes[2].directory.logs[f"{TOPIC}-0"]
        log.roll()
        values += await publish(cluster, 50)
        town.nodes[2].directory.hurry()
        await town.until(lambda: log.settled_segments == 1 and log.synced_end == 100)
        file = disk_of(town.nodes[2]).open(log.path_of(log.segments[0], "log"))
        file.truncate(file.size() - 1)
        await file.sync()
        town.kill(2)
        town.start(2)
        await town.until(lambda: 2 in town.nodes and town.nodes[2].is_serving)
        assert town.nodes[2].directory.logs[f"{TOPIC}-0"].offline_reason is not None
        assert town.nodes[2].directory.logs[f"{TOPIC}-0"].written_end == 100, "nothing seems to be missing"
        await asyncio.sleep(10)
        assert (placed(town).leader, placed(town).isr) == (3, (3,))
        values += await publish(cluster, 50, "after")
        assert await read_all(cluster) == values
        await cluster.close()

    tell(story, settings_of)
