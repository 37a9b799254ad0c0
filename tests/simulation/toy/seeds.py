"""Runs seeds of the toy service: `python -m tests.simulation.toy.seeds FIRST END [--twice] [--trace]`.

Prints a hash per seed (with --trace, every row of the run as well) and, on stderr, the speed. With --twice every seed
runs twice, and the exit code is 1 if any two hashes differ.
"""

import argparse
import sys
import time

from harness.toy_service import run_seed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("first", type=int)
    parser.add_argument("end", type=int)
    parser.add_argument("--twice", action="store_true")
    parser.add_argument("--trace", action="store_true")
    arguments = parser.parse_args()
    began_s = time.process_time()
    events = runs = faults = acknowledged = 0
    differing = []
    for seed in range(arguments.first, arguments.end):
        hashes = []
        for _ in range(2 if arguments.twice else 1):
            run = run_seed(seed, keeps_trace=arguments.trace)
            hashes.append(run.trace_hash)
            events += run.events
            faults += run.faults
            acknowledged += run.acknowledged
            runs += 1
            for row in run.rows or ():
                print(row)
        print(seed, hashes[0])
        if len(set(hashes)) > 1:
            differing.append(seed)
    took_s = time.process_time() - began_s
    print(
        f"{runs} runs, {events} events, {faults} faults, {acknowledged} acknowledged, {took_s:.1f} s of one core: "
        f"{events / took_s:,.0f} events/s, {1000 * took_s / runs:.1f} ms a run; differing: {differing or 'none'}",
        file=sys.stderr,
    )
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
