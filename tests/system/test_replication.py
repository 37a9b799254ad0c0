"""Three real processes in three racks lose nothing when leaders are killed; librdkafka writes (acks=all) and reads."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from harness.load import ends_of
from harness.ports import free_port
from penstock.cli.sandbox.nodes import LocalCluster
from tests.system.commands import Shell

pytestmark = pytest.mark.xdist_group("cluster")

HERE: Final = ("--dir", "c")
TOPIC: Final = "orders"
RECORDS: Final = 2_000
DEADLINE_S: Final = 60.0


class Town:
    """Three nodes, and a client's view of them."""

    def __init__(self, directory: Path) -> None:
        self.shell = Shell(directory)
        cluster = LocalCluster(directory / HERE[-1])
        for node in cluster.grow(3, free_port()):
            with (cluster.home(node.node_id) / "server.properties").open("a") as settings:
                settings.write(f"broker.rack={rack_of(node.node_id)}\n")
        self.shell("sandbox", "up", *HERE)
        said = json.loads(self.shell.run("sandbox", "status", "-o", "json", *HERE).stdout)
        self.bootstrap = ",".join(node["address"] for node in said["nodes"])
        self.admin: Any = AdminClient({"bootstrap.servers": self.bootstrap})
        topic = NewTopic(TOPIC, 3, 3, config={"min.insync.replicas": "2"})
        self.admin.create_topics([topic])[TOPIC].result(DEADLINE_S)

    def partitions(self) -> dict[int, Any]:
        found: dict[int, Any] = self.admin.list_topics(TOPIC, timeout=DEADLINE_S).topics[TOPIC].partitions
        return found

    def kill_leader(self, index: int) -> int:
        leader = self.partitions()[index].leader
        assert self.shell("sandbox", "kill", str(leader), *HERE) == f"Killed node {leader}.\n"
        return int(leader)

    def is_whole(self) -> bool:
        return all(len(each.isrs) == 3 for each in self.partitions().values())

    def read_all(self) -> dict[int, list[bytes]]:
        reader = Reader(self)
        found = reader.read()
        reader.consumer.close()
        return found

    def write(self, prefix: str, count: int) -> None:
        producer: Any = confluent_kafka.Producer({"bootstrap.servers": self.bootstrap, "acks": "all"})
        for number in range(count):
            producer.produce(TOPIC, f"{prefix}.{number}".encode(), partition=number % 3)
        assert producer.flush(DEADLINE_S) == 0


class Reader:
    """A consumer of all partitions, with its statistics."""

    def __init__(self, town: Town, **options: str) -> None:
        self._bootstrap = town.bootstrap
        self._stats: dict[str, Any] = {}
        self.consumer: Any = confluent_kafka.Consumer(
            {
                "bootstrap.servers": town.bootstrap,
                "group.id": "unused",
                "enable.auto.commit": False,
                "statistics.interval.ms": 100,
                "stats_cb": lambda said: self._stats.update(json.loads(said)),
                **options,
            }
        )
        self._places = [confluent_kafka.TopicPartition(TOPIC, index, 0) for index in range(3)]
        self._left = 0
        self._known = 0
        self.consumer.assign(self._places)

    def read(self) -> dict[int, list[bytes]]:
        """Reads everything up to the current end."""
        places = [(each.topic, each.partition) for each in self._places]
        known = sum(ends_of(self._bootstrap, places, time.monotonic() + DEADLINE_S).values())
        self._left += known - self._known
        self._known = known
        found: dict[int, list[bytes]] = {index: [] for index in range(3)}
        deadline_s = time.monotonic() + DEADLINE_S
        while self._left:
            assert time.monotonic() < deadline_s, f"{self._left} records cannot be read"
            for message in self.consumer.consume(500, 0.1):
                assert message.error() is None, message.error()
                found[message.partition()].append(message.value())
                self._left -= 1
        return found

    def reads_from(self) -> dict[int, int]:
        """The broker that each partition is read from."""
        assert self.consumer.poll(0) is None, "asked before everything was read"
        parts = self._stats.get("topics", {}).get(TOPIC, {}).get("partitions", {})
        return {index: parts.get(str(index), {}).get("broker") for index in range(3)}


def rack_of(node_id: int) -> str:
    return f"rack-{node_id}"


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    town = Town(tmp_path_factory.mktemp("replication"))
    try:
        yield town
    finally:
        town.shell.run("sandbox", "down", *HERE)


def until(condition: Any) -> None:
    deadline_s = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline_s, "never became true"
        time.sleep(0.1)


def test_killed_leaders_lose_nothing(town: Town) -> None:
    """Kills a partition's leader three times under load; every acknowledged record is there, once and in order."""
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
        assert "3 nodes serve" in town.shell("sandbox", "up", *HERE)
        until(town.is_whole)
    assert not troubles
    assert sum(map(len, acknowledged.values())) == 3 * RECORDS
    assert town.read_all() == acknowledged


def test_a_consumer_reads_from_the_replica_in_its_rack_while_that_is_there(town: Town) -> None:
    """KIP-392: all from one broker, whichever node leads; and from the leaders once it is killed."""
    until(town.is_whole)
    leaders = {index: each.leader for index, each in town.partitions().items()}
    near = next(node_id for node_id in (1, 2, 3) if node_id not in leaders.values() or node_id != leaders[0])
    town.write("nearby", 300)
    reader = Reader(town, **{"client.rack": rack_of(near)})
    assert reader.read() == town.read_all()
    until(lambda: reader.reads_from() == dict.fromkeys(range(3), near))
    town.shell("sandbox", "kill", str(near), *HERE)
    town.write("far", 300)
    found = reader.read()
    assert sorted(value for values in found.values() for value in values) == sorted(
        f"far.{number}".encode() for number in range(300)
    )
    reader.consumer.close()
    assert "3 nodes serve" in town.shell("sandbox", "up", *HERE)


class Member:
    """A consumer in a group, and its commits."""

    def __init__(self, town: Town, group: str, protocol: str) -> None:
        self.group = group
        options = {"heartbeat.interval.ms": 300} if protocol == "classic" else {}
        self.consumer: Any = confluent_kafka.Consumer(
            {
                "bootstrap.servers": town.bootstrap,
                "group.id": group,
                "group.protocol": protocol,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                **options,
            }
        )
        self.consumer.subscribe([TOPIC])
        until(lambda: self.consumer.poll(0.1) is not None or len(self.consumer.assignment()) == 3)

    def commit(self, offset: int) -> None:
        """Returns when the commit is acknowledged, by any coordinator."""
        wanted = [confluent_kafka.TopicPartition(TOPIC, index, offset) for index in range(3)]

        def is_acknowledged() -> bool:
            self.consumer.poll(0)
            try:
                told = self.consumer.commit(offsets=wanted, asynchronous=False)
            except confluent_kafka.KafkaException:
                return False
            return all(each.error is None for each in told)

        until(is_acknowledged)

    def committed(self) -> set[int]:
        wanted = [confluent_kafka.TopicPartition(TOPIC, index) for index in range(3)]
        return {each.offset for each in self.consumer.committed(wanted, DEADLINE_S)}


def test_commits_outlive_coordinators_that_are_killed(town: Town) -> None:
    """For a group of each protocol: the next coordinator has its members and committed offsets."""
    until(town.is_whole)
    town.write("groups", 30)
    members = [Member(town, protocol, protocol) for protocol in ("classic", "consumer")]
    for number, member in enumerate(members):
        member.commit(7 + number)
    for number, member in enumerate(members):
        described = town.admin.describe_consumer_groups([member.group])[member.group].result(DEADLINE_S)
        killed = described.coordinator.id
        assert town.shell("sandbox", "kill", str(killed), *HERE) == f"Killed node {killed}.\n"
        assert member.committed() == {7 + number}
        member.commit(17 + number)
        now = town.admin.describe_consumer_groups([member.group])[member.group].result(DEADLINE_S)
        assert now.coordinator.id != killed
        assert [each.member_id for each in now.members] == [each.member_id for each in described.members]
        assert "3 nodes serve" in town.shell("sandbox", "up", *HERE)
        until(town.is_whole)
    assert [member.committed() for member in members] == [{17}, {18}]
    for member in members:
        member.consumer.close()
