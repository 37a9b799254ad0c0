"""Streams: limits, restarts, checkpoints of the connector, new partitions, and topics that are not what they were."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.compatibility.answerer import Answerer, Failed
from tests.spark.topics import Topics, numbers, seen, together

pytestmark = [pytest.mark.strangers, pytest.mark.xdist_group("spark")]


def run(spark: Answerer, form: str, options: dict[str, str], checkpoint: Path) -> dict[str, list[Any]]:
    """The micro-batches of a run over what there is."""
    batches: dict[str, list[Any]] = spark.ask("run", format=form, options=options, checkpoint=str(checkpoint))[
        "batches"
    ]
    return batches


def sizes(batches: dict[str, list[Any]]) -> list[int]:
    return [len(rows) for rows in batches.values()]


def test_a_run_reads_what_is_there_in_limited_batches_and_the_next_goes_on(
    spark: Answerer, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create()
    options = topics.options(topic, startingOffsets="earliest", maxOffsetsPerTrigger="60")
    topics.fill(topic, range(100))
    first = run(spark, "penstock", options, tmp_path)
    assert sizes(first) == [60, 40]
    topics.fill(topic, range(100, 130))
    second = run(spark, "penstock", options, tmp_path)
    assert sizes(second) == [30]
    assert sizes(run(spark, "penstock", options, tmp_path)) == []
    assert numbers(together(first) + together(second)) == list(range(130))


def test_a_limit_in_bytes(spark: Answerer, topics: Topics, tmp_path: Path) -> None:
    topic = topics.create()
    for number in range(40):
        topics.client.publish(topic, None, b"%d" % number + b" " * 1000, partition=number % 2)
    options = topics.options(topic, startingOffsets="earliest", max_bytes_per_trigger="11k")
    batches = run(spark, "penstock", options, tmp_path)
    assert numbers(together(batches)) == list(range(40))
    assert sizes(batches) == [10, 10, 10, 10]


@pytest.mark.parametrize(
    ("first", "second", "is_interrupted"), [("kafka", "penstock", False), ("penstock", "kafka", True)]
)
def test_a_checkpoint_of_either_source_goes_on_in_the_other_without_gap_or_repeat(
    spark: Answerer, topics: Topics, tmp_path: Path, first: str, second: str, is_interrupted: bool
) -> None:
    topic = topics.create(3)
    options = topics.options(topic, startingOffsets="earliest", maxOffsetsPerTrigger="40")
    found: dict[str, list[Any]] = {}
    for turn, form in enumerate([first, second, first, second]):
        topics.fill(topic, range(turn * 100, turn * 100 + 100), partitions=3)
        batches = run(spark, form, options, tmp_path)
        assert len(batches) >= 3
        repeated = found.keys() & batches.keys()
        if is_interrupted:
            # The last batch was planned but, as far as Spark knows, not done: the other source does exactly that again.
            for number in repeated:
                assert seen(batches[number]) == seen(found[number])
            (tmp_path / "commits" / max(batches, key=int)).unlink()
            (tmp_path / "commits" / f".{max(batches, key=int)}.crc").unlink()
        assert len(repeated) == (1 if is_interrupted and turn else 0)
        found |= batches
    assert numbers(together(found)) == list(range(400))
    newest = max((tmp_path / "offsets").glob("[0-9]*"), key=lambda path: int(path.name)).read_text().splitlines()[-1]
    assert json.loads(newest) == {topic: {"0": 134, "1": 133, "2": 133}}


def test_a_stream_of_the_connector_that_had_nothing_new_does_nothing(
    spark: Answerer, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create()
    topics.fill(topic, range(10))
    options = topics.options(topic, startingOffsets="earliest")
    run(spark, "kafka", options, tmp_path)
    assert numbers(together(run(spark, "penstock", options, tmp_path))) == []


def test_a_running_stream_follows_waits_for_enough_and_finds_new_partitions(
    spark: Answerer, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create(1)
    topics.fill(topic, range(5), partitions=1)
    options = topics.options(topic, minOffsetsPerTrigger="10", maxTriggerDelay="1h")
    spark.ask("start", name="running", format="penstock", options=options, checkpoint=str(tmp_path))
    try:
        found = spark.ask("process", name="running")
        assert together(found["batches"]) == [], "a stream begins at the end"
        topics.fill(topic, range(100, 105), partitions=1)
        assert together(spark.ask("process", name="running")["batches"]) == [], "five are not enough"
        topics.fill(topic, range(105, 110), partitions=1)
        found = spark.ask("process", name="running")
        assert numbers(together(found["batches"])) == list(range(100, 110))
        topics.client.run(topics.client.admin.add_partitions(topic, 2))
        topics.fill(topic, range(200, 240), partitions=2)
        found = spark.ask("process", name="running")
        while len(together(found["batches"])) < 50:  # metadata is asked for once in a second
            found = spark.ask("process", name="running")
        assert numbers(together(found["batches"])) == [*range(100, 110), *range(200, 240)]
        (source,) = found["progress"]["sources"]
        assert source["latestOffset"] == {topic: {"0": 35, "1": 20}}
    finally:
        spark.ask("stop", name="running")


def test_a_topic_that_is_made_again_under_a_running_stream_is_an_error(
    spark: Answerer, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create()
    topics.fill(topic, range(10))
    options = topics.options(topic, startingOffsets="earliest", failOnDataLoss="false")
    spark.ask("start", name="doomed", format="penstock", options=options, checkpoint=str(tmp_path))
    assert numbers(together(spark.ask("process", name="doomed")["batches"])) == list(range(10))
    topics.client.delete_topic(topic)
    topics.client.create_topic(topic, 2)
    topics.fill(topic, range(100, 150))
    failure = spark.ask("failure", name="doomed")["failure"]
    assert f"Topic {topic} was deleted and made again" in failure or f"topic {topic}: UNKNOWN_TOPIC" in failure
    spark.ask("stop", name="doomed")


def test_a_topic_that_was_made_again_between_two_runs_is_an_error_if_its_id_was_kept(
    spark: Answerer, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create()
    topics.fill(topic, range(10))
    options = topics.options(topic, startingOffsets="earliest", topic_ids_file=str(tmp_path / "ids" / "topics.json"))
    run(spark, "penstock", options, tmp_path / "checkpoint")
    topics.fill(topic, range(10, 20))
    assert numbers(together(run(spark, "penstock", options, tmp_path / "checkpoint"))) == list(range(10, 20))
    topics.client.delete_topic(topic)
    topics.client.create_topic(topic, 2)
    topics.fill(topic, range(100))
    with pytest.raises(Failed, match="was deleted and made again"):
        run(spark, "penstock", options, tmp_path / "checkpoint")
    del options["topic_ids_file"]
    assert len(together(run(spark, "penstock", options, tmp_path / "checkpoint"))) == 80, "nobody can tell, then"
