"""A broker that is killed, or whose power fails, again and again under librdkafka's load.

    python -m tests.system.crash --count 200 --power-cuts 200 --record

Kills are SIGKILL to `penstock server` on ordinary files. Power cuts hit the same node on a lossy disk around ordinary
files, which keeps, tears or loses unsynced data. Durability is the default, `fsync`. Most crashes happen while records
are being acknowledged, some while the node starts. `--record` adds to docs/results/crashes.md.
"""

import argparse
import datetime
import json
import os
import platform
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from harness.load import Load, create_topics
from penstock.verify.report import Report
from tests.revision import revision
from tests.system.victim import CUT, ComposedVictim, Victim

RESULTS = Path(__file__).parents[2] / "docs" / "results"
KILLS, POWER_CUTS = "SIGKILL", "power cut"
TOPICS = (("orders", 4), ("clicks", 2))
SEGMENT_BYTES = 150_000
RATE = 1_200.0
PROGRESS_S = 60.0
REPLACED_EVERY = 5
DURING_START_CHANCE = 0.15


@dataclass(frozen=True)
class Outcome:
    """The result of a campaign."""

    kind: str
    crashes: int
    during_start: int
    seconds: float
    report: Report
    problems: list[str]

    @property
    def is_clean(self) -> bool:
        """Whether there was no anomaly and no problem."""
        return self.report.is_clean and not self.problems

    def text(self) -> str:
        """A summary for people."""
        counts = self.report.counts
        first = f"{self.kind}: {self.crashes} ({self.during_start} of them during a start) in {self.seconds:.0f} s"
        return "\n".join([f"{first}, {counts.records_acked:,} acknowledged", self.report.text(), *self.problems])


def run_crashes(
    directory: Path, kind: str, count: int, seed: int, *, plant: str | None = None, rate: float = RATE
) -> Outcome:
    """Crashes a broker `count` times."""
    began = time.monotonic()
    random = Random(seed)
    victim: Victim
    if kind == POWER_CUTS or plant is not None:
        victim = ComposedVictim(directory, lossy_seed=seed if kind == POWER_CUTS else None, plant=plant)
    else:
        victim = Victim(directory)
    during_start = 0
    with victim:
        victim.start()
        victim.wait_ready()
        create_topics(victim.address, TOPICS, internal_segment_bytes=str(SEGMENT_BYTES))
        with Load(victim.address, TOPICS, rate=rate, seed=seed) as load:
            for crash in range(count):
                if crash and random.random() < DURING_START_CHANCE:
                    during_start += 1
                    time.sleep(random.random() * 0.8)
                else:
                    victim.wait_ready()
                    _await_progress(victim, load)
                    if crash % REPLACED_EVERY == 1 and not _is_spoilt(victim, load):
                        load.replace_writer()
                    time.sleep(random.random() * 0.4)
                victim.end(CUT if kind == POWER_CUTS else signal.SIGKILL)
                victim.start()
                _tell(f"{kind}: {crash + 1} of {count}, {load.acked:,} acknowledged, {len(load.problems)} problems")
                if _is_spoilt(victim, load):
                    break
            victim.wait_ready()
            report = load.finish(is_spoilt=_is_spoilt(victim, load))
            problems = load.problems + victim.damages
    return Outcome(kind, crash + 1, during_start, time.monotonic() - began, report, problems)


def _await_progress(victim: Victim, load: Load) -> None:
    """Waits until the broker acknowledges, so that the next crash interrupts acknowledgements."""
    before, deadline = load.acked, time.monotonic() + PROGRESS_S
    while load.acked == before:
        if _is_spoilt(victim, load):
            return
        if time.monotonic() > deadline:
            raise AssertionError(f"nothing was acknowledged for {PROGRESS_S} s: {load.problems}, {victim.log[-2000:]}")
        time.sleep(0.01)


def _is_spoilt(victim: Victim, load: Load) -> bool:
    """Whether a problem was found already."""
    return bool(load.problems or victim.damages)


def _tell(sentence: str) -> None:
    if sys.stdout.isatty():
        print(f"\r{sentence}   ", end="", flush=True)


# --- campaigns --------------------------------------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200, help="kills")
    parser.add_argument("--power-cuts", type=int, default=200)
    parser.add_argument("--plant", help="a bug to plant first, see plants.py")
    parser.add_argument("--seed", type=int, help="of the first campaign; else one that no recorded run has taken")
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    os.nice(10)
    runs = load_runs()
    is_clean = True
    for kind, count in ((KILLS, options.count), (POWER_CUTS, options.power_cuts)):
        if not count:
            continue
        seed = options.seed if options.seed is not None else 1 + len(runs)
        with tempfile.TemporaryDirectory(prefix="penstock-crash-") as directory:
            outcome = run_crashes(Path(directory), kind, count, seed, plant=options.plant)
        print(outcome.text())
        is_clean = is_clean and outcome.is_clean
        runs.append(_row(outcome, seed))
        if options.record:
            write(runs)
    if not is_clean:
        raise SystemExit("not clean")


def _row(outcome: Outcome, seed: int) -> dict[str, Any]:
    counts = outcome.report.counts
    return {
        "kind": outcome.kind,
        "seed": seed,
        "crashes": outcome.crashes,
        "during_start": outcome.during_start,
        "acked": counts.records_acked,
        "read": counts.records_polled,
        "anomalies": sum(outcome.report.anomalies.values()),
        "problems": outcome.problems,
        "seconds": round(outcome.seconds),
        "date": datetime.date.today().isoformat(),
        "revision": revision(),
    }


def load_runs() -> list[dict[str, Any]]:
    path = RESULTS / "crashes.json"
    found: list[dict[str, Any]] = json.loads(path.read_text()) if path.exists() else []
    return found


def write(runs: list[dict[str, Any]]) -> None:
    (RESULTS / "crashes.json").write_text(json.dumps(runs, indent=1) + "\n")
    rows = [
        f"| {run['kind']} | {run['crashes']} | {run['during_start']} | {run['acked']:,} | {run['read']:,} "
        f"| {run['anomalies'] + len(run['problems'])} | {run['seconds']} | {run['date']} | {run['revision']} "
        f"| {run['seed']} |"
        for run in runs
    ]
    text = f"""# Crashes and power cuts of the real server

A node in a process of its own is crashed again and again while librdkafka works: three idempotent producers (5 requests
in flight; keyed, by partition, and as librdkafka likes), one of which is replaced by a new one after every fifth crash,
and two readers that follow six partitions by assignment and ask for their ends. Durability is the default, `fsync`;
segments are small, so that every life rolls and seals some.

- **SIGKILL**: `penstock server` on ordinary files, killed and started again at once on the same port.
- **Power cut**: the same node on a [lossy disk](../fault-model.md) around ordinary files. What was not synced is lost,
  torn by sectors or kept, names too, as the seed draws it.

Every send, acknowledgement, read and answer is checked by [`penstock.verify`](../verify.md): no acknowledged record
lost or duplicated, order kept, offsets never going back. Nor may a producer's id or epoch change (librdkafka would take
a new epoch if its sequences were forgotten), nor a start find damage. Any of that is a finding.

| Crash | Crashes | During a start | Acknowledged | Read | Findings | Seconds | Date | Revision | Seed |
|---|--:|--:|--:|--:|--:|--:|---|---|--:|
{chr(10).join(rows)}

`./dev campaign crashes --count 200 --power-cuts 200` adds to this table; Python {platform.python_version()},
2 shared cores, 24 GiB. No finding in n crashes means, at 95 %, fewer than 3 in n.
"""
    (RESULTS / "crashes.md").write_text(text)


if __name__ == "__main__":
    main()
