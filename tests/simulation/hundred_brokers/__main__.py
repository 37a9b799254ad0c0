"""A hundred brokers in virtual time: events, how long they take, and what they cost the controller.

    python -m tests.simulation.hundred_brokers                                 100 brokers, 100,000 partitions (minutes)
    python -m tests.simulation.hundred_brokers --brokers 30 --partitions 3000  a smaller one
    python -m tests.simulation.hundred_brokers --record                        adds to docs/results/big-cluster.md

Brokers register, topics are created, the cluster idles for a while; then a process is killed, a rack loses its power
and gets it back, the active controller dies, the brokers of a rack are restarted one by one, and one is decommissioned.
After each of these every partition must have a leader and all its replicas in sync again; in a rolling restart and
while a broker is emptied no partition may be without a leader at any time. In the end a reader of the whole metadata
log must have the controller's image.
"""

import argparse
import json
import sys
from time import process_time

from tests.simulation.hundred_brokers.story import Story, found, load, write


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--brokers", type=int, default=100)
    parser.add_argument("--partitions", type=int, default=100_000)
    parser.add_argument("--racks", type=int, default=5)
    parser.add_argument("--restarts", type=int, default=20, help="how many brokers are restarted in turn")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    began_s = process_time()
    story = Story(
        options.brokers,
        options.partitions,
        options.racks,
        options.restarts,
        options.seed,
        says=lambda row: print(f"{process_time() - began_s:6.1f} s {row}", flush=True),
    )
    story.tell()
    run = found(story, process_time() - began_s)
    print(json.dumps({name: value for name, value in run.items() if name != "phases"}))
    if options.record:
        write([*load(), run])
    return 0


if __name__ == "__main__":
    sys.exit(main())
