"""A brief run of the benchmark from end to end: a real node, three of them, and the bare limit, no Java."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.side_by_side import against, report, results
from benchmarks.side_by_side.brokers import Penstock
from benchmarks.side_by_side.loads import Conditions, Everyday, Figures, Latency, Work, WrongCount
from benchmarks.side_by_side.replicated import Replicated, ReplicatedPaced
from benchmarks.side_by_side.rows import ROWS, Row
from benchmarks.side_by_side.running import Plan, run_rows
from harness.machine import divided_cores
from harness.raw_client import Topic

SECONDS = 1.0
PLAN = Plan(Conditions(divided_cores(), SECONDS, 0.1), 2, 0.0, ("penstock", "bare"))


def told(_row: str, _contender: str, _number: int, found: Figures) -> None:
    assert found["mb_s"] > 0


def test_writing_reading_and_keeping_a_pace() -> None:
    latency = replace(ROWS["latency"], work=lambda: _slow(ROWS["latency"]))
    everyday = Row(
        "everyday-raw", "", lambda: Everyday(4, 8, record_bytes=1000, codec="lz4", values="json"), ("penstock",)
    )
    chosen = [ROWS["produce-1"], ROWS["small-16"], ROWS["consume-1"], latency, everyday]
    measured = {name: row for name, row, _ in run_rows(chosen, PLAN, told)}
    assert list(measured) == ["produce-1", "small-16", "consume-1", "latency", "everyday-raw"]
    for row in measured.values():
        assert {who: len(rounds) for who, rounds in row["rounds"].items()}["penstock"] == 2
    assert measured["latency"]["rounds"]["penstock"][0]["end_to_end_ms"]["p50"] > 0
    assert measured["everyday-raw"]["rounds"]["penstock"][0]["out_mb_s"] > 0
    text = report.page(results.merged({}, measured, PLAN))
    assert "| Penstock, defaults (syncs every ack) |" in text
    assert "| bare loop |" in text


def test_two_revisions_take_turns(tmp_path: Path) -> None:
    sources = against.export("HEAD", tmp_path / "sources")
    cpus = PLAN.conditions.cores.broker
    conditions = replace(PLAN.conditions, seconds=1.0)
    with Penstock(tmp_path / "before", cpus, sources=sources) as old, Penstock(tmp_path / "after", cpus) as new:
        assert str(sources) in Path(f"/proc/{old.pid}/environ").read_text()
        pairs = against.compare(ROWS["small-16"], "penstock", (old, new), conditions, 2)
    assert len(pairs) == 2
    ratio = against.Ratio.of(pairs, against.CPU)
    assert ratio is not None
    assert 0.1 < ratio.middle < 10


def test_a_ratio_is_after_divided_by_before() -> None:
    pairs = [({"x": {"p50": 2.0}}, {"x": {"p50": each}}) for each in (1.0, 2.0, 6.0)]
    assert against.Ratio.of(pairs, "x", "p50") == against.Ratio(1.0, 0.5, 3.0)
    assert against.Ratio.of(pairs, "y") is None


def _slow(row: Row) -> Work:
    work = row.work()
    assert isinstance(work, Latency)
    work.rate = 200.0
    return work


@pytest.mark.xdist_group("cluster")
def test_three_brokers_share_a_load(tmp_path: Path) -> None:
    paced = replace(ROWS["replicated-paced"], work=lambda: ReplicatedPaced(1, 1, batch_bytes=1000, rate=100.0))
    conditions = replace(PLAN.conditions, seconds=3.0, lead_s=1.0)
    plan = replace(PLAN, conditions=conditions, rounds=1, only=("penstock-3",), data=tmp_path)
    seen: list[Figures] = []
    chosen = [replace(ROWS["replicated"], work=lambda: Replicated(1, 1)), paced]
    for _ in run_rows(chosen, plan, lambda _row, _who, _number, found: seen.append(found)):
        pass
    written, kept_pace = seen
    assert written["mb_s"] > 0
    assert written["rss_end_mb"] > 3 * 20  # counts all three
    assert kept_pace["requests_s"] == pytest.approx(100.0, rel=0.2)
    assert kept_pace["ack_ms"]["p50"] > 0


def test_a_broker_that_loses_a_record_gets_no_figure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Planted: the log is one record short of what was acknowledged."""
    honest = Penstock.end

    def one_less(self: Penstock, topic: Topic, partitions: int) -> int:
        return honest(self, topic, partitions) - 1

    monkeypatch.setattr(Penstock, "end", one_less)
    plan = replace(PLAN, rounds=1, only=("penstock",), data=tmp_path)
    with pytest.raises(WrongCount, match="penstock acknowledged"):
        list(run_rows([ROWS["produce-1"]], plan, told))


def test_a_row_is_kept_for_each_earlier_revision(tmp_path: Path) -> None:
    kept = {
        f"small-16/penstock/{before}": {
            "before": before,
            "after": "ccc",
            "date": "2026-01-01",
            "machine": {"cores": 2},
            "command": "",
            "pairs": [[{against.CPU: 2.0}, {against.CPU: after}]],
        }
        for before, after in (("aaa", 1.0), ("bbb", 4.0))
    }
    against.write_page(tmp_path, kept)
    rows = [line.split(" | ") for line in (tmp_path / against.PAGE).read_text().splitlines() if "small-16" in line]
    assert [(row[2].split()[0], row[7]) for row in rows] == [("0.500", "aaa"), ("2.000", "bbb")]
