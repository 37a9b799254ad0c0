"""Whole nodes on virtual time record group events, and return them on request; also with our own client."""

import asyncio

import pytest

from penstock.client.admin.group_history import group_history
from penstock.client.cluster import Cluster
from penstock.client.errors import Refused
from penstock.client.groups.group_consumer import GroupConsumer
from penstock.client.groups.membership import GroupProtocol, GroupSettings
from penstock.client.producer.producer import Producer
from penstock.model.group_events import TOPIC as EVENTS
from penstock.model.group_events import EventKind, GroupEvent
from tests.unit.server.grouped_town import PARTITIONS, TOPIC, coordinator_of, run
from tests.unit.server.town import Town

GROUP = "told"
RECORDS = 60


async def history(cluster: Cluster, kind: EventKind, count: int) -> list[GroupEvent]:
    """Waits for a number of events of a kind, and returns all events."""
    for _ in range(400):
        found = await group_history(cluster, GROUP, 0, timeout_ms=10_000)
        if found.is_told and sum(event.kind is kind for event in found.events) >= count:
            return found.events
        await asyncio.sleep(0.05)
    raise AssertionError(f"no {kind}: {found}")


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_a_group_of_ours_is_told_of_over_a_change_of_coordinators(protocol: GroupProtocol) -> None:
    async def story(town: Town, cluster: Cluster) -> None:
        producer = Producer(cluster)
        await asyncio.gather(*[await producer.send(TOPIC, b"%d" % n, partition=n % PARTITIONS) for n in range(RECORDS)])
        await producer.close()
        settings = GroupSettings(protocol=protocol, session_timeout_ms=10_000, heartbeat_ms=300)
        first, second = (GroupConsumer(cluster, GROUP, [TOPIC], settings=settings) for _ in range(2))
        found: list[int] = []

        async def read(member: GroupConsumer) -> None:
            while (piece := await member.fetch_records(5, 8_000)) is not None:
                found.extend(int(record.value or b"") for record in piece.records)
                await asyncio.sleep(0.2)

        reading = [asyncio.get_running_loop().create_task(read(member)) for member in (first, second)]
        await history(cluster, EventKind.JOINED, 2)
        node, _ = await coordinator_of(town, cluster, GROUP)
        town.kill(node.settings.node_id)
        await asyncio.gather(*reading)
        assert sorted(set(found)) == list(range(RECORDS))
        await second.close()
        events = await history(cluster, EventKind.LEFT, 1)
        await first.close()
        kinds = [event.kind for event in events]
        assert EventKind.COORDINATOR_CHANGED in kinds
        begun = [event for event in events if event.kind is EventKind.REBALANCE_BEGUN]
        assert begun[0].reason is not None
        assert begun[0].reason.endswith(" joined")
        done = [event for event in events if event.kind is EventKind.REBALANCE_DONE]
        assert all(event.took_ms is not None and event.pause_ms is not None for event in done)
        stranger = Producer(cluster)
        with pytest.raises(Refused, match="coordinators alone"):
            await stranger.publish(EVENTS, b"{}", partition=0)
        await stranger.close()

    run(story)
