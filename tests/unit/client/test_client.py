"""penstock.Client in a few words; how little `import penstock` costs; and the twin that blocks."""

import asyncio
import subprocess
import sys
import threading

import pytest

import penstock
from penstock.client.blocking import SyncClient
from penstock.client.client import Client
from penstock.client.errors import Closed, Unreachable
from penstock.client.ports import ClientPorts
from tests.unit.client.brokers import Brokers, play


def test_a_story_in_a_few_words() -> None:
    brokers = Brokers()

    async def story(ports: ClientPorts) -> None:
        async with Client("broker-0", ports=ports) as client:
            await client.create_topic("t", partitions=3)
            partition, offset = await client.publish("t", "ключ", "välue", headers={"h": "ü", "none": None})
            assert offset == 0
            await client.publish("t", None, b"\xff", partition=partition)
            found = [record async for record in client.consume("t", until_end=True)]
            assert [(record.key, record.value) for record in found] == [
                ("ключ".encode(), "välue".encode()),
                (None, b"\xff"),
            ]
            assert found[0].headers == (("h", "ü".encode()), ("none", None))
            pieces = [piece async for piece in client.consume_batches("t", max_batch=1, until_end=True)]
            assert [len(piece.records) for piece in pieces] == [1, 1]
            assert [topic.name for topic in await client.topics()] == ["t"]

    play(brokers, story)


def test_a_reader_that_breaks_off_leaves_nothing_behind() -> None:
    brokers = Brokers()
    brokers.add_topic("t")

    async def story(ports: ClientPorts) -> None:
        async with Client("broker-0", ports=ports) as client:
            for number in range(5):
                await client.publish("t", None, str(number))
            async for record in client.consume("t"):
                if record.offset == 2:
                    break
            await asyncio.sleep(1)
            assert [type(each).__name__ for each in client._opened] == ["Producer"]
            idle = [record async for record in client.consume("t", start=3, partitions=[0], idle_ms_max=700)]
            assert [record.offset for record in idle] == [3, 4]

    play(brokers, story)


def test_closing_delivers_what_was_sent() -> None:
    brokers = Brokers()
    (log,) = brokers.add_topic("t")

    async def story(ports: ClientPorts) -> None:
        async with Client("broker-0", ports=ports) as client:
            producer = client.producer(linger_ms=60_000)
            for number in range(10):
                await producer.send("t", b"%d" % number)
        with pytest.raises(Closed):
            await client.publish("t", None, b"late")

    play(brokers, story)
    assert len(log.records()) == 10


def test_importing_penstock_costs_nothing_until_the_client_is_asked_for() -> None:
    program = (
        "import sys, penstock, penstock.records.rows, penstock.wire.codec\n"
        "heavy = [name for name in ('asyncio', 'penstock.client', 'penstock.host') if name in sys.modules]\n"
        "assert not heavy, heavy\n"
        "assert penstock.Client.__name__ == 'Client'\n"
        "assert penstock.SyncClient.__name__ == 'SyncClient'\n"
        "try:\n    penstock.Nothing\nexcept AttributeError: pass\nelse: raise AssertionError\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
    assert penstock.Client is Client


def test_the_twin_that_blocks_says_the_same_and_ends_its_thread() -> None:
    before = threading.active_count()
    with pytest.raises(ValueError, match="not an address"):
        SyncClient("kafka://nowhere")
    client = Client.blocking("127.0.0.1:1", timeout_ms=200)
    with pytest.raises(Unreachable, match="nothing listens there"):
        client.topics()
    with pytest.raises(Unreachable):
        client.publish("t", None, b"")
    with pytest.raises(Unreachable):
        next(client.consume("t"))
    client.close()
    client.close()
    with pytest.raises(Closed):
        client.topics()
    assert threading.active_count() == before
