"""Three whole nodes in three racks on virtual time: consumers read from the replica in their rack (KIP-392)."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import pytest

from penstock.client.cluster import Cluster
from penstock.metadata.settings.layers import BrokerSettings
from penstock.model.errors import ErrorCode
from penstock.records.check import DEFAULT_RULES
from penstock.records.header import batches
from penstock.server.replicas.replica_runner import LEADERS_ONLY
from penstock.server.settings import NodeSettings
from penstock.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from tests.simulation.three_servers.world import NODES, settings_for
from tests.unit.server.handlers.bare_node import a_batch
from tests.unit.server.replicated_topic import TOPIC, make_topic, placed, publish
from tests.unit.server.town import Town, cluster_of, tell

WAIT_MS: Final = 5_000


def in_racks(**more: str) -> Callable[[int], NodeSettings]:
    def settings(node_id: int) -> NodeSettings:
        plain = settings_for(node_id)
        own = {"broker.rack": rack(node_id), **more}
        return replace(plain, broker=BrokerSettings({**plain.broker.static, **own}))

    return settings


def rack(node_id: int) -> str:
    return f"rack {node_id}"


class Place:
    """A topic of one partition with three replicas and ten records, and fetches of it."""

    def __init__(self, town: Town, cluster: Cluster) -> None:
        self.town = town
        self.cluster = cluster
        self.topic_id = town.nodes[1].member.controller.image.topics[TOPIC].topic_id

    @classmethod
    async def make(cls, town: Town) -> "Place":
        await make_topic(town)
        cluster = cluster_of(town)
        await publish(cluster, 10)
        self = cls(town, cluster)
        await town.until(lambda: all(self.high_watermark(node_id) == 10 for node_id in NODES))
        return self

    def high_watermark(self, node_id: int) -> int:
        return self.town.nodes[node_id].storage.directory.logs[f"{TOPIC}-0"].high_watermark

    @property
    def leader(self) -> int:
        return placed(self.town).leader

    @property
    def epoch(self) -> int:
        return placed(self.town).leader_epoch

    @property
    def follower(self) -> int:
        return next(node_id for node_id in NODES if node_id != self.leader)

    async def ask(
        self, node_id: int, offset: int, rack_id: str, *, epoch: int = -1, wait_ms: int = 0, lane: str = ""
    ) -> PartitionData:
        part = FetchPartition(partition=0, fetch_offset=offset, current_leader_epoch=epoch, partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            topics=[FetchTopic(topic_id=self.topic_id, partitions=[part])],
            rack_id=rack_id,
        )
        connection = await self.cluster.connection(node_id, lane)
        response = await connection.ask(request, FetchResponse, timeout_ms=20_000)
        return response.responses[0].partitions[0]


def offsets(found: PartitionData) -> list[int]:
    return [batch.last_offset for batch in batches(found.records or b"")]


def test_a_leader_sends_a_consumer_to_its_rack_and_the_follower_there_serves_it() -> None:
    async def story(town: Town) -> None:
        place = await Place.make(town)
        sent = await place.ask(place.leader, 3, rack(place.follower))
        assert (sent.preferred_read_replica, sent.error_code, sent.high_watermark) == (place.follower, 0, 10)
        assert not sent.records
        there = await place.ask(place.follower, 3, rack(place.follower), epoch=place.epoch)
        assert (there.error_code, there.high_watermark, there.preferred_read_replica) == (0, 10, -1)
        assert offsets(there)[-1] == 9
        for own in (rack(place.leader), "nobody is there", ""):
            here = await place.ask(place.leader, 3, own)
            assert (here.preferred_read_replica, offsets(here)[-1]) == (-1, 9)
        await place.cluster.close()

    tell(story, in_racks())


def test_a_leader_sends_nobody_away_where_that_is_not_wanted() -> None:
    async def story(town: Town) -> None:
        place = await Place.make(town)
        here = await place.ask(place.leader, 3, rack(place.follower))
        assert (here.preferred_read_replica, offsets(here)[-1]) == (-1, 9)
        await place.cluster.close()

    tell(story, in_racks(**{"replica.selector.class": LEADERS_ONLY}))


def test_a_follower_says_why_it_has_nothing() -> None:
    async def story(town: Town) -> None:
        place = await Place.make(town)
        follower = place.follower
        stranger = await place.ask(follower, 3, "")
        assert stranger.error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert stranger.current_leader.leader_id == place.leader
        early = await place.ask(follower, 3, rack(follower), epoch=place.epoch + 1)
        assert early.error_code is ErrorCode.UNKNOWN_LEADER_EPOCH
        ahead = await place.ask(follower, 11, rack(follower))
        assert (ahead.error_code, ahead.high_watermark) == (ErrorCode.OFFSET_OUT_OF_RANGE, 10)
        await place.cluster.close()

    tell(story, in_racks())


def test_a_follower_gives_nothing_that_is_not_committed() -> None:
    """One of three replicas does not fetch: records on the two others are not committed."""

    async def story(town: Town) -> None:
        place = await Place.make(town)
        follower, lame = (node_id for node_id in NODES if node_id != place.leader)
        town.world.network.cut([(f"node-{lame}", f"node-{place.leader}"), (f"node-{place.leader}", f"node-{lame}")])
        partition = town.nodes[place.leader].broker.partitions.named(TOPIC, 0)
        assert partition is not None
        now_ms = town.nodes[place.leader].ports.clock.wall_ms()
        partition.append(a_batch(5, timestamp_ms=now_ms), now_ms=now_ms, rules=DEFAULT_RULES)
        await town.until(lambda: town.nodes[follower].storage.directory.logs[f"{TOPIC}-0"].written_end == 15, 2.0)
        for offset in (10, 12, 15):
            found = await place.ask(follower, offset, rack(follower))
            assert (found.error_code, found.high_watermark, found.records or b"") == (0, 10, b"")
        await place.cluster.close()

    tell(story, in_racks())


def test_a_consumer_that_waits_at_a_follower_hears_at_once_what_was_committed() -> None:
    """Otherwise the last record would arrive only with the follower's next fetch, half a second later."""

    async def story(town: Town) -> None:
        place = await Place.make(town)
        follower, loop = place.follower, asyncio.get_running_loop()
        assert (await place.ask(place.leader, 10, rack(follower))).preferred_read_replica == follower
        waiting = loop.create_task(place.ask(follower, 10, rack(follower), wait_ms=WAIT_MS, lane="consumer"))
        await asyncio.sleep(1.0)
        await publish(place.cluster, 1)
        began = loop.time()
        assert offsets(await waiting) == [10]
        assert loop.time() - began < 0.1
        await place.cluster.close()

    tell(story, in_racks())


@pytest.mark.parametrize("is_killed", [True, False])
def test_a_consumer_that_waits_at_a_follower_is_told_when_another_leads(is_killed: bool) -> None:
    async def story(town: Town) -> None:
        place = await Place.make(town)
        leader, follower, loop = place.leader, place.follower, asyncio.get_running_loop()
        waiting = loop.create_task(
            place.ask(follower, 10, rack(follower), epoch=place.epoch, wait_ms=WAIT_MS, lane="consumer")
        )
        await asyncio.sleep(0.5)
        began = loop.time()
        if is_killed:
            town.kill(leader)
        else:
            town.world.pause(f"node-{leader}")
        found = await waiting
        assert town.nodes[follower].member.controller.image.topics[TOPIC].partitions[0].leader != leader
        assert found.error_code in (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        assert loop.time() - began < WAIT_MS / 1000 - 0.5
        await place.cluster.close()

    tell(story, in_racks())
