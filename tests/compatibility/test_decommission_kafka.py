"""`penstock cluster decommission` empties a broker of Apache Kafka, and says beforehand if that is impossible."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.kafka.kafka_node import HOST, KafkaNode
from harness.ports import free_port
from penstock.client.admin.admin import NewTopic
from penstock.client.client import Client
from penstock.client.metadata import Topic

pytestmark = [pytest.mark.peers, pytest.mark.xdist_group("apache-kafka")]

LIMIT_S = 300
RECORDS = 300


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaNode]:
    """Node 1, a controller and broker, beside node 2, a broker."""
    with KafkaNode(tmp_path_factory.mktemp("kafka-1")) as first:
        address = f"{HOST}:{free_port()}"
        settings = {
            "process.roles": "broker",
            "node.id": "2",
            "listeners": f"BROKER://{address}",
            "controller.quorum.voters": first.properties["controller.quorum.voters"],
        }
        second = KafkaNode(tmp_path_factory.mktemp("kafka-2"), settings)
        second.bootstrap = address
        with second:
            yield first


def decommission(kafka: KafkaNode, node: int, directory: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "penstock", "cluster", "decommission", str(node), "-b", kafka.bootstrap]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=LIMIT_S, check=False)


async def fill(kafka: KafkaNode) -> None:
    async with Client(kafka.bootstrap) as client:
        await client.admin.create_topics([NewTopic("moved", assignments=[[2], [2], [1]])])
        for number in range(RECORDS):
            await client.publish("moved", key=None, value=str(number), partition=number % 3)


async def topic_and_count(kafka: KafkaNode) -> tuple[Topic, int]:
    async with Client(kafka.bootstrap) as client:
        ends = await client.admin.offsets("moved", -1)
        return await client.admin.describe_topic("moved"), sum(each.offset for each in ends.values())


async def create_wide(kafka: KafkaNode) -> None:
    async with Client(kafka.bootstrap) as client:
        await client.create_topic("wide", 1, 2)


def test_a_broker_is_emptied_and_keeps_nothing(two: KafkaNode, tmp_path: Path) -> None:
    asyncio.run(fill(two))
    done = decommission(two, 2, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Broker 2 has 2 replicas of 1 topic; they move to 1." in done.stdout
    assert "Broker 2 has no replicas: it can be stopped; stop it soon" in done.stdout
    topic, count = asyncio.run(topic_and_count(two))
    assert [each.replicas for each in topic.partitions] == [(1,), (1,), (1,)]
    assert count == RECORDS
    again = decommission(two, 2, tmp_path)
    assert again.returncode == 0, again.stderr


def test_what_is_impossible_is_said_before_anything_moves(two: KafkaNode, tmp_path: Path) -> None:
    asyncio.run(create_wide(two))
    for node, sentence in (
        (1, "node 1 is a voter of the metadata quorum (1)"),
        (2, "wide has 2 replicas, and without broker 2 there is only 1 broker to take them"),
        (7, "there is no broker 7 in this cluster, and nothing is left of it; its brokers are 1, 2"),
    ):
        done = decommission(two, node, tmp_path)
        assert (done.returncode, done.stdout) == (1, "")
        assert f"broker {node} cannot be decommissioned: " in done.stderr
        assert sentence in done.stderr
