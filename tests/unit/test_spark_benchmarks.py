"""What the benchmarks of the Spark source say about their figures, goals missed included."""

import pytest

from benchmarks.side_by_side.results import CannotRecord
from benchmarks.spark import payload, results

READ = {
    "records": 1_000_000,
    "value_bytes": 100,
    "seconds": {"penstock": [1.0, 1.0, 5.0], "kafka": [2.0, 1.4, 3.0], "bare": [0.6, 0.5, 0.9]},
}
MEASURED = {
    "command": "python -m benchmarks.spark --record",
    "date": "2026-01-01",
    "commit": "abc",
    "machine": {
        "cores": 2,
        "processor": "some",
        "memory_gib": 24,
        "kernel": "Linux 6",
        "python": "3.11",
        "java": "openjdk 17",
        "pyspark": "4.2.0",
        "pyarrow": "26",
        "numba": "0.68",
    },
}


def test_a_goal_that_is_missed_is_called_so() -> None:
    found = results.summary("read", READ)
    assert "- 2.00 × the connector, goal ≥ 1.5: met" in found
    assert "- 0.60 × the bare engine, goal ≥ 0.7: **missed**" in found


def test_the_slowest_counts_where_a_limit_is_to_be_kept() -> None:
    few = {"penstock": [100.0, 2100.0], "kafka": [50.0, 60.0]}
    found = {"partitions": 1000, "few": 20, "few_ms": few, "one_each_ms": {"penstock": [5.0], "kafka": [5.0]}}
    assert results.summary("micro-batches", found)[-1].endswith("took 2.10 s, goal ≤ 2 s: **missed**")
    found = {"splits": 10, "seconds": {"penstock": [1.0, 4.9], "kafka": [1.0]}}
    assert results.summary("splits", found)[-1].endswith("took 4.90 s, goal ≤ 5 s: met")


def test_the_page_says_how_each_row_came_about() -> None:
    page = results.page({"read": {**READ, "measured": MEASURED}})
    assert "`python -m benchmarks.spark --record`, 2026-01-01, commit abc," in page
    assert "2 shared cores (some), 24 GiB, Linux 6," in page


def test_a_tenth_of_everything_is_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.side_by_side.machine.commit", lambda: "abc")
    results.check_recordable(1.0)
    with pytest.raises(CannotRecord, match="leave out --scale"):
        results.check_recordable(0.1)


def test_half_of_the_text_lies_in_one_partition() -> None:
    found = list(payload.lines(100_000, 1000, partitions=5))
    assert [len(value) for _, value, _ in found] == [1000] * 100
    assert [sum(1 for *_, partition in found if partition == number) for number in range(5)] == [50, 13, 13, 12, 12]
