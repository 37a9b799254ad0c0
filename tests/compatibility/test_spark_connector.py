"""Spark's own Kafka connector against a node, beyond the client matrix: streams that resume later."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.answerer import Answerer, Failed
from harness.kafka.oracle import binary
from harness.penstock_node import PenstockNode
from harness.raw_client import RawClient, Topic
from harness.spark import spark_session
from penstock.records.compression import Codec
from penstock.records.rows import Record, rows
from penstock.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from tests.compatibility.samples import NOW_MS, build

pytestmark = [pytest.mark.peers, pytest.mark.xdist_group("spark")]

PARTITIONS = 2
BATCH_BYTES_MAX = 1 << 20


@pytest.fixture(scope="module")
def spark() -> Iterator[Answerer]:
    started = spark_session.start()
    yield started
    started.close()


def fill(client: RawClient, topic: Topic, numbers: range) -> None:
    """Writes numbered records, in turn to each partition; the number is the value."""
    for partition in range(PARTITIONS):
        records = [
            Record(0, NOW_MS + n, b"key-%d" % (n % 7), b"%05d" % n) for n in numbers if n % PARTITIONS == partition
        ]
        client.produce(topic, partition, build(records, Codec.LZ4))


def values(client: RawClient, topic: Topic) -> list[list[int]]:
    """The numbers in each partition."""
    return [
        [
            int(record.value or b"")
            for batch in client.fetch_batches(topic, partition)
            for record in rows(batch, BATCH_BYTES_MAX)
        ]
        for partition in range(PARTITIONS)
    ]


def test_a_stream_copies_a_topic_and_goes_on_where_its_checkpoint_says(
    spark: Answerer, penstock: PenstockNode, penstock_client: RawClient, tmp_path: Path
) -> None:
    source, sink = penstock_client.create_topic("source", PARTITIONS), penstock_client.create_topic("sink", PARTITIONS)
    server = {"kafka.bootstrap.servers": penstock.bootstrap}
    reading = {**server, "subscribe": source.name, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "60"}
    writing = {**server, "topic": sink.name, "checkpointLocation": str(tmp_path / "checkpoint")}

    fill(penstock_client, source, range(100))
    assert spark.ask("copy", source=reading, sink=writing)["rows"] == [60, 40]
    fill(penstock_client, source, range(100, 130))
    assert spark.ask("copy", source=reading, sink=writing)["rows"] == [30]
    assert sum(spark.ask("copy", source=reading, sink=writing)["rows"]) == 0

    copied = values(penstock_client, sink)
    assert sorted(number for part in copied for number in part) == list(range(130))
    for part in copied:
        # Records of one partition have kept their order, whatever they were mixed with.
        assert sorted(part, key=lambda number: number % PARTITIONS) == sorted(
            part, key=lambda number: (number % PARTITIONS, number)
        )


def test_a_batch_between_two_offsets_and_between_two_times(
    spark: Answerer, penstock: PenstockNode, penstock_client: RawClient
) -> None:
    topic = penstock_client.create_topic("between", PARTITIONS)
    fill(penstock_client, topic, range(100))
    server = {"kafka.bootstrap.servers": penstock.bootstrap, "subscribe": topic.name}

    def numbers(**bounds: object) -> list[int]:
        options = {**server, **{name: json.dumps(bound) for name, bound in bounds.items()}}
        return sorted(int(binary(row["value"])) for row in spark.ask("read", options=options)["records"])

    by_offset = numbers(startingOffsets={topic.name: {"0": 10, "1": -2}}, endingOffsets={topic.name: {"0": 20, "1": 5}})
    assert by_offset == sorted([*range(20, 40, 2), *range(1, 11, 2)])
    by_time = numbers(
        startingOffsetsByTimestamp={topic.name: {"0": NOW_MS + 31, "1": NOW_MS + 31}},
        endingOffsetsByTimestamp={topic.name: {"0": NOW_MS + 40, "1": NOW_MS + 40}},
    )
    assert by_time == list(range(31, 40))


def test_a_range_that_was_deleted_is_an_error_and_not_less_data(
    spark: Answerer, penstock: PenstockNode, penstock_client: RawClient
) -> None:
    topic = penstock_client.create_topic("deleted", PARTITIONS)
    fill(penstock_client, topic, range(100))
    part = DeleteRecordsPartition(partition_index=0, offset=30)
    penstock_client.ask(
        DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic.name, partitions=[part])], timeout_ms=10_000),
        DeleteRecordsResponse,
    )
    options = {
        "kafka.bootstrap.servers": penstock.bootstrap,
        "assign": json.dumps({topic.name: [0]}),
        "startingOffsets": json.dumps({topic.name: {"0": 10}}),
    }
    with pytest.raises(Failed, match="Some data may have been lost"):
        spark.ask("read", options=options)
    left = spark.ask("read", options={**options, "failOnDataLoss": "false"})["records"]
    assert [row["offset"] for row in left] == list(range(30, 50))
