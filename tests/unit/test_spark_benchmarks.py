"""Results of the Spark benchmarks, including missed goals."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

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
    found = {"partitions": 1000, "few": 20, "few_ms": few, "one_each_ms": {"penstock": [5.0], "kafka": []}}
    assert "| Spark's Kafka connector | 55 (50–60) | – |" in results.summary("micro-batches", found)
    assert results.summary("micro-batches", found)[-1].endswith("took 2.10 s, goal ≤ 2 s: **missed**")
    found = {"splits": 10, "seconds": {"penstock": [1.0, 4.9], "kafka": [1.0]}}
    assert results.summary("splits", found)[-1].endswith("took 4.90 s, goal ≤ 5 s: met")


def test_the_page_says_how_each_row_came_about() -> None:
    page = results.page({"read": {**READ, "measured": MEASURED}})
    assert "`python -m benchmarks.spark --record`, 2026-01-01, commit abc," in page
    assert "2 shared cores (some), 24 GiB, Linux 6," in page


def test_a_tenth_of_everything_is_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.machine.commit", lambda: "abc")
    results.check_recordable(1.0)
    with pytest.raises(CannotRecord, match="leave out --scale"):
        results.check_recordable(0.1)


def test_half_of_the_text_lies_in_one_partition() -> None:
    found = list(payload.lines(100_000, 1000, partitions=5))
    assert [len(value) for _, value, *_ in found] == [1000] * 100
    in_each = Counter(partition for _, _, partition, _ in found)
    assert [in_each[number] for number in range(5)] == [50, 13, 13, 12, 12]


def test_orders_come_at_noon_rather_than_at_midnight() -> None:
    found = list(payload.orders(1000, partitions=4, days=2))
    assert json.loads(found[95][1]) == {"n": 95, "amount": 95.95}
    assert [partition for _, _, partition, _ in found[:5]] == [0, 1, 2, 3, 0]
    stamps = [stamp for *_, stamp in found]
    assert stamps == sorted(stamps)
    hours = Counter((stamp - payload.DAY_MS) // 3_600_000 for stamp in stamps)
    assert set(hours) == set(range(48))
    assert hours[12] > 5 * hours[24] > 0


AUDIT: dict[str, Any] = {
    "rows": 1000,
    "partitions": 4,
    "days": 2,
    "lake_s": 20.0,
    "equal_s": 10.0,
    "differing_s": 12.0,
    "planted": ["missing: partition 1, offset 7"],
    "named": ["missing: partition 1, offset 7"],
    "report": ["orders_audit: 1 of 4 hours DIFFER", "", "missing: partition 1, offset 7"],
}


def test_an_audit_must_name_what_was_planted_and_nothing_else() -> None:
    assert results.summary("audit", AUDIT)[-1].endswith("named: met")
    for wrong in ([], ["missing: partition 1, offset 8"], [*AUDIT["named"], "doubled: partition 0, offset 1"]):
        assert results.summary("audit", {**AUDIT, "named": wrong})[-1].endswith("named: **missed**")


def test_a_chart_stands_beside_the_page_and_not_in_the_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "FILE", tmp_path / "spark.json")
    monkeypatch.setattr(results, "PAGE", tmp_path / "spark.md")
    monkeypatch.setattr(results, "CHART", tmp_path / "spark-audit.svg")
    results.record("audit", {**AUDIT, "chart": "<svg></svg>"})
    assert (tmp_path / "spark-audit.svg").read_text() == "<svg></svg>"
    assert "svg" not in (tmp_path / "spark.json").read_text()
    assert "(spark-audit.svg)" in (tmp_path / "spark.md").read_text()
