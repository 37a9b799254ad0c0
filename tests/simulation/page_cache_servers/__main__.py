"""Worlds with durability=replicated by seed.

    python -m tests.simulation.page_cache_servers kills 42      prints the world of seed 42
    python -m tests.simulation.page_cache_servers wide 0 100    many worlds; a line for each that fails

The first word is `kills`, `single` or `wide`: see `page_cache_servers.world`.
"""

import argparse
import sys

from tests.simulation.page_cache_servers.world import KILLS, LOST, POWER_CUTS, SINGLE, WIDE, run_seed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("crashes", choices=(KILLS, SINGLE, WIDE))
    parser.add_argument("first", type=int)
    parser.add_argument("end", type=int, nargs="?")
    options = parser.parse_args()
    if options.end is None:
        story: list[str] = []
        try:
            print(run_seed(options.first, options.crashes, story=story))
        finally:
            print("\n".join(story))
        return 0
    failed = acknowledged = power_cuts = lost = 0
    for seed in range(options.first, options.end):
        try:
            run = run_seed(seed, options.crashes)
        except AssertionError as trouble:
            failed += 1
            print(f"seed {seed}: {trouble}", flush=True)
            continue
        acknowledged += run.acknowledged
        power_cuts += run.counts[POWER_CUTS]
        lost += run.counts[LOST]
    print(
        f"{options.end - options.first} worlds, {failed} failed; {acknowledged} records acknowledged, "
        f"{power_cuts} power cuts of single nodes, {lost} records lost and reported"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
