"""Worlds of raft cores by seed: `python -m tests.simulation.raft_core --help`."""

import sys

from tests.simulation.kit import campaign
from tests.simulation.raft_core.faults import END_MS, Run, run_seed
from tests.simulation.raft_core.options import FAULTS

ABOUT = """Worlds of one to seven raft cores (`penstock.raft`) on a heap with virtual time, 60 seconds each: messages
are lost, doubled, late and out of order, links cut in one direction or both, machines lose power and what they had not
synced, stop for a while, have clocks that run wrong, come back with an empty disk; voters are added, removed and
changed, snapshots taken and fetched (`tests/simulation/raft_core/world.py`). A host that is no node of the cluster
sends requests of other clusters, to other voters and with epochs far ahead (`tests/simulation/raft_core/outsider.py`).
After every event the invariants of the quorum are looked at (`tests/simulation/raft_core/checks.py`); in the end all
replicas must have all that was committed."""


def measures(run: Run) -> dict[str, int]:
    return {
        "events": run.events,
        "committed": run.committed,
        "acknowledged": run.acknowledged,
        "epochs": run.epochs,
    }


def summary(run: Run) -> str:
    return f"{run.committed} records committed in {run.epochs} epochs"


KIND = campaign.Kind(
    name="raft",
    program="tests.simulation.raft_core",
    run_seed=run_seed,
    measures=measures,
    summary=summary,
    columns=(("Events", "events"), ("Epochs led", "epochs"), ("Records committed", "committed")),
    faults=tuple(dict.fromkeys(FAULTS)),
    virtual_s=int(END_MS) // 1000,
    title="The metadata quorum in the simulator",
    about=ABOUT,
    mutants="raft-mutants.md",
)

if __name__ == "__main__":
    sys.exit(campaign.main(KIND))
