"""Three whole nodes on virtual time with replicas of the same partitions: replication, commits, failover, catch-up."""

import asyncio
from dataclasses import replace
from typing import Any, Final

import pytest

from penstock.client.admin.admin import Admin
from penstock.client.producer.producer import Producer
from penstock.log.ledger import SECTOR_BYTES
from penstock.log.upkeep import apply_retention
from penstock.metadata.settings.layers import BrokerSettings
from penstock.records.check import DEFAULT_RULES
from penstock.replication.fetch_sessions import RequestedPartition
from penstock.server.fetching.replica_reading import ReplicaReading
from penstock.server.membership.broker_epoch import NO_EPOCH, load_epoch, store_epoch
from penstock.server.membership.lease import LEASE_PART
from penstock.server.settings import NodeSettings
from penstock.wire.messages import alter_partition_reassignments as moving
from tests.simulation.three_servers.world import NODES, settings_for
from tests.unit.server.handlers.bare_node import a_batch
from tests.unit.server.replicated_topic import (
    EVERYWHERE,
    TOPIC,
    bytes_of,
    ends,
    logs,
    make_topic,
    placed,
    publish,
    read_all,
    some_node,
)
from tests.unit.server.town import Town, cluster_of, tell

LAG_S: Final = 2.0


def test_what_is_acknowledged_is_on_all_nodes_that_are_in_sync() -> None:
    async def story(town: Town) -> None:
        await make_topic(town)
        cluster = cluster_of(town)
        await publish(cluster, 100)
        assert ends(town) == [100, 100, 100]
        assert sorted(placed(town).isr) == list(NODES)
        stored = [b"".join(bytes_of(node)) for node in town.nodes.values()]
        assert stored[0] == stored[1] == stored[2]
        await cluster.close()

    tell(story)


def test_a_killed_leader_loses_nothing_and_comes_back_as_a_follower() -> None:
    async def story(town: Town) -> None:
        await make_topic(town)
        cluster = cluster_of(town)
        values = await publish(cluster, 50, "before")
        leader = placed(town).leader
        town.kill(leader)
        values += await publish(cluster, 50, "without it")
        assert placed(town).leader != leader
        assert await read_all(cluster) == values
        town.start(leader)
        took = await town.until(lambda: leader in town.nodes and sorted(placed(town).isr) == list(NODES))
        assert took < 5.0
        values += await publish(cluster, 50, "with it")
        assert ends(town) == [150, 150, 150]
        assert await read_all(cluster) == values
        await cluster.close()

    tell(story)


def test_a_partition_moves_to_other_nodes_while_it_is_written() -> None:
    async def story(town: Town) -> None:
        await make_topic(town, (1, 2))
        cluster = cluster_of(town)
        values = await publish(cluster, 50, "before")
        part = moving.ReassignablePartition(partition_index=0, replicas=[3, 1])
        topic = moving.ReassignableTopic(name=TOPIC, partitions=[part])
        request = moving.AlterPartitionReassignmentsRequest(topics=[topic])
        await cluster.ask_controller(request, moving.AlterPartitionReassignmentsResponse, lambda _answer: ())
        values += await publish(cluster, 50, "meanwhile")
        await town.until(lambda: placed(town).replicas == (3, 1) and not placed(town).adding_replicas)
        values += await publish(cluster, 50, "after")
        assert sorted(placed(town).isr) == [1, 3]
        await town.until(lambda: f"{TOPIC}-0" not in town.nodes[2].storage.directory.logs)
        assert await read_all(cluster) == values
        await cluster.close()

    tell(story)


def test_no_more_must_be_in_sync_than_there_are_replicas() -> None:
    """Where two must be in sync by default, a topic with one replica can still be written, as on Kafka."""

    async def story(town: Town) -> None:
        await make_topic(town, (1,))
        cluster = cluster_of(town)
        values = await publish(cluster, 10)
        part = moving.ReassignablePartition(partition_index=0, replicas=[1, 2])
        topic = moving.ReassignableTopic(name=TOPIC, partitions=[part])
        request = moving.AlterPartitionReassignmentsRequest(topics=[topic])
        await cluster.ask_controller(request, moving.AlterPartitionReassignmentsResponse, lambda _answer: ())
        await town.until(lambda: sorted(placed(town).isr) == [1, 2])
        partition = town.nodes[1].broker.partitions.named(TOPIC, 0)
        assert partition is not None
        await town.until(lambda: partition.in_sync_min == 2)
        values += await publish(cluster, 10, "after")
        assert await read_all(cluster) == values
        await cluster.close()

    tell(story)


def test_deleted_records_are_deleted_everywhere() -> None:
    async def story(town: Town) -> None:
        await make_topic(town)
        cluster = cluster_of(town)
        values = await publish(cluster, 20)
        await asyncio.sleep(2.0)  # followers are up to date, and no fetch names the partition any more
        await town.admin(1).delete_records(TOPIC, {0: 15})
        await town.until(lambda: [log.start_offset for log in logs(town)] == [15, 15, 15])
        assert await read_all(cluster) == values[15:]
        await cluster.close()

    tell(story)


def test_a_deletion_that_was_acknowledged_survives_its_leader() -> None:
    async def story(town: Town) -> None:
        await make_topic(town)
        cluster = cluster_of(town)
        values = await publish(cluster, 20)
        await asyncio.sleep(2.0)
        leader = placed(town).leader
        began_s = town.world.loop.time()
        assert await town.admin(1).delete_records(TOPIC, {0: 15}) == {0: 15}
        assert town.world.loop.time() - began_s < 0.3, "followers are woken for it"
        assert [log.start_offset for log in logs(town)] == [15, 15, 15]
        town.kill(leader)
        assert await read_all(cluster) == values[15:]
        assert placed(town).leader != leader
        await cluster.close()

    tell(story)


def test_a_deletion_waits_for_a_replica_that_is_cut_off_until_it_is_fenced() -> None:
    async def story(town: Town) -> None:
        await make_topic(town)
        cluster = cluster_of(town)
        await publish(cluster, 20)
        leader = placed(town).leader
        victim, other = (node_id for node_id in NODES if node_id != leader)
        links = [(f"node-{victim}", f"node-{node_id}") for node_id in (leader, other)]
        town.world.network.cut([*links, *((to, source) for source, to in links)])
        aside = cluster_of(town, (leader, other))
        began_s = town.world.loop.time()
        assert await Admin(aside).delete_records(TOPIC, {0: 15}) == {0: 15}
        assert town.world.loop.time() - began_s > 1.0, "until its session is over it counts as live"
        await aside.close()
        town.world.network.heal_all()
        await town.until(lambda: victim in town.nodes[leader].member.controller.image.topics[TOPIC].partitions[0].isr)
        assert town.nodes[victim].storage.directory.logs[f"{TOPIC}-0"].start_offset == 15
        await cluster.close()

    tell(story)


def test_what_only_the_leader_had_is_cut_off_when_others_went_on_without_it() -> None:
    async def story(town: Town) -> None:
        await make_topic(town)
        cluster = cluster_of(town)
        values = await publish(cluster, 10, "before")
        leader = placed(town).leader
        rest = [node_id for node_id in NODES if node_id != leader]
        links = [(f"node-{leader}", f"node-{node_id}") for node_id in rest]
        town.world.network.cut([*links, *((to, source) for source, to in links)])
        partition = town.nodes[leader].broker.partitions.named(TOPIC, 0)
        assert partition is not None
        now_ms = town.nodes[leader].ports.clock.wall_ms()
        partition.append(a_batch(5, timestamp_ms=now_ms), now_ms=now_ms, rules=DEFAULT_RULES)
        others = town.nodes[rest[0]].member.controller
        await town.until(lambda: others.image.topics[TOPIC].partitions[0].leader != leader)
        aside = cluster_of(town, rest)
        values += await publish(aside, 5, "without it")
        await aside.close()
        assert partition.log.high_watermark == 10
        town.world.network.heal_all()
        await town.until(lambda: sorted(placed(town).isr) == list(NODES))
        values += await publish(cluster, 5, "together")
        assert partition.log.cuts == 1
        assert await read_all(cluster) == values
        assert ends(town) == [20, 20, 20]
        await cluster.close()

    tell(story)


@pytest.mark.parametrize("is_controller", [True, False])
def test_a_leader_that_was_cut_off_tells_no_ends_once_somebody_else_leads(is_controller: bool) -> None:
    async def story(town: Town) -> None:
        leader, *rest = sorted(NODES, key=lambda node_id: (node_id == town.leader) is not is_controller)
        await make_topic(town, (leader, *rest))
        lone = town.nodes[leader]
        assert lone.broker.lease.is_in_touch
        links = [(f"node-{leader}", f"node-{node_id}") for node_id in rest]
        town.world.network.cut([*links, *((to, source) for source, to in links)])
        others = town.nodes[rest[0]].member.controller
        left_s = await town.until(lambda: not lone.broker.lease.is_in_touch)
        assert others.image.topics[TOPIC].partitions[0].leader == leader, "too late"
        await town.until(lambda: others.image.topics[TOPIC].partitions[0].leader != leader)
        assert lone.broker.partitions.named(TOPIC, 0) is not None, "it still believes to lead"
        assert not lone.broker.lease.is_in_touch
        assert left_s < 5.0
        town.world.network.heal_all()
        await town.until(lambda: lone.broker.lease.is_in_touch)

    tell(story)


@pytest.mark.parametrize("durability", ["fsync", "replicated"])
def test_a_killed_broker_vouches_for_what_it_wrote(durability: str) -> None:
    async def story(town: Town) -> None:
        await town.admin(1).create_topic(TOPIC, 1, 3, {**EVERYWHERE, "durability": durability})
        cluster = cluster_of(town)
        await publish(cluster, 10)
        await cluster.close()
        town.kill(3)
        town.start(3)
        await town.all_serve()
        assert town.nodes[3].broker._previous_epoch() >= 0

    tell(story)


@pytest.mark.parametrize(("durability", "is_sure"), [("fsync", True), ("replicated", False)])
def test_a_broker_that_lost_power_vouches_only_for_what_was_synced(durability: str, is_sure: bool) -> None:
    async def story(town: Town) -> None:
        await town.admin(1).create_topic(TOPIC, 1, 3, {**EVERYWHERE, "durability": durability})
        cluster = cluster_of(town)
        await publish(cluster, 10)
        await cluster.close()
        town.world.cut_power("node-3")
        del town.nodes[3]
        town.start(3)
        await town.all_serve()
        assert (town.nodes[3].broker._previous_epoch() >= 0) is is_sure

    tell(story)


@pytest.mark.parametrize("is_damaged", [False, True])
def test_a_broker_with_a_damaged_ledger_vouches_for_nothing(is_damaged: bool) -> None:
    """Otherwise it could be elected as if it had every committed record. For one damaged log see `test_bit_rot`."""

    async def story(town: Town) -> None:
        await make_topic(town)
        cluster = cluster_of(town)
        for _ in range(50):  # each is a round of group commit
            await publish(cluster, 1)
        await cluster.close()
        ledger = town.nodes[3].storage.directory.ledger
        path, position = ledger.path_of(ledger.turn), ledger.live_bytes - 2 * SECTOR_BYTES
        town.kill(3)
        disk = town.world.nodes["node-3"].disk
        if is_damaged:
            disk.flip_bit(path, position - position % SECTOR_BYTES + 9, 1)  # an entry with others after it
        town.start(3)
        await town.all_serve()
        node = town.nodes[3]
        assert bool(node.storage.directory.findings.doubt) is is_damaged
        assert (node.broker._previous_epoch() == NO_EPOCH) is is_damaged

    tell(story)


def test_followers_do_not_take_producers_for_idle() -> None:
    """Otherwise the next leader would take a retried batch for a new one, and append it twice."""

    async def story(town: Town) -> None:
        await make_topic(town)
        cluster = cluster_of(town)
        await publish(cluster, 10)
        for node in town.nodes.values():
            log = node.storage.directory.logs[f"{TOPIC}-0"]
            await apply_retention(log, node.storage.directory.disk, node.ports.clock.wall_ms())
            assert len(log.producers) == 1, f"node {node.settings.node_id} has forgotten who wrote"
        await cluster.close()

    tell(story)


def test_a_directory_that_is_put_back_from_a_copy_vouches_for_nothing() -> None:
    async def story(town: Town) -> None:
        await make_topic(town)
        copied = load_epoch(town.nodes[3].storage.directory.disk)
        town.kill(3)
        town.start(3)
        await town.all_serve()
        directory = town.nodes[3].storage.directory
        now = some_node(town).member.controller.image.brokers[3]
        assert copied < now.active_epoch == now.epoch == town.nodes[3].broker._previous_epoch()
        await store_epoch(directory.disk, copied, directory.pool.reserve)
        assert town.nodes[3].broker._previous_epoch() == copied, "which the controller refuses"

    tell(story)


def test_a_follower_that_lives_but_does_not_follow_is_waited_for_only_so_long() -> None:
    """Its heartbeats arrive, its fetches do not; the only event at the leader is one append."""

    async def story(town: Town) -> None:
        leader, follower = [node_id for node_id in NODES if node_id != town.leader]
        configs = {"durability": "replicated", "min.insync.replicas": "1"}
        await town.admin(leader).create_topic(TOPIC, configs=configs, assignments=[(leader, follower)])
        cluster = cluster_of(town)
        await publish(cluster, 1, "before")
        await asyncio.sleep(3 * LAG_S)  # no partition is pending, and no timer is set
        names = f"node-{leader}", f"node-{follower}"
        town.world.network.cut([names, names[::-1]])
        loop = asyncio.get_running_loop()
        began = loop.time()
        await publish(cluster, 1, "after")
        assert LAG_S <= loop.time() - began < 2 * LAG_S
        assert placed(town).isr == (leader,)
        await cluster.close()

    tell(story, impatient)


def impatient(node_id: int) -> NodeSettings:
    plain = settings_for(node_id)
    lag = {"replica.lag.time.max.ms": str(int(LAG_S * 1000))}
    return replace(plain, broker=BrokerSettings({**plain.broker.static, **lag}))


def test_a_log_whose_sync_fails_holds_up_no_other_that_comes_from_the_same_leader() -> None:
    async def story(town: Town) -> None:
        await town.admin(1).create_topic("broken", assignments=[(1, 2)], configs={"min.insync.replicas": "1"})
        await make_topic(town, (1, 2))
        cluster = cluster_of(town)
        path = town.nodes[2].storage.directory.logs["broken-0"].path + "/00000000000000000000-0.log"
        town.world.nodes["node-2"].disk.fail_next("sync", path)
        producer = Producer(cluster, delivery_timeout_ms=20_000)
        lost = await producer.send("broken", b"nobody syncs me", partition=0)
        await town.until(lambda: town.nodes[2].storage.directory.logs["broken-0"].offline_reason)
        values = await publish(cluster, 10)
        assert await read_all(cluster) == values
        lost.cancel()
        await producer.close()
        await cluster.close()

    tell(story)


def test_one_of_three_may_be_gone_but_two_are_too_few() -> None:
    async def story(town: Town) -> None:
        await make_topic(town)
        cluster = cluster_of(town)
        await publish(cluster, 10)
        leader = placed(town).leader
        for node_id in NODES:
            if node_id != leader:
                town.world.pause(f"node-{node_id}")
        producer = Producer(cluster, delivery_timeout_ms=8_000)
        delivery = await producer.send(TOPIC, b"too few", partition=0)
        (outcome,) = await asyncio.gather(delivery, return_exceptions=True)
        assert isinstance(outcome, Exception)
        partition = town.nodes[leader].broker.partitions.named(TOPIC, 0)
        assert partition is None or partition.log.high_watermark == 10
        await producer.close()
        await cluster.close()

    tell(story)


def test_a_fetch_looks_only_at_partitions_to_which_something_happened(monkeypatch: pytest.MonkeyPatch) -> None:
    """For any number of partitions: 200 here, of which one is written."""
    looked: list[int] = []
    look = ReplicaReading._knows_all

    def counted(self: ReplicaReading, requested: RequestedPartition) -> bool:
        looked.append(requested.index)
        return look(self, requested)

    monkeypatch.setattr(ReplicaReading, "_knows_all", counted)

    async def story(town: Town) -> None:
        places = [(*NODES[number % 3 :], *NODES[: number % 3]) for number in range(201)]  # balanced: none moves
        await town.admin(1).create_topic(TOPIC, configs=EVERYWHERE, assignments=places)
        cluster = cluster_of(town)
        await publish(cluster, 5, "before")
        await asyncio.sleep(2.0)
        looked.clear()
        await asyncio.sleep(5.0)
        assert looked == []
        await publish(cluster, 20)
        await asyncio.sleep(2.0)
        assert dict.fromkeys(looked) == {0: None}
        assert ends(town) == [25, 25, 25]
        assert [log.high_watermark for log in logs(town)] == [25, 25, 25]
        await cluster.close()

    tell(story)


def test_a_lease_counts_from_the_question(monkeypatch: pytest.MonkeyPatch) -> None:
    """The controller counts from the request, so the lease must too; the response may take its time."""

    async def story(town: Town) -> None:
        follower = next(number for number in NODES if number != town.leader)
        membership = town.nodes[follower].broker.membership
        ask, lease = membership._channel.ask, town.nodes[follower].broker.lease
        asked_ms: list[int] = []
        leases_ms: list[int] = []

        async def slowly(*arguments: Any, **options: Any) -> Any:
            if options.get("lane") != "heartbeat":
                return await ask(*arguments, **options)
            asked_ms.append(membership._clock.monotonic_ms())
            said = await ask(*arguments, **options)
            await asyncio.sleep(0.5)
            return said

        def leased() -> None:
            leases_ms.append(lease.until_ms - asked_ms[-1])

        await town.until(lambda: not lease._is_own)
        monkeypatch.setattr(membership._channel, "ask", slowly)
        lease.extended.connect(leased)
        asked_ms.append(membership._clock.monotonic_ms())
        await asyncio.sleep(5)
        assert len(leases_ms) > 2
        longest_ms = int(membership._session_ms * LEASE_PART)
        assert max(leases_ms[1:]) <= longest_ms, "the lease is longer than the controller's patience"

    tell(story)
