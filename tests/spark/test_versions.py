"""The cluster that all these tests run on, and the newer Spark, which is not installed by default."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.answerer import Answerer
from harness.spark.other_pyspark import installed
from harness.spark.spark_answerer import SparkAnswerer
from harness.spark.standalone import StandaloneSpark
from harness.spark.topics import Topics, numbers, seen, together
from tests.spark.conftest import PROGRAM

pytestmark = [pytest.mark.peers, pytest.mark.xdist_group("spark")]

NEWER = "4.3.0"


@pytest.fixture(scope="module")
def newer() -> Iterator[Answerer]:
    """A session of the newer Spark, without the connector, which not every repository has in this version yet."""
    path = os.pathsep.join([str(installed(NEWER)), os.environ.get("PYTHONPATH", "")])
    started = SparkAnswerer([sys.executable, str(PROGRAM), "local[2]"], {**os.environ, "PYTHONPATH": path})
    yield started
    started.close()


def test_tasks_run_on_two_executors_of_a_cluster(spark: Answerer, cluster: StandaloneSpark, topics: Topics) -> None:
    topic = topics.create()
    topics.fill(topic, range(40))
    assert numbers(spark.ask("read", format="penstock", options=topics.options(topic))["rows"]) == list(range(40))
    assert spark.ask("version")["executors"] == len(cluster.executors()) == 2
    assert cluster.state()["aliveworkers"] == 2


def test_the_newer_spark_reads_the_same_and_takes_over_a_checkpoint_and_gives_it_back(
    spark: Answerer, newer: Answerer, topics: Topics, tmp_path: Path
) -> None:
    assert newer.ask("version")["version"] == NEWER
    topic = topics.create(3)
    topics.fill(topic, range(100), partitions=3)
    options = topics.options(topic, includeHeaders="true")
    older_rows, newer_rows = (each.ask("read", format="penstock", options=options) for each in (spark, newer))
    assert older_rows["schema"] == newer_rows["schema"]
    assert sorted(map(str, older_rows["rows"])) == sorted(map(str, newer_rows["rows"]))

    streaming = topics.options(topic, startingOffsets="earliest", maxOffsetsPerTrigger="40")
    found: dict[str, list[Any]] = {}
    for turn, session in enumerate([spark, newer, spark, newer]):
        batches = session.ask("run", format="penstock", options=streaming, checkpoint=str(tmp_path))["batches"]
        assert not found.keys() & batches.keys()
        found |= batches
        topics.fill(topic, range(turn * 100 + 100, turn * 100 + 200), partitions=3)
    assert numbers(together(found)) == list(range(400))
    assert len(seen(together(found))) == len({(each.partition, each.offset) for each in seen(together(found))})
