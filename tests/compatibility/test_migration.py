"""A cut-over with MirrorMaker 2, in short; `./dev migration` does it with ten topics."""

from pathlib import Path
from typing import Any

import pytest

from tests.compatibility.kafka_node import KafkaNode
from tests.compatibility.migration import DRAINED, CutOver, Migration, run
from tests.compatibility.penstock_node import PenstockNode

pytestmark = [pytest.mark.strangers, pytest.mark.xdist_group("apache-kafka")]


def test_topics_and_groups_move_and_come_back(kafka: KafkaNode, penstock: PenstockNode, tmp_path: Path) -> None:
    outcome = run(tmp_path, kafka.bootstrap, penstock.bootstrap, topics=2)
    assert outcome.records > 0
    assert outcome.read_twice[DRAINED] == 0


def moved(reads: list[int]) -> CutOver:
    """A group that has read these of three records of the only topic."""
    nobody: Any = None
    story = CutOver(nobody, nobody, 1, print)
    story._numbers = {("orders-0", 0): 3}
    story._read[DRAINED].update(("orders-0", 0, number) for number in reads)
    return story


def test_what_is_read_again_lies_behind_the_translated_offset() -> None:
    assert moved([0, 1, 2])._check(DRAINED, {("orders-0", 0): 3}) == 0
    assert moved([0, 1, 2, 1, 2])._check(DRAINED, {("orders-0", 0): 1}) == 2
    with pytest.raises(Migration, match="read again what lies before its offset"):
        moved([0, 1, 2, 1])._check(DRAINED, {("orders-0", 0): 2})


def test_what_nobody_has_read_is_found() -> None:
    with pytest.raises(Migration, match="never read 1 records"):
        moved([0, 2])._check(DRAINED, {("orders-0", 0): 1})
