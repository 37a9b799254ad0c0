"""The checker that compares tables with topics after kills detects every difference that a kill could make."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from penstock.testing.plugin import Kafka
from tests.spark.lake.pipelines import Pipeline, is_bad, number_of

RECORDS = 200
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
SCHEMA = pa.schema(
    [
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("key", pa.string()),
        ("value", pa.struct([("n", pa.int64())])),
        ("headers", HEADERS),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("day", pa.date32()),
    ]
)


@pytest.fixture
def lake(kafka: Kafka, tmp_path: Path) -> Pipeline:
    """A topic, its table and its dead letters, made without Spark."""
    topic = kafka.topic("orders")
    kafka.client.create_topic(topic, 3, configs={"retention.ms": "-1"})
    kafka.client.create_topic(f"{topic}.dlq", 1)
    made = Pipeline(tmp_path, kafka.bootstrap, topic, kafka.client)
    made.fill(range(RECORDS))
    rows: list[dict[str, Any]] = []
    for each in kafka.client.consume(topic, until_end=True):
        if is_bad(number_of(each)):
            where = {"partition": each.partition, "offset": each.offset}
            headers = [(f"__dlq.errors.{name}", str(value).encode()) for name, value in where.items()]
            kafka.client.publish(f"{topic}.dlq", each.value, each.key, headers=headers)
            continue
        moment = datetime.fromtimestamp(each.timestamp_ms / 1000, UTC)
        row = {"partition": each.partition, "offset": each.offset, "key": (each.key or b"").decode()}
        about = [{"key": name, "value": value} for name, value in each.headers]
        rows.append(
            {**row, "value": {"n": number_of(each)}, "headers": about, "timestamp": moment, "day": moment.date()}
        )
    write_deltalake(tmp_path / "lake", pa.Table.from_pylist(rows, SCHEMA))
    return made


def test_a_table_that_is_its_topic(lake: Pipeline) -> None:
    assert lake.assert_table_is_topic() == (RECORDS - 2, 2)


def test_a_batch_that_was_committed_twice(lake: Pipeline) -> None:
    write_deltalake(lake.directory / "lake", lake.table.to_pyarrow_table().slice(0, 1), mode="append")
    with pytest.raises(AssertionError):
        lake.assert_table_is_topic()


@pytest.mark.parametrize("change", ["offset = 7 AND partition = 1", "partition = 2"])
def test_rows_that_are_missing(lake: Pipeline, change: str) -> None:
    DeltaTable(lake.directory / "lake").delete(change)
    with pytest.raises(AssertionError):
        lake.assert_table_is_topic()


def test_a_row_that_is_another(lake: Pipeline) -> None:
    changed = {"key": "'other'"}
    DeltaTable(lake.directory / "lake").update(predicate="offset = 7 AND partition = 1", updates=changed)
    with pytest.raises(AssertionError):
        lake.assert_table_is_topic()


def test_a_bad_record_that_is_no_dead_letter(lake: Pipeline) -> None:
    lake.fill([150])
    with pytest.raises(AssertionError):
        lake.assert_table_is_topic()
