"""Worlds of controller cores by seed: `python -m tests.simulation.controller_core --help`."""

import sys

from tests.simulation.controller_core.faults import END_MS, Run, run_seed
from tests.simulation.controller_core.options import FAULTS
from tests.simulation.kit import campaign

ABOUT = """\
Worlds of controller cores (`penstock.metadata`) and three to seven simulated brokers on a heap with virtual time, 60
seconds each: controllers stand still and are replaced, brokers crash with and without loss, stall, are cut off, shut
down, have full disks, join and leave; topics come and go, partitions move, settings change
(`tests/simulation/controller_core/world.py`). After every batch of the metadata log the invariants are looked at
(`tests/simulation/controller_core/checks.py`); in the end every partition is led by its first replica and in sync
everywhere, with every record that was ever acknowledged."""


def measures(run: Run) -> dict[str, int]:
    return {"events": run.events, "batches": run.batches, "acknowledged": run.acknowledged}


def summary(run: Run) -> str:
    return f"{run.batches} batches, {run.acknowledged} records acknowledged"


KIND = campaign.Kind(
    name="controller",
    program="tests.simulation.controller_core",
    run_seed=run_seed,
    measures=measures,
    summary=summary,
    columns=(("Events", "events"), ("Batches decided", "batches"), ("Records acknowledged", "acknowledged")),
    faults=(*dict.fromkeys(FAULTS), "full disk"),
    virtual_s=int(END_MS) // 1000,
    title="The controller in the simulator",
    about=ABOUT,
    mutants="controller-mutants.md",
)

if __name__ == "__main__":
    sys.exit(campaign.main(KIND))
