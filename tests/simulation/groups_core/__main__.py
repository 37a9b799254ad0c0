"""Worlds of groups by seed: `python -m tests.simulation.groups_core --help`."""

import sys

from tests.simulation.groups_core.faults import END_MS, Run, run_seed
from tests.simulation.groups_core.options import FAULTS
from tests.simulation.kit import campaign

ABOUT = """\
Worlds of group coordinators (`penstock.coordinator`) on three brokers and of simulated consumers, classic ones (eager,
cooperative, static) and those of KIP-848, also mixed in one group, on a heap with virtual time, 60 seconds each:
coordinators move, crash, stand still and go on without knowing that another leads; what was not committed is lost; the
log is compacted to its very end, refuses, or cannot be read; requests and answers are lost, late and doubled; consumers
are killed, lost in thought, slow to give up, leave, and come back (`tests/simulation/groups_core/world.py`). After
every event the invariants are looked at (`tests/simulation/groups_core/checks.py`); in the end every partition is read
by exactly one member."""


def measures(run: Run) -> dict[str, int]:
    return {"events": run.events, "batches": run.batches, "acknowledged": run.acknowledged}


def summary(run: Run) -> str:
    return f"{run.batches} batches, {run.acknowledged} offsets acknowledged"


KIND = campaign.Kind(
    name="group",
    program="tests.simulation.groups_core",
    run_seed=run_seed,
    measures=measures,
    summary=summary,
    columns=(("Events", "events"), ("Batches decided", "batches"), ("Offsets acknowledged", "acknowledged")),
    faults=(*dict.fromkeys(FAULTS), "outage"),
    virtual_s=int(END_MS) // 1000,
    title="Groups in the simulator",
    about=ABOUT,
    mutants="group-mutants.md",
    cores=("coordinator",),
)

if __name__ == "__main__":
    sys.exit(campaign.main(KIND))
