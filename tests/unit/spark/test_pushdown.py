"""Filter pushdown: never too little is read, and as little as the filters allow."""

from datetime import UTC, datetime

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from penstock.client.metadata import TopicPartition
from penstock.spark.plan import OFFSET_END, Cuts
from penstock.spark.pushdown import cuts_of

MOMENT = datetime(2026, 1, 1, microsecond=1500, tzinfo=UTC)
MOMENT_MS = 1_767_225_600_001


@pytest.mark.parametrize(
    ("filters", "cuts"),
    [
        ([], Cuts()),
        ([GreaterThanOrEqual(("offset",), 5)], Cuts(first=5)),
        ([GreaterThan(("offset",), 5)], Cuts(first=6)),
        ([LessThan(("offset",), 5)], Cuts(end=5)),
        ([LessThanOrEqual(("offset",), 5)], Cuts(end=6)),
        ([EqualTo(("offset",), 5)], Cuts(first=5, end=6)),
        ([EqualNullSafe(("offset",), None)], Cuts(first=OFFSET_END, end=0)),
        ([In(("offset",), (9, 3, 7))], Cuts(first=3, end=10)),
        ([GreaterThan(("offset",), 5), GreaterThan(("offset",), 2), LessThan(("offset",), 9)], Cuts(first=6, end=9)),
        ([EqualTo(("topic",), "a"), In(("partition",), (1, 2)), EqualTo(("partition",), 2)], Cuts({"a"}, {2})),
        # A broker's timestamps are in milliseconds: the whole millisecond is read.
        ([GreaterThan(("timestamp",), MOMENT)], Cuts(since_ms=MOMENT_MS)),
        ([GreaterThanOrEqual(("timestamp",), MOMENT), IsNotNull(("timestamp",))], Cuts(since_ms=MOMENT_MS)),
        ([EqualTo(("timestamp",), MOMENT)], Cuts(since_ms=MOMENT_MS)),
        # Timestamps may go back in a log, so an upper bound does not limit offsets.
        ([LessThan(("timestamp",), MOMENT)], Cuts()),
        ([Not(EqualTo(("offset",), 5)), StringStartsWith(("topic",), "a"), EqualTo(("value",), b"5")], Cuts()),
        ([GreaterThan(("headers", "offset"), 5)], Cuts()),
    ],
)
def test_filters_become_cuts(filters: list[Filter], cuts: Cuts) -> None:
    assert cuts_of(filters) == cuts


def test_a_partition_is_kept_if_nothing_speaks_against_it() -> None:
    assert Cuts().keeps(TopicPartition("a", 1))
    assert Cuts({"a"}, {1}).keeps(TopicPartition("a", 1))
    assert not Cuts({"a"}, {1}).keeps(TopicPartition("a", 2))
    assert not Cuts({"b"}).keeps(TopicPartition("a", 1))
