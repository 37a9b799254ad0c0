"""Compares our Spark source with Spark's Kafka connector, in turn, in one session on one machine.

    python -m benchmarks.spark --rows read,micro-batches,splits,memory,audit [--rounds 5] [--record]

`--record` writes docs/results/spark.json and spark.md. It requires committed code, replaces the rows of this run and
leaves the others. `--scale 0.1` measures a tenth of everything, for a trial run.
"""

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.spark import auditing, memory, planning, reading, results

RECORDS = 5_000_000
SPLITS = 100_000
BATCH_BYTES = 20_000_000_000
AUDITED = 10_000_000

Measure = Callable[[Path, int, float], dict[str, Any]]
ROWS: dict[str, Measure] = {
    "read": lambda path, rounds, scale: reading.measure(path, rounds, int(RECORDS * scale)),
    "micro-batches": lambda path, rounds, _: planning.measure_micro_batches(path, rounds),
    "splits": lambda path, rounds, scale: planning.measure_splits(path, rounds, int(SPLITS * scale)),
    "memory": lambda path, _, scale: memory.measure(path, int(BATCH_BYTES * scale)),
    "audit": lambda path, _, scale: auditing.measure(path, int(AUDITED * scale)),
}


def main() -> None:
    """Measures one row after another."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default=",".join(ROWS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    if options.record:
        results.check_recordable(options.scale)
    for name in options.rows.split(","):
        print(f"# {name}", flush=True)
        with tempfile.TemporaryDirectory(prefix="penstock-spark-") as directory:
            found = ROWS[name](Path(directory), options.rounds, options.scale)
        print("\n".join(results.summary(name, found)), flush=True)
        if options.record:
            results.record(name, found)


if __name__ == "__main__":
    main()
