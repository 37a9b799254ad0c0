"""Clusters of three nodes on one machine, each a broker and controller in one process.

Both products run on their defaults, as single brokers do here; topics have three replicas and min.insync.replicas=2.
"""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.side_by_side.brokers import DELETED_AT_ONCE, KAFKA_JAVA, START_S, STOP_S, TOPIC_S, Broker, Kafka
from benchmarks.side_by_side.frames import Batch
from harness import machine
from harness.kafka.kafka_node import KafkaNode
from harness.machine import ROOT, pinned
from harness.ports import free_port
from harness.raw_client import RawClient, Refused, Topic
from penstock import __version__
from penstock.cli.sandbox.nodes import LocalCluster
from penstock.model.errors import ErrorCode
from penstock.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

BROKERS = (1, 2, 3)
IN_SYNC = {"min.insync.replicas": "2"}
PAUSE_S = 0.05


class Trio(Broker):
    """Three brokers; one of them leads all partitions of a topic, so a load is spread over brokers by topics."""

    addresses: Mapping[int, str]

    def __init__(self, directory: Path, cpus: Sequence[int]) -> None:
        super().__init__(directory, cpus)
        self._led_by: dict[str, int] = {}

    @property
    def pid(self) -> int:
        return self.pids[0]

    def create(self, name: str, partitions: int, settings: Mapping[str, str], batch: Batch | None = None) -> Topic:
        del batch
        return self.create_led_by(BROKERS[0], name, partitions, settings)

    def create_led_by(self, leader: int, name: str, partitions: int, settings: Mapping[str, str]) -> Topic:
        """Creates a topic with all its leaders on one broker, and waits until it serves requests."""
        replicas = [*BROKERS[BROKERS.index(leader) :], *BROKERS[: BROKERS.index(leader)]]
        wanted = CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[
                CreatableReplicaAssignment(partition_index=each, broker_ids=replicas) for each in range(partitions)
            ],
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in {**IN_SYNC, **settings}.items()],
        )
        with RawClient(self.addresses[leader], TOPIC_S) as client:
            (made,) = client.ask(CreateTopicsRequest(topics=[wanted]), CreateTopicsResponse).topics
            assert made.error_code is ErrorCode.NONE, made
            topic = Topic(name, made.topic_id)
            wait_until(lambda: all(_serves(client, topic, each) for each in range(partitions)), f"{name} serves")
        self._led_by[name] = leader
        return topic

    def end(self, topic: Topic, partitions: int) -> int:
        self.address = self.addresses[self._led_by[topic.name]]
        return super().end(topic, partitions)


class PenstockTrio(Trio):
    """Three processes of `penstock server`."""

    name = "penstock-trio"
    version = f"Penstock {__version__}"

    def __init__(self, directory: Path, cpus: Sequence[int], sources: Path | None = None) -> None:
        """`sources` is the folder from which the package is imported, by default that of the working tree."""
        super().__init__(directory, cpus)
        self._environment = {**os.environ, "PYTHONPATH": str(sources)} if sources is not None else None
        self._cluster = LocalCluster(directory)
        self._processes: list[subprocess.Popen[bytes]] = []
        self._cluster.grow(len(BROKERS), free_port())
        self.addresses = {node.node_id: node.address for node in self._cluster.nodes}
        self.address = self.addresses[BROKERS[0]]
        for node_id in BROKERS:
            with (self._cluster.home(node_id) / "server.properties").open("a") as settings:
                settings.writelines(f"{key}={value}\n" for key, value in DELETED_AT_ONCE.items())

    @property
    def pids(self) -> tuple[int, ...]:
        return tuple(process.pid for process in self._processes)

    def start(self) -> None:
        for node_id in BROKERS:
            home = self._cluster.home(node_id)
            command = [sys.executable, "-m", "penstock", "server", "--config", str(home / "server.properties")]
            with (home / "log").open("ab") as log, pinned(self.cpus):
                self._processes.append(
                    subprocess.Popen(
                        command, cwd=ROOT, env=self._environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL
                    )
                )
        wait_until(lambda: all(map(_knows_all, self.addresses.values())), "all three serve")
        self.ready_s = machine.age_s(self.pid)

    def stop(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait(STOP_S)
        self._processes.clear()


class KafkaTrio(Trio):
    """Three processes of Apache Kafka."""

    name = "kafka-trio"
    is_jvm = True

    def __init__(self, directory: Path, cpus: Sequence[int]) -> None:
        super().__init__(directory, cpus)
        shared = {
            **DELETED_AT_ONCE,
            "offsets.topic.replication.factor": str(len(BROKERS)),
            "transaction.state.log.replication.factor": str(len(BROKERS)),
            "transaction.state.log.min.isr": "2",
        }
        self.nodes = {}
        for node_id in BROKERS:
            home = directory / str(node_id)
            home.mkdir()
            own = {**shared, "node.id": str(node_id)}
            self.nodes[node_id] = KafkaNode(home, own, KAFKA_JAVA, start_timeout_s=START_S, stop_timeout_s=STOP_S)
        voters = ",".join(
            f"{node_id}@{node.properties['listeners'].rpartition('//')[2]}" for node_id, node in self.nodes.items()
        )
        for node in self.nodes.values():
            node.properties = {**node.properties, "controller.quorum.voters": voters}
        self.addresses = {node_id: node.bootstrap for node_id, node in self.nodes.items()}
        self.address = self.addresses[BROKERS[0]]

    @property
    def pids(self) -> tuple[int, ...]:
        return tuple(node.pid for node in self.nodes.values() if node.pid is not None)

    def start(self) -> None:
        def start(node: KafkaNode) -> None:  # in parallel: one node has no quorum and is never ready
            with pinned(self.cpus):
                node.start()

        with ThreadPoolExecutor(len(BROKERS)) as threads:
            list(threads.map(start, self.nodes.values()))
        wait_until(lambda: all(map(_knows_all, self.addresses.values())), "all three serve")
        self.ready_s = machine.age_s(self.pid)
        self.version = Kafka.known_version()

    def stop(self) -> None:
        for node in self.nodes.values():  # SIGTERM would make the last ones wait for a lost quorum
            node.kill()


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Waits until a condition holds; raises after START_S."""
    deadline_s = time.monotonic() + START_S
    while not condition():
        if time.monotonic() > deadline_s:
            raise RuntimeError(f"it never became true that {what}")
        time.sleep(PAUSE_S)


def _knows_all(address: str) -> bool:
    with contextlib.suppress(OSError), RawClient(address) as client:
        return len(client.metadata().brokers) == len(BROKERS)
    return False


def _serves(client: RawClient, topic: Topic, partition: int) -> bool:
    with contextlib.suppress(Refused):
        client.fetch(topic, partition, 0)
        return True
    return False
