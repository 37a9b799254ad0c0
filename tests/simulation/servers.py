"""Worlds of three whole servers by seed: replays one, runs many, adds to the results.

    python -m tests.simulation.servers 42                    what happened in the world of seed 42, event by event
    python -m tests.simulation.servers 0 200                 many worlds; a line for each that fails
    python -m tests.simulation.servers next 200 --record     as many that no recorded run has taken, added to
                                                             docs/results/servers-simulation.md
    ... --workers 1 --pause-while FILE                       beside other work: while FILE exists, it waits

The exit code says whether all promises were kept. A seed that failed belongs into tests/simulation/regressions.txt.
"""

import argparse
import datetime
import json
import multiprocessing
import platform
import sys
import traceback
from collections import Counter
from pathlib import Path
from time import process_time, sleep
from typing import Any, NamedTuple

from tests.simulation.campaign import RESULTS, revision
from tests.simulation.servers_world import END_S, Run, run_seed

FIRST_OF_CAMPAIGN = 1_000_000
CHUNK = 5
POLL_S = 2.0


class Outcome(NamedTuple):
    """Of several seeds."""

    totals: Counter[str]
    failed: list[int]
    cpu_s: float


def replay(seed: int) -> int:
    """Tells the story of one seed."""
    trace: list[str] = []
    try:
        run = run_seed(seed, trace)
    except Exception as error:
        print("\n".join(trace))
        traceback.print_exc()
        print(f"seed {seed}: {error}", file=sys.stderr)
        return 1
    print("\n".join(trace))
    print(f"seed {seed}: {run}")
    return 0


class Chunk(NamedTuple):
    first: int
    end: int
    pause_while: Path | None


def run_chunk(chunk: Chunk) -> Outcome:
    totals: Counter[str] = Counter()
    failed: list[int] = []
    began_s = process_time()
    for seed in range(chunk.first, chunk.end):
        while chunk.pause_while is not None and chunk.pause_while.exists():
            sleep(POLL_S)
        try:
            totals.update(measures(run_seed(seed)))
        except Exception as error:
            failed.append(seed)
            print(f"FAILED: seed {seed}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
    return Outcome(totals, failed, process_time() - began_s)


def measures(run: Run) -> dict[str, int]:
    """What of a run is added up."""
    counted = {name: value for name, value in run._asdict().items() if isinstance(value, int)}
    return {**counted, "seeds": 1}


def run_many(first: int, end: int, workers: int, pause_while: Path | None) -> Outcome:
    """What happened in all of them together, and the seeds that failed."""
    totals: Counter[str] = Counter()
    failed: list[int] = []
    cpu_s = 0.0
    chunks = [Chunk(at, min(at + CHUNK, end), pause_while) for at in range(first, end, CHUNK)]
    with multiprocessing.Pool(workers) as pool:
        for outcome in pool.imap_unordered(run_chunk, chunks):
            totals.update(outcome.totals)
            failed += outcome.failed
            cpu_s += outcome.cpu_s
    return Outcome(totals, sorted(failed), cpu_s)


# --- results ----------------------------------------------------------------------------------------------------------


def load() -> list[dict[str, Any]]:
    path = RESULTS / "servers-simulation.json"
    found: list[dict[str, Any]] = json.loads(path.read_text()) if path.exists() else []
    return found


def record(slices: list[dict[str, Any]]) -> None:
    (RESULTS / "servers-simulation.json").write_text(json.dumps(slices, indent=1) + "\n")
    (RESULTS / "servers-simulation.md").write_text(page(slices))


def page(slices: list[dict[str, Any]]) -> str:
    """The results for people."""
    rows = []
    every = Counter[str]()
    for each in slices:
        totals = each["totals"]
        every.update(totals)
        rows.append(
            f"| {each['first']:,} – {each['end'] - 1:,} | {totals['events']:,} | {totals['epochs']:,} "
            f"| {totals['made']:,} | {totals['deleted']:,} | {totals['faults']:,} | {len(each['failed'])} "
            f"| {each['date']} | {each['revision']} |"
        )
    failures = sum(len(each["failed"]) for each in slices)
    cpu_s = sum(each["cpu_s"] for each in slices)
    worlds, hours = every["seeds"], every["seeds"] * END_S / 3_600
    speed = (
        f"{cpu_s / max(1, worlds):.1f} s of one core per world, {every['events'] / max(1, cpu_s):,.0f} events/s/core"
    )
    return f"""# Three whole servers in the simulator

Three real nodes (`penstock.server.node.Node`), each broker and controller, on lossy disks and virtual time,
{END_S:.0f} seconds each, and two operators who make and delete topics through whichever node answers. Half of the time
nodes are killed, lose power, stand still, have clocks that run wrong; links are cut in one direction or both, clogged,
reset (`tests/simulation/servers_world.py`). No epoch may have two active controllers, at one offset of the log all
nodes must have the same cluster, and whatever an operator was told must last; in the end all nodes serve, agree, and
have the logs of their replicas and no others.

| Seeds | Events | Epochs | Topics made | Deleted | Faults | Failed | Date | Revision |
|---|--:|--:|--:|--:|--:|--:|---|---|
{chr(10).join(rows)}

Together: {worlds:,} worlds, {hours:,.1f} virtual hours, {every["events"]:,} events, {failures} failed. {speed},
2 shared cores, Python {platform.python_version()}. `./dev simulate-servers 200` adds to this table.
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("first", help="a seed, or `next`")
    parser.add_argument("end", type=int, nargs="?", help="the seed behind the last one; after `next`, how many")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--pause-while", type=Path, metavar="FILE", help="waits while this file exists")
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    slices = load()
    if options.first == "next":
        first = max((each["end"] for each in slices), default=FIRST_OF_CAMPAIGN)
        end = first + (options.end or 200)
    elif options.end is None:
        return replay(int(options.first))
    else:
        first, end = int(options.first), options.end
    outcome = run_many(first, end, options.workers, options.pause_while)
    print(f"{end - first} worlds, {len(outcome.failed)} failed: {outcome.failed}; {dict(outcome.totals)}")
    if options.record:
        slices.append(
            {
                "first": first,
                "end": end,
                "failed": outcome.failed,
                "totals": dict(sorted(outcome.totals.items())),
                "cpu_s": round(outcome.cpu_s, 1),
                "date": datetime.date.today().isoformat(),
                "revision": revision(),
            }
        )
        record(slices)
    return 1 if outcome.failed else 0


if __name__ == "__main__":
    sys.exit(main())
