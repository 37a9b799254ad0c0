"""Results of lake benchmarks: missed goals are shown, sums add up, pages hold only recorded figures."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from benchmarks.lake import results
from tests.spark.lake import kill_results
from tests.spark.lake.campaign import KINDS, Outcome

MACHINE = {
    "cores": 2,
    "processor": "some",
    "memory_gib": 24,
    "kernel": "Linux 6",
    "python": "3.11",
    "java": "openjdk 17",
    "pyspark": "4.2.0",
    "pyarrow": "26",
    "deltalake": "1.6.6",
    "numba": "0.68",
}
LAKE: dict[str, Any] = {
    "records": 1_000_000,
    "value_bytes": 100,
    "partitions": 4,
    "seconds": {"penstock": [1.0, 2.5, 9.0], "connector": [5.0, 5.0, 1.0]},
    "files": {name: {"count": 4, "bytes": 10**8} for name in ("penstock", "connector")},
}


def test_a_goal_that_is_missed_is_called_so() -> None:
    found = list(results.tables(LAKE))
    assert "- 0.40 million rows/s, goal ≥ 0.5: **missed**" in found
    assert "- 2.00 × connector and delta-spark" in found
    faster = {**LAKE, "seconds": {**LAKE["seconds"], "penstock": [2.0]}}
    assert "- 0.50 million rows/s, goal ≥ 0.5: met" in list(results.tables(faster))


def run(seed: int, kills: int) -> dict[str, Any]:
    about = {"seconds": 9, "date": "2026-01-01", "revision": "abc", "seed": seed, "command": f"run {seed}"}
    return {**dict.fromkeys(kill_results.SUMS, kills), **about, "machine": MACHINE}


def test_kills_are_added_up() -> None:
    page = kill_results.page([run(1, 700), run(2, 600)])
    assert "| **1,300** | **1,300** |" in page
    assert "2. `run 2`" in page


def test_an_outcome_is_kept_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kill_results, "FOLDER", tmp_path)
    kills = dict.fromkeys(KINDS, 1)
    outcome = Outcome(kills, rows=9, bad=1, batches=3, restarts=0, orphans=2, seconds=7.4)
    kill_results.write([kill_results.run_of(asdict(outcome), seed=5)])
    (found,) = kill_results.load()
    assert [found[name] for name in (*KINDS, "rows", "orphans", "seconds", "seed")] == [1] * 6 + [9, 2, 7, 5]
    assert "| 9 | 1 | 3 | 0 | 2 | 7 |" in (tmp_path / kill_results.PAGE).read_text()


@pytest.mark.skipif(not results.FILE.exists(), reason="nothing is recorded yet")
def test_the_recorded_page_is_made_of_the_recorded_figures_alone() -> None:
    found = json.loads(results.FILE.read_text())
    assert results.PAGE.read_text() == results.page(found), "a figure was changed by hand"
    assert not found["measured"]["commit"].endswith("+")


def test_the_recorded_page_of_kills_is_made_of_the_recorded_runs_alone() -> None:
    runs = kill_results.load()
    assert (kill_results.FOLDER / kill_results.PAGE).read_text() == kill_results.page(runs), "changed by hand"
    assert not any(each["revision"].endswith("+") for each in runs)
