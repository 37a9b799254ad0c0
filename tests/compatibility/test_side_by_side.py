"""A brief run of the benchmark against Apache Kafka; both sides are in the report."""

import pytest

from benchmarks.side_by_side import report, results
from benchmarks.side_by_side.loads import Clients, Conditions, Figures
from benchmarks.side_by_side.rows import ROWS, Row
from benchmarks.side_by_side.running import Plan, run_rows
from harness.machine import divided_cores

pytestmark = pytest.mark.peers


def test_both_sides_run_under_raw_load_and_real_clients() -> None:
    plan = Plan(Conditions(divided_cores(), 2.0, 0.2), 1, 0.0, ("penstock", "kafka"))
    everyday = Row(
        "everyday",
        "a short one",
        lambda: Clients(
            "rdkafka_producer", 3, 2, partitions=6, record_bytes=1000, codec="lz4", values="json", rate=1000.0
        ),
        ("penstock", "kafka"),
    )
    chosen = [ROWS["produce-1"], ROWS["consume-1"], everyday, ROWS["java"]]
    lines: list[tuple[str, str]] = []

    def told(row: str, contender: str, _number: int, found: Figures) -> None:
        lines.append((row, contender))
        assert found["mb_s"] > 0
        assert found["broker_cpu"] > 0

    measured = {name: row for name, row, _ in run_rows(chosen, plan, told)}
    assert lines == [(row.name, who) for row in chosen for who in ("penstock", "kafka")]
    assert measured["java"]["rounds"]["kafka"][0]["ack_ms"]["p50"] >= 0
    assert measured["everyday"]["rounds"]["kafka"][0]["end_to_end_ms"]["p50"] > 0
    text = report.page(results.merged({}, measured, plan))
    assert text.count("| Kafka, defaults (page cache) |") == len(chosen)
    for title, _, _ in report.COLUMNS:
        assert f"| {title} |" in text
