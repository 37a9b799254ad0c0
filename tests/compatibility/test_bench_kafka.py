"""`penstock bench` measures other clusters: Apache Kafka."""

import json

import pytest

from harness.kafka.kafka_node import KafkaNode
from penstock.cli.main import run

pytestmark = [pytest.mark.peers, pytest.mark.xdist_group("apache-kafka")]


@pytest.mark.parametrize(
    "arguments",
    [
        ("produce", "-n", "20000", "-p", "2", "--connections", "2", "-z", "lz4"),
        ("consume", "-n", "20000", "-p", "2"),
        ("latency", "-n", "50", "--rate", "100"),
        ("end-to-end", "-n", "50", "--rate", "100", "-p", "2"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_kafka_is_measured_and_left_as_it_was(
    kafka: KafkaNode, capfd: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    code = run(["bench", *arguments, "-b", kafka.bootstrap, "-o", "json"])
    out, complaints = capfd.readouterr()
    assert code == 0, complaints
    found = json.loads(out)
    assert found["bench"] == arguments[0]
    assert found["records"] == int(arguments[2])
    assert found["records_per_s"] > 0
    with kafka.connect() as client:
        names = [topic.name or "" for topic in client.metadata().topics]
    assert not [name for name in names if name.startswith("penstock-bench-")]
