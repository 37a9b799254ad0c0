"""Benchmarks of consumer groups, beside Apache Kafka: commits, loading, rebalances, scaling, and Kafka's own tool.

python -m benchmarks.groups                                  everything (half an hour)
python -m benchmarks.groups --rows commits,reload --record   adds to docs/results/groups.md
python -m benchmarks.groups --rows stable --rounds 1 --members 10 --seconds 3
"""

import argparse
import dataclasses
import sys
import time

from benchmarks.groups import results
from benchmarks.groups.rows import ROWS, Figures, Sizes
from benchmarks.side_by_side.brokers import Kafka, Penstock
from benchmarks.side_by_side.results import CannotRecord


def tell(row: str, contender: str, found: Figures) -> None:
    """Prints the figures of one round."""
    cells = [f"{name}={value:,.2f}" if isinstance(value, float) else f"{name}={value}" for name, value in found.items()]
    print(f"{row:<36} {contender:<10} {'  '.join(cells)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default=",".join(ROWS), help="some of: %(default)s")
    for each in dataclasses.fields(Sizes):
        kind = type(each.default)
        parser.add_argument(f"--{each.name.replace('_', '-')}", type=kind, default=each.default, metavar="N")
    parser.add_argument("--record", action="store_true", help="keep the figures; takes committed code only")
    options = vars(parser.parse_args())
    rows, is_recorded = options.pop("rows").split(","), options.pop("record")
    for row in rows:
        if row not in ROWS:
            sys.exit(f"there is no row {row}: choose from {', '.join(ROWS)}")
    if is_recorded:
        try:
            results.check_recordable()
        except CannotRecord as why:
            sys.exit(str(why))
    began_s = time.monotonic()
    for row in rows:
        found = ROWS[row](Sizes(**options), tell)
        if is_recorded:
            results.record(row, found, {"penstock": Penstock.version, "kafka": Kafka.known_version()})
    print(f"took {time.monotonic() - began_s:.0f} s")


if __name__ == "__main__":
    main()
