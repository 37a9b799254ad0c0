"""A query's lag as a group shows it: always what the query itself reports, and never blocking the query."""

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.answerer import Answerer
from harness.kafka.kafka_tools import run_alone
from harness.spark.topics import Topics
from penstock.client.admin.lag import lag
from penstock.client.offsets import Moment
from penstock.spark.driver import Stream
from penstock.spark.options import stream_options

pytestmark = [pytest.mark.peers, pytest.mark.xdist_group("spark")]

WAIT_S = 180
"""Much longer than any step takes, also for the first query of a session."""
Ends = dict[int, int]


def until(ask: Callable[[], Any], wanted: Any) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while (found := ask()) != wanted:
        assert time.monotonic() < deadline_s, f"{found}, not {wanted}"
        time.sleep(0.05)


def ends_of(topics: Topics, topic: str) -> Ends:
    found = topics.client.run(topics.client.admin.offsets(topic, Moment.LATEST))
    return {partition: at.offset for partition, at in found.items()}


def lag_of(topics: Topics, group: str) -> Ends:
    """Lag by partition, as `penstock group lag` shows it."""
    committed = topics.client.run(topics.client.admin.group_offsets(group))
    found = topics.client.run(lag(topics.client.admin.cluster, committed))
    return {each.partition.partition: each.records for each in found}


def truth(topics: Topics, topic: str, progress: dict[str, Any] | None) -> Ends:
    """The log end offset less the query's own position."""
    done = {} if progress is None else progress["sources"][0]["endOffset"][topic]
    return {index: end - done.get(str(index), 0) for index, end in ends_of(topics, topic).items()}


def test_a_group_shows_the_lag_of_a_running_query_at_every_moment(
    spark: Answerer, topics: Topics, tmp_path: Path
) -> None:
    """Each batch is held: an error of a batch stays visible for as long as the test looks."""
    topic, group = topics.create(), "watched-query"
    topics.fill(topic, range(40))
    options = topics.options(topic, startingOffsets="earliest", maxOffsetsPerTrigger="10", commit_group=group)
    spark.ask("start", name="held", format="penstock", options=options, checkpoint=str(tmp_path), is_held=True)
    for batch in range(5):
        until(lambda: spark.ask("standing", name="held")["batch"], batch)
        progress = spark.ask("standing", name="held")["progress"]
        assert (progress and progress["batchId"]) == (batch - 1 if batch else None)
        wanted = truth(topics, topic, progress)
        assert sum(wanted.values()) == 40 + 6 * batch - 10 * batch
        until(lambda: lag_of(topics, group), wanted)
        topics.fill(topic, range(6))
        assert lag_of(topics, group) == {index: behind + 3 for index, behind in wanted.items()}
        if batch < 4:
            spark.ask("let", name="held")
    shown = run_alone("kafka-consumer-groups", "--bootstrap-server", topics.bootstrap, "--describe", "--group", group)
    lines = [line.split() for line in shown.splitlines() if topic in line]
    assert {int(line[2]): int(line[5]) for line in lines} == lag_of(topics, group), shown
    spark.ask("let", name="held", batches=100)
    spark.ask("process", name="held")
    until(lambda: lag_of(topics, group), {0: 0, 1: 0})
    spark.ask("stop", name="held")


def test_a_run_over_what_there_is_leaves_its_group_at_the_end(spark: Answerer, topics: Topics, tmp_path: Path) -> None:
    """Spark does not report that the last batch of such a run is committed."""
    topic = topics.create()
    topics.fill(topic, range(20))
    options = topics.options(topic, startingOffsets="earliest", maxOffsetsPerTrigger="10", commit_group="once-query")
    spark.ask("run", format="penstock", options=options, checkpoint=str(tmp_path))
    assert lag_of(topics, "once-query") == {0: 0, 1: 0}


# --- without Spark


def stream_of(topics: Topics, topic: str, group: str) -> Stream:
    options = topics.options(topic, startingOffsets="earliest", commit_group=group)
    return Stream(stream_options({name.lower(): text for name, text in options.items()}))


def test_a_group_that_somebody_is_in_is_left_alone_and_the_query_goes_on(
    topics: Topics, caplog: pytest.LogCaptureFixture
) -> None:
    topic, group = topics.create(), "taken-group"
    topics.fill(topic, range(4))
    member = topics.client.run(_joined(topics, group, topic))
    stream = stream_of(topics, topic, group)
    try:
        with caplog.at_level(logging.WARNING, "penstock.spark"):
            start = stream.initial()
            for _ in range(3):
                end = stream.end(start, has_limits=False)
            assert sum(end.values()) == 4
        assert caplog.text.count("group taken-group is not told how far the query is") == 1, "said once"
        assert "the group has members" in caplog.text
    finally:
        stream.close()
        topics.client.run(member.close())
    stream = stream_of(topics, topic, group)
    stream.end(end, has_limits=False)
    stream.close()
    assert lag_of(topics, group) == {0: 0, 1: 0}


async def _joined(topics: Topics, group: str, topic: str) -> Any:
    member = topics.client._client.group_consumer(group, topic)
    assert await member.fetch_records(1) is not None
    return member


def test_offsets_that_somebody_deleted_are_there_again_after_a_while(topics: Topics) -> None:
    """The same holds for offsets that a broker expired because the group had no members."""
    topic, group = topics.create(), "forgotten-group"
    stream = stream_of(topics, topic, group)
    try:
        start = stream.initial()
        stream.end(start, has_limits=False)
        topics.client.run(topics.client.admin.delete_group(group))
        stream.end(start, has_limits=False)
        assert topics.client.run(topics.client.admin.group_offsets(group)) == {}, "it is not committed all the time"
        assert stream._progress is not None
        stream._progress._due_s = 0.0
        stream.end(start, has_limits=False)
        assert lag_of(topics, group) == {0: 0, 1: 0}
    finally:
        stream.close()
