"""Worlds of four whole servers with moves, retention, lost disks, bit rot and duplicates by seed.

`python -m tests.simulation.replicating_servers.upheavals --help`.
"""

import sys

from tests.simulation.kit import campaign
from tests.simulation.replicating_servers.measures import measures, summary
from tests.simulation.replicating_servers.upheaval_world import DUPLICATES, EXPIRED, LOST_DISKS, MOVES, ROT, run_seed
from tests.simulation.replicating_servers.world import END_S, FAILED, FULL
from tests.simulation.three_servers.world import FAULTS

ABOUT = """\
The worlds of three whole servers with replicas ([replicas-simulation.md](replicas-simulation.md)) with a fourth broker,
in which more happens (`tests/simulation/replicating_servers/upheaval_world.py`): an operator moves partitions between
brokers; retention deletes records; the fourth broker is started from scratch on an empty disk; a bit flips in what a
node has on stable storage; requests to brokers are delivered twice, late, on another connection; topics have
durability=replicated. All promises of those worlds must hold; at most one copy is lost in each."""

KIND = campaign.Kind(
    name="upheavals",
    program="tests.simulation.replicating_servers.upheavals",
    run_seed=run_seed,
    measures=measures,
    summary=summary,
    columns=(
        ("Events", "events"),
        ("Epochs", "epochs"),
        ("Records acknowledged", "acknowledged"),
        ("Logs cut", "cuts"),
    ),
    faults=(FAULTS, "power cuts of all nodes at once", FULL, FAILED, MOVES, EXPIRED, LOST_DISKS, ROT, DUPLICATES),
    virtual_s=int(END_S),
    title="Four whole servers with moves, retention, lost disks, bit rot and duplicates in the simulator",
    about=ABOUT,
    mutants="replication-mutants.md",
    cores=("server", "replication"),
)

if __name__ == "__main__":
    sys.exit(campaign.main(KIND))
