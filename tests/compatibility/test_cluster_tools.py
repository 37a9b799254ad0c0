"""Kafka's own tools on a cluster of three: the quorum, topics, elections, features."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.kafka.kafka_tools import KafkaTools
from harness.ports import free_port

pytestmark = [pytest.mark.peers, pytest.mark.xdist_group("kafka_tools")]

LIMIT_S = 120


def penstock(*arguments: str) -> str:
    command = [sys.executable, "-m", "penstock", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def tools() -> Iterator[KafkaTools]:
    started = KafkaTools()
    yield started
    started.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """The cluster as `penstock sandbox status -o json` reports it."""
    directory = str(tmp_path_factory.mktemp("cluster"))
    penstock("sandbox", "up", "--nodes", "3", "--port", str(free_port()), "--dir", directory)
    try:
        yield json.loads(penstock("sandbox", "status", "-o", "json", "--dir", directory))
    finally:
        penstock("sandbox", "down", "--dir", directory)


@pytest.fixture
def at(cluster: dict[str, Any]) -> list[str]:
    return ["--bootstrap-server", cluster["bootstrap"]]


def test_kafka_metadata_quorum_sees_leader_and_voters(
    tools: KafkaTools, cluster: dict[str, Any], at: list[str]
) -> None:
    said = tools.run("kafka-metadata-quorum", *at, "describe", "--status").decode()
    leader = next(node["node"] for node in cluster["nodes"] if node["quorum"] == "leader")
    assert re.search(rf"LeaderId:\s+{leader}$", said, re.MULTILINE), said
    assert re.findall(r'"id": (\d)', said)[:3] == ["1", "2", "3"], said
    rows = tools.run("kafka-metadata-quorum", *at, "describe", "--replication").decode().splitlines()[1:]
    assert sorted((row.split()[0], row.split()[-1]) for row in rows if row.strip()) == sorted(
        (str(node), "Leader" if node == leader else "Follower") for node in (1, 2, 3)
    )


def test_kafka_metadata_quorum_asks_a_controller_too(tools: KafkaTools, cluster: dict[str, Any]) -> None:
    controllers = ",".join(node["controller"] for node in cluster["nodes"])
    said = tools.run("kafka-metadata-quorum", "--bootstrap-controller", controllers, "describe", "--status").decode()
    assert "LeaderEpoch" in said


def test_kafka_topics_places_three_replicas(tools: KafkaTools, at: list[str]) -> None:
    tools.run("kafka-topics", *at, "--create", "--topic", "placed", "--partitions", "3", "--replication-factor", "3")
    said = tools.run("kafka-topics", *at, "--describe", "--topic", "placed").decode()
    leaders = re.findall(r"Leader: (\d)", said)
    assert sorted(leaders) == ["1", "2", "3"], said
    tools.run("kafka-topics", *at, "--alter", "--topic", "placed", "--partitions", "4")
    tools.run("kafka-topics", *at, "--delete", "--topic", "placed")
    assert b"placed" not in tools.run("kafka-topics", *at, "--list")


def test_kafka_leader_election_moves_a_leader_to_the_first_replica(
    tools: KafkaTools, at: list[str], tmp_path: Path
) -> None:
    """The first replica is another one after the replicas were reordered."""

    def leader_and_replicas() -> tuple[int, list[int]]:
        said = tools.run("kafka-topics", *at, "--describe", "--topic", "led").decode()
        found = re.search(r"Leader: (\d)\s+Replicas: (\d,\d,\d)", said)
        assert found is not None, said
        return int(found[1]), [int(number) for number in found[2].split(",")]

    tools.run("kafka-topics", *at, "--create", "--topic", "led", "--partitions", "1", "--replication-factor", "3")
    leader, replicas = leader_and_replicas()
    assert leader == replicas[0]
    turned = [*replicas[1:], replicas[0]]
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": "led", "partition": 0, "replicas": turned}]}))
    tools.run("kafka-reassign-partitions", *at, "--reassignment-json-file", str(plan), "--execute")
    assert leader_and_replicas() == (leader, turned)
    tools.run("kafka-leader-election", *at, "--election-type", "preferred", "--topic", "led", "--partition", "0")
    assert leader_and_replicas() == (turned[0], turned)


def test_kafka_features_raises_and_lowers_a_level(tools: KafkaTools, at: list[str]) -> None:
    name = "eligible.leader.replicas.version"

    def level() -> str:
        said = tools.run("kafka-features", *at, "describe").decode()
        found = re.search(rf"Feature: {re.escape(name)}\s.*FinalizedVersionLevel: (\d+)", said)
        assert found is not None, said
        return found[1]

    assert level() == "1"
    tools.run("kafka-features", *at, "downgrade", "--feature", f"{name}=0")
    assert level() == "0"
    tools.run("kafka-features", *at, "upgrade", "--feature", f"{name}=1")
    assert level() == "1"


def test_kafka_metadata_quorum_removes_a_voter_of_three(
    tools: KafkaTools, cluster: dict[str, Any], at: list[str]
) -> None:
    """Runs last: two voters are left."""
    rows = tools.run("kafka-metadata-quorum", *at, "describe", "--replication").decode().splitlines()[1:]
    victim = next(row.split() for row in rows if row.split()[-1] == "Follower")
    tools.run(
        "kafka-metadata-quorum",
        *at,
        "remove-controller",
        "--controller-id",
        victim[0],
        "--controller-directory-id",
        victim[1],
    )
    rows = tools.run("kafka-metadata-quorum", *at, "describe", "--replication").decode().splitlines()[1:]
    found = {row.split()[0]: row.split()[-1] for row in rows if row.strip()}
    assert found[victim[0]] == "Observer", found
