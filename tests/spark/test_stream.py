"""Streams: limits, restarts, checkpoints of the connector, new partitions, and recreated topics."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from harness.answerer import Answerer, Failed
from harness.spark.topics import Topics, numbers, seen, together
from penstock.client.metadata import TopicPartition
from penstock.spark.driver import Stream
from penstock.spark.options import stream_options

pytestmark = [pytest.mark.peers, pytest.mark.xdist_group("spark")]

NOW_MS = 1_760_000_000_000


def run(spark: Answerer, form: str, options: dict[str, str], checkpoint: Path) -> dict[str, list[Any]]:
    """The micro-batches of a run over the present data."""
    batches: dict[str, list[Any]] = spark.ask("run", format=form, options=options, checkpoint=str(checkpoint))[
        "batches"
    ]
    return batches


def timed(topics: Topics) -> str:
    """Creates a topic with forty numbers, one millisecond apart."""
    topic = topics.create()
    for number in range(40):
        topics.client.publish(topic, b"%d" % number, partition=number % 2, timestamp_ms=NOW_MS + number)
    return topic


def sizes(batches: dict[str, list[Any]]) -> list[int]:
    return [len(rows) for rows in batches.values()]


def test_a_run_reads_what_is_there_in_limited_batches_and_the_next_goes_on(
    spark: Answerer, topics: Topics, tmp_path: Path
) -> None:
    """The run does not wait for more, even if batches should be larger than the remaining data."""
    topic = topics.create()
    limits = {"maxOffsetsPerTrigger": "60", "minOffsetsPerTrigger": "50", "maxTriggerDelay": "1h"}
    options = topics.options(topic, startingOffsets="earliest", **limits)
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
        topics.client.publish(topic, b"%d" % number + b" " * 1000, partition=number % 2)
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
            # The last batch was planned but, to Spark, not done: the other source repeats exactly that batch.
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
        while len(together(found["batches"])) < 50:  # metadata is requested once a second
            found = spark.ask("process", name="running")
        assert numbers(together(found["batches"])) == [*range(100, 110), *range(200, 240)]
        (source,) = found["progress"]["sources"]
        assert source["latestOffset"] == {topic: {"0": 35, "1": 20}}
    finally:
        spark.ask("stop", name="running")


def test_few_records_are_not_waited_with_for_longer_than_they_may(
    spark: Answerer, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create()
    options = topics.options(topic, minOffsetsPerTrigger="1000", maxTriggerDelay="2s")
    spark.ask("start", name="patient", format="penstock", options=options, checkpoint=str(tmp_path))
    try:
        spark.ask("process", name="patient")
        topics.fill(topic, range(5))
        deadline_s = time.monotonic() + 60
        while not (rows := together(spark.ask("process", name="patient")["batches"])):
            assert time.monotonic() < deadline_s, "five records were never read"
        assert numbers(rows) == list(range(5))
    finally:
        spark.ask("stop", name="patient")


def test_a_stream_starts_at_the_moments_at_which_the_connectors_does(
    spark: Answerer, topics: Topics, tmp_path: Path
) -> None:
    topic = timed(topics)
    moments = json.dumps({topic: {"0": NOW_MS + 11, "1": NOW_MS + 30}})
    options = topics.options(topic, startingOffsetsByTimestamp=moments)
    ours, theirs = (together(run(spark, form, options, tmp_path / form)) for form in ("penstock", "kafka"))
    assert seen(ours) == seen(theirs)
    assert numbers(ours) == sorted([*range(12, 40, 2), *range(31, 40, 2)])


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


# --- the driver's decisions, without Spark


def stream_of(topics: Topics, **options: str) -> Stream:
    given = {"kafka.bootstrap.servers": topics.bootstrap, **options}
    return Stream(stream_options({name.lower(): text for name, text in given.items()}))


@pytest.mark.parametrize(
    ("bounds", "zero", "one"),
    [
        ({}, 20, 20),
        ({"startingOffsets": "earliest"}, 0, 0),
        ({"startingOffsets": {"0": 5, "1": -1}}, 5, 20),
        ({"startingOffsets": {"0": -2, "1": 7}}, 0, 7),
        ({"startingOffsetsByTimestamp": {"0": NOW_MS + 11, "1": NOW_MS}}, 6, 0),
        ({"startingTimestamp": NOW_MS + 30}, 15, 15),
        ({"startingTimestamp": NOW_MS + 1000, "startingOffsetsByTimestampStrategy": "latest"}, 20, 20),
    ],
)
def test_every_way_to_say_where_a_stream_starts(topics: Topics, bounds: dict[str, Any], zero: int, one: int) -> None:
    topic = timed(topics)
    given = {
        name: json.dumps({topic: bound}) if isinstance(bound, dict) else str(bound) for name, bound in bounds.items()
    }
    stream = stream_of(topics, subscribe=topic, **given)
    try:
        assert stream.initial() == {TopicPartition(topic, 0): zero, TopicPartition(topic, 1): one}
    finally:
        stream.close()


def test_what_comes_during_a_run_over_what_there_is_is_left_for_the_next(topics: Topics) -> None:
    topic = topics.create(1)
    topics.fill(topic, range(10), partitions=1)
    only = TopicPartition(topic, 0)
    stream = stream_of(topics, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="6")
    try:
        stream.stop_at_present()
        topics.fill(topic, range(10, 30), partitions=1)
        assert stream.end({only: 0}, has_limits=True) == {only: 6}
        assert stream.end({only: 6}, has_limits=True) == {only: 10}
        assert stream.end({only: 10}, has_limits=True) == {only: 10}, "there is no further batch"
    finally:
        stream.close()


def test_a_pattern_finds_topics_that_are_made_later_and_reads_them_from_their_beginning(topics: Topics) -> None:
    first = topics.create(1)
    stream = stream_of(topics, subscribePattern=f"^{first}(-late)?$")
    try:
        start = stream.initial()
        assert start == {TopicPartition(first, 0): 0}
        late = f"{first}-late"
        topics.client.create_topic(late, 1)
        topics.fill(late, range(3), partitions=1)
        deadline_s = time.monotonic() + 30
        while TopicPartition(late, 0) not in (end := stream.end(start, has_limits=True)):
            assert time.monotonic() < deadline_s, "the new topic was never found"
        (task,) = stream.tasks(start, end)
        assert [(task.topics[number][0], first, last) for number, _, first, last, _ in task.pieces] == [(late, 0, 3)]
    finally:
        stream.close()
