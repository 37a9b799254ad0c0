"""A task writes good rows, puts bad ones aside as it is told, and reports both."""

from pathlib import Path

import pytest
from deltalake import DeltaTable

from penstock.spark.lake.commit import Batch, LakeTable
from penstock.spark.lake.dead_letters import DeadLetterPlan
from penstock.spark.lake.rows import table_schema
from penstock.spark.lake.writing import BadRecord, Report, WritePlan, write, write_task
from penstock.spark.project.plan import Bad, ClusterPlan
from penstock.testing.plugin import Kafka
from tests.unit.spark.lake.frames import DECODED, RAW, decoded, raw, us

NOON = us("2026-01-31T12:00:00")


def plan(path: Path, bad: Bad = Bad.FAIL, letters: DeadLetterPlan | None = None) -> WritePlan:
    return WritePlan(
        str(path), "orders_lake", is_by_day=True, file_bytes=1 << 29, on_bad_record=bad, dead_letters=letters
    )


def test_what_a_task_reports_makes_a_table(tmp_path: Path) -> None:
    (row,) = write_task([raw([0, 1], NOON), raw([2], us("2026-02-01"))], plan(tmp_path))
    report = Report.from_json(row["report"][0].as_py())
    assert (report.rows, report.bad, report.newest_us) == (3, 0, us("2026-02-01"))
    table = LakeTable(str(tmp_path), "orders_lake", table_schema(RAW, is_by_day=True), is_by_day=True)
    assert table.commit("query", Batch(0, None, {"orders": {"0": 3}}, report.files, report.rows, report.bad))
    found = DeltaTable(tmp_path).to_pyarrow_table().sort_by("offset").to_pylist()
    assert [each["offset"] for each in found] == [0, 1, 2]
    assert [str(each["day"]) for each in found] == ["2026-01-31", "2026-01-31", "2026-02-01"]
    assert found[0]["headers"] == [{"key": "trace", "value": b"0"}]


def test_bad_rows_can_be_left_out(tmp_path: Path) -> None:
    report = write([decoded(range(5), [1, 3], NOON)], plan(tmp_path, Bad.SKIP))
    assert (report.rows, report.bad) == (3, 2)
    assert "_bad" not in table_schema(DECODED, is_by_day=True).names


def test_a_bad_row_can_stop_everything(tmp_path: Path) -> None:
    with pytest.raises(BadRecord, match=r"orders_lake cannot read the record orders\[0\] at offset 3: .* no JSON"):
        write([decoded(range(3), [], NOON), decoded(range(3, 6), [3, 4], NOON)], plan(tmp_path, Bad.FAIL))
    assert list(tmp_path.rglob("*.parquet")) == []


def test_bad_rows_go_to_their_topic_whole(tmp_path: Path, kafka: Kafka) -> None:
    topic = kafka.topic("orders.dlq")
    kafka.client.create_topic(topic, partitions=2)
    letters = DeadLetterPlan(ClusterPlan(kafka.bootstrap, {}), topic, "orders_lake")
    report = write(
        [decoded(range(3), [1], NOON), decoded([9], [9], NOON, partition=5)], plan(tmp_path, Bad.DLQ, letters)
    )
    assert (report.rows, report.bad) == (2, 2)
    first, second = sorted(kafka.client.consume(topic, until_end=True), key=lambda each: each.partition)
    assert (first.key, first.value, first.partition, first.timestamp_ms) == (b"1", b"\xff{", 0, NOON // 1000)
    assert (second.key, second.partition) == (b"9", 5 % 2)
    assert dict(first.headers) == {
        "trace": b"1",
        "__dlq.errors.topic": b"orders",
        "__dlq.errors.partition": b"0",
        "__dlq.errors.offset": b"1",
        "__dlq.errors.timestamp": str(NOON // 1000).encode(),
        "__dlq.errors.group": b"orders_lake",
        "__dlq.errors.message": b"offset 1 is no JSON",
        "__dlq.errors.exception.class.name": b"NotJson",
        "__dlq.errors.exception.message": b"offset 1 is no JSON",
    }


def test_a_letter_that_cannot_be_delivered_fails_the_task(tmp_path: Path, kafka: Kafka) -> None:
    """Otherwise the batch would be committed without it."""
    topic = kafka.topic("small.dlq")
    kafka.client.create_topic(topic, partitions=1, configs={"max.message.bytes": "200"})
    letters = DeadLetterPlan(ClusterPlan(kafka.bootstrap, {}), topic, "orders_lake")
    with pytest.raises(Exception, match=r"raise the topic's max.message.bytes"):
        write([decoded(range(3), [1], NOON)], plan(tmp_path, Bad.DLQ, letters))
    assert list(tmp_path.rglob("*.parquet")) == []
