"""A cut-over with MirrorMaker 2, in short; `./dev migration` does it with ten topics."""

from pathlib import Path

import pytest

from tests.compatibility.kafka_node import KafkaNode
from tests.compatibility.migration import DRAINED, run
from tests.compatibility.penstock_node import PenstockNode

pytestmark = [pytest.mark.strangers, pytest.mark.xdist_group("apache-kafka")]


def test_topics_and_groups_move_and_come_back(kafka: KafkaNode, penstock: PenstockNode, tmp_path: Path) -> None:
    outcome = run(tmp_path, kafka.bootstrap, penstock.bootstrap, topics=2)
    assert outcome.records > 0
    assert outcome.read_twice[DRAINED] == 0
