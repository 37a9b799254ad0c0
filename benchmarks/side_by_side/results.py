"""The recorded figures: all rounds of all rows in docs/results/side-by-side.json, and summaries of rounds.

A run replaces the rows that it has measured and leaves the others, so that a long run can be split. Each row records
the date, commit, machine and command of its measurement.
"""

import datetime
import importlib.util
import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from benchmarks.side_by_side.loads import Figures
from benchmarks.side_by_side.running import Plan
from harness import machine
from harness.machine import ROOT

FOLDER = ROOT / "docs" / "results"
FILE = "side-by-side.json"
ROUNDING = 5
NOISY_CORES = 0.1
"""CPU use of other processes above which a row is called noisy."""

Rows = dict[str, dict[str, Any]]


class CannotRecord(Exception):
    """These figures must not be recorded; the text is the reason."""


class Spread(NamedTuple):
    """A figure over several rounds."""

    middle: float
    least: float
    most: float


def spread(rounds: Sequence[Figures], key: str, share: str | None = None) -> Spread | None:
    """Median, least and most of a figure; None if it was not measured."""
    found = []
    for each in rounds:
        value = each.get(key)
        if share is not None and value is not None:
            value = value.get(share)
        if value is not None:
            found.append(float(value))
    return Spread(median(found), min(found), max(found)) if found else None


def is_noisy(rounds: Sequence[Figures]) -> bool:
    """Whether other processes used much CPU meanwhile."""
    used = spread(rounds, "others_cpu")
    return used is not None and used.middle > NOISY_CORES


def load(folder: Path = FOLDER) -> Rows:
    """The rows recorded so far."""
    path = folder / FILE
    rows: Rows = json.loads(path.read_text())["rows"] if path.exists() else {}
    return rows


def check_recordable(plan: Plan) -> None:
    """Raises CannotRecord if the figures could not be recorded; called before the measurement."""
    if machine.commit().endswith("+"):
        raise CannotRecord("src, benchmarks or pyproject.toml differ from the last commit: commit them, then record")
    if importlib.util.find_spec("matplotlib") is None:
        raise CannotRecord("there is no matplotlib to draw with: `pip install --group bench`")
    if plan.profile is not None:
        raise CannotRecord("a profiled run is slower than others: leave out --py-spy, or --record")


def merged(before: Rows, measured: Mapping[str, Mapping[str, Any]], plan: Plan) -> Rows:
    """The earlier rows, with those of this run replaced."""
    about = {
        "date": datetime.date.today().isoformat(),
        "commit": machine.commit(),
        "command": "python -m benchmarks.side_by_side " + shlex.join(sys.argv[1:]),
        "machine": machine.describe(),
        "broker_cpus": list(plan.conditions.cores.broker),
        "load_cpus": list(plan.conditions.cores.load),
        "seconds": plan.conditions.seconds,
        "warm_s": plan.warm_s,
    }
    rows = dict(before)
    for name, row in measured.items():
        rounds = {who: [rounded(each) for each in found] for who, found in row["rounds"].items()}
        rows[name] = {**row, "rounds": rounds, "measured": about}
    return rows


def rounded(found: Any) -> Any:
    """Rounds floats to five significant digits; more would be false precision."""
    if isinstance(found, dict):
        return {key: rounded(value) for key, value in found.items()}
    return float(f"{found:.{ROUNDING}g}") if isinstance(found, float) else found


def save(rows: Rows, folder: Path = FOLDER) -> None:
    """Writes the file."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FILE).write_text(json.dumps({"rows": rows}, indent=1, ensure_ascii=False) + "\n")
