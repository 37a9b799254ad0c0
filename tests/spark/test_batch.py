"""A batch through our source has the same rows as through Spark's own connector, for every way to select them."""

import json
from collections import Counter
from typing import Any

import pytest

from harness.answerer import Answerer, Failed
from harness.spark.topics import Row, Topics, numbers, seen
from penstock.spark.options import batch_options
from penstock.spark.survey import Survey

pytestmark = [pytest.mark.peers, pytest.mark.xdist_group("spark")]

NOW_MS = 1_760_000_000_000


def key(row: Row) -> tuple[str, int, int]:
    return row["topic"], row["partition"], row["offset"]


def both(spark: Answerer, options: dict[str, str]) -> list[Row]:
    """The rows that both sources read, which must be the same."""
    ours = spark.ask("read", format="penstock", options=options)
    theirs = spark.ask("read", format="kafka", options=options)
    assert ours["schema"] == theirs["schema"]
    rows: list[Row] = sorted(ours["rows"], key=key)
    assert rows == sorted(theirs["rows"], key=key)
    return rows


@pytest.fixture(scope="module")
def two(penstock: Any, client: Any) -> tuple[Topics, str, str]:
    """Two topics of two partitions: all kinds of records, and numbers with rising timestamps."""
    topics = Topics(penstock.bootstrap, client)
    odd, plain = topics.create(2), topics.create(2)
    for number in range(20):
        headers = {"h": b"1", "null": None, "": b""} if number % 3 == 0 else {}
        client.publish(
            odd,
            None if number % 5 == 0 else b"\xff" * number,
            None if number % 4 == 0 else b"" if number % 4 == 1 else b"key",
            partition=number % 2,
            headers=headers,
            timestamp_ms=NOW_MS + number,
        )
    for number in range(40):
        client.publish(plain, b"%d" % number, partition=number % 2, timestamp_ms=NOW_MS + number)
    return topics, odd, plain


def test_all_columns_of_all_kinds_of_records(spark: Answerer, two: tuple[Topics, str, str]) -> None:
    topics, odd, _ = two
    assert len(both(spark, topics.options(odd))) == 20
    with_headers = both(spark, topics.options(odd, includeHeaders="true"))
    assert sum(1 for row in with_headers if row["headers"]) == 7


def test_the_time_of_append_is_told_as_such(spark: Answerer, topics: Topics) -> None:
    topic = topics.create(1, message_timestamp_type="LogAppendTime")
    topics.fill(topic, range(3), partitions=1)
    assert [row["timestampType"] for row in both(spark, topics.options(topic))] == [1, 1, 1]


@pytest.mark.parametrize(
    ("bounds", "count"),
    [
        ({}, 40),
        ({"startingOffsets": {"0": 5, "1": -2}}, 35),
        ({"startingOffsets": {"0": 5, "1": 20}, "endingOffsets": {"0": 6, "1": -1}}, 1),
        ({"endingOffsets": {"0": 0, "1": 7}}, 7),
        ({"startingOffsetsByTimestamp": {"0": NOW_MS + 11, "1": NOW_MS}}, 34),
        (
            {
                "startingOffsetsByTimestamp": {"0": NOW_MS + 11, "1": NOW_MS + 11},
                "endingOffsetsByTimestamp": {"0": NOW_MS + 20, "1": NOW_MS + 1000},
            },
            19,
        ),
        ({"startingTimestamp": NOW_MS + 30, "endingTimestamp": NOW_MS + 35}, 5),
        ({"startingTimestamp": NOW_MS + 1000, "startingOffsetsByTimestampStrategy": "latest"}, 0),
    ],
)
def test_every_way_to_say_from_where_to_where(
    spark: Answerer, two: tuple[Topics, str, str], bounds: dict[str, Any], count: int
) -> None:
    topics, _, plain = two
    options = {
        name: json.dumps({plain: bound}) if isinstance(bound, dict) else str(bound) for name, bound in bounds.items()
    }
    assert len(both(spark, topics.options(plain, **options))) == count


def test_topics_by_pattern_and_partitions_by_number(spark: Answerer, two: tuple[Topics, str, str]) -> None:
    topics, odd, plain = two
    server = {"kafka.bootstrap.servers": topics.bootstrap}
    assert len(both(spark, {**server, "subscribePattern": f"^({odd}|{plain})$"})) == 60
    middle = plain[1:-1]  # a pattern need not match the whole name, in the connector either
    ours = spark.ask("read", format="penstock", options={**server, "subscribePattern": middle, "columns": "topic"})
    theirs = spark.ask("read", format="kafka", options={**server, "subscribePattern": middle})
    assert Counter(row["topic"] for row in ours["rows"]) == Counter(row["topic"] for row in theirs["rows"])
    assert plain in {row["topic"] for row in ours["rows"]}
    assert len(both(spark, {**server, "assign": json.dumps({plain: [1]})})) == 20
    assert len(both(spark, {**server, "subscribe": f"{odd}, {plain}"})) == 60


def test_a_session_elsewhere_in_the_world_sees_the_same_moments(spark: Answerer, two: tuple[Topics, str, str]) -> None:
    topics, odd, _ = two
    spark.ask("configure", name="spark.sql.session.timeZone", value="Asia/Kolkata")
    try:
        assert len(both(spark, topics.options(odd, includeHeaders="true"))) == 20
    finally:
        spark.ask("configure", name="spark.sql.session.timeZone", value="UTC")


def test_nothing_to_read_is_no_rows(spark: Answerer, topics: Topics) -> None:
    assert both(spark, topics.options(topics.create(3))) == []


def test_some_columns_in_another_order(spark: Answerer, two: tuple[Topics, str, str]) -> None:
    topics, _, plain = two
    found = spark.ask("read", format="penstock", options=topics.options(plain, columns="offset,value"))
    assert found["schema"] == "struct<offset:bigint,value:binary>"
    assert sorted(row["offset"] for row in found["rows"]) == sorted([*range(20)] * 2)


def test_many_small_partitions_share_a_task_and_a_large_one_is_divided(spark: Answerer, topics: Topics) -> None:
    many = topics.create(60)
    topics.fill(many, range(120), partitions=60)
    found = spark.ask("read", format="penstock", options=topics.options(many))
    assert (numbers(found["rows"]), found["tasks"]) == (list(range(120)), 1)
    divided = spark.ask("read", format="penstock", options=topics.options(many, minPartitions="7"))
    assert numbers(divided["rows"]) == list(range(120))
    assert 6 <= divided["tasks"] <= 8

    one = topics.create(1)
    topics.fill(one, range(500), partitions=1)
    for options in ({"task_bytes": "1k"}, {"maxRecordsPerPartition": "50"}):
        found = spark.ask("read", format="penstock", options=topics.options(one, **options))
        assert [each.offset for each in seen(found["rows"])] == list(range(500))
        assert found["tasks"] >= 5


def test_filters_are_pushed_down_only_for_who_asks(spark: Answerer, two: tuple[Topics, str, str]) -> None:
    topics, _, plain = two
    where = f"partition = 1 and offset >= 5 and offset < 12 and timestamp >= timestamp_millis({NOW_MS + 15})"
    options = topics.options(plain, pushdown="true", maxRecordsPerPartition="1")
    with pytest.raises(Failed, match=r"spark\.sql\.python\.filterPushdown\.enabled"):
        spark.ask("read", format="penstock", options=options, where=where)
    plainly = spark.ask(
        "read", format="penstock", options=topics.options(plain, maxRecordsPerPartition="1"), where=where
    )
    spark.ask("configure", name="spark.sql.python.filterPushdown.enabled", value="true")
    try:
        pushed = spark.ask("read", format="penstock", options=options, where=where)
    finally:
        spark.ask("configure", name="spark.sql.python.filterPushdown.enabled", value="false")
    assert [each.offset for each in seen(pushed["rows"])] == [7, 8, 9, 10, 11]
    assert seen(plainly["rows"]) == seen(pushed["rows"])
    assert (plainly["tasks"], pushed["tasks"]) == (40, 5)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"startingOffsets": '{"NAME": {"0": 0}}'}, r"it lacks NAME\[1\]"),
        ({"startingOffsets": '{"NAME": {"0": 0, "1": 0, "2": 0}}'}, r"nothing is read of NAME\[2\]"),
        ({"startingTimestamp": str(NOW_MS * 2)}, "is as late as its starting timestamp"),
        ({"startingOffsets": '{"NAME": {"0": 21, "1": 0}}'}, "from offset 21 to 20, which lies before it"),
        ({"startingoffset": "earliest"}, r"did you mean startingOffsets\?"),
        ({"subscribe": "nowhere"}, "topic nowhere: UNKNOWN_TOPIC_OR_PARTITION"),
    ],
)
def test_what_cannot_be_read_is_said(
    spark: Answerer, two: tuple[Topics, str, str], options: dict[str, str], sentence: str
) -> None:
    topics, _, plain = two
    given = {name: text.replace("NAME", plain) for name, text in options.items()}
    given["fetchOffset.retryIntervalMs"] = "10"
    with pytest.raises(Failed, match=sentence.replace("NAME", plain)):
        spark.ask("read", format="penstock", options={**topics.options(plain), **given})


def test_sizes_are_those_on_the_brokers_disks(topics: Topics) -> None:
    topic = topics.create(2)
    for _ in range(4):
        topics.client.publish(topic, b"x" * 10_000, partition=0)
        topics.client.publish(topic, b"x" * 100, partition=1)
    with Survey(batch_options(topics.options(topic))) as survey:
        zero, one = survey.partitions()
        sizes = survey.sizes({zero: (0, 4), one: (0, 2)})
    assert 40_000 < sizes[zero] < 41_000
    assert 200 < sizes[one] < 600
