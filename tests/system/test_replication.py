"""A cluster of three real processes loses nothing when leaders are killed; librdkafka writes (acks=all) and reads."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.system.commands import Shell
from tests.system.victim import free_port

pytestmark = pytest.mark.xdist_group("cluster")

HERE: Final = ("--dir", "c")
TOPIC: Final = "orders"
RECORDS: Final = 2_000
DEADLINE_S: Final = 60.0


class Town:
    """Three nodes, and what a client sees of them."""

    def __init__(self, directory: Path) -> None:
        self.shell = Shell(directory)
        self.shell("cluster", "up", "--nodes", "3", "--port", str(free_port()), *HERE)
        said = json.loads(self.shell.run("cluster", "status", "-o", "json", *HERE).stdout)
        self.bootstrap = ",".join(node["address"] for node in said["nodes"])
        self.admin: Any = AdminClient({"bootstrap.servers": self.bootstrap})
        topic = NewTopic(TOPIC, 3, 3, config={"min.insync.replicas": "2"})
        self.admin.create_topics([topic])[TOPIC].result(DEADLINE_S)

    def partitions(self) -> dict[int, Any]:
        found: dict[int, Any] = self.admin.list_topics(TOPIC, timeout=DEADLINE_S).topics[TOPIC].partitions
        return found

    def kill_leader(self, index: int) -> int:
        leader = self.partitions()[index].leader
        assert self.shell("cluster", "kill", str(leader), *HERE) == f"Killed node {leader}.\n"
        return int(leader)

    def is_whole(self) -> bool:
        return all(len(each.isrs) == 3 for each in self.partitions().values())

    def read_all(self) -> dict[int, list[bytes]]:
        consumer: Any = confluent_kafka.Consumer(
            {"bootstrap.servers": self.bootstrap, "group.id": "unused", "enable.auto.commit": False}
        )
        places = [confluent_kafka.TopicPartition(TOPIC, index, 0) for index in range(3)]
        left = sum(consumer.get_watermark_offsets(place, DEADLINE_S)[1] for place in places)
        consumer.assign(places)
        found: dict[int, list[bytes]] = {index: [] for index in range(3)}
        deadline_s = time.monotonic() + DEADLINE_S
        while left:
            assert time.monotonic() < deadline_s, f"{left} records cannot be read"
            for message in consumer.consume(500, 0.1):
                assert message.error() is None, message.error()
                found[message.partition()].append(message.value())
                left -= 1
        consumer.close()
        return found


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    town = Town(tmp_path_factory.mktemp("replication"))
    try:
        yield town
    finally:
        town.shell.run("cluster", "down", *HERE)


def until(condition: Any) -> None:
    deadline_s = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline_s, "never became true"
        time.sleep(0.1)


def test_killed_leaders_lose_nothing(town: Town) -> None:
    """Three times the leader of a partition is killed under load; what was acknowledged is there, once and in order."""
    producer: Any = confluent_kafka.Producer(
        {"bootstrap.servers": town.bootstrap, "acks": "all", "enable.idempotence": True, "linger.ms": 1}
    )
    acknowledged: dict[int, list[bytes]] = {index: [] for index in range(3)}
    troubles: list[str] = []

    def delivered(error: Any, message: Any) -> None:
        if error is not None:
            troubles.append(str(error))
        else:
            acknowledged[message.partition()].append(message.value())

    for index in range(3):
        for number in range(RECORDS):
            producer.produce(TOPIC, f"{index}.{number}".encode(), partition=number % 3, callback=delivered)
            producer.poll(0)
        killed = town.kill_leader(index)
        assert producer.flush(DEADLINE_S) == 0
        until(lambda killed=killed: killed not in {each.leader for each in town.partitions().values()})
        assert "3 nodes serve" in town.shell("cluster", "up", *HERE)
        until(town.is_whole)
    assert not troubles
    assert sum(map(len, acknowledged.values())) == 3 * RECORDS
    assert town.read_all() == acknowledged
