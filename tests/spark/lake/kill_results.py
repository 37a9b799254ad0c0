"""The recorded runs of `campaign.py` in docs/results/lake-kills.json, and the page made only from them."""

import datetime
import importlib.metadata
import json
import shlex
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from harness import machine

FOLDER = Path(__file__).parents[3] / "docs" / "results"
FILE, PAGE = "lake-kills.json", "lake-kills.md"
SUMS = ("driver", "executor", "worker", "broker", "zombie", "pause", "rows", "bad", "batches", "restarts", "orphans")
COLUMNS = (*SUMS, "seconds", "date", "revision", "seed")
ABOUT = """\
# Lakes whose parts are killed

A Spark cluster of a Master and two Workers, each a process, with speculation on; a broker on ordinary files; a writer
that never stops, every hundredth of whose records cannot be read; `penstock spark run` as a user starts it. SIGKILL
strikes while batches are being written: the **driver** (its Python, its JVM or both), an **executor**, a **Worker**,
the **broker**. A **zombie** is a driver that is stopped (SIGSTOP), whose work a second one takes over, and that is then
woken (SIGCONT): it must end by itself. A **pause** stops an executor for two seconds; a task that it has is started a
second time beside it after one.

After each run the table is compared with the topic, row for row (partition, offset, key, value, headers, timestamp,
day), and the dead letters with its bad records; then an audit must say the same. A run that finds a difference ends
red. *Restarts*: a driver that missed Master or broker for too long gave up by itself and was started again. *Orphans*
are files of tasks that were killed or came second: no commit names them. –: the first run passed all checks and then
failed to write its row, which was taken from what it had printed.

What the first tries found, before any run was recorded:

- A zombie was refused, and its process went on for ever because an audit was configured beside the lake. A run whose
  lakes have all failed ends now.
- Dead letters bore the time of their record, so that the broker's retention deleted those of old records after some
  minutes. They are dated by when they were put aside now.
- The campaign's own topic, whose times lie far back, fell to the same retention: the lake said which offsets were lost
  and stopped. The topic is kept now.
"""


def load() -> list[dict[str, Any]]:
    """All runs so far."""
    path = FOLDER / FILE
    found: list[dict[str, Any]] = json.loads(path.read_text()) if path.exists() else []
    return found


def run_of(outcome: dict[str, Any], seed: int) -> dict[str, Any]:
    """A run with its metadata."""
    versions = {each: importlib.metadata.version(each) for each in ("pyspark", "deltalake")}
    return {
        **outcome["kills"],
        **{name: value for name, value in outcome.items() if name != "kills"},
        "seconds": round(outcome["seconds"]),
        "seed": seed,
        "date": datetime.date.today().isoformat(),
        "revision": machine.commit(),
        "command": "python -m tests.spark.lake.campaign " + shlex.join(sys.argv[1:]),
        "machine": machine.describe() | versions,
    }


def write(runs: list[dict[str, Any]]) -> None:
    """Replaces the recorded runs and the page."""
    (FOLDER / FILE).write_text(json.dumps(runs, indent=1) + "\n")
    (FOLDER / PAGE).write_text(page(runs))


def page(runs: list[dict[str, Any]]) -> str:
    """The whole text of lake-kills.md."""
    lines = [[_cell(run[name]) for name in COLUMNS] for run in runs]
    sums = [f"**{sum(run[name] or 0 for run in runs):,}**" for name in (*SUMS, "seconds")]
    shape = runs[-1]["machine"]
    return "\n".join(
        [
            ABOUT,
            _line(name.capitalize() for name in COLUMNS),
            "|" + "--:|" * len(COLUMNS),
            *map(_line, lines),
            _line([*sums, "", "", ""]),
            "",
            "`./dev campaign lake-kills --drivers 5 --executors 5 --workers 3 --brokers 2` adds a row; here:",
            "",
            *(f"{run['seed']}. `{run['command']}`" for run in runs),
            "",
            f"{shape['cores']} shared cores ({shape['processor']}), {shape['memory_gib']} GiB, {shape['kernel']},",
            f"Python {shape['python']}, {shape['java']}, pyspark {shape['pyspark']}, deltalake {shape['deltalake']}; a",
            "single host, so network partitions between machines are not among what was tried.",
            "",
        ]
    )


def _cell(value: object) -> str:
    """None marks a value that a run did not keep."""
    return f"{value:,}" if isinstance(value, int) else str(value or "–")


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
