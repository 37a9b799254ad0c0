"""Worlds of a whole node by seed: replay one, run many, record the results.

    python -m tests.simulation.one_server 42                      prints the world of seed 42, line by line
    python -m tests.simulation.one_server 42 --trace              every event of it
    python -m tests.simulation.one_server 0 10000                 many worlds; a line for each that fails
    python -m tests.simulation.one_server 0 10000 --record        the same, added to docs/results/node-simulation.md

The exit code is 0 if all invariants held. Add a seed that failed to tests/simulation/kit/regressions.txt.
"""

import argparse
import datetime
import json
import platform
import sys
import traceback
from collections import Counter
from time import process_time
from typing import Any

from tests.revision import revision
from tests.simulation.kit.results import RESULTS
from tests.simulation.one_server.world import Run, run_seed

SHOWN = ("power cut", "kill", "clean stop", "disk error", "full disk", "partition", "clog", "reset", "pause", "clock")


def replay(seed: int, *, has_trace: bool) -> int:
    """Prints the story of one seed."""
    timeline: list[str] = []
    rows: list[str] = []
    try:
        run = run_seed(seed, timeline=timeline, trace=rows if has_trace else None)
    except Exception as error:
        print("\n".join(rows or timeline))
        traceback.print_exc()
        print(f"seed {seed}: {root_of(error)}", file=sys.stderr)
        return 1
    print("\n".join(rows or timeline))
    print(f"seed {seed}: {run.acknowledged} records acknowledged, {run.read} read, {run.crashes} crashes, nothing lost")
    return 0


def run_many(first: int, end: int) -> tuple[Counter[str], list[int]]:
    """Runs the seeds; returns the summed measures and the seeds that failed."""
    totals: Counter[str] = Counter()
    failed: list[int] = []
    began_s = process_time()
    for seed in range(first, end):
        try:
            totals.update(measures(run_seed(seed)))
        except Exception as error:
            failed.append(seed)
            print(f"FAILED: seed {seed}: {root_of(error)}", file=sys.stderr, flush=True)
        if (seed - first) % 100 == 99:
            spent_s = (process_time() - began_s) / (seed - first + 1)
            print(f"{seed - first + 1} of {end - first}, {len(failed)} failed, {spent_s:.2f} s each", flush=True)
    totals["cpu_s"] = round(process_time() - began_s)
    return totals, failed


def measures(run: Run) -> dict[str, int]:
    """The measures of a run that are summed up."""
    return {
        **run.counts,
        "seeds": 1,
        "virtual_s": round(run.virtual_s),
        "acknowledged": run.acknowledged,
        "read": run.read,
        "crashes": run.crashes,
        "events": run.events,
    }


def root_of(error: BaseException) -> str:
    """The root cause, which is the most informative."""
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {error}"


# --- results ----------------------------------------------------------------------------------------------------------


def record(first: int, end: int, totals: Counter[str], failed: list[int]) -> None:
    """Adds a slice of seeds to the results."""
    path = RESULTS / "node-simulation.json"
    slices: list[dict[str, Any]] = json.loads(path.read_text()) if path.exists() else []
    slices.append(
        {
            "first": first,
            "end": end,
            "failed": failed,
            "totals": dict(sorted(totals.items())),
            "date": datetime.date.today().isoformat(),
            "revision": revision(),
        }
    )
    path.write_text(json.dumps(slices, indent=1) + "\n")
    (RESULTS / "node-simulation.md").write_text(page(slices))


def page(slices: list[dict[str, Any]]) -> str:
    """The results page."""
    rows = []
    for each in slices:
        totals = each["totals"]
        rows.append(
            f"| {each['first']:,} – {each['end'] - 1:,} | {totals['acknowledged']:,} | {totals['read']:,} "
            f"| {totals.get('power cut', 0):,} | {totals.get('kill', 0):,} | {len(each['failed'])} "
            f"| {each['date']} | {each['revision']} |"
        )
    every = Counter[str]()
    for each in slices:
        every.update(each["totals"])
    failures = sum(len(each["failed"]) for each in slices)
    faults = ", ".join(f"{every[kind]:,} × {kind}" for kind in SHOWN if every[kind])
    return f"""# A whole node in the simulator

One real node (`penstock.server.node.Node`) on a lossy disk in `fsync` mode, and four to seven real clients, on virtual
time: idempotent producers with several batches in flight, producers with acks=1 and acks=0, readers by assignment and
through fetch sessions, and somebody who makes, grows and deletes topics. Then everything goes wrong that the seed says
(`tests/simulation/one_server/faults.py`). What must hold: nothing acknowledged is lost, doubled or out of order,
offsets never go back, all topics are as they were left, and when the faults end everything works again at once.

| Seeds | Records acknowledged | Read | Power cuts | Kills | Failed | Date | Revision |
|---|--:|--:|--:|--:|--:|---|---|
{chr(10).join(rows)}

Together: {every["seeds"]:,} worlds, {every["virtual_s"] / 3600:,.1f} virtual hours, {every["acknowledged"]:,} records
acknowledged, {every["crashes"]:,} crashes, {failures} failed; {faults}.
{1000 * every["cpu_s"] / max(1, every["seeds"]):.0f} ms of one core per world, Python {platform.python_version()}.
No failure in n worlds means, at 95 %, fewer than 3 in n.

`./dev simulate node FIRST END` adds to this table; `python -m tests.simulation.one_server SEED` replays a world.
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("first", type=int)
    parser.add_argument("end", type=int, nargs="?")
    parser.add_argument("--trace", action="store_true")
    parser.add_argument("--record", action="store_true")
    arguments = parser.parse_args()
    if arguments.end is None:
        return replay(arguments.first, has_trace=arguments.trace)
    totals, failed = run_many(arguments.first, arguments.end)
    print(f"{totals['seeds']} worlds kept their promises, {len(failed)} did not: {failed or 'none'}; {dict(totals)}")
    if arguments.record:
        record(arguments.first, arguments.end, totals, failed)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
