"""Three whole nodes on virtual time: together their metrics describe the cluster correctly, each fact once."""

import asyncio
from collections.abc import Callable, Iterator

import pytest

from penstock.client.admin.configs import ConfigKind
from penstock.client.cluster import Cluster
from penstock.client.groups.commits import commit_offsets
from penstock.client.groups.coordinator_link import CoordinatorLink
from penstock.client.metadata import TopicPartition
from penstock.client.producer.producer import Producer
from penstock.metadata.image import Partition as Placed
from penstock.server.metrics.controller import ControllerCollector
from penstock.server.metrics.gathering import COLLECTORS
from penstock.server.metrics.page import Page
from penstock.server.metrics.replicas import TOLD_CURRENT, ReplicaCollector
from penstock.server.partitions.traffic import Traffic
from tests.simulation.three_servers.world import NODES
from tests.unit.server.metrics.exposition import Told
from tests.unit.server.metrics.pages import together, told, told_by, watched
from tests.unit.server.replicated_topic import publish, read_all
from tests.unit.server.town import Town, cluster_of, tell

TOPIC = "orders"
EXACT_S = 0.1
DECLARED = {metric.name: metric for collector in COLLECTORS for metric in collector.metrics}


def partitions_in(pages: dict[int, Told], name: str) -> list[tuple[str, str]]:
    keys = [dict(key) for page in pages.values() for key in page.values.get(name, ())]
    return sorted((key["topic"], key["partition"]) for key in keys)


async def write(cluster: Cluster, topic: str, count: int, partitions: int) -> None:
    producer = Producer(cluster)
    sent = [await producer.send(topic, b"v" * 100, partition=number % partitions) for number in range(count)]
    await asyncio.gather(*sent)
    await producer.close()


async def check_sums(town: Town) -> None:
    admin, cluster = town.admin(1), cluster_of(town)
    await admin.create_topic(TOPIC, partitions=6, replication_factor=3)
    await write(cluster, TOPIC, 60, 6)
    await read_all(cluster)
    pages = await told(town)
    names = [(TOPIC, str(number)) for number in range(6)]
    for name in ("kafka_topic_partition_current_offset", "kafka_cluster_partition_underminisr"):
        assert partitions_in(pages, name) == names, f"{name} is told once for each partition"
    assert together(pages, "kafka_topic_partition_current_offset") == 60
    assert together(pages, "kafka_topic_partition_in_sync_replica") == 18
    assert together(pages, "kafka_server_replicamanager_leadercount") == 6
    assert together(pages, "kafka_server_replicamanager_partitioncount") == 18
    assert together(pages, "kafka_controller_kafkacontroller_activecontrollercount") == 1
    assert together(pages, "kafka_brokers") == 3
    assert together(pages, "kafka_topic_partitions") == 6
    for name, value in (("messagesin", 60), ("bytesin", None), ("bytesout", None)):
        metric = f"kafka_server_brokertopicmetrics_{name}_total"
        whole = sum(page.value(metric) for page in pages.values())
        assert whole == sum(page.value(metric, topic=TOPIC) for page in pages.values())
        assert whole == value if value is not None else whole > 6_000
    stored = together(pages, "kafka_log_log_size") / 3
    assert stored == sum(page.value("kafka_server_brokertopicmetrics_bytesin_total") for page in pages.values())
    assert together(pages, "kafka_server_brokertopicmetrics_replicationbytesout_total") == 2 * stored
    assert sum(page.value("kafka_server_brokertopicmetrics_bytesout_total") for page in pages.values()) == stored
    assert together(pages, "kafka_network_requestmetrics_requests_total") > 100
    for page in pages.values():
        assert page.kinds.keys() <= DECLARED.keys()
        assert all(DECLARED[name].kind.value == kind for name, kind in page.kinds.items())
        for name, values in page.values.items():
            declared = DECLARED.get(name) or DECLARED[name.rpartition("_")[0]]
            assert all({label for label, _ in key} <= set(declared.labels) for key in values), name
    await cluster.close()


def test_sums_over_all_nodes_are_true() -> None:
    tell(check_sums, watched)


async def check_groups(town: Town) -> None:
    admin, cluster = town.admin(1), cluster_of(town)
    await admin.create_topic(TOPIC, partitions=4, replication_factor=3)
    producer, clock = Producer(cluster), cluster.ports.clock
    long_ago_ms = clock.wall_ms() - 60_000
    for number in range(12):
        await producer.publish(TOPIC, b"x", partition=number % 3, timestamp_ms=long_ago_ms + 1_000 * number)
    await producer.close()
    places = [TopicPartition(TOPIC, number) for number in range(4)]
    groups = [f"g{number}" for number in range(5)]
    for group in groups:
        offsets = {places[0]: 0, places[1]: 2, places[2]: 4, places[3]: 0}
        await commit_offsets(CoordinatorLink(cluster, group), offsets)
    for _ in range(2):  # the second time from the cache
        pages = await told(town)
        now_ms = clock.wall_ms()
        name = "kafka_consumergroup_lag"
        keys = [dict(key) for page in pages.values() for key in page.values.get(name, ())]
        assert sorted((key["consumergroup"], key["partition"]) for key in keys) == [
            (group, str(number)) for group in groups for number in range(4)
        ], "each is told once"
        assert together(pages, name) == together(pages, "kafka_consumergroup_lag_sum") == 5 * 6
        assert together(pages, "kafka_consumergroup_current_offset") == 5 * 6
        assert together(pages, "kafka_coordinator_group_groupmetadatamanager_numgroups") == 5
        assert together(pages, "kafka_coordinator_group_groupmetadatamanager_numgroupsempty") == 5
        assert together(pages, "kafka_coordinator_group_groupmetadatamanager_numoffsets") == 20
        assert together(pages, "kafka_consumergroup_members") == 0
        ages = {
            (labelled["consumergroup"], labelled["partition"]): value
            for page in pages.values()
            for key, value in page.values.get("kafka_consumergroup_lag_seconds", {}).items()
            if (labelled := dict(key))
        }
        first_ms = {"0": long_ago_ms, "1": long_ago_ms + 7_000}
        for group in groups:
            for partition, oldest_ms in first_ms.items():
                assert abs(ages[group, partition] - (now_ms - oldest_ms) / 1000) < EXACT_S
            assert (ages[group, "2"], ages[group, "3"]) == (0, 0), "at the end"
        await asyncio.sleep(3)
    await cluster.close()


def test_groups_are_told_by_their_coordinators_alone_and_exactly() -> None:
    tell(check_groups, watched)


def tells_what_it_follows_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes nodes report followed partitions too, as a kafka_exporter beside each node would."""
    collect = ReplicaCollector.collect

    def more(self: ReplicaCollector, page: Page) -> Iterator[None]:
        yield from collect(self, page)
        for log in self._directory.logs.values():
            name = log.identity.topic
            if name == TOPIC and self._partitions.named(name, log.identity.partition) is None:
                labelled = f'{{topic="{name}",partition="{log.identity.partition}"}}'
                page.family(TOLD_CURRENT).add(log.high_watermark, labelled)

    monkeypatch.setattr(ReplicaCollector, "collect", more)


def forgets_topics_that_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Traffic, "forget", lambda self, topic: self.by_topic.pop(topic, None))


def every_node_tells_of_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    collect = ControllerCollector.collect

    def all_of_it(self: ControllerCollector, page: Page) -> Iterator[None]:
        runtime = self._controller.runtime
        was_active, runtime.is_active = runtime.is_active, True
        yield from collect(self, page)
        runtime.is_active = was_active

    monkeypatch.setattr(ControllerCollector, "collect", all_of_it)


@pytest.mark.parametrize("bug", [tells_what_it_follows_too, every_node_tells_of_the_cluster])
def test_sums_that_are_not_true_are_noticed(
    bug: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    bug(monkeypatch)
    with pytest.raises(AssertionError):
        tell(check_sums, watched)


async def check_kill(town: Town) -> None:
    admin = town.admin(1)
    await admin.create_topic(TOPIC, configs={"min.insync.replicas": "2"}, assignments=[NODES])
    await admin.create_topic("strict", configs={"min.insync.replicas": "3"}, assignments=[NODES])
    await admin.create_topic("alone", assignments=[(2,)])
    cluster = cluster_of(town)
    await publish(cluster, 10)
    before = await told(town)
    assert together(before, "kafka_server_replicamanager_underreplicatedpartitions") == 0
    assert together(before, "kafka_controller_kafkacontroller_offlinepartitionscount") == 0
    assert together(before, "kafka_server_replicamanager_atminisrpartitioncount") == 2
    epoch = max(page.value("kafka_server_raftmetrics_current_epoch") for page in before.values())
    town.kill(2)
    await town.until(
        lambda: town.leader is not None and town.nodes[town.leader].member.controller.index.leaderless_count
    )
    await asyncio.sleep(2.0)
    pages = await told(town)
    assert together(pages, "kafka_controller_kafkacontroller_offlinepartitionscount") == 1
    assert together(pages, "kafka_controller_kafkacontroller_fencedbrokercount") == 1
    assert together(pages, "kafka_brokers") == 2
    assert together(pages, "kafka_server_replicamanager_underreplicatedpartitions") == 2
    assert together(pages, "kafka_server_replicamanager_underminisrpartitioncount") == 1
    assert together(pages, "kafka_server_replicamanager_atminisrpartitioncount") == 1
    assert together(pages, "kafka_server_replicamanager_isrshrinks_total") >= 2
    leaders = [page.values.get("kafka_topic_partition_leader", {}) for page in pages.values()]
    nobody = [key for found in leaders for key, value in found.items() if value == -1]
    assert nobody == [(("partition", "0"), ("topic", "alone"))]
    assert partitions_in(pages, "kafka_topic_partition_replicas") == [("alone", "0"), (TOPIC, "0"), ("strict", "0")]
    assert max(page.value("kafka_server_raftmetrics_current_epoch") for page in pages.values()) >= epoch
    town.start(2)
    await town.until(lambda: 2 in town.nodes)
    await town.all_serve()
    await town.until(lambda: all(len(part.isr) == 3 for part in topics_of(town)[TOPIC]))
    after = await told(town)
    assert together(after, "kafka_server_replicamanager_isrexpands_total") >= 1
    assert together(after, "kafka_controller_kafkacontroller_offlinepartitionscount") == 0
    await cluster.close()


def topics_of(town: Town) -> dict[str, list[Placed]]:
    image = next(iter(town.nodes.values())).member.controller.image
    return {topic.name: list(topic.partitions.values()) for topic in image.topics.values()}


def test_what_a_dead_node_leaves_behind_is_told() -> None:
    tell(check_kill, watched)


def test_counters_never_go_back_while_a_node_lives() -> None:
    """Topics are created, written, moved and deleted."""

    async def story(town: Town) -> None:
        admin, cluster = town.admin(1), cluster_of(town)
        last = await told(town)
        for number in range(4):
            name = f"topic-{number}"
            await admin.create_topic(name, partitions=3, replication_factor=2)
            await write(cluster, name, 30, 3)
            if number >= 1:
                await admin.delete_topics([f"topic-{number - 1}"])
            await asyncio.sleep(1.0)
            pages = await told(town)
            for node_id, page in pages.items():
                for metric, kind in page.kinds.items():
                    if kind == "counter" and () in last[node_id].values.get(metric, {}):
                        assert page.value(metric) >= last[node_id].value(metric), metric
            last = pages
        assert together(last, "kafka_server_brokertopicmetrics_messagesin_total") == 120 + 30
        assert {"topic-3", ""} == {
            each
            for page in last.values()
            for each in page.labels("kafka_server_brokertopicmetrics_bytesin_total", "topic")
        }
        await cluster.close()

    tell(story, watched)


def test_a_counter_that_goes_back_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    forgets_topics_that_go(monkeypatch)
    with pytest.raises(AssertionError):
        test_counters_never_go_back_while_a_node_lives()


def test_series_are_bounded_and_what_is_left_out_is_counted() -> None:
    async def story(town: Town) -> None:
        admin = town.admin(1)
        await admin.create_topic("a", partitions=30, replication_factor=1)
        for number in range(5):
            await admin.create_topic(f"b{number}", partitions=1, replication_factor=3)
        await admin.alter_configs(ConfigKind.BROKER, "", {"metrics.partitions.max": "3"})
        await asyncio.sleep(1.0)
        pages = await told(town)
        for page in pages.values():
            for name, values in page.values.items():
                if any(dict(key).get("topic") for key in values):
                    assert len([key for key in values if dict(key).get("topic")]) <= 3, name
        assert together(pages, "kafka_server_replicamanager_leadercount") == 35
        assert together(pages, "penstock_metrics_partitions_left_out") == 35 - 9

    tell(story, watched)


def test_a_node_that_waits_for_the_quorum_tells_what_it_knows() -> None:
    """The other nodes are down: the node runs, and reports that it does not serve."""

    async def story(town: Town) -> None:
        town.kill(2)
        town.kill(3)
        await town.until(lambda: town.leader is None, 30.0)
        town.kill(1)
        town.start(1)
        await town.until(lambda: 1 in town.nodes)
        page = await told_by(town.nodes[1])
        assert page.value("kafka_controller_kafkacontroller_activecontrollercount") == 0
        assert page.value("kafka_server_replicamanager_leadercount") == 0
        assert page.labels("kafka_server_raftmetrics_current_state", "current_state") != ["leader"]
        assert town.nodes[1].health.why_not_serving == "not serving yet: it has not joined its cluster"

    tell(story, watched)
