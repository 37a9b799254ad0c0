"""Our client as a member of groups of both protocols, on Penstock and on Apache Kafka, also beside librdkafka."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from confluent_kafka import Consumer as Librdkafka

from penstock import Client
from penstock.client.errors import CommitFailed
from penstock.client.groups.group_consumer import GroupConsumer
from penstock.client.groups.membership import GroupProtocol, GroupSettings

pytestmark = [pytest.mark.peers, pytest.mark.xdist_group("apache-kafka")]

PARTITIONS, RECORDS = 4, 200
LIMIT_S = 60
PROTOCOLS = pytest.mark.parametrize("protocol", ["consumer", "classic"])


@asynccontextmanager
async def filled(coordinated: str, topic: str) -> AsyncIterator[Client]:
    async with Client(coordinated) as client:
        await client.create_topic(topic, PARTITIONS)
        producer = client.producer()
        sent = [await producer.send(topic, b"%d" % number, partition=number % PARTITIONS) for number in range(RECORDS)]
        await asyncio.gather(*sent)
        yield client
        await client.delete_topic(topic)


def run(story: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(LIMIT_S):
            await story()

    asyncio.run(limited())


async def some(member: GroupConsumer, most: int) -> list[int]:
    found: list[int] = []
    while len(found) < most:
        piece = await member.fetch_records(min(10, most - len(found)))
        assert piece is not None
        found += [int(record.value or b"") for record in piece.records]
    return found


@PROTOCOLS
def test_members_share_leave_and_go_on(coordinated: str, protocol: GroupProtocol) -> None:
    topic = group = f"shared-{protocol}"

    async def story() -> None:
        async with filled(coordinated, topic) as client:
            settings = GroupSettings(protocol=protocol, heartbeat_ms=300)
            first = client.group_consumer(group, topic, settings=settings)
            second = client.group_consumer(group, topic, settings=settings)
            found = await some(first, 50)
            with pytest.raises(CommitFailed, match="stop them first"):
                await client.commit_offset(topic, group, 0, 3)
            loop = asyncio.get_running_loop()
            reading = loop.create_task(second.fetch_records(1))
            first.hand_back()
            while not (len(first.assignment) == len(second.assignment) == PARTITIONS // 2):
                await asyncio.sleep(0.05)
            piece = await reading
            assert piece is not None
            found += [int(record.value or b"") for record in piece.records]
            described = await client.admin.describe_group(group)
            assert described.type == protocol
            assert sorted(each for member in described.members for each in member.assignment) == sorted(
                [*first.assignment, *second.assignment]
            )
            await second.close()  # the records that it holds are read again
            while len(set(found)) < RECORDS:
                found += await some(first, 1)
            await first.fetch_records(1, 100)
            await first.close()
            assert sorted(set(found)) == list(range(RECORDS))
            assert len(found) <= RECORDS + 1
            assert (await client.admin.describe_group(group)).state == "Empty"
            assert await client.committed(topic, group) == dict.fromkeys(range(PARTITIONS), RECORDS // PARTITIONS)
            await client.commit_offset(topic, group, 0, 3)
            assert (await client.committed(topic, group))[0] == 3

    run(story)


def test_one_by_one_with_a_name_that_stays(coordinated: str) -> None:
    topic = group = "one-by-one"

    async def story() -> None:
        async with filled(coordinated, topic) as client:
            found = []
            for most in (7, -1):
                async for message in client.consume(
                    topic, group=group, instance_id="worker-1", max_batch=5, idle_ms_max=60_000
                ):
                    found.append(int(message.value or b""))
                    if len(found) == most or len(set(found)) == RECORDS:
                        break
                await asyncio.sleep(0.2)  # after the loop, the member leaves the group
            assert sorted(set(found)) == list(range(RECORDS))
            assert len(found) <= RECORDS + 1, "only the record that was in hand comes again"

    run(story)


@PROTOCOLS
def test_beside_librdkafka(coordinated: str, protocol: GroupProtocol) -> None:
    topic = group = f"beside-{protocol}"

    async def story() -> None:
        async with filled(coordinated, topic) as client:
            options = {
                "bootstrap.servers": coordinated,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "group.protocol": protocol,
            }
            if protocol == "classic":
                options["partition.assignment.strategy"] = "cooperative-sticky"
            theirs = Librdkafka(options)
            theirs.subscribe([topic])
            ours = client.group_consumer(group, topic, settings=GroupSettings(protocol=protocol, heartbeat_ms=300))
            try:
                found: list[int] = []
                while len(set(found)) < RECORDS or not (len(theirs.assignment()) == len(ours.assignment) == 2):
                    found += [int(each.value() or b"") for each in theirs.consume(5, 0.05) if not each.error()]
                    piece = await ours.fetch_records(5, 50)
                    found += [int(record.value or b"") for record in piece.records] if piece else []
            finally:
                theirs.close()
            assert sorted(set(found)) == list(range(RECORDS))

    run(story)
