"""Compares the working tree with an earlier revision, under the same load, in one run.

    python -m benchmarks.side_by_side.against ab9dc8b --rows produce-16,small-16,consume-16 --rounds 7 --record

Both brokers run on the same cores and are measured in turn, in alternating order. A round compares two consecutive
measurements, so noise that lasts longer than a round cancels out. The figure is the median of the rounds' ratios: below
1 the working tree uses less.
"""

import argparse
import datetime
import json
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from benchmarks.side_by_side.brokers import Broker, Penstock
from benchmarks.side_by_side.loads import Conditions, Figures, Latency
from benchmarks.side_by_side.replicated import ReplicatedPaced
from benchmarks.side_by_side.results import FOLDER, CannotRecord, rounded
from benchmarks.side_by_side.rows import CONTENDERS, ROWS, Row
from benchmarks.side_by_side.trios import PenstockTrio
from harness import machine
from harness.machine import ROOT, divided_cores

FILE = "before-after.json"
PAGE = "before-after.md"
WARM_S = 3.0
CPU = "cpu_s_per_gb"
Pair = tuple[Figures, Figures]
"""The figures of one round: before, after."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """A figure of the working tree, divided by that of the earlier revision."""

    middle: float
    least: float
    most: float

    @classmethod
    def of(cls, pairs: Sequence[Pair], key: str, share: str | None = None) -> "Ratio | None":
        """The median over all rounds, with the quartiles, or with the least and the most if there are few rounds."""
        found = []
        for before, after in pairs:
            values = [_figure(each, key, share) for each in (before, after)]
            if values[0] and values[1] is not None:
                found.append(values[1] / values[0])
        if not found:
            return None
        ends = quantiles(found, n=4) if len(found) > 3 else [min(found), 0.0, max(found)]
        return cls(median(found), ends[0], ends[2])

    def __str__(self) -> str:
        return f"{self.middle:.3f} ({self.least:.3f} – {self.most:.3f})"


def _figure(figures: Figures, key: str, share: str | None) -> float | None:
    value = figures.get(key)
    if share is not None and value is not None:
        value = value.get(share)
    return None if value is None else float(value)


def export(revision: str, folder: Path) -> Path:
    """Exports the package's sources at a revision, and returns the folder to import from."""
    archive = subprocess.run(["git", "archive", revision, "src"], cwd=ROOT, capture_output=True, check=True).stdout
    folder.mkdir()
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive, check=True)
    return folder / "src"


def broker(row: Row, contender: str, directory: Path, sources: Path | None = None) -> Penstock | PenstockTrio:
    """One side of the comparison: one broker or three."""
    cores = divided_cores()
    cpus = tuple(sorted({*cores.broker, *cores.load})) if row.is_on_all_cores else cores.broker
    if CONTENDERS[contender].broker == PenstockTrio.name:
        return PenstockTrio(directory, cpus, sources)
    return Penstock(directory, cpus, sources=sources)


def compare(row: Row, contender: str, brokers: tuple[Broker, Broker], conditions: Conditions, rounds: int) -> Any:
    """Runs all rounds of one row and contender; returns pairs of figures, earlier revision first."""
    settings = CONTENDERS[contender].settings
    first, second = works = row.work(), row.work()
    first.prepare([(broker, settings) for broker in brokers], conditions)
    if isinstance(first, Latency | ReplicatedPaced) and isinstance(second, Latency | ReplicatedPaced):
        second.rate = first.rate
    pairs: list[Pair] = []
    try:
        for work, broker in zip(works, brokers, strict=True):
            work.measure(broker, settings, Conditions(conditions.cores, WARM_S, 0.5))
        for number in range(rounds):
            found: dict[int, Figures] = {}
            for which in (0, 1) if number % 2 == 0 else (1, 0):
                found[which] = works[which].measure(brokers[which], settings, conditions)
            pairs.append((found[0], found[1]))
            cpu = [each.get(CPU) or float("nan") for each in pairs[-1]]
            print(f"{row.name:<14} {contender:<20} {cpu[0]:8.3f} {cpu[1]:8.3f} {cpu[1] / cpu[0]:7.3f}", flush=True)
    finally:
        for work in works:
            work.forget()
    return pairs


def line(place: str, kept: Mapping[str, Any]) -> str:
    """A line of the page; `place` has the name of the row, the contender and the earlier revision, between slashes."""
    name, contender, _revision = place.split("/")
    pairs = [(before, after) for before, after in kept["pairs"]]
    p50, p99 = (Ratio.of(pairs, "ack_ms", each) or Ratio.of(pairs, "answer_ms", each) for each in ("p50", "p99"))
    cells = [
        name,
        CONTENDERS[contender].title,
        str(Ratio.of(pairs, CPU) or "–"),
        str(Ratio.of(pairs, "mb_s") or "–"),
        str(p50 or "–"),
        str(p99 or "–"),
        str(len(pairs)),
        kept["before"],
        kept["after"],
        kept["date"],
    ]
    return "| " + " | ".join(cells) + " |"


def write_page(folder: Path, kept: Mapping[str, Any]) -> None:
    """Writes the page from all recorded figures, of which there must be some."""
    last = list(kept.values())[-1]
    lines = [
        "# One revision beside another",
        "",
        "Each row compares two revisions of Penstock under one load, measured in turn on the same cores. A ratio is",
        "the newer revision's figure divided by the older one's: the median of all rounds, and in brackets the middle",
        "half of them. Loads are those of [side-by-side.md](side-by-side.md).",
        "",
        "| Row | Contender | CPU per GB | MB/s | p50 | p99 | Rounds | Before | After | Date |",
        "|---|---|--:|--:|--:|--:|--:|---|---|---|",
        *(line(place, each) for place, each in kept.items()),
        "",
        f"Machine: {', '.join(str(each) for each in last['machine'].values())}. Last command: `{last['command']}`.",
        "",
    ]
    (folder / PAGE).write_text("\n".join(lines))


def main() -> None:
    options = _parser().parse_args()
    names = options.rows.split(",")
    for name in names:
        if name not in ROWS:
            sys.exit(f"There is no row {name}: choose from {', '.join(ROWS)}.")
    after = machine.commit()
    if options.record and after.endswith("+"):
        raise SystemExit(str(CannotRecord("The sources differ from the last commit: commit them, then record.")))
    conditions = Conditions(divided_cores(), options.seconds, options.lead)
    path = FOLDER / FILE
    kept: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    print(f"{'row':<14} {'contender':<20} {'before':>8} {'after':>8} {'ratio':>7}   CPU seconds per GB", flush=True)
    with tempfile.TemporaryDirectory(prefix="against-", dir=options.data) as folder:
        sources = export(options.revision, Path(folder) / "sources")
        for name in names:
            row = ROWS[name]
            for contender in options.only.split(","):
                if contender not in row.contenders:
                    continue
                home = Path(folder) / f"{name}-{contender}"
                with (
                    broker(row, contender, home.with_suffix(".before"), sources) as old,
                    broker(row, contender, home.with_suffix(".after")) as new,
                ):
                    pairs = compare(row, contender, (old, new), conditions, options.rounds)
                place = f"{name}/{contender}/{options.revision}"
                kept.pop(place, None)
                kept[place] = {
                    "before": options.revision,
                    "after": after,
                    "date": datetime.date.today().isoformat(),
                    "machine": machine.describe(),
                    "command": "python -m benchmarks.side_by_side.against " + shlex.join(sys.argv[1:]),
                    "pairs": rounded([list(pair) for pair in pairs]),
                }
                print(line(place, kept[place]), flush=True)
                if options.record:
                    path.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
                    write_page(FOLDER, kept)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.side_by_side.against",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("revision", help="the earlier revision, as git names it")
    parser.add_argument("--rows", default="produce-16,small-16,consume-16", help=f"of {', '.join(ROWS)}")
    parser.add_argument(
        "--only", default="penstock,penstock-replicated,penstock-3", help="contenders; those a row has are run"
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=4.0, help="measured in each round, of each")
    parser.add_argument("--lead", type=float, default=0.5, help="seconds under load before a round is measured")
    parser.add_argument("--data", type=Path, help="where brokers keep their data; a temporary directory if not given")
    parser.add_argument(
        "--record", action="store_true", help=f"replace these rows of docs/results/{PAGE}; committed code only"
    )
    return parser


if __name__ == "__main__":
    main()
