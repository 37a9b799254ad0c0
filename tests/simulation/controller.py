"""Worlds of controller cores by seed: replays one, runs many, adds to the results.

    python -m tests.simulation.controller 42                   what happened in the world of seed 42, batch by batch
    python -m tests.simulation.controller 0 10000              many worlds; a line for each that fails
    python -m tests.simulation.controller 0 10000 --record     the same, added to docs/results/controller-simulation.md

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
from time import process_time
from typing import Any, NamedTuple

from tests.simulation.campaign import RESULTS, revision
from tests.simulation.controller_faults import END_MS, run_seed
from tests.simulation.controller_options import FAULTS

CHUNK = 50
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
    print(f"seed {seed}: {run.batches} batches, {run.acknowledged} records acknowledged, {run.counts}")
    return 0


def run_chunk(seeds: tuple[int, int]) -> Outcome:
    totals: Counter[str] = Counter()
    failed: list[int] = []
    began_s = process_time()
    for seed in range(*seeds):
        try:
            run = run_seed(seed)
        except Exception as error:
            failed.append(seed)
            print(f"\nFAILED: seed {seed}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        else:
            numbers = {"events": run.events, "batches": run.batches, "acknowledged": run.acknowledged}
            totals.update({**run.counts, **numbers, "seeds": 1})
    return Outcome(totals, failed, process_time() - began_s)


def run_many(first: int, end: int, workers: int) -> Outcome:
    """What happened in all of them together, and the seeds that failed."""
    totals: Counter[str] = Counter()
    failed: list[int] = []
    cpu_s = 0.0
    with multiprocessing.Pool(workers) as pool:
        chunks = [(at, min(at + CHUNK, end)) for at in range(first, end, CHUNK)]
        for outcome in pool.imap_unordered(run_chunk, chunks):
            totals.update(outcome.totals)
            failed += outcome.failed
            cpu_s += outcome.cpu_s
    return Outcome(totals, sorted(failed), cpu_s)


# --- results ----------------------------------------------------------------------------------------------------------


def record(first: int, end: int, outcome: Outcome) -> None:
    path = RESULTS / "controller-simulation.json"
    slices: list[dict[str, Any]] = json.loads(path.read_text()) if path.exists() else []
    slices.append(
        {
            "first": first,
            "end": end,
            "failed": outcome.failed,
            "totals": dict(sorted(outcome.totals.items())),
            "cpu_s": round(outcome.cpu_s),
            "date": datetime.date.today().isoformat(),
            "revision": revision(),
        }
    )
    path.write_text(json.dumps(slices, indent=1) + "\n")
    path.with_suffix(".md").write_text(page(slices))


def page(slices: list[dict[str, Any]]) -> str:
    """The results for people."""
    rows = []
    every = Counter[str]()
    for each in slices:
        totals = each["totals"]
        every.update(totals)
        rows.append(
            f"| {each['first']:,} – {each['end'] - 1:,} | {totals['events']:,} | {totals['batches']:,} "
            f"| {totals['acknowledged']:,} | {sum(totals.get(kind, 0) for kind in KINDS):,} | {len(each['failed'])} "
            f"| {each['date']} | {each['revision']} |"
        )
    cpu_s = sum(each["cpu_s"] for each in slices)
    worlds, hours = every["seeds"], every["seeds"] * END_MS / 3_600_000
    faults = ", ".join(f"{every[kind]:,} × {kind}" for kind in KINDS)
    rate = every["events"] / max(1, cpu_s)
    speed = f"{1000 * cpu_s / max(1, worlds):.0f} ms of one core per world, {rate:,.0f} events/s/core"
    return f"""# The controller in the simulator

Worlds of controller cores (`penstock.metadata`) and three to seven simulated brokers on a heap with virtual time, 60
seconds each: controllers stand still and are replaced, brokers crash with and without loss, stall, are cut off, shut
down, join and leave; topics come and go, partitions move, settings change (`tests/simulation/controller_world.py`).
After every batch of the metadata log the invariants are looked at (`tests/simulation/controller_checks.py`); in the end
every partition is led by its first replica and in sync everywhere, with every record that was ever acknowledged.

| Seeds | Events | Batches decided | Records acknowledged | Faults | Failed | Date | Revision |
|---|--:|--:|--:|--:|--:|---|---|
{chr(10).join(rows)}

Together: {worlds:,} worlds, {hours:,.0f} virtual hours, {every["events"]:,} events; {faults}.
{speed}, Python {platform.python_version()}.
No failure in n worlds means, at 95 %, fewer than 3 in n.

`python -m tests.simulation.controller SEED` replays a world. That each rule is needed, and its absence noticed, is
shown in [controller-mutants.md](controller-mutants.md).
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("first", type=int)
    parser.add_argument("end", type=int, nargs="?")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--record", action="store_true")
    arguments = parser.parse_args()
    if arguments.end is None:
        return replay(arguments.first)
    outcome = run_many(arguments.first, arguments.end, arguments.workers)
    print(f"{outcome.totals['seeds']} worlds kept their promises, {len(outcome.failed)} did not: {outcome.failed}")
    print(f"{dict(outcome.totals)}; {outcome.cpu_s:.0f} s of one core")
    if arguments.record:
        record(arguments.first, arguments.end, outcome)
    return 1 if outcome.failed else 0


if __name__ == "__main__":
    sys.exit(main())
