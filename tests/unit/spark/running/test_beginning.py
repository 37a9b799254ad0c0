"""The start of a query is decided once, from the topic or from an existing table."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.spark.lake.commit import CommitRefused
from penstock.spark.offsets import EARLIEST
from penstock.spark.project.plan import Bad as BadPolicy
from penstock.spark.project.plan import Compact, Decode, From, Lake, Policy, ToDelta
from penstock.spark.running.beginning import FILE, beginning_of
from penstock.spark.running.checkpoint import Checkpoint
from penstock.testing.plugin import Kafka
from tests.unit.spark.lake.tables import batch, lake_table
from tests.unit.spark.running.checkpoints import write_checkpoint

NOON_MS = 1_769_860_800_000


def lake(topic: str, start: str = "earliest") -> Lake:
    target = ToDelta("/nowhere", is_by_day=True, file_bytes=1 << 29, compact=Compact(False, 0))
    fail = Policy(BadPolicy.FAIL)
    source = From(topic, start, has_headers=True, group=None)
    return Lake("orders_lake", source, Decode(), target, 1000, 1 << 30, fail, fail)


@pytest.fixture
def topic(kafka: Kafka) -> str:
    """Five records, a minute apart, in the first of two partitions."""
    name = kafka.topic("orders")
    kafka.client.create_topic(name, partitions=2)
    for number in range(5):
        kafka.client.publish(name, b"x", partition=0, timestamp_ms=NOON_MS + number * 60_000)
    return name


@pytest.mark.parametrize(
    ("start", "first", "second"),
    [("earliest", EARLIEST, EARLIEST), ("latest", 5, 0), (str(NOON_MS + 90_000), 2, 0), (str(NOON_MS * 2), 5, 0)],
)
def test_by_what_the_file_says(tmp_path: Path, kafka: Kafka, topic: str, start: str, first: int, second: int) -> None:
    found = beginning_of(lake(topic, start), Checkpoint(tmp_path / "c"), lake_table(tmp_path / "t"), kafka.client)
    assert found.offsets == {topic: {"0": first, "1": second}}
    assert found.behind is None


def test_the_end_stays_where_it_was(tmp_path: Path, kafka: Kafka, topic: str) -> None:
    """The first batch fails, records arrive, and the query is restarted: they are not skipped."""
    for _ in range(2):
        found = beginning_of(lake(topic, "latest"), Checkpoint(tmp_path), lake_table(tmp_path / "t"), kafka.client)
        assert found.offsets[topic]["0"] == 5
        kafka.client.publish(topic, b"late", partition=0)


def test_partitions_that_were_added_meanwhile_begin_at_their_start(tmp_path: Path, kafka: Kafka, topic: str) -> None:
    arguments = (lake(topic, "latest"), Checkpoint(tmp_path), lake_table(tmp_path / "t"), kafka.client)
    beginning_of(*arguments)
    kafka.client.run(kafka.client.admin.add_partitions(topic, 3))
    assert beginning_of(*arguments).offsets == {topic: {"0": 5, "1": 0, "2": EARLIEST}}


def test_a_new_checkpoint_is_refused_before_any_work(tmp_path: Path, kafka: Kafka, topic: str) -> None:
    table = lake_table(tmp_path / "t")
    table.commit("old", batch(tmp_path / "t", 0))
    with pytest.raises(CommitRefused, match=r"which is new\. Beginning anew would double its rows"):
        beginning_of(lake(topic), Checkpoint(tmp_path / "c"), table, kafka.client)
    other = write_checkpoint(tmp_path / "other", "other", 0, 0)
    with pytest.raises(CommitRefused, match=r"than .*other\. Beginning anew"):
        beginning_of(lake(topic), other, table, kafka.client)
    assert not (tmp_path / "c" / FILE).exists()


def test_an_adopted_table_is_gone_on_with(tmp_path: Path, kafka: Kafka, topic: str) -> None:
    table = lake_table(tmp_path / "t", may_adopt=True)
    table.commit("old", replace(batch(tmp_path / "t", 0), ends={topic: {"0": 3}}))
    found = beginning_of(lake(topic), Checkpoint(tmp_path / "c"), table, kafka.client)
    assert found.offsets == {topic: {"0": 3, "1": EARLIEST}}
    assert found.behind == {topic: {"0": 3}}


def test_a_damaged_note_is_told(tmp_path: Path, kafka: Kafka, topic: str) -> None:
    (tmp_path / FILE).write_text(json.dumps([1]))
    with pytest.raises(CommitRefused, match="is not what was written there"):
        beginning_of(lake(topic), Checkpoint(tmp_path), lake_table(tmp_path / "t"), kafka.client)
