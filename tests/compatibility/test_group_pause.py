"""What does not change hands is read on while a group meets: our client, both protocols, on Penstock and on Kafka."""

import asyncio
import time
from collections.abc import Iterator
from typing import Final, NamedTuple

import pytest

from penstock import Client
from penstock.client.group_consumer import GroupConsumer
from penstock.client.membership import GroupProtocol, GroupSettings

pytestmark = [pytest.mark.strangers, pytest.mark.xdist_group("apache-kafka")]

PARTITIONS, MEMBERS = 12, 3
BEAT_S: Final = 0.05
QUIET_S: Final = 2.0
HEARTBEAT_MS: Final = 3_000
"""Whoever stops to meet the others waits for the last of them, who may hear of it as late as this."""
TRIES: Final = 3
"""A busy machine makes readers wait, too."""
LIMIT_S: Final = 120.0


class Heard(NamedTuple):
    partition: int
    appended_s: float
    waited_s: float


class Seen(NamedTuple):
    """Of one more that joins: how long until everything was shared anew, and the longest that records have waited."""

    took_s: float
    quiet_s: float
    stayed_s: float
    moved_s: float


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_what_stays_is_never_paused(coordinated: str, protocol: GroupProtocol) -> None:
    async def story() -> Seen:
        async with asyncio.timeout(LIMIT_S), Client(coordinated) as client:
            return await _join_one_more(client, protocol)

    tries = []
    for _ in range(TRIES):
        seen = asyncio.run(story())
        tries.append(seen)
        print(protocol, coordinated, seen)
        if seen.stayed_s < max(2 * seen.quiet_s + 0.2, seen.took_s / 4):
            return
    pytest.fail(f"readers of partitions that stayed had to wait: {tries}")


async def _join_one_more(client: Client, protocol: GroupProtocol) -> Seen:
    topic = f"pause-{protocol}-{time.monotonic_ns()}"
    await client.create_topic(topic, PARTITIONS, configs={"message.timestamp.type": "LogAppendTime"})
    settings = GroupSettings(protocol=protocol, heartbeat_ms=HEARTBEAT_MS)
    members = [client.group_consumer(topic, topic, settings=settings) for _ in range(MEMBERS + 1)]
    heard: list[Heard] = []
    tasks = [asyncio.create_task(_write(client, topic))]
    try:
        tasks += [asyncio.create_task(_read(each, heard)) for each in members[:MEMBERS]]
        await _until_shared(members[:MEMBERS])
        quiet_since_s = time.time() + 0.5
        await asyncio.sleep(0.5 + QUIET_S)
        quiet = max(_waits(heard, quiet_since_s))
        had = [set(each.assignment) for each in members]
        began_s = time.time()
        tasks.append(asyncio.create_task(_read(members[-1], heard)))
        await _until_shared(members)
        took_s = time.time() - began_s
        await asyncio.sleep(QUIET_S)
        kept = [before & set(each.assignment) for each, before in zip(members, had, strict=True)]
        stayed = {place.partition for some in kept for place in some}
        assert PARTITIONS - len(stayed) == PARTITIONS // (MEMBERS + 1)
        stays = _waits((each for each in heard if each.partition in stayed), began_s)
        moves = _waits((each for each in heard if each.partition not in stayed), began_s)
        return Seen(took_s, quiet, max(stays), max(moves))
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


async def _read(member: GroupConsumer, heard: list[Heard]) -> None:
    while True:
        piece = await member.fetch_records(500)
        assert piece is not None
        partition, now_s = piece.partition.partition, time.time()
        appended = [each.timestamp_ms / 1000 for each in piece.records]
        heard += [Heard(partition, appended_s, now_s - appended_s) for appended_s in appended]


async def _until_shared(members: list[GroupConsumer]) -> None:
    while {len(each.assignment) for each in members} != {PARTITIONS // len(members)}:
        await asyncio.sleep(BEAT_S)


def _waits(heard: Iterator[Heard] | list[Heard], since_s: float) -> list[float]:
    return [each.waited_s for each in heard if each.appended_s >= since_s]
