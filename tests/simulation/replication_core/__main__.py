"""Worlds of replicas by seed: `python -m tests.simulation.replication_core --help`."""

import sys

from tests.simulation.kit import campaign
from tests.simulation.replication_core.faults import END_MS, Run, run_seed
from tests.simulation.replication_core.options import FAULTS

ABOUT = """\
Worlds of the replicas of three to five brokers (`penstock.replication`) under the real controller, on a heap with
virtual time, 60 seconds each: messages are lost and late, links cut in one direction or both, brokers killed, without
power and what they had not synced, standing still, shutting down, behind with the metadata log; logs fail; batches have
up to five records, and DeleteRecords moves starts into the middle of them; leadership changes hands faster than
replicas follow, replicas move, controllers are replaced and go on answering
(`tests/simulation/replication_core/world.py`). After every event the invariants of replication are looked at
(`tests/simulation/replication_core/checks.py`); in the end every replica is in sync and has all that was ever
committed. In some worlds more is lost than a topic promises to survive: there nobody may lead without what is gone."""


def measures(run: Run) -> dict[str, int]:
    return {
        "events": run.events,
        "committed": run.committed,
        "acknowledged": run.acknowledged,
        "epochs": run.epochs,
    }


def summary(run: Run) -> str:
    return f"{run.committed} records committed in {run.epochs} epochs, {run.acknowledged} acknowledged"


KIND = campaign.Kind(
    name="replication",
    program="tests.simulation.replication_core",
    run_seed=run_seed,
    measures=measures,
    summary=summary,
    columns=(("Events", "events"), ("Epochs led", "epochs"), ("Records committed", "committed")),
    faults=(*dict.fromkeys(FAULTS), "failed log"),
    virtual_s=int(END_MS) // 1000,
    title="Replication in the simulator",
    about=ABOUT,
    mutants="replication-mutants.md",
    cores=("replication", "metadata"),
)

if __name__ == "__main__":
    sys.exit(campaign.main(KIND))
