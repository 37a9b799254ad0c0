"""Lag of groups while some leaders are dead or unresponsive: known values are reported, and no others."""

import asyncio

from penstock.client.bootstrap import Address
from penstock.client.cluster import Cluster
from penstock.client.groups.commits import commit_offsets
from penstock.client.groups.coordinator_link import CoordinatorLink
from penstock.client.metadata import TopicPartition
from penstock.client.ports import ClientPorts
from penstock.client.producer.producer import Producer
from penstock.records.control import ControlType, EndTransactionMarker, marker_batch
from penstock.records.header import patch
from penstock.server.groups.end_offset_query import EndOffsetQuery, Place, Span
from penstock.server.groups.group_lag import LOOK_S
from tests.unit.client.brokers import Brokers, append, play
from tests.unit.server.metrics.exposition import Told
from tests.unit.server.metrics.pages import together, told, watched
from tests.unit.server.town import Town, cluster_of, tell

GROUPS = [f"g{number}" for number in range(6)]
CURRENT, LAG, SECONDS = (f"kafka_consumergroup_{name}" for name in ("current_offset", "lag", "lag_seconds"))
UNKNOWN = "penstock_consumergroup_lag_unknown_partitions"
SOON_S = 0.5


def victim_of(town: Town) -> int:
    """Returns a node other than the controller, so that no failover of the controller delays the test."""
    return next(node_id for node_id in town.nodes if node_id != town.leader)


async def prepare(town: Town, victim: int) -> Cluster:
    """Puts partition 1 of `mixed` and all of `alone` on the victim only; groups have read one record of each."""
    admin, cluster = town.admin(1), cluster_of(town)
    one, other = [node_id for node_id in town.nodes if node_id != victim]
    await admin.create_topic("mixed", assignments=[(one,), (victim,), (other,)])
    await admin.create_topic("alone", assignments=[(victim,)])
    places = [*(TopicPartition("mixed", number) for number in range(3)), TopicPartition("alone", 0)]
    producer = Producer(cluster)
    for topic, partition in places:
        for _ in range(4):
            await producer.publish(topic, b"x", partition=partition)
    await producer.close()
    for group in GROUPS:
        await commit_offsets(CoordinatorLink(cluster, group), dict.fromkeys(places, 1))
    return cluster


def told_of(pages: dict[int, Told], name: str, group: str) -> dict[tuple[str, str | None], float]:
    """Returns the values of a metric by topic and partition."""
    return {
        (labelled["topic"], labelled.get("partition")): value
        for page in pages.values()
        for key, value in page.values.get(name, {}).items()
        if (labelled := dict(key))["consumergroup"] == group
    }


def check_without_victim(pages: dict[int, Told], group: str) -> None:
    everywhere = {("mixed", "0"), ("mixed", "1"), ("mixed", "2"), ("alone", "0")}
    assert told_of(pages, CURRENT, group) == dict.fromkeys(everywhere, 1), "the coordinator knows it itself"
    assert told_of(pages, f"{CURRENT}_sum", group) == {("mixed", None): 3, ("alone", None): 1}
    assert told_of(pages, LAG, group) == {("mixed", "0"): 3, ("mixed", "2"): 3}
    assert told_of(pages, f"{LAG}_sum", group) == {("mixed", None): 6}, "of what is known"
    assert told_of(pages, SECONDS, group).keys() == {("mixed", "0"), ("mixed", "2")}
    assert told_of(pages, UNKNOWN, group) == {("mixed", None): 1, ("alone", None): 1}


def test_a_partition_without_a_leader_takes_nothing_from_others() -> None:
    async def story(town: Town) -> None:
        victim = victim_of(town)
        cluster = await prepare(town, victim)
        before = await told(town)
        assert together(before, UNKNOWN) == 0
        assert together(before, LAG) == len(GROUPS) * 4 * 3
        town.kill(victim)
        await town.until(
            lambda: town.leader is not None and town.nodes[town.leader].member.controller.index.leaderless_count
        )
        await asyncio.sleep(5.0)
        for _ in range(2):
            began_s = asyncio.get_running_loop().time()
            pages = await told(town)
            assert asyncio.get_running_loop().time() - began_s < SOON_S, "nobody waits for who cannot answer"
            for group in GROUPS:
                check_without_victim(pages, group)
        town.start(victim)
        await town.until(lambda: victim in town.nodes)
        await town.all_serve()
        await asyncio.sleep(5.0)
        after = await told(town)
        assert (together(after, UNKNOWN), together(after, LAG)) == (0, len(GROUPS) * 4 * 3)
        await cluster.close()

    tell(story, watched)


def test_a_leader_that_is_silent_holds_up_nobody_else() -> None:
    """The leader hangs, and the controller has not noticed yet."""

    async def story(town: Town) -> None:
        victim = victim_of(town)
        cluster = await prepare(town, victim)
        await told(town)
        town.world.pause(f"node-{victim}")
        awake = {node_id: node for node_id, node in town.nodes.items() if node_id != victim}
        groups = [
            group
            for node in awake.values()
            for driven in node.broker.groups.shards.values()
            if driven.shard is not None
            for group in driven.shard.offsets.groups()
        ]
        assert groups
        town.nodes = awake
        began_s = asyncio.get_running_loop().time()
        pages = await told(town)
        assert asyncio.get_running_loop().time() - began_s <= len(awake) * LOOK_S + SOON_S
        for group in groups:
            check_without_victim(pages, group)
        town.world.resume(f"node-{victim}")
        await cluster.close()

    tell(story, watched)


def test_timestamps_of_several_offsets_of_a_partition_are_read_together() -> None:
    """A partition whose leader is gone has no result, which differs from having no record."""
    brokers = Brokers(2)
    several, gone, marked = brokers.add_topic("t", 3)
    for each in (several, gone):
        append(each, 1_000, 2_000, 3_000)
        append(each, 4_000)
        append(each, 5_000)
    del several.batches[1]
    append(marked, 1_000)
    end = EndTransactionMarker(ControlType.COMMIT, 0)
    marker = bytearray(marker_batch(end, producer_id=5, producer_epoch=0, timestamp_ms=2_000))
    patch(marker, marked.end, 0)
    marked.batches.append(bytes(marker))
    marked.end += 1
    places = [TopicPartition("t", number) for number in range(3)]
    noted: dict[Place, int | None] = {}

    async def story(ports: ClientPorts) -> dict[TopicPartition, Span]:
        look = EndOffsetQuery(Address(brokers.names[0], 9092), ports)
        try:
            spans = await look.spans(places)
            wanted = {places[0]: [4, 0, 2, 3], places[2]: [1]}
            await look.first_timestamps(wanted, spans, noted)
            return spans
        finally:
            await look.close()

    spans = play(brokers, story)
    assert spans == {places[0]: Span(0, 5), places[2]: Span(0, 2)}, "it does not lead the other"
    assert noted == {
        (places[0], 0): 1_000,
        (places[0], 2): 3_000,
        (places[0], 3): 5_000,
        (places[0], 4): 5_000,
        (places[2], 1): None,
    }
