"""Compares Penstock with Apache Kafka and with the bare limit, on one machine, under the same load.

python -m benchmarks.side_by_side --rows produce-1,small --rounds 1 --seconds 3 --warm 5
"""

import argparse
import sys
import time
from pathlib import Path

from benchmarks.side_by_side import report
from benchmarks.side_by_side.loads import Conditions, Figures
from benchmarks.side_by_side.results import FOLDER, CannotRecord, check_recordable, load, merged, save
from benchmarks.side_by_side.rows import CONTENDERS, ROWS
from benchmarks.side_by_side.running import Plan, run_rows
from harness.machine import Cores, divided_cores


def main() -> None:
    options = _parser().parse_args()
    names = _chosen(options.rows, ROWS, "row") or list(ROWS)
    only = tuple(_chosen(options.only, CONTENDERS, "contender"))
    cores = divided_cores()
    cores = Cores(options.broker_cpus or cores.broker, options.load_cpus or cores.load)
    conditions = Conditions(cores, options.seconds, options.lead)
    plan = Plan(conditions, options.rounds, options.warm, only, options.data, options.py_spy)
    if options.record:
        try:
            check_recordable(plan)
        except CannotRecord as why:
            sys.exit(str(why))
    begun_s = time.monotonic()
    print(HEAD, flush=True)
    folder = FOLDER if options.record else options.report
    for name, measured, placed in run_rows([ROWS[each] for each in names], plan, tell):
        if folder is not None:
            save(merged(load(folder), {name: measured}, placed), folder)
    if folder is not None:
        report.write(folder)
    print(f"took {time.monotonic() - begun_s:.0f} s")


COLUMNS = (
    # title, width, key, format
    ("MB/s", 8, "mb_s", ".1f"),
    ("records/s", 11, "records_s", ",.0f"),
    ("requests/s", 10, "requests_s", ",.0f"),
    ("p50 ms", 8, "p50", ".2f"),
    ("p99 ms", 8, "p99", ".2f"),
    ("cpu", 5, "broker_cpu", ".0%"),
    ("s/GB", 7, "cpu_s_per_gb", ".2f"),
    ("load", 5, "load_cpu", ".0%"),
    ("others", 6, "others_cpu", ".0%"),
    ("RSS MB", 7, "rss_end_mb", ".0f"),
)
HEAD = f"{'row':<14} {'contender':<20} " + " ".join(f"{title:>{width}}" for title, width, _, _ in COLUMNS)


def tell(row: str, contender: str, number: int, found: Figures) -> None:
    """Prints the figures of one round."""
    del number
    shown = {**found, **(found.get("ack_ms") or found.get("answer_ms") or {})}
    cells = [
        f"{'–':>{width}}" if shown.get(key) is None else f"{shown[key]:>{width}{form}}"
        for _, width, key, form in COLUMNS
    ]
    limit = "  the load is the limit" * found["load_is_limit"]
    print(f"{row:<14} {contender:<20} {' '.join(cells)}{limit}", flush=True)


def _chosen(text: str, known: object, what: str) -> list[str]:
    names = [each for each in text.split(",") if each]
    for name in names:
        if name not in known:  # type: ignore[operator]
            sys.exit(f"there is no {what} {name}: choose from {', '.join(known)}")  # type: ignore[arg-type]
    return names


def _cpus(text: str) -> tuple[int, ...]:
    return tuple(int(each) for each in text.split(","))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.side_by_side",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rows", default="", help=f"of {', '.join(ROWS)}; all if not given")
    parser.add_argument("--only", default="", help=f"contenders, of {', '.join(CONTENDERS)}; all if not given")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=10.0, help="measured in each round")
    parser.add_argument("--lead", type=float, default=1.0, help="seconds under load before a round is measured")
    parser.add_argument("--warm", type=float, default=60.0, help="seconds under each row's load before its first round")
    parser.add_argument("--broker-cpus", type=_cpus, help="cores of the brokers, such as 0,1; half of all if not given")
    parser.add_argument("--load-cpus", type=_cpus, help="cores of the load; the other half if not given")
    parser.add_argument("--data", type=Path, help="where brokers keep their data; a temporary directory if not given")
    parser.add_argument("--py-spy", type=Path, metavar="FOLDER", help="profile Penstock's rounds into this folder")
    parser.add_argument(
        "--record", action="store_true", help="add to docs/results/side-by-side.md; committed code only"
    )
    parser.add_argument("--report", type=Path, metavar="FOLDER", help="as --record, for a look, into another folder")
    return parser


if __name__ == "__main__":
    main()
