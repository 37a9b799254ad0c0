"""Worlds of raft cores by seed: replays one, runs many, adds to the results.

    python -m tests.simulation.raft 42                      what happened in the world of seed 42, message by message
    python -m tests.simulation.raft 0 10000                 many worlds; a line for each that fails
    python -m tests.simulation.raft 0 10000 --record        the same, added to docs/results/raft-simulation.md
    python -m tests.simulation.raft next 10000 --record     as many that no recorded run has taken

The exit code says whether all invariants held. A seed that failed belongs into tests/simulation/regressions.txt.
"""

import argparse
import datetime
import json
import multiprocessing
import platform
import sys
import traceback
from collections import Counter
from time import monotonic, process_time
from typing import Any, NamedTuple

from tests.simulation.campaign import RESULTS, revision
from tests.simulation.raft_faults import END_MS, Run, run_seed
from tests.simulation.raft_options import FAULTS

CHUNK = 50
FIRST_OF_CAMPAIGN = 1_000_000
KINDS = tuple(dict.fromkeys(FAULTS))


class Outcome(NamedTuple):
    totals: Counter[str]
    failed: list[int]
    cpu_s: float


def replay(seed: int) -> int:
    """Tells the story of one seed."""
    story: list[str] = []
    try:
        run = run_seed(seed, story=story)
    except Exception as error:
        print("\n".join(story))
        traceback.print_exc()
        print(f"seed {seed}: {error}", file=sys.stderr)
        return 1
    print("\n".join(story))
    print(f"seed {seed}: {run.committed} records committed in {run.epochs} epochs, {run.counts}")
    return 0


def run_chunk(seeds: tuple[int, int]) -> Outcome:
    totals: Counter[str] = Counter()
    failed: list[int] = []
    began_s = process_time()
    for seed in range(*seeds):
        try:
            totals.update(measures(run_seed(seed)))
        except Exception as error:
            failed.append(seed)
            print(f"\nFAILED: seed {seed}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
    return Outcome(totals, failed, process_time() - began_s)


def run_many(first: int, end: int, workers: int) -> Outcome:
    """What happened in all of them together, and the seeds that failed."""
    chunks = [(at, min(at + CHUNK, end)) for at in range(first, end, CHUNK)]
    totals: Counter[str] = Counter()
    failed: list[int] = []
    cpu_s, done, began_s = 0.0, 0, monotonic()
    with multiprocessing.Pool(workers) as pool:
        for outcome in pool.imap_unordered(run_chunk, chunks):
            totals.update(outcome.totals)
            failed += outcome.failed
            cpu_s += outcome.cpu_s
            done += 1
            left_s = (monotonic() - began_s) / done * (len(chunks) - done)
            print(f"\r{done} of {len(chunks)} chunks, {len(failed)} failed, {left_s:.0f} s left   ", end="", flush=True)
    print()
    return Outcome(totals, sorted(failed), cpu_s)


def measures(run: Run) -> dict[str, int]:
    """What of a run is added up."""
    return {
        **run.counts,
        "seeds": 1,
        "events": run.events,
        "committed": run.committed,
        "acknowledged": run.acknowledged,
        "epochs": run.epochs,
    }


# --- results ----------------------------------------------------------------------------------------------------------


def load() -> list[dict[str, Any]]:
    path = RESULTS / "raft-simulation.json"
    found: list[dict[str, Any]] = json.loads(path.read_text()) if path.exists() else []
    return found


def record(slices: list[dict[str, Any]]) -> None:
    (RESULTS / "raft-simulation.json").write_text(json.dumps(slices, indent=1) + "\n")
    (RESULTS / "raft-simulation.md").write_text(page(slices))


def page(slices: list[dict[str, Any]]) -> str:
    """The results for people."""
    rows = []
    every = Counter[str]()
    for each in slices:
        totals = each["totals"]
        every.update(totals)
        rows.append(
            f"| {each['first']:,} – {each['end'] - 1:,} | {totals['events']:,} | {totals['epochs']:,} "
            f"| {totals['committed']:,} | {sum(totals.get(kind, 0) for kind in KINDS):,} | {len(each['failed'])} "
            f"| {each['date']} | {each['revision']} |"
        )
    failures = sum(len(each["failed"]) for each in slices)
    cpu_s = sum(each["cpu_s"] for each in slices)
    faults = ", ".join(f"{every[kind]:,} × {kind}" for kind in KINDS)
    worlds, hours = every["seeds"], every["seeds"] * END_MS / 3_600_000
    rate = every["events"] / max(1, cpu_s)
    speed = f"{1000 * cpu_s / max(1, worlds):.0f} ms of one core per world, {rate:,.0f} events/s/core"
    return f"""# The metadata quorum in the simulator

Worlds of one to seven raft cores (`penstock.raft`) on a heap with virtual time, 60 seconds each: messages
are lost, doubled, late and out of order, links cut in one direction or both, machines lose power and what they had not
synced, stop for a while, have clocks that run wrong, come back with an empty disk; voters are added, removed and
changed, snapshots taken and fetched (`tests/simulation/raft_world.py`). After every event the invariants of the quorum
are looked at (`tests/simulation/raft_checks.py`); in the end all replicas must have all that was committed.

| Seeds | Events | Epochs led | Records committed | Faults | Failed | Date | Revision |
|---|--:|--:|--:|--:|--:|---|---|
{chr(10).join(rows)}

Together: {worlds:,} worlds, {hours:,.0f} virtual hours, {every["events"]:,} events, {failures} failed; {faults}.
{speed}, Python {platform.python_version()}.
No failure in n worlds means, at 95 %, fewer than 3 in n.

`./dev simulate-raft` adds to this table; `python -m tests.simulation.raft SEED` replays a world. That each rule is
needed, and its absence noticed, is shown in [raft-mutants.md](raft-mutants.md).
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("first", help="a seed, or next")
    parser.add_argument("end", type=int, nargs="?", help="the end of the seeds; after next, how many")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--record", action="store_true")
    arguments = parser.parse_args()
    if arguments.end is None:
        return replay(int(arguments.first))
    slices = load()
    if arguments.first == "next":
        first = max([FIRST_OF_CAMPAIGN, *(each["end"] for each in slices)])
        end = first + arguments.end
    else:
        first, end = int(arguments.first), arguments.end
    totals, failed, cpu_s = run_many(first, end, arguments.workers)
    print(f"{totals['seeds']} worlds kept their promises, {len(failed)} did not: {failed or 'none'}; {dict(totals)}")
    print(f"{cpu_s:.0f} s of one core, {1000 * cpu_s / (end - first):.0f} ms per world")
    if arguments.record:
        today = datetime.date.today().isoformat()
        slices.append(
            {
                "first": first,
                "end": end,
                "failed": failed,
                "totals": dict(sorted(totals.items())),
                "cpu_s": round(cpu_s),
                "date": today,
                "revision": revision(),
            }
        )
        record(slices)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
