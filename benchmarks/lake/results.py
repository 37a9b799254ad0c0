"""Keeps the recorded figures in docs/results/lake.json and generates lake.md from them alone."""

import datetime
import importlib.metadata
import json
import shlex
import sys
from collections.abc import Iterator
from statistics import median
from typing import Any

from benchmarks.side_by_side.results import FOLDER, CannotRecord, rounded
from harness import machine

FILE = FOLDER / "lake.json"
PAGE = FOLDER / "lake.md"
VERSIONS = ("pyspark", "pyarrow", "deltalake", "numba")
NAMES = {"penstock": "`kind: lake`", "connector": "Kafka connector + delta-spark 4.4.0"}
GOAL = 500_000

METHOD = """\
# Lakes

A topic of one Penstock node becomes a Delta table, all eight columns of it, partitioned by day: by our lake, and by
Spark's Kafka connector with delta-spark, in one session and in turn, each into a new table. Broker, JVM and Python
workers share one machine; figures of a single host say nothing about a cluster's. Seconds are from the start of the
query to its end, with everything committed; a first round of each warms up and does not count.
"""


def check_recordable() -> None:
    """Raises CannotRecord if the code is not committed; called before the measurement."""
    if machine.commit().endswith("+"):
        raise CannotRecord("src, benchmarks or pyproject.toml differ from the last commit: commit them, then record")


def record(found: dict[str, Any]) -> None:
    """Records the figures in place of earlier ones."""
    versions = {each: importlib.metadata.version(each) for each in VERSIONS}
    measured = {
        "date": datetime.date.today().isoformat(),
        "commit": machine.commit(),
        "command": "python -m benchmarks.lake " + shlex.join(sys.argv[1:]),
        "machine": machine.describe() | versions,
    }
    kept = {**rounded(found), "measured": measured}
    FILE.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
    PAGE.write_text(page(kept))


def page(kept: dict[str, Any]) -> str:
    """The whole text of lake.md."""
    about = kept["measured"]
    shape = about["machine"]
    versions = ", ".join(f"{each} {shape[each]}" for each in VERSIONS)
    foot = [
        f"`{about['command']}`, {about['date']}, commit {about['commit']},",
        f"{shape['cores']} shared cores ({shape['processor']}), {shape['memory_gib']} GiB, {shape['kernel']},",
        f"Python {shape['python']}, {shape['java']}, {versions}.",
    ]
    return "\n".join([METHOD, *tables(kept), "", *foot, ""])


def tables(found: dict[str, Any]) -> Iterator[str]:
    """The table of figures, and the comparison with the goal."""
    count = found["records"]
    yield f"## {count:,} records of {found['value_bytes']} bytes, {found['partitions']} partitions, two cores"
    yield ""
    yield "| | s | M rows/s | files | MB |"
    yield "|---|--:|--:|--:|--:|"
    for name, each in found["seconds"].items():
        files = found["files"][name]
        rate = f"{count / median(each) / 1e6:.2f} ({count / max(each) / 1e6:.2f}–{count / min(each) / 1e6:.2f})"
        spread = f"{median(each):.1f} ({min(each):.1f}–{max(each):.1f})"
        yield f"| {NAMES[name]} | {spread} | {rate} | {files['count']} | {files['bytes'] / 1e6:.0f} |"
    yield ""
    rate = count / median(found["seconds"]["penstock"])
    beside = median(found["seconds"]["connector"]) / median(found["seconds"]["penstock"])
    yield f"- {rate / 1e6:.2f} million rows/s, goal ≥ 0.5: {'met' if rate >= GOAL else '**missed**'}"
    yield f"- {beside:.2f} × connector and delta-spark"
