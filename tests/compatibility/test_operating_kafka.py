"""The operator commands work on Apache Kafka, too: its health, features and moves, and a plan of moves."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from harness.kafka.kafka_node import KafkaNode

pytestmark = [pytest.mark.peers, pytest.mark.xdist_group("apache-kafka")]

LIMIT_S = 60
TOPIC = "operated"


def penstock(kafka: KafkaNode, *arguments: str, directory: Path) -> str:
    command = [sys.executable, "-m", "penstock", *arguments, "-b", kafka.bootstrap]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def test_apache_kafka_is_well_and_nothing_of_it_moves(kafka: KafkaNode, tmp_path: Path) -> None:
    penstock(kafka, "topic", "create", TOPIC, "-p", "3", directory=tmp_path)
    found = {
        row["check"]: row for row in json.loads(penstock(kafka, "cluster", "health", "-o", "json", directory=tmp_path))
    }
    assert found.keys() == {"controller", "broker", "offline", "replicas", "moves", "disk"}
    assert "controller 1 leads, and 1 voter keeps up" in found["controller"]["found"]
    told = json.loads(penstock(kafka, "cluster", "features", "-o", "json", directory=tmp_path))
    level = next(row for row in told["features"] if row["feature"] == "metadata.version")
    assert (level["level"] > 0, list(level["nodes"])) == (True, ["1"]), told
    assert penstock(kafka, "reassign", "status", directory=tmp_path) == "No partition moves.\n"
    plan = ("reassign", "plan", "--to", "1", "--topic", TOPIC)
    assert penstock(kafka, *plan, directory=tmp_path) == "Nothing has to move.\n"
    penstock(kafka, "topic", "delete", TOPIC, directory=tmp_path)
