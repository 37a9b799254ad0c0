"""Single packets to a cluster of three real processes, sent by no member of the cluster, change nothing."""

import json
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, TypeVar

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from harness.ports import free_port
from penstock.cli.sandbox.nodes import LocalCluster
from penstock.wire.api import api_for
from penstock.wire.codec import decode
from penstock.wire.declare import Request, Response
from penstock.wire.headers import read_response_header, request_frame
from penstock.wire.messages import begin_quorum_epoch as beginning
from penstock.wire.messages import describe_quorum as describing
from penstock.wire.messages import end_quorum_epoch as ending
from penstock.wire.messages import fetch as fetching
from penstock.wire.messages import metadata as listing
from penstock.wire.messages import vote as voting
from penstock.wire.types import ZERO_UUID
from tests.system.commands import Shell

pytestmark = pytest.mark.xdist_group("cluster")

HERE: Final = ("--dir", "c")
TOPIC: Final = "orders"
METADATA: Final = "__cluster_metadata"
EPOCH_MAX: Final = 2**31 - 1
DEADLINE_S: Final = 60.0
DELIVERY_MS: Final = 15_000
"""Far below the 30 s after which a follower that cannot fetch leaves the ISR."""
OUTSIDER: Final = 77
SENTENCE: Final = "more than 1,000,000 epochs above that are refused"
Answer = TypeVar("Answer", bound=Response)


def ask(address: str, request: Request, version: int, answer: type[Answer]) -> Answer:
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=DEADLINE_S) as connection:
        connection.sendall(bytes(request_frame(request, version, 7, "outsider")))
        (size,) = struct.unpack(">i", _exactly(connection, 4))
        frame = memoryview(_exactly(connection, size))
    _, position = read_response_header(api_for(type(request).KEY), version, frame)
    return decode(answer, version, frame[position:])


def _exactly(connection: socket.socket, size: int) -> bytes:
    content = b""
    while len(content) < size:
        piece = connection.recv(size - len(content))
        assert piece, "the connection ended"
        content += piece
    return content


class Town:
    """Three nodes, and the state that they report to any client."""

    def __init__(self, directory: Path) -> None:
        self.shell = Shell(directory)
        self.cluster = LocalCluster(directory / HERE[-1])
        self.cluster.grow(3, free_port())
        self.shell("sandbox", "up", *HERE)
        nodes = json.loads(self.shell.run("sandbox", "status", "-o", "json", *HERE).stdout)["nodes"]
        self.brokers = {node["node"]: node["address"] for node in nodes}
        self.controllers = {node["node"]: node["controller"] for node in nodes}
        self.bootstrap = ",".join(self.brokers.values())
        self.admin: Any = AdminClient({"bootstrap.servers": self.bootstrap})
        topic = NewTopic(TOPIC, 1, 3, config={"min.insync.replicas": "2"})
        self.admin.create_topics([topic])[TOPIC].result(DEADLINE_S)

    def metadata(self) -> listing.MetadataResponse:
        request = listing.MetadataRequest(topics=[listing.MetadataRequestTopic(name=TOPIC)])
        return ask(self.brokers[1], request, 12, listing.MetadataResponse)

    @property
    def cluster_id(self) -> str:
        found = self.metadata().cluster_id
        assert found is not None
        return found

    def quorum(self) -> describing.DescribeQuorumResponsePartitionData:
        """The quorum as its leader describes it."""
        part = describing.PartitionData(partition_index=0)
        request = describing.DescribeQuorumRequest(
            topics=[describing.TopicData(topic_name=METADATA, partitions=[part])]
        )
        deadline_s = time.monotonic() + DEADLINE_S
        while True:
            for address in self.controllers.values():
                found = ask(address, request, 2, describing.DescribeQuorumResponse).topics[0].partitions[0]
                directories = [voter.replica_directory_id for voter in found.current_voters]
                if not found.error_code and directories and ZERO_UUID not in directories:
                    return found
            assert time.monotonic() < deadline_s, "no controller leads, or voters have not told their directories"
            time.sleep(0.1)

    def create_topic(self, name: str) -> None:
        self.admin.create_topics([NewTopic(name, 1, 3)])[name].result(DEADLINE_S)

    def log(self, node_id: int) -> str:
        return (self.cluster.home(node_id) / "log").read_text()


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    town = Town(tmp_path_factory.mktemp("outsiders"))
    try:
        yield town
    finally:
        town.shell.run("sandbox", "down", *HERE)


def requests(cluster_id: str | None, voter_id: int, directory_id: bytes, epoch: int) -> list[tuple[Request, int, type]]:
    """Requests that an outsider sends to a voter."""
    vote = voting.PartitionData(
        partition_index=0,
        replica_epoch=epoch,
        replica_id=OUTSIDER,
        voter_directory_id=directory_id,
        last_offset_epoch=EPOCH_MAX,
        last_offset=1 << 40,
    )
    begin = beginning.PartitionData(
        partition_index=0, voter_directory_id=directory_id, leader_id=OUTSIDER, leader_epoch=epoch
    )
    end = ending.PartitionData(
        partition_index=0,
        leader_id=OUTSIDER,
        leader_epoch=epoch,
        preferred_candidates=[ending.ReplicaInfo(candidate_id=voter_id, candidate_directory_id=directory_id)],
    )
    return [
        (
            voting.VoteRequest(
                cluster_id=cluster_id,
                voter_id=voter_id,
                topics=[voting.TopicData(topic_name=METADATA, partitions=[vote])],
            ),
            2,
            voting.VoteResponse,
        ),
        (
            beginning.BeginQuorumEpochRequest(
                cluster_id=cluster_id,
                voter_id=voter_id,
                topics=[beginning.TopicData(topic_name=METADATA, partitions=[begin])],
            ),
            1,
            beginning.BeginQuorumEpochResponse,
        ),
        (
            ending.EndQuorumEpochRequest(
                cluster_id=cluster_id, topics=[ending.TopicData(topic_name=METADATA, partitions=[end])]
            ),
            1,
            ending.EndQuorumEpochResponse,
        ),
    ]


@pytest.mark.parametrize("knows", ["nothing", "the cluster id", "the cluster id and the voter keys"])
def test_the_largest_epoch_moves_no_controller(town: Town, knows: str) -> None:
    before = town.quorum()
    cluster_id = None if knows == "nothing" else town.cluster_id
    for voter in before.current_voters:
        directory_id = voter.replica_directory_id if "keys" in knows else b"x" * 16
        for request, version, answer in requests(cluster_id, voter.replica_id, directory_id, EPOCH_MAX):
            ask(town.controllers[voter.replica_id], request, version, answer)
    town.create_topic(f"after-{knows.replace(' ', '-')}")
    assert town.quorum().leader_epoch == before.leader_epoch
    assert town.quorum().leader_id == before.leader_id
    if "keys" in knows:
        assert all(SENTENCE in town.log(node_id) for node_id in town.controllers)


@pytest.mark.parametrize("knows", ["nothing", "the cluster id"])
def test_an_epoch_that_could_be_next_moves_no_controller_without_the_ids(town: Town, knows: str) -> None:
    before = town.quorum()
    cluster_id = None if knows == "nothing" else town.cluster_id
    for voter in before.current_voters:
        directory_id = voter.replica_directory_id if knows == "nothing" else b"x" * 16
        for request, version, answer in requests(cluster_id, voter.replica_id, directory_id, before.leader_epoch + 5):
            ask(town.controllers[voter.replica_id], request, version, answer)
    assert town.quorum().leader_epoch == before.leader_epoch


@pytest.mark.parametrize("broker_epoch", [2**62, 2**63 - 1])
def test_a_made_up_broker_epoch_does_not_stop_acks_all(town: Town, broker_epoch: int) -> None:
    write(town)
    found = town.metadata().topics[0]
    part = found.partitions[0]
    assert len(part.isr_nodes) == 3
    wanted = fetching.FetchPartition(
        partition=0,
        current_leader_epoch=part.leader_epoch,
        fetch_offset=0,
        last_fetched_epoch=-1,
        log_start_offset=0,
        partition_max_bytes=1 << 20,
    )
    for victim in part.isr_nodes:
        request = fetching.FetchRequest(
            replica_state=fetching.ReplicaState(replica_id=victim, replica_epoch=broker_epoch),
            max_wait_ms=0,
            min_bytes=0,
            topics=[fetching.FetchTopic(topic_id=found.topic_id, partitions=[wanted])],
        )
        ask(town.brokers[part.leader_id], request, 17, fetching.FetchResponse)
    write(town)
    assert sorted(town.metadata().topics[0].partitions[0].isr_nodes) == sorted(part.isr_nodes)


def write(town: Town) -> None:
    """Writes a record that every in-sync replica acknowledges in time."""
    producer: Any = confluent_kafka.Producer(
        {"bootstrap.servers": town.bootstrap, "acks": "all", "message.timeout.ms": DELIVERY_MS}
    )
    errors: list[Any] = []
    producer.produce(TOPIC, b"a record", callback=lambda error, _message: errors.append(error))
    assert producer.flush(DEADLINE_S) == 0
    assert errors[0] is None, str(errors[0])
