"""Campaigns of worlds of cores, by seed: replay one world, run many, record the results.

    PROGRAM 42                          prints the events of the world of seed 42
    PROGRAM 0 10000                     many worlds; a line for each that fails
    PROGRAM next 10000 --record         seeds that no recorded run has used, added to docs/results
    PROGRAM next 10000 --record --minutes 20 --workers 1 --pause-while FILE
                                        as many as fit into the time; while FILE exists, it waits

A campaign may be collected in any number of runs; each is one slice of the results. The exit code is 0 if all
invariants held. Add a seed that failed to tests/simulation/kit/regressions.txt.
"""

import argparse
import datetime
import gc
import json
import multiprocessing
import platform
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import accumulate, groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from tests.code_digest import SOURCES, code_digest
from tests.revision import revision
from tests.simulation.kit.results import RESULTS

CHUNK = 50
FIRST_OF_CAMPAIGN = 1_000_000
POLL_S = 2.0


class Kind(NamedTuple):
    """One kind of world."""

    name: str
    """The name in `./dev simulate` and in regressions.txt."""
    program: str
    """The module to run to replay a seed."""
    run_seed: Callable[..., Any]
    measures: Callable[[Any], dict[str, int]]
    """The measures of a run that are summed up, besides the counts of faults."""
    summary: Callable[[Any], str]
    columns: tuple[tuple[str, str], ...]
    """Column headings of the page, each with its measure."""
    faults: tuple[str, ...]
    virtual_s: int
    title: str
    about: str
    mutants: str
    """The page of the mutants that these worlds catch."""
    cores: tuple[str, ...] = ("raft", "metadata")
    """The rooms under test."""


class Outcome(NamedTuple):
    totals: Counter[str]
    failed: list[int]
    cpu_s: float


class Job(NamedTuple):
    kind: Kind
    first: int
    end: int
    pause_while: Path | None


def run_chunk(job: Job) -> Outcome:
    totals: Counter[str] = Counter()
    failed: list[int] = []
    began_s = time.process_time()
    for seed in range(job.first, job.end):
        while job.pause_while is not None and job.pause_while.exists():
            time.sleep(POLL_S)
        try:
            run = job.kind.run_seed(seed)
            totals.update({**run.counts, **job.kind.measures(run), "seeds": 1})
        except Exception as error:
            failed.append(seed)
            print(f"\nFAILED: seed {seed}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
    return Outcome(totals, failed, time.process_time() - began_s)


def run_many(kind: Kind, first: int, end: int, options: argparse.Namespace) -> tuple[Outcome, int]:
    """Runs the seeds; returns the combined outcome and the end of the seeds for which the time sufficed."""
    jobs = [Job(kind, at, min(at + CHUNK, end), options.pause_while) for at in range(first, end, CHUNK)]
    totals: Counter[str] = Counter()
    failed: list[int] = []
    cpu_s, began_s = 0.0, time.monotonic()
    done = first
    for job, outcome in zip(jobs, outcomes_of(jobs, options.workers), strict=True):
        totals.update(outcome.totals)
        failed += outcome.failed
        cpu_s += outcome.cpu_s
        done = job.end
        passed_s = time.monotonic() - began_s
        left_s = passed_s / (done - first) * (end - done)
        print(f"\r{done - first} of {end - first}, {len(failed)} failed, {left_s:.0f} s left   ", end="", flush=True)
        if options.minutes is not None and passed_s > 60 * options.minutes:
            break
    print()
    return Outcome(totals, failed, cpu_s), done


def outcomes_of(jobs: list[Job], workers: int) -> Iterator[Outcome]:
    """Yields the outcomes in order, so that a run that is stopped covers all seeds up to one."""
    if workers == 1:
        yield from map(run_chunk, jobs)
        return
    with multiprocessing.Pool(workers) as pool:
        yield from pool.imap(run_chunk, jobs)


def replay(kind: Kind, seed: int) -> int:
    """Prints the story of one seed."""
    story: list[str] = []
    try:
        run = kind.run_seed(seed, story=story)
    except Exception as error:
        print("\n".join(story))
        traceback.print_exc()
        print(f"seed {seed}: {error}", file=sys.stderr)
        return 1
    print("\n".join(story))
    print(f"seed {seed}: {kind.summary(run)}, {run.counts}")
    return 0


# --- results ----------------------------------------------------------------------------------------------------------


def results_of(kind: Kind) -> Path:
    return RESULTS / f"{kind.name}-simulation.json"


def load(kind: Kind) -> list[dict[str, Any]]:
    path = results_of(kind)
    found: list[dict[str, Any]] = json.loads(path.read_text()) if path.exists() else []
    return found


def record(kind: Kind, first: int, end: int, outcome: Outcome) -> None:
    slices = load(kind)
    slices.append(
        {
            "first": first,
            "end": end,
            "failed": outcome.failed,
            "totals": dict(sorted(outcome.totals.items())),
            "cpu_s": round(outcome.cpu_s, 1),
            "date": datetime.date.today().isoformat(),
            "revision": revision(),
            "cores": cores_digest(kind),
            "is_compiled": not hasattr(kind.run_seed, "__code__"),
        }
    )
    results_of(kind).write_text(json.dumps(slices, indent=1) + "\n")
    results_of(kind).with_suffix(".md").write_text(page(kind, slices))


def cores_digest(kind: Kind) -> str:
    """The versions under test, which changes elsewhere and of docstrings leave as they are."""
    return "/".join(code_digest(SOURCES / room) for room in kind.cores)


def page(kind: Kind, slices: list[dict[str, Any]]) -> str:
    """The results page: slices of the same cores on one date share a row, up to and including a failure."""
    rows = []
    every = Counter[str]()
    failures_before = accumulate((len(each["failed"]) for each in slices), initial=0)
    keys = [(each["cores"], each["date"], before) for each, before in zip(slices, failures_before, strict=False)]
    for (cores, date, _), group in groupby(zip(keys, slices, strict=True), key=itemgetter(0)):
        some = [each for _, each in group]
        totals = Counter[str]()
        for each in some:
            totals.update(each["totals"])
        every.update(totals)
        cells = [
            f"{some[0]['first']:,} – {some[-1]['end'] - 1:,}",
            f"{totals['seeds']:,}",
            *(f"{totals[key]:,}" for _, key in kind.columns),
            f"{sum(totals[fault] for fault in kind.faults):,}",
            f"{sum(len(each['failed']) for each in some)}",
            date,
            cores,
        ]
        rows.append(f"| {' | '.join(cells)} |")
    headings = [
        "Seeds",
        "Worlds",
        *(heading for heading, _ in kind.columns),
        "Faults",
        "Failed",
        "Date",
        "/".join(kind.cores),
    ]
    rule = ["---", *("--:" for _ in headings[1:-2]), "---", "---"]
    cpu_s = sum(each["cpu_s"] for each in slices)
    worlds = every["seeds"]
    failures = sum(len(each["failed"]) for each in slices)
    compiled = sum(each["totals"]["seeds"] for each in slices if each.get("is_compiled"))
    faults = ", ".join(f"{every[fault]:,} × {fault}" for fault in kind.faults)
    speed = f"{1000 * cpu_s / max(1, worlds):.0f} ms of one core per world"
    return f"""# {kind.title}

{kind.about}

| {" | ".join(headings)} |
|{"|".join(rule)}|
{chr(10).join(rows)}

Together {worlds:,} worlds, {worlds * kind.virtual_s / 3600:,.0f} virtual hours, {every["events"]:,} events, {failures}
failed.
Faults: {faults}.
{speed}, {every["events"] / max(0.1, cpu_s):,.0f} events/s/core, Python {platform.python_version()}, 2 shared cores.
{_how(compiled)}{_why(slices)}No failure in n worlds means, at 95 %, fewer than 3 in n.
The last column identifies the code of the directories without docstrings and comments
(`python -m tests.code_digest {" ".join(kind.cores)}`; 7 digits: git's name for their contents).
Rows with the same tried the same cores.

`./dev simulate {kind.name}` adds to this table; `python -m {kind.program} SEED` replays a world. That
each rule is needed, and its absence noticed, is shown in [{kind.mutants}]({kind.mutants}).
"""


def _how(compiled: int) -> str:
    """The sentence about compiled worlds, which have the same traces as interpreted ones."""
    if not compiled:
        return ""
    return (
        f"{compiled:,} worlds ran compiled from these sources (`tests/simulation/kit/compiled.py`), "
        "which leads to the same traces.\n"
    )


def _why(slices: list[dict[str, Any]]) -> str:
    """The causes of failed worlds, entered by hand (`why` of a slice)."""
    return "".join(f"Seed {seed} failed by {why}.\n" for each in slices for seed, why in each.get("why", {}).items())


def main(kind: Kind) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("first", help="a seed, or next")
    parser.add_argument("end", type=int, nargs="?", help="the end of the seeds; after next, how many")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--minutes", type=float, help="begins nothing new after so long")
    parser.add_argument("--pause-while", type=Path, metavar="FILE", help="waits while this file exists")
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    gc.set_threshold(50_000, 20, 100)  # worlds make few cycles: no collection every 700 objects
    if options.end is None:
        return replay(kind, int(options.first))
    if options.first == "next":
        first = max([FIRST_OF_CAMPAIGN, *(each["end"] for each in load(kind))])
        end = first + options.end
    else:
        first, end = int(options.first), options.end
    outcome, end = run_many(kind, first, end, options)
    totals, failed, cpu_s = outcome
    print(f"{totals['seeds']} worlds kept their promises, {len(failed)} did not: {failed or 'none'}; {dict(totals)}")
    print(f"{cpu_s:.0f} s of one core, {1000 * cpu_s / (end - first):.0f} ms per world")
    if options.record:
        record(kind, first, end, outcome)
    return 1 if failed else 0
