"""Long campaigns of random log histories, collected in any number of runs.

    python -m tests.simulation.log.campaign                     20,000 power-cut histories, 20,000 flips and the rest
    python -m tests.simulation.log.campaign --count 2000 --record

Every run uses seeds that no recorded run has used. `--record` adds the run to docs/results/power-cuts.md. A seed that
fails is printed; add it to tests/simulation/kit/regressions.txt.
"""

import argparse
import datetime
import json
import multiprocessing
import platform
import sys
import traceback
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import Any, NamedTuple

from penstock.log.settings import Durability
from tests.revision import revision
from tests.simulation.kit.results import RESULTS
from tests.simulation.log.faults import run_failing_syncs, run_flip, run_full_disk
from tests.simulation.log.histories import run_history
from tests.simulation.log.overlaps import run_overlaps

KINDS: dict[str, tuple[Callable[[int], object], float]] = {
    "power cuts, fsync": (partial(run_history, durability=Durability.FSYNC), 1.0),
    "power cuts, replicated": (partial(run_history, durability=Durability.REPLICATED), 1.0),
    "bit flips": (run_flip, 1.0),
    "failing syncs": (run_failing_syncs, 0.25),
    "full disk": (run_full_disk, 0.25),
    "overlapping operations": (run_overlaps, 1.0),
}
CHUNK = 100


class Outcome(NamedTuple):
    histories: int
    cuts: int
    failed: list[int]


def run_chunk(job: tuple[str, int, int]) -> Outcome:
    kind, first, count = job
    run = KINDS[kind][0]
    cuts, failed = 0, []
    for seed in range(first, first + count):
        try:
            found = run(seed)
            cuts += found if kind.startswith(("power", "overlap")) and isinstance(found, int) else 0
        except Exception:
            traceback.print_exc()
            print(f"FAILED: {kind}, seed {seed}", file=sys.stderr, flush=True)
            failed.append(seed)
    return Outcome(count, cuts, failed)


def run_kind(kind: str, first: int, count: int, workers: int) -> tuple[Outcome, float]:
    started = monotonic()
    jobs = [(kind, at, min(CHUNK, first + count - at)) for at in range(first, first + count, CHUNK)]
    done, cuts, failed = 0, 0, []
    with multiprocessing.Pool(workers) as pool:
        for outcome in pool.imap_unordered(run_chunk, jobs):
            done += outcome.histories
            cuts += outcome.cuts
            failed += outcome.failed
            rate = done / (monotonic() - started)
            left = (count - done) / rate
            print(f"\r{kind}: {done:,} of {count:,}, {len(failed)} failed, {left:.0f} s left   ", end="", flush=True)
    print()
    return Outcome(done, cuts, sorted(failed)), monotonic() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20_000, help="histories of each kind of power cut")
    parser.add_argument("--kind", choices=KINDS, action="append", help="only this kind; may be repeated")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    runs = load()
    commit = revision()
    failed = 0
    for kind, (_, share) in KINDS.items():
        if options.kind and kind not in options.kind:
            continue
        first = 1_000_000 + sum(run["histories"] for run in runs if run["kind"] == kind)
        outcome, seconds = run_kind(kind, first, int(options.count * share), options.workers)
        failed += len(outcome.failed)
        runs.append(
            {
                "kind": kind,
                "first_seed": first,
                "histories": outcome.histories,
                "cuts": outcome.cuts,
                "failed": outcome.failed,
                "seconds": round(seconds),
                "date": datetime.date.today().isoformat(),
                "revision": commit,
            }
        )
    if options.record:
        write(runs)
    if failed:
        raise SystemExit(f"{failed} histories failed")


def load() -> list[dict[str, Any]]:
    path = RESULTS / "power-cuts.json"
    found: list[dict[str, Any]] = json.loads(path.read_text()) if path.exists() else []
    return found


def write(runs: list[dict[str, Any]]) -> None:
    (RESULTS / "power-cuts.json").write_text(json.dumps(runs, indent=1) + "\n")
    rows = []
    for kind in KINDS:
        mine = [run for run in runs if run["kind"] == kind]
        histories, cuts = sum(r["histories"] for r in mine), sum(r["cuts"] for r in mine)
        failures = sum(len(r["failed"]) for r in mine)
        last = max((at for at, run in enumerate(mine) if run["failed"]), default=-1)
        since = sum(run["histories"] for run in mine[last + 1 :])
        if not mine:
            continue
        newest = mine[-1]
        row = (
            f"| {kind} | {histories:,} | {cuts:,} | {failures} | {since:,} | {newest['date']} | {newest['revision']} |"
        )
        rows.append(row)
    text = f"""# Power cuts, flipped bits, failing syncs, full disks

Random lives of a log on a lossy disk, held against a plain Python list (`tests/simulation/log/histories.py`): appends,
commits, rolls, truncations, deletions, clean and unclean ends; the power goes at any wait for the disk, also during
recovery. What must hold: nothing acknowledged is lost (in `fsync` mode), never a hole, a duplicate offset or a wrong
byte (in both); a failed sync takes the log offline; a flipped bit anywhere is noticed and never taken for a torn tail.

Overlapping operations (`tests/simulation/log/overlaps.py`): up to three logs of a directory; group commit beside one
operation that holds upkeep's lock (sealing, deletion, replacement, truncation, restart at an offset, removal) and one
that does not (creation, keeping room), beside appends and readers. Kills, power cuts, failing syncs and flipped bits
come at any wait. The column counts kills and power cuts together there.

| Kind | Histories | Power cuts | Failed | Since a run with failures | Last run | Revision |
|---|--:|--:|--:|--:|---|---|
{chr(10).join(rows)}

`./dev simulate power-cuts` adds to this table; Python {platform.python_version()}, 2 shared cores, 24 GiB.
No failure in n histories means, at 95 %, fewer than 3 in n.
"""
    (RESULTS / "power-cuts.md").write_text(text)


if __name__ == "__main__":
    main()
