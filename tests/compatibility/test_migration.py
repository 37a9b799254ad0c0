"""A cut-over with MirrorMaker 2, in short; `./dev campaign migration` does it with ten topics."""

from pathlib import Path
from typing import Any

import pytest

from harness.kafka.kafka_node import KafkaNode
from harness.penstock_node import PenstockNode
from tests.compatibility.migration import STOPPED, CutOver, run
from tests.compatibility.migration_clients import Migration
from tests.compatibility.mirror_maker import INTERNAL, settings

pytestmark = [pytest.mark.peers, pytest.mark.xdist_group("apache-kafka")]

PLACE = ("orders-0", 0)


def test_topics_and_groups_move_and_come_back(kafka: KafkaNode, penstock: PenstockNode, tmp_path: Path) -> None:
    """The run itself checks that nothing is lost or read twice without a reason."""
    outcome = run(tmp_path, kafka.bootstrap, penstock.bootstrap, topics=2, records=50)
    assert outcome.records > 2 * 2 * 2 * 50


def test_the_file_on_the_page_is_the_one_that_is_tried() -> None:
    """Except for intervals, and for replication factors that need more than one node."""
    page = (Path(__file__).parents[2] / "docs" / "migrating.md").read_text()
    lines = page.partition("clusters = ")[2].partition("```")[0].splitlines()
    shown = dict(line.split(" = ", 1) for line in lines if " = " in line)
    tried = settings("", "", topics="orders, payments-.*", groups="billing|audit")
    known = {name for name in tried if name.startswith(INTERNAL) or name.endswith(("plugin.discovery", "clusters"))}
    assert shown.keys() == tried.keys() - known
    free = ("bootstrap.servers", "interval.seconds", "interval.ms", "replication.factor")
    assert {name: value for name, value in shown.items() if tried[name] != value and not name.endswith(free)} == {}


def moved(reads: list[int]) -> CutOver:
    """A cut-over whose group has read these of three records of the only topic."""
    nobody: Any = None
    story = CutOver(nobody, nobody, 1, 3, print)
    story._numbers = {PLACE: 3}
    story._read[STOPPED].update((*PLACE, number) for number in reads)
    return story


def test_what_is_read_again_lies_between_the_translated_and_the_committed_offset() -> None:
    assert moved([0, 1, 2])._check(STOPPED, {PLACE: 3}, {PLACE: 3}) == 0
    assert moved([0, 1, 2, 1])._check(STOPPED, {PLACE: 1}, {PLACE: 2}) == 1
    for translated, committed in ((2, 2), (0, 1), (2, 3)):
        with pytest.raises(Migration, match="twice what no offset explains"):
            moved([0, 1, 2, 1])._check(STOPPED, {PLACE: translated}, {PLACE: committed})


def test_what_nobody_has_read_is_found() -> None:
    with pytest.raises(Migration, match="never read 1 records"):
        moved([0, 2])._check(STOPPED, {PLACE: 1}, {PLACE: 1})
