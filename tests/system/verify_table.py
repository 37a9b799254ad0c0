"""The same `penstock verify` on Penstock, on Apache Kafka and on Penstock with a bug, in one table.

    python -m tests.system.verify_table --clusters penstock,kafka,planted --kills 2 --seconds 90 --record

Three nodes each, which are killed and restarted while the command runs (`verify_runs`). `--record` writes
docs/results/verify.md; a run of one cluster replaces that cluster's row, so that the table can be made in pieces. A run
with fewer kills than requested is not recorded, unless its verdict is unexpected. The bug proves that the command can
fail: without a row in which it does, the others would prove nothing.
"""

import argparse
import datetime
import json
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from harness import machine
from tests.revision import revision
from tests.system.density import say
from tests.system.plants import PLANTS
from tests.system.quorum_kills import RESULTS
from tests.system.verify_runs import KafkaNodes, Mortals, Outcome, PenstockNodes, run

PLANT: Final = "commit-alone"
EXPECTED: Final = {"penstock": 0, "kafka": 0, "planted": 1}
"""Exit codes by cluster, in the order of the table."""
HEAD: Final = (
    "| Cluster | Verdict | Exit code | Rules kept | Rules broken | Acknowledged | Read | Longest wait for an answer, s "
    "| Kills | Command | Date | Revision |"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clusters", default=",".join(EXPECTED), help="which of penstock, kafka and planted")
    parser.add_argument("--kills", type=int, default=2, help="while the command writes")
    parser.add_argument("--seconds", type=float, default=90.0, help="that the command writes")
    parser.add_argument("--plant", choices=sorted(PLANTS), default=PLANT, help="the bug of the planted nodes")
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    names = options.clusters.split(",")
    if unknown := set(names) - set(EXPECTED):
        parser.error(f"--clusters {','.join(sorted(unknown))}: there are {', '.join(EXPECTED)}")
    makers: dict[str, Callable[[Path], Mortals]] = {
        "penstock": PenstockNodes,
        "kafka": KafkaNodes,
        "planted": lambda directory: PenstockNodes(directory, options.plant),
    }
    wrong = []
    for name in names:
        say(f"{name}: three nodes start")
        with (
            tempfile.TemporaryDirectory(prefix="penstock-verify-table-") as temporary,
            makers[name](Path(temporary)) as nodes,
        ):
            outcome = run(nodes, Path(temporary), options.seconds, options.kills, say=say)
        row = row_of(outcome, options.plant if name == "planted" else None)
        say(cells(row))
        is_expected = outcome.exit_code == EXPECTED[name]
        is_short = len(outcome.struck) < options.kills
        if not is_expected:
            wrong.append(f"{name} ended with {outcome.exit_code}, not {EXPECTED[name]}")
        if is_short:
            wrong.append(f"{name} had {len(outcome.struck)} kills of {options.kills}: give it more --seconds")
        if options.record and not (is_expected and is_short):
            write({**load(), name: row})
    if wrong:
        raise SystemExit("; ".join(wrong))


# --- results ----------------------------------------------------------------------------------------------------------


def row_of(outcome: Outcome, plant: str | None) -> dict[str, Any]:
    """The values that the table keeps of a run."""
    said = outcome.said
    shape = machine.describe()
    return {
        "version": outcome.version,
        "bug": plant and " ".join(str(PLANTS[plant].__doc__).split()),
        "verdict": said["verdict"],
        "open_question": said["open_question"],
        "exit_code": outcome.exit_code,
        "rules": said["rules"],
        "acknowledged": said["counts"]["records_acked"],
        "read": said["counts"]["records_polled"],
        "longest_wait_s": said["run"]["longest_wait_s"],
        "kills": outcome.struck,
        "command": outcome.command,
        "client": said["run"]["client"],
        "date": datetime.date.today().isoformat(),
        "revision": revision(),
        "machine": {name: shape[name] for name in ("cores", "memory_gib", "kernel", "python", "java")},
    }


def load() -> dict[str, dict[str, Any]]:
    path = RESULTS / "verify.json"
    found: dict[str, dict[str, Any]] = json.loads(path.read_text()) if path.exists() else {}
    return found


def write(rows: Mapping[str, dict[str, Any]]) -> None:
    ordered = {name: rows[name] for name in EXPECTED if name in rows}
    (RESULTS / "verify.json").write_text(json.dumps(ordered, indent=1) + "\n")
    (RESULTS / "verify.md").write_text(page(ordered))


def page(rows: Mapping[str, dict[str, Any]]) -> str:
    """The whole text of verify.md."""
    bugs = " ".join(f"*{row['bug'].rstrip('.')}*." for row in rows.values() if row["bug"]) or "not recorded yet."
    shapes = dict.fromkeys(shape(row["machine"]) for row in rows.values())
    return f"""# The same command on Penstock, on Apache Kafka, and on a bug

[`penstock verify`](../verify.md) by one command line on three clusters of three nodes, each node a broker and a
controller in a process of its own; all on their defaults, the topic with three replicas of which two must be in sync.
Nodes are killed (SIGKILL) while it writes, and come back. Before each kill the two others stand still (SIGSTOP) for a
second, so that what arrives in it is on the victim alone: who acknowledges that loses it. The first victim leads the
most partitions, the next one is the active controller, and so on in turn; kills are spread over the time, and the next
one waits until all replicas are in sync again. The last cluster is Penstock with a planted bug, to see that the command
can fail:
{bugs}

{HEAD}
|---|---|--:|--:|---|--:|--:|--:|---|---|---|---|
{chr(10).join(map(cells, rows.values()))}

Rule by rule, with what it was held against: records, or questions.

| Rule | Kind | {" | ".join(map(title, rows.values()))} |
|---|---|{"--:|" * len(rows)}
{chr(10).join(rules(rows))}

Rules on transactions and groups had nothing to look at. A cluster that stands still is sent less, so not all have
acknowledged the same; waits say little about how fast a cluster is, since nodes, command and whatever else ran shared
the machine. By its defaults Apache Kafka waits nine seconds for a broker that is gone before others lead, Penstock asks
at once whether it still is there.

`./dev campaign verify` writes this page, `./dev campaign verify --clusters kafka` a row of it.
{" ".join(shapes)}
"""


def cells(row: Mapping[str, Any]) -> str:
    """A row of the table."""
    kept = sum(each["verdict"] == "kept" for each in row["rules"])
    broken = ", ".join(f"{each['kind']} {each['broken']:,}" for each in row["rules"] if each["broken"])
    found = (
        title(row),
        row["verdict"] if row["open_question"] is None else f"{row['verdict']}: {row['open_question']}",
        row["exit_code"],
        kept,
        broken or "–",
        f"{row['acknowledged']:,}",
        f"{row['read']:,}",
        f"{row['longest_wait_s']:.1f}",
        "; ".join(row["kills"]) or "–",
        f"`{row['command']}`",
        row["date"],
        row["revision"],
    )
    return f"| {' | '.join(map(str, found))} |"


def title(row: Mapping[str, Any]) -> str:
    return f"{row['version']} with a bug" if row["bug"] else str(row["version"])


def rules(rows: Mapping[str, dict[str, Any]]) -> list[str]:
    """Rules that some run had data to check."""
    by_kind: dict[str, dict[str, dict[str, Any]]] = {}
    for name, row in rows.items():
        for each in row["rules"]:
            by_kind.setdefault(each["kind"], {})[name] = each
    lines = []
    for kind, found in by_kind.items():
        if any(each["looked_at"] or each["broken"] for each in found.values()):
            words = [verdict(found[name]) for name in rows]
            lines.append(f"| {next(iter(found.values()))['rule']} | `{kind}` | {' | '.join(words)} |")
    return lines


def verdict(rule: Mapping[str, Any]) -> str:
    if rule["broken"]:
        return f"**broken {rule['broken']:,} ×** in {rule['looked_at']:,}"
    return f"kept in {rule['looked_at']:,}" if rule["looked_at"] else str(rule["verdict"])


def shape(about: Mapping[str, Any]) -> str:
    return (
        f"{about['cores']} shared cores, {about['memory_gib']} GiB, {about['kernel']}, Python {about['python']}, "
        f"{about['java']}."
    )


if __name__ == "__main__":
    main()
