"""A task writes good rows, handles bad ones as configured, and reports both."""

import time
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from penstock.spark.lake.commit import Batch, LakeTable
from penstock.spark.lake.dead_letters import DeadLetterPlan
from penstock.spark.lake.decoding import Decoder
from penstock.spark.lake.rows import table_schema
from penstock.spark.lake.writing import BadRecord, Report, WritePlan, write
from penstock.spark.project.plan import Bad, ClusterPlan
from penstock.testing.plugin import Kafka
from tests.unit.spark.lake.frames import raw, us

NOON = us("2026-01-31T12:00:00")
SCHEMA = table_schema(pa.binary(), pa.string(), has_headers=True, is_by_day=True)


def plan(path: Path, bad: Bad = Bad.FAIL, letters: DeadLetterPlan | None = None) -> WritePlan:
    return WritePlan(str(path), "orders_lake", True, 1 << 29, Decoder(value="text"), bad, letters)


def texts(offsets: Sequence[int], bad: Sequence[int], partition: int = 0) -> pa.RecordBatch:
    """Builds rows of which some are no valid text."""
    values = [b"\xff{" if each in bad else b"{}" for each in offsets]
    return raw(offsets, NOON, partition=partition, values=values)


def test_what_a_task_reports_makes_a_table(tmp_path: Path) -> None:
    report = Report.from_json(write([raw([0, 1], NOON), raw([2], us("2026-02-01"))], plan(tmp_path)).to_json())
    assert (report.rows, report.bad, report.newest_us) == (3, 0, us("2026-02-01"))
    table = LakeTable(str(tmp_path), "orders_lake", SCHEMA, is_by_day=True)
    assert table.commit("query", Batch(0, None, {"orders": {"0": 3}}, report.files, report.rows, report.bad))
    found = DeltaTable(tmp_path).to_pyarrow_table().sort_by("offset").to_pylist()
    assert [each["offset"] for each in found] == [0, 1, 2]
    assert [str(each["day"]) for each in found] == ["2026-01-31", "2026-01-31", "2026-02-01"]
    assert found[0]["headers"] == [{"key": "trace", "value": b"0"}]


def test_bad_rows_can_be_left_out(tmp_path: Path) -> None:
    report = write([texts(range(5), [1, 3])], plan(tmp_path, Bad.SKIP))
    assert (report.rows, report.bad) == (3, 2)


def test_a_bad_row_can_stop_everything(tmp_path: Path) -> None:
    with pytest.raises(BadRecord, match=r"orders_lake cannot read the record orders\[0\] at offset 3: .* not UTF-8"):
        write([texts(range(3), []), texts(range(3, 6), [3, 4])], plan(tmp_path, Bad.FAIL))
    assert list(tmp_path.rglob("*.parquet")) == []


def test_bad_rows_go_to_their_topic_whole(tmp_path: Path, kafka: Kafka) -> None:
    began_ms = time.time_ns() // 1_000_000
    topic = kafka.topic("orders.dlq")
    kafka.client.create_topic(topic, partitions=2)
    letters = DeadLetterPlan(ClusterPlan(kafka.bootstrap, {}), topic, "orders_lake")
    report = write([texts(range(3), [1]), texts([9], [9], partition=5)], plan(tmp_path, Bad.DLQ, letters))
    assert (report.rows, report.bad) == (2, 2)
    first, second = sorted(kafka.client.consume(topic, until_end=True), key=lambda each: each.partition)
    assert (first.key, first.value, first.partition) == (b"1", b"\xff{", 0)
    assert first.timestamp_ms >= began_ms, "a letter of an old record is not older than what its topic keeps"
    assert (second.key, second.partition) == (b"9", 5 % 2)
    assert dict(first.headers) == {
        "trace": b"1",
        "__dlq.errors.topic": b"orders",
        "__dlq.errors.partition": b"0",
        "__dlq.errors.offset": b"1",
        "__dlq.errors.timestamp": str(NOON // 1000).encode(),
        "__dlq.errors.group": b"orders_lake",
        "__dlq.errors.message": b"the value is not UTF-8",
        "__dlq.errors.exception.class.name": b"NotText",
        "__dlq.errors.exception.message": b"the value is not UTF-8",
    }


def test_a_letter_that_cannot_be_delivered_fails_the_task(tmp_path: Path, kafka: Kafka) -> None:
    """Otherwise the batch would be committed without it."""
    topic = kafka.topic("small.dlq")
    kafka.client.create_topic(topic, partitions=1, configs={"max.message.bytes": "200"})
    letters = DeadLetterPlan(ClusterPlan(kafka.bootstrap, {}), topic, "orders_lake")
    with pytest.raises(Exception, match=r"raise the topic's max.message.bytes"):
        write([texts(range(3), [1])], plan(tmp_path, Bad.DLQ, letters))
    assert list(tmp_path.rglob("*.parquet")) == []
