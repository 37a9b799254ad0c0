"""Records deleted before they are read: the query fails, continues, or records the gap, and is never silent."""

from pathlib import Path
from typing import Any

import pytest

from harness.answerer import Answerer, Failed
from harness.spark.topics import Topics, numbers, together
from penstock.client.metadata import TopicPartition
from penstock.spark.driver import batch_tasks
from penstock.spark.gaps import DataLost
from penstock.spark.options import SourceOptions, batch_options
from penstock.spark.read import NothingCame, read_task
from penstock.spark.survey import TopicRecreated

pytestmark = [pytest.mark.peers, pytest.mark.xdist_group("spark")]


def options_of(topics: Topics, topic: str, **options: str) -> SourceOptions:
    return batch_options({name.lower(): text for name, text in topics.options(topic, **options).items()})


def offsets(options: SourceOptions, tasks: list[Any]) -> list[tuple[int, int]]:
    """Places that tasks read, without Spark around them."""
    return sorted(
        (row["partition"], row["offset"])
        for task in tasks
        for batch in read_task(task, options)
        for row in batch.select(["partition", "offset"]).to_pylist()
    )


@pytest.fixture
def stopped(spark: Answerer, topics: Topics, tmp_path: Path) -> str:
    """A topic with a stream that has read the first ten records; some of the next were deleted since."""
    topic = topics.create()
    topics.fill(topic, range(10))
    options = topics.options(topic, startingOffsets="earliest")
    spark.ask("run", format="penstock", options=options, checkpoint=str(tmp_path))
    topics.fill(topic, range(10, 100))
    topics.delete_before(topic, {0: 25})
    return topic


LEFT = [*range(11, 50, 2), *range(50, 100)]


@pytest.mark.parametrize("setting", [{}, {"failOnDataLoss": "true"}, {"on_gap": "fail"}])
def test_a_gap_fails_the_query_unless_it_is_told_otherwise(
    spark: Answerer, topics: Topics, stopped: str, tmp_path: Path, setting: dict[str, str]
) -> None:
    with pytest.raises(Failed, match=r"\[0\]: the records from offset 5 to 25 are lost: the log begins at 25 now"):
        spark.ask("run", format="penstock", options=topics.options(stopped, **setting), checkpoint=str(tmp_path))


@pytest.mark.parametrize("setting", [{"failOnDataLoss": "false"}, {"on_gap": "skip"}])
def test_a_gap_is_skipped_by_who_asks_for_it(
    spark: Answerer, topics: Topics, stopped: str, tmp_path: Path, setting: dict[str, str]
) -> None:
    found = spark.ask("run", format="penstock", options=topics.options(stopped, **setting), checkpoint=str(tmp_path))
    assert numbers(together(found["batches"])) == LEFT


def test_a_gap_is_written_down(spark: Answerer, topics: Topics, stopped: str, tmp_path: Path) -> None:
    gaps = topics.create(1)
    options = topics.options(stopped, on_gap="dlq", dlq_topic=gaps)
    found = spark.ask("run", format="penstock", options=options, checkpoint=str(tmp_path))
    assert numbers(together(found["batches"])) == LEFT
    (message,) = topics.values(gaps)
    assert message.pop("noticed_ms") > 0
    reason = "the log begins at 25 now"
    expected = {"kind": "gap", "topic": stopped, "partition": 0, "first": 5, "end": 25, "reason": reason}
    assert message == expected


def test_a_stream_that_stands_beyond_the_end_of_its_topic_is_told(
    spark: Answerer, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create()
    topics.fill(topic, range(10))
    spark.ask(
        "run", format="penstock", options=topics.options(topic, startingOffsets="earliest"), checkpoint=str(tmp_path)
    )
    topics.client.delete_topic(topic)
    topics.client.create_topic(topic, 2)
    topics.fill(topic, range(2))
    quick = {"fetchOffset.retryIntervalMs": "10"}
    with pytest.raises(Failed, match="the log ends earlier than it did"):
        spark.ask("run", format="penstock", options=topics.options(topic, **quick), checkpoint=str(tmp_path))
    skipping = topics.options(topic, on_gap="skip", **quick)
    assert together(spark.ask("run", format="penstock", options=skipping, checkpoint=str(tmp_path))["batches"]) == []
    topics.fill(topic, range(2, 6))
    found = spark.ask("run", format="penstock", options=skipping, checkpoint=str(tmp_path))
    assert numbers(together(found["batches"])) == [2, 3, 4, 5]


# --- between planning and reading, without Spark


def test_who_starts_at_the_earliest_offset_bears_that_it_moves(topics: Topics) -> None:
    topic = topics.create()
    topics.fill(topic, range(40))
    options = options_of(topics, topic)
    tasks = batch_tasks(options)
    topics.delete_before(topic, {0: 7})
    assert offsets(options, tasks) == [
        *((0, offset) for offset in range(7, 20)),
        *((1, offset) for offset in range(20)),
    ]


def test_who_asked_for_an_offset_does_not(topics: Topics) -> None:
    topic = topics.create()
    topics.fill(topic, range(40))
    start = f'{{"{topic}": {{"0": 0, "1": 0}}}}'
    tasks = batch_tasks(options_of(topics, topic, startingOffsets=start))
    topics.delete_before(topic, {0: 7, 1: -1})
    with pytest.raises(DataLost, match="set on_gap to skip"):
        offsets(options_of(topics, topic, startingOffsets=start), tasks)
    skipping = options_of(topics, topic, startingOffsets=start, on_gap="skip")
    assert offsets(skipping, tasks) == [(0, offset) for offset in range(7, 20)]


def test_a_topic_that_is_made_again_before_it_is_read_is_not_read(topics: Topics) -> None:
    topic = topics.create()
    topics.fill(topic, range(40))
    options = options_of(topics, topic, on_gap="skip")
    tasks = batch_tasks(options)
    topics.client.delete_topic(topic)
    topics.client.create_topic(topic, 2)
    topics.fill(topic, range(40))
    with pytest.raises(TopicRecreated, match="Begin again with a new checkpoint"):
        offsets(options, tasks)


def test_a_topic_that_is_made_again_while_it_is_read_ends_the_task(topics: Topics) -> None:
    topic = topics.create(1)
    for number in range(6):
        topics.client.publish(topic, b"%d" % number * 100_000)
    options = options_of(
        topics, topic, on_gap="skip", **{"kafka.max.partition.fetch.bytes": "100", "kafka.fetch.max.bytes": "100"}
    )
    (task,) = batch_tasks(options)
    rows = read_task(task, options)
    assert next(rows).num_rows == 1
    topics.client.delete_topic(topic)
    topics.client.create_topic(topic, 1)
    for _ in range(6):
        topics.client.publish(topic, b"another")
    with pytest.raises(TopicRecreated):
        list(rows)


def test_records_that_do_not_come_are_not_waited_for_for_ever(topics: Topics) -> None:
    topic = topics.create(1)
    topics.fill(topic, range(5), partitions=1)
    options = options_of(topics, topic, **{"kafkaConsumer.pollTimeoutMs": "700", "kafka.fetch.max.wait.ms": "100"})
    (task,) = batch_tasks(options)
    ((number, partition, first, _, is_from_start),) = task.pieces
    beyond = task._replace(pieces=((number, partition, first, 9, is_from_start),))
    with pytest.raises(NothingCame, match=r"records from offset 5 to 9 of .*\[0\] should be there"):
        offsets(options, [beyond])


def test_a_task_of_many_partitions_reads_each_of_them_whole(topics: Topics) -> None:
    topic = topics.create(40)
    topics.fill(topic, range(4000), partitions=40)
    options = options_of(topics, topic, **{"kafka.fetch.max.bytes": "2000"})
    (task,) = batch_tasks(options)
    assert offsets(options, [task]) == [(partition, offset) for partition in range(40) for offset in range(100)]
    assert TopicPartition(topic, 39) == TopicPartition(task.topics[0][0], task.pieces[-1][1])
