"""Unmoved partitions are read during a rebalance: our client, both protocols, on Penstock and on Kafka."""

import asyncio
import time
from collections.abc import Callable
from typing import Final, NamedTuple

import pytest

from benchmarks.groups.members import Heard, waits
from penstock import Client
from penstock.client.groups.group_consumer import GroupConsumer
from penstock.client.groups.membership import GroupProtocol, GroupSettings

pytestmark = [pytest.mark.peers, pytest.mark.xdist_group("apache-kafka")]

PARTITIONS, MEMBERS = 12, 3
BEAT_S: Final = 0.05
QUIET_S: Final = 2.0
HEARTBEAT_MS: Final = 3_000
"""A member that stops for a rebalance waits for the last of the others, which may learn of it this late."""
PAUSE_S: Final = 1.0
"""Longer than readers have to wait anyway."""
TRIES: Final = 3
"""A busy machine makes readers wait, too."""
LIMIT_S: Final = 120.0


class Seen(NamedTuple):
    """Effect of one more member: the time until all partitions were reassigned, and the longest waits of records."""

    took_s: float
    quiet_s: float
    stayed_s: float
    moved_s: float

    @property
    def has_paused(self) -> bool:
        return self.stayed_s >= max(2 * self.quiet_s, PAUSE_S)


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_what_stays_is_never_paused(
    coordinated: str, protocol: GroupProtocol, record_property: Callable[[str, object], None]
) -> None:
    tries = []
    for _ in range(TRIES):
        tries.append(_see(coordinated, protocol))
        if not tries[-1].has_paused:
            record_property("seen", str(tries[-1]))
            return
    pytest.fail(f"readers of partitions that stayed had to wait: {tries}")


def test_a_pause_would_be_noticed(coordinated: str) -> None:
    """Readers that stop as members of eager groups do."""
    assert _see(coordinated, "classic", pause_s=HEARTBEAT_MS / 2000).has_paused


def _see(bootstrap: str, protocol: GroupProtocol, pause_s: float = 0.0) -> Seen:
    async def story() -> Seen:
        async with asyncio.timeout(LIMIT_S), Client(bootstrap) as client:
            return await _join_one_more(client, protocol, pause_s)

    return asyncio.run(story())


async def _join_one_more(client: Client, protocol: GroupProtocol, pause_s: float) -> Seen:
    topic = f"pause-{protocol}-{time.monotonic_ns()}"
    await client.create_topic(topic, PARTITIONS, configs={"message.timestamp.type": "LogAppendTime"})
    settings = GroupSettings(protocol=protocol, heartbeat_ms=HEARTBEAT_MS)
    members = [client.group_consumer(topic, topic, settings=settings) for _ in range(MEMBERS + 1)]
    heard: dict[int, list[Heard]] = {each: [] for each in range(PARTITIONS)}
    may_read = asyncio.Event()
    may_read.set()
    tasks = [asyncio.create_task(_write(client, topic))]
    try:
        tasks += [asyncio.create_task(_read(each, heard, may_read)) for each in members[:MEMBERS]]
        await _until_shared(members[:MEMBERS])
        quiet_since_s = time.time() + 0.5
        await asyncio.sleep(0.5 + QUIET_S)
        quiet_s = max(waits(heard, quiet_since_s).values())
        had = [set(each.assignment) for each in members]
        began_s = time.time()
        tasks.append(asyncio.create_task(_read(members[-1], heard, may_read)))
        if pause_s:
            may_read.clear()
            await asyncio.sleep(pause_s)
            may_read.set()
        await _until_shared(members)
        took_s = time.time() - began_s
        await asyncio.sleep(QUIET_S)
        kept = [before & set(each.assignment) for each, before in zip(members, had, strict=True)]
        stayed = {place.partition for some in kept for place in some}
        assert PARTITIONS - len(stayed) == PARTITIONS // (MEMBERS + 1)
        waited = waits(heard, began_s)
        moved_s = max(waited[each] for each in waited if each not in stayed)
        return Seen(took_s, quiet_s, max(waited[each] for each in stayed), moved_s)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for member in members:
            await member.close()
        await client.delete_topic(topic)


async def _write(client: Client, topic: str) -> None:
    producer = client.producer()
    while True:
        for partition in range(PARTITIONS):
            await producer.send(topic, b"record", partition=partition)
        await asyncio.sleep(BEAT_S)


async def _read(member: GroupConsumer, heard: dict[int, list[Heard]], may_read: asyncio.Event) -> None:
    while True:
        await may_read.wait()
        piece = await member.fetch_records(500)
        assert piece is not None
        now_s = time.time()
        appended = [each.timestamp_ms / 1000 for each in piece.records]
        heard[piece.partition.partition] += [Heard(each_s, now_s - each_s) for each_s in appended]


async def _until_shared(members: list[GroupConsumer]) -> None:
    while {len(each.assignment) for each in members} != {PARTITIONS // len(members)}:
        await asyncio.sleep(BEAT_S)
