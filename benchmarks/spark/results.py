"""Keeps the recorded figures in docs/results/spark.json and generates spark.md from them alone."""

import datetime
import importlib.metadata
import json
import shlex
import sys
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any

from benchmarks.side_by_side.results import FOLDER, CannotRecord, rounded
from harness import machine

FILE = FOLDER / "spark.json"
PAGE = FOLDER / "spark.md"
CHART = FOLDER / "spark-audit.svg"
VERSIONS = ("pyspark", "pyarrow", "numba")
NAMES = {"penstock": 'format("penstock")', "kafka": "Spark's Kafka connector", "bare": "bare engine"}

Found = dict[str, Any]

METHOD = """\
# The Spark source beside Spark's Kafka connector

Both sources read the same topic of one Penstock node, in one session, in turn; broker, JVM and Python workers share one
machine. Shown is the median of all rounds, and behind it the least and the most; a first round of each warms up and
does not count. *Bare engine* is a Python data source that yields ready-made Arrow batches of the same columns: what
Spark takes from Python at most. Figures of a single host say nothing about a cluster's.
"""


def check_recordable(scale: float) -> None:
    """Raises CannotRecord for uncommitted code or a scaled run; called before the measurement."""
    if machine.commit().endswith("+"):
        raise CannotRecord("src, benchmarks or pyproject.toml differ from the last commit: commit them, then record")
    if scale != 1.0:
        raise CannotRecord("only whole runs are recorded: leave out --scale")


def record(name: str, found: Found) -> None:
    """Records a row in place of its earlier figures, and writes the page; a chart has a file of its own."""
    if "chart" in found:
        CHART.write_text(found["chart"])
        found = {key: value for key, value in found.items() if key != "chart"}
    rows = json.loads(FILE.read_text())["rows"] if FILE.exists() else {}
    versions = {each: importlib.metadata.version(each) for each in VERSIONS}
    rows[name] = {
        **rounded(found),
        "measured": {
            "date": datetime.date.today().isoformat(),
            "commit": machine.commit(),
            "command": "python -m benchmarks.spark " + shlex.join(sys.argv[1:]),
            "machine": machine.describe() | versions,
        },
    }
    FILE.write_text(json.dumps({"rows": rows}, indent=1, ensure_ascii=False) + "\n")
    PAGE.write_text(page(rows))


def page(rows: dict[str, Found]) -> str:
    """The whole text of spark.md."""
    known = [name for name in TABLES if name in rows]
    parts = [[*summary(name, rows[name]), "", *_measured(rows[name]["measured"]), ""] for name in known]
    return "\n".join([METHOD, *("\n".join(part) for part in parts)])


def summary(name: str, found: Found) -> list[str]:
    """A row as a heading, a table and the goals."""
    return list(TABLES[name](found))


def _measured(about: Found) -> Iterator[str]:
    shape = about["machine"]
    versions = ", ".join(f"{each} {shape[each]}" for each in VERSIONS)
    yield f"`{about['command']}`, {about['date']}, commit {about['commit']},"
    yield f"{shape['cores']} shared cores ({shape['processor']}), {shape['memory_gib']} GiB, {shape['kernel']},"
    yield f"Python {shape['python']}, {shape['java']}, {versions}."


def _spread(values: Sequence[float], digits: int) -> str:
    if not values:
        return "–"
    return f"{median(values):.{digits}f} ({min(values):.{digits}f}–{max(values):.{digits}f})"


def _goal(text: str, is_met: bool) -> str:
    return f"- {text}: {'met' if is_met else '**missed**'}"


def _reading(found: Found) -> Iterator[str]:
    count, seconds = found["records"], found["seconds"]
    yield f"## Reading {count:,} records of {found['value_bytes']} bytes, eight columns, two cores"
    yield ""
    yield "| | s | M records/s |"
    yield "|---|--:|--:|"
    for form, each in seconds.items():
        yield f"| {NAMES[form]} | {_spread(each, 2)} | {_spread([count / took / 1e6 for took in each], 2)} |"
    yield ""
    beside = median(seconds["kafka"]) / median(seconds["penstock"])
    share = median(seconds["bare"]) / median(seconds["penstock"])
    yield _goal(f"{beside:.2f} × the connector, goal ≥ 1.5", beside >= 1.5)
    yield _goal(f"{share:.2f} × the bare engine, goal ≥ 0.7", share >= 0.7)


def _micro_batches(found: Found) -> Iterator[str]:
    yield f"## Micro-batches over {found['partitions']:,} partitions"
    yield ""
    yield f"| ms a trigger | {found['few']} records in all | a record in each partition |"
    yield "|---|--:|--:|"
    for form, each in found["few_ms"].items():
        yield f"| {NAMES[form]} | {_spread(each, 0)} | {_spread(found['one_each_ms'][form], 0)} |"
    yield ""
    yield "One after the other, each with a topic of its own. The connector makes a task of each partition with news,"
    yield "of some half a second each: with news in all of them, a trigger was not over after four minutes."
    yield ""
    longest = max(*found["few_ms"]["penstock"], *found["one_each_ms"]["penstock"])
    yield _goal(f"the slowest of them took {longest / 1000:.2f} s, goal ≤ 2 s", longest <= 2000)


def _splits(found: Found) -> Iterator[str]:
    yield f"## Planning {found['splits']:,} splits"
    yield ""
    yield "| | s |"
    yield "|---|--:|"
    for form, each in found["seconds"].items():
        yield f"| {NAMES[form]} | {_spread(each, 2)} |"
    yield ""
    longest = max(found["seconds"]["penstock"])
    yield _goal(f"the slowest took {longest:.2f} s, goal ≤ 5 s", longest <= 5)


def _memory(found: Found) -> Iterator[str]:
    yield f"## Memory of an executor that reads {found['bytes'] / 1e9:.0f} GB"
    yield ""
    yield (
        f"{found['records']:,} records of text, zstd, half of them in one of five partitions,\n"
        f"in {found['tasks']} tasks, two at a time, in one executor of a standalone cluster with\n"
        "Spark's default heap of 1 GB. Resident memory of JVM, Python's daemon and workers together, looked at\n"
        "ten times a second; "
        f"{found['bytes'] / found['seconds'] / 1e6:.0f} MB/s of values ({found['seconds']:.0f} s)."
    )
    yield ""
    parts = ", ".join(f"{name.split()[0]} {size:.0f}" for name, size in found["peak_parts_mb"].items())
    yield _goal(f"at most {found['peak_mb']:.0f} MB ({parts}), goal ≤ 2,000 MB", found["peak_mb"] <= 2000)


def _audit(found: Found) -> Iterator[str]:
    yield f"## An audit of {found['rows']:,} rows"
    yield ""
    yield (
        f"Orders in JSON, {found['partitions']} partitions, {found['days']} days, from the topic to the table and\n"
        "held against each other, by commands that start Spark each time. Then one row of the table is taken away,\n"
        "one added again, and one changed by a cent."
    )
    yield ""
    yield "| `penstock spark run … --once` | s | thousand rows/s |"
    yield "|---|--:|--:|"
    for what, key in (("the lake", "lake_s"), ("an audit, all equal", "equal_s"), ("three differ", "differing_s")):
        yield f"| {what} | {found[key]:.1f} | {found['rows'] / found[key] / 1000:,.0f} |"
    yield ""
    yield "The last one says, on the terminal and as a [chart](spark-audit.svg):"
    yield ""
    yield from ("```", *found["report"], "```")
    yield ""
    yield _goal("exactly what was planted is named", found["named"] == found["planted"])


TABLES = {
    "read": _reading,
    "micro-batches": _micro_batches,
    "splits": _splits,
    "memory": _memory,
    "audit": _audit,
}
