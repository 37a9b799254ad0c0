"""Keeps the recorded figures in docs/results/groups.json, row by row, and generates groups.md from them alone."""

import datetime
import json
import shlex
import sys
from collections.abc import Iterator
from statistics import median
from typing import Any, Final

from benchmarks.side_by_side.results import FOLDER, CannotRecord, rounded
from harness import machine

FILE: Final = FOLDER / "groups.json"
PAGE: Final = FOLDER / "groups.md"
NAMES: Final = {"penstock": "Penstock", "kafka": "Apache Kafka", "penstock-replicated": "Penstock, page cache"}

METHOD: Final = """\
# Groups

Brokers have one of two cores, the load has the other. Where Apache Kafka is beside, both run at the same time and are
measured in turn by the same script; each figure is the median of the rounds, with the least and the most.
"""

TITLES: Final = {
    "commits": """## Commits

10,000 groups of ten partitions on one coordinator, which syncs what it acknowledges; Kafka does not, and neither does
Penstock in the rows *page cache* (`log.durability=replicated`). A request commits the ten partitions of one group,
without members; 16 connections.
""",
    "reload": """## A coordinator is lost

Three nodes, three replicas; a million commits lie in one partition of `__consumer_offsets`, none of them compacted. The
coordinator is killed (SIGKILL). *Found*: another one is named; *known*: it answers with the offsets.
""",
    "stable": """## Coming together

100 librdkafka consumers of 200 partitions in one process join at once (`group.initial.rebalance.delay.ms` is 3000 on
both, Kafka's default; the new protocol has none). Then one more joins, while every partition is given ten records
a second. *Wait*: the longest time that a record of any partition has lain in the log until it was read; *stayed* are
those that did not change hands. That classic members wait up to a second where nothing moved, on both brokers, comes
with a hundred of them in one process: with six (`--members 6`) it was 115 ms on Penstock and 44 ms on Apache Kafka.
""",
    "scaling": """## Scaling

A handler waits 5 ms for each record; 16 partitions; members are librdkafka consumers of the new protocol in
one process. A member alone could do 200 records a second if it did nothing else.
""",
    "perf": """## kafka-consumer-perf-test

Kafka's own tool reads two million records of 100 bytes from four partitions with a new group, which waits for nobody
else (`group.initial.rebalance.delay.ms` is 0 on both); a first round warms up.
""",
}

COLUMNS: Final = {
    "commits": {"offsets_s": "offsets/s", "requests_s": "requests/s", "p50_ms": "p50 ms", "p99_ms": "p99 ms"},
    "reload": {"commits": "commits", "found_s": "found s", "known_s": "known s", "load_s": "of that, loading s"},
    "stable": {
        "together_s": "together s",
        "again_s": "again, with one more, s",
        "moved": "moved",
        "taken_though_they_stay": "taken and given back",
        "quiet_wait_ms": "wait before, ms",
        "stayed_wait_ms": "wait where it stayed, ms",
        "moved_wait_ms": "wait where it moved, ms",
    },
    "scaling": {"records_s": "records/s"},
    "perf": {"mb_s": "MB/s", "records_s": "records/s", "rebalance_ms": "rebalance ms"},
}


def check_recordable() -> None:
    """Raises CannotRecord if the code is not committed; called before the measurement."""
    if machine.commit().endswith("+"):
        raise CannotRecord("src, benchmarks or pyproject.toml differ from the last commit: commit them, then record")


def load() -> dict[str, Any]:
    """The recorded figures."""
    kept: dict[str, Any] = json.loads(FILE.read_text()) if FILE.exists() else {}
    return kept


def record(row: str, found: dict[str, Any], versions: dict[str, str]) -> None:
    """Records the figures of a row in place of its earlier ones."""
    measured = {
        "date": datetime.date.today().isoformat(),
        "commit": machine.commit(),
        "command": "python -m benchmarks.groups " + shlex.join(sys.argv[1:]),
        "machine": machine.describe(),
        "versions": versions,
    }
    kept = {**load(), row: {"found": rounded(found), "measured": measured}}
    FILE.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
    PAGE.write_text(page(kept))


def page(kept: dict[str, Any]) -> str:
    """The whole text of groups.md."""
    return "\n".join([METHOD, *(line for row in TITLES if row in kept for line in _section(row, kept[row]))])


def _section(row: str, kept: dict[str, Any]) -> Iterator[str]:
    columns = COLUMNS[row]
    yield TITLES[row]
    yield f"| | | {' | '.join(columns.values())} |"
    yield f"|---|---|{'--:|' * len(columns)}"
    for what, contenders in kept["found"].items():
        for name, rounds in contenders.items():
            yield f"| {what} | {NAMES[name]} | {' | '.join(_cell(rounds, key) for key in columns)} |"
    about = kept["measured"]
    shape = about["machine"]
    versions = ", ".join(about["versions"].values())
    yield ""
    yield f"`{about['command']}`, {about['date']}, commit {about['commit']}, {shape['cores']} shared cores,"
    yield f"{shape['memory_gib']} GiB, {shape['kernel']}, Python {shape['python']}, {versions}."
    yield ""


def _cell(rounds: list[dict[str, Any]], key: str) -> str:
    values = [each[key] for each in rounds if each.get(key) is not None]
    if not values:
        return "–"
    middle = median(values)
    form = ",.0f" if max(values) >= 100 or all(float(each).is_integer() for each in values) else ".2f"
    if min(values) == max(values):
        return f"{middle:{form}}"
    return f"{middle:{form}} ({min(values):{form}}–{max(values):{form}})"
