"""A topic of one partition with replicas on all nodes of a town: helpers to create, write, read and inspect it."""

import asyncio
from typing import Final

from penstock.client.cluster import Cluster
from penstock.client.consumer.consumer import Consumer
from penstock.client.producer.producer import Producer
from penstock.log.log import Log
from penstock.metadata.image import Partition as Placed
from penstock.server.node import Node
from tests.simulation.three_servers.world import NODES
from tests.unit.server.town import Town

TOPIC: Final = "orders"
EVERYWHERE: Final = {"min.insync.replicas": "2"}


def some_node(town: Town) -> Node:
    return next(iter(town.nodes.values()))


def placed(town: Town, index: int = 0) -> Placed:
    return some_node(town).member.controller.image.topics[TOPIC].partitions[index]


def logs(town: Town) -> list[Log]:
    return [node.storage.directory.logs[f"{TOPIC}-0"] for node in town.nodes.values()]


def ends(town: Town) -> list[int]:
    return [log.written_end for log in logs(town)]


async def make_topic(town: Town, replicas: tuple[int, ...] = NODES) -> None:
    await town.admin(1).create_topic(TOPIC, configs=EVERYWHERE, assignments=[replicas])


async def publish(cluster: Cluster, count: int, prefix: str = "v") -> list[bytes]:
    """Publishes records, and waits until all are acknowledged."""
    producer = Producer(cluster)
    values = [f"{prefix}{number}".encode() for number in range(count)]
    sent = [await producer.send(TOPIC, value, partition=0) for value in values]
    await asyncio.gather(*sent)
    await producer.close()
    return values


async def read_all(cluster: Cluster) -> list[bytes]:
    consumer = Consumer(cluster)
    await consumer.assign_topic(TOPIC, "earliest", until_end=True)
    found: list[bytes] = []
    while (records := await consumer.fetch_records(timeout_ms=10_000)) is not None:
        found += [record.value or b"" for record in records.records]
    await consumer.close()
    return found


def bytes_of(node: Node) -> list[bytes]:
    log = node.storage.directory.logs[f"{TOPIC}-0"]
    part = log.read(log.start_offset, 1 << 30, limit=log.written_end)
    assert part is not None
    data = bytes(part.file.read(part.position, part.size_bytes))
    part.release()
    return [data]
